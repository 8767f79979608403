"""Workers that are cut off, frozen, blocked or killed: what they are told, and what they can no longer do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, Retry, RunCancelled
from tests.conftest import Workers
from tests.contract.support import depth
from tests.gates import opened_at_last
from tests.proxy import Proxy
from tests.support import FAST, wait_until

TTL = FAST.session_ttl(copies=1)


@pytest.mark.parametrize("which", ["everything", "the lease"])
async def test_scenario_07_a_cancel_is_never_lost(
    which: str, namespace: str, nats_server: str, proxy: Proxy, behind: Workers
):
    """Docket 0.27. The worker is cut off, its run is cancelled, it comes back: told within 2 s, ``stopping`` until then.

    Signals come over the lease's connection, so that one alone is cut as well. ``cancelled`` never becomes anything else,
    whatever the body returns.
    """
    app = App(namespace, config=replace(FAST, session_ttl_seconds=10.0))
    told: list[str | None] = []
    started = asyncio.Event()

    @app.actor
    async def stubborn(ctx: Context) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(ctx.stop_reason)
        return "done all the same"

    async with app.connect(nats_server) as client, behind.run(app) as running:
        run = await client.submit(stubborn.call(), key="k")
        await started.wait()
        if which == "everything":
            await proxy.take_down()
        else:
            await proxy.shut_out("tenure-lease")
        assert (await client.cancel("k")).outcome == "stopping"
        status = await run.status()
        assert status is not None
        assert (status.phase, told) == ("stopping", [])
        back = asyncio.get_running_loop().time()
        if which == "everything":
            await proxy.bring_up()
        else:
            proxy.let_in()
        await wait_until(lambda: told, description="the body is told")
        assert asyncio.get_running_loop().time() - back < 2.0
        with pytest.raises(RunCancelled):
            await run.result(5)
        assert told == ["cancel"]
        assert running.worker.metrics.errors["lease"] == 0
        status = await run.status()
        assert status is not None
        assert (status.phase, status.generation, status.attempt) == ("cancelled", 1, 1)


class Tripping(dict[str, float]):
    """What the lease's thread trips over."""

    def copy(self) -> dict[str, float]:
        raise RuntimeError("a defect")


@pytest.mark.parametrize("closed_by", ["itself", "a supervisor", "itself after a failure"])
async def test_a_session_that_could_not_be_closed_is_closed_once_there_is_another(
    closed_by: str,
    namespace: str,
    nats_server: str,
    proxy: Proxy,
    behind: Workers,
    caplog: pytest.LogCaptureFixture,
):
    """Cut off until the session is lost and its close is given up (or its thread fails); no supervisor runs.

    Under its next session the worker closes the one that it had: nobody else would, and its run would be held for good. It
    counts as every loss of a lease does, if it was not handed back. What was closed by others meanwhile stays as they wrote it.
    """
    app = App(namespace, config=replace(FAST, session_ttl_seconds=1.0, request_timeout_seconds=0.3))
    ran: list[tuple[int, int]] = []

    @app.actor(retry=Retry(initial=0.01))
    async def work(ctx: Context) -> int:
        ran.append((ctx.attempt, ctx.failures))
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return ctx.attempt

    async with app.connect(nats_server) as client, behind.run(app) as running:
        first = running.worker.lease.id
        run = await client.submit(work.call(), key="k")
        await wait_until(lambda: ran, description="the body runs")
        if closed_by == "itself after a failure":
            running.worker.lease.in_hand = Tripping(running.worker.lease.in_hand)
        else:
            await proxy.take_down()
            await wait_until(lambda: "lease.left_open" in caplog.text, description="its close is given up")
            if closed_by == "a supervisor":
                seen = await client.stores.sessions.read(first)
                assert seen is not None
                assert await client.stores.sessions.write(replace(seen.session, closed="expired"), seen.revision)
            await proxy.bring_up()
        assert await run.result(10) == 2
        assert running.worker.lease.id != first
        closed = await wait_until(lambda: reason(client, first), description="it is closed")
        assert closed == ("expired" if closed_by == "a supervisor" else "lease_lost")
        await wait_until(lambda: not running.worker._unclosed, description="nothing is left to be closed")
    handed_back = closed_by == "itself after a failure"  # the server was there
    assert ran == [(1, 0), (2, 0 if handed_back else 1)]


async def reason(client: Client, session: str) -> str | None:
    """Why a session was closed, if it was."""
    seen = await client.stores.sessions.read(session)
    assert seen is not None
    return seen.session.closed


