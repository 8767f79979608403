"""Bodies that end in ways of their own: whatever they do, the run gets its outcome, once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, ConfigError, Context, OutcomeUnknown, Retry, RunCancelled, RunFailed, Snooze, Stopped
from tenure.worker.head import Head
from tenure.worker.tail import Tail
from tests.conftest import Workers
from tests.support import FAST, wait_until


class Abort(BaseException):
    """What no ``except Exception`` catches."""


async def test_a_body_may_raise_whatever_there_is_and_it_is_a_failed_attempt(
    app: App, client: Client, workers: Workers
) -> None:
    """A BaseException of its own, Stopped without having been told, a group of both, its own task's cancellation.

    None of them may end the handling without an outcome: the run would be claimed again and again, each time uncounted.
    """
    once = Retry(max_attempts=1)
    bodies: list[str] = []

    @app.actor(retry=once)
    async def ends(how: str) -> None:
        bodies.append(how)
        match how:
            case "base":
                raise Abort("enough")
            case "stopped":
                raise Stopped("says who")
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(raising())
            case "cancelled and awaiting":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)  # body: is cancelled here
            case "cancelled and returning":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    @app.actor(retry=once)
    def plain(how: str) -> None:
        bodies.append(how)
        raise Abort("enough") if how == "base" else Stopped("says who")

    async def raising() -> None:
        raise Abort("enough")

    async with workers.run(app):
        for how in ("base", "stopped", "group", "cancelled and awaiting"):
            with pytest.raises(RunFailed):
                await (await client.submit(ends.call(how))).result(1)
        run = await client.submit(ends.call("cancelled and returning"))
        assert (await run.wait(1)).phase == "succeeded"
        for how in ("base", "stopped"):
            with pytest.raises(RunFailed):
                await (await client.submit(plain.call(how))).result(1)
    assert len(bodies) == 7


WORST = [KeyboardInterrupt, SystemExit, GeneratorExit, Abort, asyncio.CancelledError]


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("worst", WORST)
async def test_what_ends_other_programs_is_two_failed_attempts_and_then_the_end_of_the_run(
    app: App, client: Client, workers: Workers, kind: str, worst: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """The worker goes on, each attempt counts and is one line of the log. A KeyboardInterrupt would end one worker after the other."""
    caplog.set_level(logging.INFO, "tenure.run")
    retry = Retry(max_attempts=2, initial=0.01)

    @app.actor(name="async", retry=retry)
    async def fails() -> None:
        raise worst("enough")

    @app.actor(name="plain", retry=retry)
    def fails_in_a_thread() -> None:
        raise worst("enough")

    @app.actor
    async def work() -> str:
        return "ran"

    async with workers.run(app) as running:
        status = await (await client.submit(app.actors[kind].call())).wait(3)
        assert (status.phase, status.attempt) == ("failed", 2)
        assert status.error is not None
        assert worst.__name__ in status.error
        outcomes = running.worker.metrics.outcomes
        assert (outcomes[kind, "retried"], outcomes[kind, "failed"]) == (1, 1)
        assert await (await client.submit(work.call())).result(2) == "ran"
    told = [text for text in (record.getMessage() for record in caplog.records) if text.startswith("attempt.failed")]
    assert [("attempt=1" in text, "retried=True" in text) for text in told] == [(True, True), (False, False)]


async def test_a_message_that_cannot_be_told_is_no_way_out_of_a_failed_attempt(
    app: App, client: Client, workers: Workers
) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    @app.actor(retry=None)
    async def fails() -> None:
        raise Unspeakable

    async with workers.run(app):
        status = await (await client.submit(fails.call())).wait(3)
        assert status.phase == "failed"
        assert "its message cannot be read" in str(status.error)


async def test_a_group_that_stops_as_it_was_told_is_no_failure(app: App, client: Client, workers: Workers) -> None:
    """Cancelled; two children of the body's task group see it by ``ctx.check``.

    Stopped comes out in a group, of BaseExceptions.
    """
    started = asyncio.Event()

    @app.actor(grace=5.0)
    async def work(ctx: Context) -> None:
        async def child() -> None:
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)  # body: between two looks
                ctx.check()

        started.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(child())

    async with workers.run(app) as running:
        run = await client.submit(work.call(), key="k")
        await started.wait()
        running.worker.stop()
        await running.task
        assert running.worker.metrics.outcomes["work", "handed_back"] == 1
        status = await run.status()
        assert status is not None
        assert status.failures == 0


async def test_a_snooze_beyond_all_bounds_fails_the_attempt(app: App, client: Client, workers: Workers) -> None:
    """A due time that no timer can name must be refused before it is stored.

    The run would wait for it without a wake-up.
    """

    @app.actor(retry=None)
    async def work() -> None:
        raise Snooze(1e12)

    async with workers.run(app):
        with pytest.raises(RunFailed, match="ten years"):
            await (await client.submit(work.call(), key="k")).result(1)


@pytest.mark.parametrize("setting", ["retry", "every", "timeout", "grace", "result_ttl"])
def test_a_time_that_no_timer_can_name_is_refused_when_the_actor_is_made(app: App, setting: str) -> None:
    """1e15 seconds lie beyond every calendar: a run due then would be stored and never woken, nor could its status be read."""
    with pytest.raises(ConfigError, match="ten years"):

        @app.actor(**{setting: Retry(maximum=1e15) if setting == "retry" else 1e15})  # type: ignore[call-overload]  # one of five
        async def work() -> None: ...


async def test_a_plain_body_may_look_at_the_stop_event(app: App, client: Client, workers: Workers) -> None:
    """``ctx.stopping`` is first asked for in a thread, where no loop runs; then the run is cancelled."""
    started = threading.Event()

    @app.actor(retry=None)
    def work(ctx: Context) -> None:
        while not ctx.stopping.is_set():
            started.set()

    async with workers.run(app):
        run = await client.submit(work.call(), key="k")
        await wait_until(started.is_set, description="the body runs")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(2)


async def test_an_attempt_that_is_given_up_leaves_the_record_though_another_worker_answers_its_wake_up(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of ours ends its handling; replaced with ``parallel`` nobody is told to stop.

    There is no slot to look at its delivery again: the one that came after it has it, for as long as it likes.
    """
    store, enough = Tail.store, asyncio.Event()

    async def broken(tail: Tail, context: Context, *args: Any) -> Any:
        if context.generation == 1:
            raise RuntimeError("a defect")
        return await store(tail, context, *args)

    monkeypatch.setattr(Tail, "store", broken)

    @app.actor
    async def nothing(ctx: Context) -> None:
        if ctx.generation > 1:
            await enough.wait()

    async with workers.run(app, concurrency=1) as running:
        first = await client.submit(nothing.call(), key="k")
        await wait_until(
            lambda: running.worker.metrics.errors["handler"], description="its handling ends in the middle"
        )
        await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})  # as the other's answer
        second = await client.replace(nothing.call(), key="k", overlap="parallel")

        async def gone() -> bool:
            record = (await client.stores.runs.read("k")).record
            return record is not None and not any(entry.run_id == first.run_id for entry in record.previous)

        await wait_until(gone, description="its process takes it out")
        assert running.worker.table.remnants() == []
        assert running.worker.metrics.superseded["nothing", "tail"] == 1
        enough.set()
        assert (await second.wait(5)).phase == "succeeded"


