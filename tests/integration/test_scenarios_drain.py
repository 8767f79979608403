"""Scenarios 23 and 25.

No body starts after the drain signal; what runs may finish; the rest is handed back and costs no retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, Retry, Run, RunFailed, Snooze
from tenure.core.records import Phase
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.proxy import Proxy
from tests.support import FAST, wait_until

WORKER = """
    import asyncio, signal, sys, time
    from msgspec.structs import replace
    from tenure import App, Context, Retry
    from tests.support import FAST

    _, namespace, url, path, drain_seconds = sys.argv
    app = App(namespace, config=replace(FAST, drain_seconds=float(drain_seconds)))
    events = open(path, "a", buffering=1)

    def note(*words):
        events.write(" ".join(map(str, words)) + "\\n")

    @app.actor(retry=Retry(max_attempts=2))
    async def work(ctx: Context, seconds: float) -> int:
        note("start", ctx.key, ctx.attempt, ctx.failures)
        await asyncio.sleep(seconds)  # body:
        note("end", ctx.key, ctx.attempt)
        return ctx.attempt

    async def main():
        async with app.worker(url, concurrency=8) as worker:
            def drain():
                note("signal")
                worker.stop()

            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drain)
            print("ready", flush=True)
            await worker.run()

    asyncio.run(main())
"""


@dataclass
class Process:
    """A worker in a process of its own."""

    popen: subprocess.Popen[bytes]
    log: Path

    def events(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def saw(self, word: str) -> int:
        return sum(1 for event in self.events() if event[0] == word)

    async def ready(self) -> None:
        """It is about to pull: how long a process takes to start says how busy the machine is."""
        assert self.popen.stdout is not None
        assert await asyncio.to_thread(self.popen.stdout.readline) == b"ready\n"

    async def drain(self) -> None:
        """Nor is it this test's how long one takes to end."""
        self.popen.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(self.popen.wait) == 0


