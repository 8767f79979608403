"""How a worker stops a body, and how it stops itself."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, Retry, RunCancelled, RunSuperseded, Stopped, TenureError
from tenure.nats.lane import Lane
from tests.conftest import Running, Workers
from tests.gates import opened_at_last
from tests.proxy import Proxy
from tests.support import FAST, close_session, wait_until

Told = list[tuple[str | None, str]]


def watched(app: App, told: Told, started: asyncio.Event, timeout: float = 5.0) -> None:
    """Register an actor of each kind that runs until it is told to stop, notes why and how, and obeys."""
    loop = asyncio.get_running_loop()
    retry = Retry(max_attempts=1)

    @app.actor(name="async", timeout=timeout, retry=retry)
    async def sleeping(ctx: Context) -> list[int] | None:
        started.set()
        try:
            await asyncio.sleep(30)  # body: until it is cancelled
        except asyncio.CancelledError:
            told.append((ctx.stop_reason, "cancelled"))
            raise
        return None

    @app.actor(name="watching", timeout=timeout, retry=retry)
    async def watching(ctx: Context) -> None:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await ctx.stopping.wait()
        assert ctx.stopping.is_set()
        told.append((ctx.stop_reason, "saw the event"))

    @app.actor(name="plain", timeout=timeout, retry=retry)
    def looping(ctx: Context) -> list[int] | None:
        loop.call_soon_threadsafe(started.set)
        try:
            while True:
                ctx.check()
        except Stopped as stopped:
            told.append((stopped.reason, "Stopped"))
            raise


HOW = {"async": "cancelled", "watching": "saw the event", "plain": "Stopped"}


@pytest.mark.parametrize("kind", HOW)
@pytest.mark.parametrize("reason", ["cancel", "superseded", "timeout"])
async def test_a_body_is_told_why_it_must_stop(
    app: App, client: Client, workers: Workers, kind: str, reason: str
) -> None:
    """A cancel, a replace and a timeout reach a sleeping, an event-watching and a plain body under their own names."""
    told: Told = []
    started = asyncio.Event()
    watched(app, told, started, timeout=0.1 if reason == "timeout" else 5.0)

    @app.actor
    async def successor() -> str:
        return "next"

    async with workers.run(app):
        run = await client.submit(app.actors[kind].call(), key="k")
        await wait_until(started.is_set, description="the body runs")
        if reason == "cancel":
            await run.cancel()
            with pytest.raises(RunCancelled):
                await run.result(5)
        elif reason == "superseded":
            following = await client.replace(successor.call(), key="k")
            with pytest.raises(RunSuperseded):
                await run.result(5)
            assert await following.result(5) == "next"
        else:
            final = await run.wait(5)
            assert (final.phase, final.error) == ("failed", "AttemptTimeout: the attempt took longer than 0.1 s")
    assert told == [(reason, HOW[kind])]


@pytest.mark.parametrize("kind", HOW)
async def test_a_drain_tells_bodies_and_hands_back_what_was_stopped_uncounted(
    namespace: str, workers: Workers, kind: str
) -> None:
    """arq#267. One attempt allowed.

    A worker drains while the body runs; the next worker runs it again: attempt 2, no failure.
    """
    app = App(namespace, config=replace(FAST, drain_seconds=0.1))
    told: Told = []
    started = asyncio.Event()
    watched(app, told, started)

    @app.actor(name="again")
    async def again(ctx: Context) -> list[int]:
        return [ctx.attempt, ctx.failures]

    async with app.connect(workers.url) as client:
        async with workers.run(app) as running:
            run = await client.submit(app.actors[kind].call(), key="k")
            await wait_until(started.is_set, description="the body runs")
            async with asyncio.timeout(5):
                await running.stop()
            outcomes = {what: n for (_, what), n in running.worker.metrics.outcomes.items() if n}
        status = await run.status()
        assert status is not None
        if kind == "watching":  # it saw the drain and returned in time: that is a result
            assert (status.phase, outcomes) == ("succeeded", {"succeeded": 1})
        else:
            assert (status.phase, status.attempt, status.failures, outcomes) == ("queued", 1, 0, {"handed_back": 1})
            app.actors[kind] = app.actors["again"]  # the next worker knows how to end it
            async with workers.run(app):
                assert await run.result(5) == [2, 0]
        assert told == [("drain", HOW[kind])]


async def test_a_drain_lets_a_plain_body_that_checks_finish(app: App, client: Client, workers: Workers) -> None:
    """It knows of the drain and goes on checking, as an async body would go on: nothing is handed back before its time."""
    checked: Told = []
    release = threading.Event()

    @app.actor
    def checking(ctx: Context) -> list[int]:
        while not release.is_set():
            told = ctx.stop_reason
            ctx.check()
            checked.append((told, "went on"))
        return [ctx.attempt, ctx.failures]

    async with workers.run(app) as running:
        run = await client.submit(checking.call(), key="k")
        await wait_until(lambda: checked, description="the body runs")
        running.worker.stop()
        await wait_until(lambda: ("drain", "went on") in checked[-1:], description="it knows, and has checked")
        release.set()
        await running.task
        assert running.worker.metrics.outcomes["checking", "succeeded"] == 1
    assert await run.result(5) == [1, 0]


async def test_a_draining_worker_lets_bodies_finish_and_starts_none(app: App, client: Client, workers: Workers) -> None:
    """taskiq#380.

    Concurrency 2, ten runs; the worker is told to stop while two run: these end, the others are the next one's.
    """
    started: list[str] = []
    release = asyncio.Event()

    @app.actor
    async def work(ctx: Context) -> None:
        started.append(ctx.key)
        await release.wait()

    await client.submit_many([(work.call(), f"k{n}") for n in range(10)])
    async with workers.run(app, concurrency=2) as running:
        await wait_until(lambda: len(started) == 2, description="two run")
        running.worker.stop()
        await wait_until(lambda: running.worker.why_not_ready, description="it does not pull any more")
        await client.submit_many([(work.call(), f"late{n}") for n in range(3)])
        release.set()
        await running.task
        assert len(started) == 2
        assert running.worker.metrics.outcomes["work", "succeeded"] == 2
    async with workers.run(app):
        await wait_until(lambda: len(started) == 13, description="the next worker runs the rest")
    assert len(set(started)) == 13


async def cancel_it(running: Running) -> None:
    running.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running.task


async def stop_it(running: Running) -> None:
    await running.stop()


@pytest.mark.parametrize("end", [cancel_it, stop_it])
async def test_stopping_and_cancelling_both_drain(
    app: App, client: Client, workers: Workers, end: Callable[[Running], Awaitable[None]]
) -> None:
    """The body that runs when ``run`` is cancelled, or ``stop`` is called, ends by itself and its value is stored."""
    started, reasons = asyncio.Event(), []

    @app.actor
    async def work(ctx: Context) -> str:
        started.set()
        await ctx.stopping.wait()
        reasons.append(ctx.stop_reason)
        return "finished"

    async with workers.run(app) as running:
        run = await client.submit(work.call())
        await wait_until(started.is_set, description="the body runs")
        async with asyncio.timeout(5):
            await end(running)
        assert await run.result(1) == "finished"
    assert reasons == ["drain"]


async def test_a_drain_gives_up_a_body_that_never_ends_and_another_worker_takes_over_uncounted(
    namespace: str, workers: Workers
) -> None:
    """Grace 0.1 s; the body swallows its cancellation.

    The worker leaves all the same; what the body returns later is void.
    """
    app = App(namespace, config=replace(FAST, drain_seconds=0.1))
    release, attempts = asyncio.Event(), []

    @app.actor(grace=0.1, retry=Retry(max_attempts=1))
    async def deaf(ctx: Context) -> str:
        attempts.append((ctx.attempt, ctx.failures))
        while ctx.attempt == 1 and not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return f"attempt {ctx.attempt}"

    async with app.connect(workers.url) as client:
        async with opened_at_last(release), workers.run(app) as running:
            run = await client.submit(deaf.call(), key="k")
            await wait_until(lambda: attempts, description="the body runs")
            async with asyncio.timeout(5):
                await running.stop()
        async with workers.run(app):
            assert await run.result(10) == "attempt 2"
    assert attempts == [(1, 0), (2, 0)]


async def test_a_worker_is_started_once_at_a_time_and_can_be_started_again(
    app: App, client: Client, workers: Workers
) -> None:
    """A second ``run`` beside the first would pull everything twice.

    After the first has drained it is as good as new.
    """

    @app.actor
    async def work() -> str:
        return "ran"

    async with workers.run(app) as running:
        worker = running.worker
        for second in (worker.run, worker.run_until_idle, worker.__aenter__):
            with pytest.raises(TenureError, match="already"):
                await second()
        assert await (await client.submit(work.call())).result(5) == "ran"
        await running.stop()
        again = asyncio.create_task(worker.run())
        assert await (await client.submit(work.call())).result(5) == "ran"
        worker.stop()
        await again
    for late in (worker.run, worker.run_until_idle):
        with pytest.raises(TenureError, match="not open"):
            await late()


async def test_a_stop_that_comes_before_the_start_is_not_lost(app: App, workers: Workers) -> None:
    """SIGTERM arrives between opening the worker and ``run``: it must drain at once, not run for ever."""

    @app.actor
    async def work() -> None: ...

    async with app.worker(workers.url) as worker:
        worker.stop()
        async with asyncio.timeout(5):
            await worker.run()
        early: asyncio.Task[Any] = asyncio.create_task(worker.run())
        worker.stop()  # its first step has not been made
        async with asyncio.timeout(5):
            await early


async def test_a_stop_while_the_lanes_are_opened_takes_nothing_in(
    app: App, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM comes between two lanes: pulling must not be switched on again by the last of them."""

    @app.actor
    async def work() -> None: ...

    asked: list[bool] = []
    opened, want = Lane.open, Lane.want
    async with app.worker(workers.url) as worker:

        async def stopping(lane: Lane) -> None:
            await opened(lane)
            worker.stop()

        async def noting(lane: Lane, number: int) -> None:
            asked.append(True)
            await want(lane, number)

        monkeypatch.setattr(Lane, "open", stopping)
        monkeypatch.setattr(Lane, "want", noting)
        async with asyncio.timeout(5):
            await worker.run()
    assert not asked