@pytest.mark.parametrize("backlog", [0, 40])
async def test_a_claim_of_unknown_fate_is_looked_at_again_by_the_process_that_sent_it(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch, backlog: int
) -> None:
    """It was stored, its session goes on, and its wake-up goes from one other worker to the next: none can tell that no body runs.

    Nor does it wait for all that there is to be done besides.
    """
    app.config = replace(FAST, ack_wait_seconds=60.0)
    claim, lost = Head._claim, asyncio.Event()

    async def unheard(head: Head, key: str, *args: Any) -> Any:
        result = await claim(head, key, *args)
        if lost.is_set() or key != "k":
            return result
        lost.set()
        raise OutcomeUnknown("no answer, and trust was over for a moment", key="k")

    monkeypatch.setattr(Head, "_claim", unheard)
    ended: list[str] = []

    @app.actor
    async def number(ctx: Context) -> int:
        ended.append(ctx.key)
        return ctx.attempt

    @app.actor
    async def other(ctx: Context) -> None:
        # The backlog takes longer than it may, and a look hardly finds a slot by chance.
        await asyncio.sleep(0.5)  # body: takes its time
        ended.append(ctx.key)

    async with workers.run(app, concurrency=1):
        run = await client.submit(number.call(), key="k")
        for _ in range(backlog):
            await client.submit(other.call())
        assert await run.result(15) == 2
    assert ended.index("k") <= backlog / 2


async def test_a_handling_that_a_defect_ends_after_its_claim_is_looked_at_again_by_its_process(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session goes on, so nobody else can tell that no body runs; and its wake-up is lost, or comes in a minute."""
    app.config = replace(FAST, ack_wait_seconds=60.0)
    store = Tail.store

    async def broken(tail: Tail, context: Context, *args: Any) -> Any:
        if context.attempt == 1:
            raise RuntimeError("a defect")
        return await store(tail, context, *args)

    monkeypatch.setattr(Tail, "store", broken)

    @app.actor
    async def number(ctx: Context) -> int:
        return ctx.attempt

    async with workers.run(app) as running:
        run = await client.submit(number.call(), key="k")
        await wait_until(lambda: running.worker.metrics.errors["handler"], description="its handling ends so")
        await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})  # the server has lost it
        assert await run.result(10) == 2


async def test_a_defect_that_comes_at_once_is_not_met_again_at_once(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a claim no attempt is spent. The slot that one of them leaves is free for the other: they must not take turns."""
    app.config = replace(FAST, ack_wait_seconds=60.0)

    async def broken(*_: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Head, "look", broken)

    @app.actor
    async def nothing() -> None:
        """Return."""

    async with workers.run(app, concurrency=1) as running:
        for _ in range(3):
            await client.submit(nothing.call())
        await asyncio.sleep(6.5)  # paused: for three looks
        assert 3 < running.worker.metrics.errors["handler"] <= 9