class Processes:
    """Starts worker processes; none outlives its test."""

    def __init__(self, folder: Path, namespace: str, url: str) -> None:
        self._folder, self._namespace, self._url = folder, namespace, url
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, drain_seconds: float = 5.0) -> Process:
        log = self._folder / f"worker-{len(self._started)}.log"
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(WORKER)]
        popen = subprocess.Popen(
            [*command, self._namespace, self._url, str(log), str(drain_seconds)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
        )
        self._started.append(popen)
        return Process(popen, log)

    def end(self) -> None:
        for popen in self._started:
            popen.kill()
            popen.communicate()


@pytest.fixture
def processes(tmp_path: Path, namespace: str, nats_server: str) -> Iterator[Processes]:
    processes = Processes(tmp_path, namespace, nats_server)
    yield processes
    processes.end()


def register(app: App, **options: object) -> list[tuple[str, int, int]]:
    """The same actor in this process; returns the list of (key, attempt, failures) of its bodies."""
    bodies: list[tuple[str, int, int]] = []

    @app.actor(name="work", retry=Retry(max_attempts=2), **options)  # type: ignore[call-overload]  # grace or nothing
    async def work(ctx: Context, seconds: float) -> int:
        bodies.append((ctx.key, ctx.attempt, ctx.failures))
        await asyncio.sleep(seconds)  # body: takes its time
        return ctx.attempt

    return bodies


@pytest.mark.parametrize("after", [1, 40])
async def test_scenario_23_no_body_starts_after_sigterm_and_the_rest_runs_elsewhere(
    after: int, app: App, client: Client, workers: Workers, processes: Processes
):
    """SIGTERM under load, with claims in flight.

    What had started ends, what had not is handed back and runs on another worker.
    """
    bodies = register(app)
    out = await client.submit_many([(app.actors["work"].call(0.03), f"k{n}") for n in range(120)])
    runs = [run for run in out if isinstance(run, Run)]
    process = processes.start()
    await process.ready()
    await wait_until(lambda: process.saw("start") >= after, description="bodies run")
    await process.drain()
    events = process.events()
    at = events.index(["signal"])
    assert not [event for event in events[at:] if event[0] == "start"]
    started = {event[1] for event in events if event[0] == "start"}
    assert started == {event[1] for event in events if event[0] == "end"}
    for run in runs:
        status = await run.status()
        assert status is not None
        assert (status.phase, status.failures) == ("succeeded" if run.key in started else "queued", 0)
    async with workers.run(app):
        for run in runs:
            await run.result(timeout=10)
    assert started.isdisjoint(key for key, _, _ in bodies)
    assert sorted(started | {key for key, _, _ in bodies}) == sorted(run.key for run in runs)
    assert len(started) + len(bodies) == 120


async def test_scenario_23_a_claim_in_flight_when_the_signal_comes_starts_no_body(
    app: App, client: Client, nats_server: str, workers: Workers
):
    """The claim is on its way, the drain signal comes, the claim is won.

    Handed back without a body, nothing counted.
    """
    bodies = register(app)
    async with Proxy(nats_server) as proxy:
        async with Workers(proxy.url).run(app) as running:
            claim = proxy.hold(lambda p: p.says("Tenure-State: running "))
            run = await client.submit(app.actors["work"].call(0.0), key="k")
            await claim.done.wait()
            running.worker.stop()
            await proxy.release(claim)
            await running.task
        assert running.worker.metrics.claims["work", "won"] == 1
        assert bodies == []
    status = await run.status()
    assert status is not None
    assert (status.phase, status.failures) == ("queued", 0)
    async with workers.run(app):
        assert await run.result(timeout=5) == 2
    assert bodies == [("k", 2, 0)]


async def test_scenario_23_a_claim_that_takes_longer_than_the_drain_is_waited_for_and_handed_back(
    app: App, client: Client, proxy: Proxy, behind: Workers
):
    """drain_seconds are over and no body has begun, so there is no grace: an answer may take as long as any."""
    bodies = register(app)
    app.config = replace(FAST, drain_seconds=0.01, request_timeout_seconds=15.0, ack_wait_seconds=30.0)
    async with behind.run(app) as running:
        claim = proxy.hold(lambda p: p.says("Tenure-State: running "))
        run = await client.submit(app.actors["work"].call(0.0), key="k")
        await claim.done.wait()
        running.worker.stop()
        await asyncio.wait([running.task], timeout=0.2)
        assert not running.task.done()
        await proxy.release(claim)
        await running.task
    status = await run.status()
    assert status is not None
    assert (status.phase, status.attempt, status.failures, status.holder) == ("queued", 1, 0, None)
    assert bodies == []


async def test_scenario_23_what_has_no_body_is_not_given_up_as_one(
    app: App, client: Client, proxy: Proxy, behind: Workers
):
    """The answer to its claim never comes: every body has ended all the same, and the worker's exit code is to say so."""
    register(app)
    app.config = replace(FAST, drain_seconds=0.01, request_timeout_seconds=0.3)
    async with behind.run(app) as running:
        claim = proxy.hold(lambda p: p.says("Tenure-State: running "), times=1_000)
        await client.submit(app.actors["work"].call(0.0), key="k")
        await claim.done.wait()
        running.worker.stop()
        await running.task
        assert len(running.worker.table) == 0
        assert running.worker.ending.given_up == 0


async def test_scenario_23_bodies_that_do_not_finish_in_time_are_cancelled_and_handed_back_uncounted(
    app: App, client: Client, workers: Workers
):
    """drain_seconds are over: the body is cancelled, its run waits at once for another worker."""
    bodies = register(app)
    app.config = replace(FAST, drain_seconds=0.05)
    async with workers.run(app) as running:
        run = await client.submit(app.actors["work"].call(30.0), key="k")
        await wait_until(lambda: bodies, description="the body runs")
        await running.stop()
    status = await run.status()
    assert status is not None
    assert (status.phase, status.attempt, status.failures, status.holder) == ("queued", 1, 0, None)
    async with workers.run(app):
        await wait_until(lambda: len(bodies) == 2, description="another worker has it", timeout=2)
        await run.cancel()
    assert bodies == [("k", 1, 0), ("k", 2, 0)]


async def test_scenario_23_a_body_that_ignores_the_drain_is_given_up_without_a_failure(
    app: App, client: Client, workers: Workers
):
    """It swallows its cancellation past its grace.

    Only its session is closed, as drained; the takeover counts nothing [27].
    """
    ended = asyncio.Event()
    bodies: list[tuple[int, int]] = []

    @app.actor(retry=Retry(max_attempts=1), grace=0.05)
    async def stubborn(ctx: Context) -> int:
        bodies.append((ctx.attempt, ctx.failures))
        while ctx.attempt == 1 and not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue
        return ctx.attempt

    app.config = replace(FAST, drain_seconds=0.05)
    async with workers.run(app) as running:
        run = await client.submit(stubborn.call(), key="k")
        await wait_until(lambda: bodies, description="the body runs")
        await running.stop()
    async with workers.run(app):
        assert await run.result(timeout=10) == 2
    ended.set()
    assert bodies == [(1, 0), (2, 0)]


async def test_scenario_23_a_submit_of_what_a_drain_gave_up_joins_the_run_that_will_go_on(
    app: App, client: Client, workers: Workers
):
    """Its session is closed and its budget is one attempt, but a drained one costs none: it is not dead [27, 29]."""
    ended = asyncio.Event()
    bodies: list[tuple[int, int, int]] = []

    @app.actor(retry=Retry(max_attempts=1), grace=0.05)
    async def stubborn(ctx: Context) -> int:
        bodies.append((ctx.generation, ctx.attempt, ctx.failures))
        while ctx.attempt == 1 and not ended.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ended.wait()
        return ctx.attempt

    app.config = replace(FAST, drain_seconds=0.05)
    async with opened_at_last(ended):
        async with workers.run(app) as running:
            run = await client.submit(stubborn.call(), key="k")
            await wait_until(lambda: bodies, description="the body runs")
            await running.stop()
        joined = await client.submit(stubborn.call(), key="k")
        assert (joined.accepted, joined.run_id) == (False, run.run_id)
        async with workers.run(app):
            assert await run.result(timeout=10) == 2
    assert bodies == [(1, 1, 0), (1, 2, 0)]


async def test_an_older_body_that_a_drain_gave_up_keeps_nobody_back_though_no_supervisor_is_there(
    app: App, client: Client, workers: Workers
):
    """Whoever is to start the run after it sees that its session is closed, and need not wait to be told."""
    ended, started = asyncio.Event(), asyncio.Event()

    @app.actor(grace=0.05)
    async def stubborn(ctx: Context) -> int:
        started.set()
        while ctx.generation == 1 and not ended.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ended.wait()
        return ctx.generation

    app.config = replace(FAST, drain_seconds=0.05)
    async with opened_at_last(ended):
        async with workers.run(app) as running:
            await client.submit(stubborn.call(), key="k")
            await started.wait()
            run = await client.replace(stubborn.call(), key="k", overlap="wait")
            await running.stop()
        async with workers.run(app):
            assert await run.result(timeout=5) == 2


async def test_scenario_23_a_plain_body_that_is_given_up_is_still_its_session_s(
    app: App, client: Client, workers: Workers
):
    """Its thread goes on, whatever becomes of the task that waited for it: handed back, the run would be nobody's [27]."""
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @app.actor(grace=0.05)
    def stubborn() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(20)

    app.config = replace(FAST, drain_seconds=0.05)
    try:
        async with workers.run(app) as running:
            await client.submit(stubborn.call(), key="k")
            await started.wait()
            await running.stop()
            assert not any(running.worker.metrics.outcomes.values())
        record = (await client.stores.runs.read("k")).record
        assert record is not None
        assert (record.phase, record.attempt) == (Phase.RUNNING, 1)
    finally:
        release.set()


@pytest.mark.parametrize("times", [2, pytest.param(5, marks=pytest.mark.long)])
async def test_scenario_25_sigterms_cost_no_retry(
    times: int, app: App, client: Client, workers: Workers, processes: Processes
):
    """max_attempts 2, and as many workers or more drained in the middle of the body.

    The next one still runs it, and its budget is whole.
    """
    bodies = register(app)
    run = await client.submit(app.actors["work"].call(1.0), key="k")
    for count in range(times):
        process = processes.start(drain_seconds=0.01)
        await process.ready()
        await wait_until(partial(process.saw, "start"), description=f"the body runs for the {count + 1}. time")
        await process.drain()
        assert process.events()[-2:] == [["start", "k", str(count + 1), "0"], ["signal"]]
    status = await run.status()
    assert status is not None
    assert (status.phase, status.attempt, status.failures) == ("queued", times, 0)
    async with workers.run(app):
        assert await run.result(timeout=10) == times + 1
    assert bodies == [("k", times + 1, 0)]


async def test_scenario_25_snooze_costs_no_retry_and_a_failure_still_does(app: App, client: Client, workers: Workers):
    """max_attempts 2.

    Five snoozes, one failure and a snooze leave the one attempt that is due; the next failure is the last.
    """
    seen: list[tuple[int, int]] = []

    @app.actor(retry=Retry(max_attempts=2, initial=0.01))
    async def sleepy(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.failures))
        if ctx.attempt in {6, 8}:
            raise RuntimeError("really")
        raise Snooze(0.01)

    async with workers.run(app):
        run = await client.submit(sleepy.call(), key="k")
        with pytest.raises(RunFailed, match="really"):
            await run.result(timeout=10)
    assert seen == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 1), (8, 1)]