def winds_up(app: App, told: list[str | None], started: asyncio.Event, done: asyncio.Event) -> None:
    """Register an actor that takes its time to obey: until ``done`` is set."""

    @app.actor(name="slow", grace=20.0)
    async def slow(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(ctx.stop_reason)
            await done.wait()
            told.append(ctx.stop_reason)
            raise


async def test_a_session_that_is_lost_while_bodies_are_being_ended_is_told_to_them(
    app: App, client: Client, workers: Workers
) -> None:
    """Their graces may be long: what they still do may be another worker's already."""
    app.config = replace(FAST, drain_seconds=0.01)
    told: list[str | None] = []
    started, done = asyncio.Event(), asyncio.Event()
    winds_up(app, told, started, done)
    async with workers.run(app) as running, opened_at_last(done):
        await client.submit(app.actors["slow"].call(), key="k")
        await started.wait()
        running.worker.stop()
        await wait_until(lambda: told, description="it is being ended")
        (live,) = running.worker.table.all()
        await close_session(client, running.worker.lease.id)
        await wait_until(lambda: live.told == "lease_lost", description="it hears of it")
        done.set()
        await running.task
        assert told == ["drain", "lease_lost"]


async def test_a_session_that_somebody_closed_is_no_server_out_of_reach(
    app: App, client: Client, workers: Workers
) -> None:
    """SIGTERM comes before the next session is open: everything is ended, nothing waits for anybody's ttl."""
    told: list[str | None] = []
    started, done = asyncio.Event(), asyncio.Event()
    winds_up(app, told, started, done)
    async with workers.run(app) as running, opened_at_last(done):
        await client.submit(app.actors["slow"].call(), key="k")
        await started.wait()
        await close_session(client, running.worker.lease.id)
        await wait_until(lambda: told == ["lease_lost"], description="the session is lost")
        running.worker.stop()
        done.set()
        await running.task
        assert running.worker.ending.given_up == 0
        assert not running.worker.cut_off


async def test_a_drain_without_the_server_says_so(app: App, behind: Workers, proxy: Proxy, client: Client) -> None:
    """The server is gone for good while a body runs: nobody can hand its run back."""
    app.config = replace(FAST, request_timeout_seconds=0.2, drain_seconds=0.1)
    told: list[str | None] = []
    started, done = asyncio.Event(), asyncio.Event()
    winds_up(app, told, started, done)
    async with behind.run(app) as running, opened_at_last(done):
        await client.submit(app.actors["slow"].call(), key="k")
        await started.wait()
        await proxy.take_down()
        running.worker.stop_now()
        await running.task
        assert running.worker.cut_off
        done.set()