WORKER = """
    import asyncio, signal, sys, time
    from msgspec.structs import replace
    from tenure import App, Context
    from tests.support import FAST

    _, namespace, url, path, ttl = sys.argv
    app = App(namespace, config=replace(FAST, session_ttl_seconds=float(ttl)))
    events = open(path, "a", buffering=1)

    def note(*words):
        events.write(" ".join(map(str, words)) + "\\n")

    @app.actor
    async def work(ctx: Context) -> str:
        note("start", ctx.key, ctx.attempt, ctx.session)
        if ctx.key == "quick":
            return "by its new session"
        try:
            await asyncio.sleep({ctx.key: 3600, "returns": 4}.get(ctx.key))  # body:
        except asyncio.CancelledError:
            note("stopped", ctx.key, ctx.stop_reason)
            raise
        return "by its old session"

    def spin(seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass

    @app.actor
    async def blocking(ctx: Context, how: str, seconds: float) -> int:
        note("start", ctx.key, ctx.attempt, ctx.session)
        {"sleep": time.sleep, "spin": spin}[how](seconds)
        note("end", ctx.key, ctx.attempt, ctx.stop_reason)
        return ctx.attempt

    @app.actor
    def threaded(ctx: Context, how: str, seconds: float) -> int:
        note("start", ctx.key, ctx.attempt, ctx.session)
        spin(seconds)
        note("end", ctx.key, ctx.attempt, ctx.stop_reason)
        return ctx.attempt

    async def main():
        async with app.worker(url, concurrency=8) as worker:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
            await worker.run()

    asyncio.run(main())
"""


class Process:
    """A worker process, and what its bodies noted."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen = popen
        self._log = log

    def noted(self, *words: str) -> list[list[str]]:
        lines = [line.split() for line in self._log.read_text().splitlines()] if self._log.exists() else []
        return [line for line in lines if line[: len(words)] == list(words)]

    async def runs(self, number: int) -> None:
        await wait_until(lambda: len(self.noted("start")) == number, description="its bodies run", timeout=20)


@pytest.fixture
def start(tmp_path: Path, namespace: str, nats_server: str) -> Iterator[Callable[[float], Process]]:
    """Starts a worker process with a ttl; none outlives its test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(ttl: float) -> Process:
        log = tmp_path / f"worker-{len(started)}.log"
        popen = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(WORKER), namespace, nats_server, str(log), str(ttl)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        started.append(popen)
        return Process(popen, log)

    yield start
    for popen in started:
        popen.kill()
        popen.wait()


async def close_as_a_supervisor(client: Client, session: str) -> None:
    """At the revision that it was seen at."""
    seen = await client.stores.sessions.read(session)
    assert seen is not None
    assert await client.stores.sessions.write(replace(seen.session, closed="expired"), seen.revision)


async def test_scenario_12_a_frozen_process_is_fenced_when_it_wakes(
    app: App, client: Client, workers: Workers, start: Callable[[float], Process]
):
    """dapr#9514. SIGSTOP past the ttl, takeover by another process, SIGCONT.

    One of its bodies has nothing left to do but to return: its write is refused. The other waits: it is told
    ``lease_lost``. The process goes on with a new session and runs what comes.
    """
    gate = asyncio.Event()
    bodies: list[tuple[str, int]] = []

    @app.actor(name="work")
    async def work(ctx: Context) -> str:
        bodies.append((ctx.key, ctx.attempt))
        await gate.wait()
        return "taken over"

    frozen = start(TTL)
    keys = ("waits", "returns")
    runs = [await client.submit(work.call(), key=key) for key in keys]
    await frozen.runs(2)
    session = frozen.noted("start", "waits")[0][3]
    frozen.popen.send_signal(signal.SIGSTOP)
    await wait_until(lambda: _is_stale(client, session), description="it has not renewed for its ttl")
    await close_as_a_supervisor(client, session)
    async with workers.run(app), opened_at_last(gate):
        for run in runs:  # as a supervisor's sweep would
            found = await client.stores.runs.read(run.key)
            assert found.record is not None
            await client.stores.work.wake(found.record, b"", found.revision, 0.0, client.stores.runs.patience())
        await wait_until(lambda: sorted(bodies) == [("returns", 2), ("waits", 2)], description="both are taken over")
        frozen.popen.send_signal(signal.SIGCONT)
        await wait_until(lambda: frozen.noted("stopped", "waits"), description="the waiting body is told")
        assert frozen.noted("stopped", "waits") == [["stopped", "waits", "lease_lost"]]
        gate.set()
        assert [await run.result(5) for run in runs] == ["taken over"] * 2
    for run in runs:
        status = await run.status()
        assert status is not None
        assert (status.phase, status.attempt) == ("succeeded", 2)
    quick = await client.submit(work.call(), key="quick")
    assert await quick.result(10) == "by its new session"
    assert frozen.noted("start", "quick")[0][3] != session


async def test_a_fenced_attempt_leaves_the_message_to_the_attempt_after_it(
    app: App, client: Client, workers: Workers, start: Callable[[float], Process]
):
    """[24] Frozen past the ttl; its message is delivered again, to another process: one message, two deliveries.

    Back again, it is fenced. Were it to acknowledge, the server would take that for the message, which attempt 2 may yet
    need to be found by.
    """
    gate, started = asyncio.Event(), asyncio.Event()

    @app.actor(name="work")
    async def work(ctx: Context) -> int:
        started.set()
        await gate.wait()
        return ctx.attempt

    frozen = start(TTL)
    run = await client.submit(work.call(), key="waits")
    await frozen.runs(1)
    session = frozen.noted("start", "waits")[0][3]
    frozen.popen.send_signal(signal.SIGSTOP)
    await wait_until(lambda: _is_stale(client, session), description="it has not renewed for its ttl")
    await close_as_a_supervisor(client, session)
    async with workers.run(app), opened_at_last(gate):
        await started.wait()
        assert await depth(client.stores) == 1
        frozen.popen.send_signal(signal.SIGCONT)
        await wait_until(lambda: frozen.noted("stopped", "waits"), description="its body is told")
        for _ in range(5):
            await asyncio.sleep(0.1)  # paused: its write is refused meanwhile
            assert await depth(client.stores) == 1
        gate.set()
        assert await run.result(5) == 2


async def _is_stale(client: Client, session: str) -> bool:
    """Whether its entry stays as it is for longer than the ttl."""
    first = await client.stores.sessions.read(session)
    await asyncio.sleep(TTL * 1.1)  # paused: the ttl is what must pass
    return first == await client.stores.sessions.read(session)


@asynccontextmanager
async def supervised(app: App, url: str) -> AsyncIterator[None]:
    """A supervisor in this process."""
    async with app.supervisor(url) as supervisor:
        running = asyncio.create_task(supervisor.run())
        await wait_until(lambda: not supervisor.why_not_ready, description="the supervisor is ready")
        try:
            yield
        finally:
            supervisor.stop()
            await running


def remote(app: App, name: str) -> Callable[..., Any]:
    """An actor that only the other processes run."""

    @app.actor(name=name)
    async def elsewhere(how: str, seconds: float) -> int:
        raise AssertionError

    return elsewhere.call


@pytest.mark.parametrize(("name", "how"), [("blocking", "sleep"), ("blocking", "spin"), ("threaded", "spin")])
async def test_scenario_11_a_blocked_event_loop_does_not_lose_the_lease(
    name: str, how: str, namespace: str, nats_server: str, start: Callable[[float], Process]
):
    """dramatiq#692, docket 0.27. A body holds the event loop, or the interpreter, for 5 x the ttl.

    Two workers and a supervisor that closes whoever is silent: one run.
    """
    ttl = 1.0
    app = App(namespace, config=replace(FAST, session_ttl_seconds=ttl))
    call = remote(app, name)
    async with app.connect(nats_server) as client, supervised(app, nats_server):
        processes = [start(ttl), start(ttl)]
        run = await client.submit(call(how, 5 * ttl), key="k")
        assert await run.result(20) == 1
    notes = [note for process in processes for note in [*process.noted("start"), *process.noted("end")]]
    assert [note[:3] for note in notes] == [["start", "k", "1"], ["end", "k", "1"]]
    assert notes[1][3] == "None", "nobody told it to stop"


async def test_scenario_14_a_reused_name_does_not_keep_a_dead_owner_alive(
    namespace: str, nats_server: str, start: Callable[[float], Process]
):
    """oban#862. kill -9, and a new worker on the same host at once: a session is of one process, not of a name.

    The dead one's claim is taken over within the ttl and seconds, by attempt 2.
    """
    ttl = 1.0
    app = App(namespace, config=replace(FAST, session_ttl_seconds=ttl))
    call = remote(app, "blocking")
    async with app.connect(nats_server) as client, supervised(app, nats_server):
        first = start(ttl)
        run = await client.submit(call("sleep", 2.0), key="k")
        await first.runs(1)
        first.popen.kill()
        first.popen.wait()
        second = start(ttl)
        assert await run.result(15) == 2
    assert second.noted("start", "k")[0][3] != first.noted("start", "k")[0][3]
