"""Plain bodies and their threads: one that cannot be started costs no attempt, and no attempt is over before its thread is."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tenure import App, Client, Context, Retry
from tenure.core.sessions import Progress
from tenure.nats.sessions import Sessions
from tenure.worker import body
from tenure.worker.table import Live
from tenure.worker.threaded import Threaded
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.support import wait_until


class NoThread:
    """The next thread for a body cannot be started; ``meanwhile`` is done before the system says so."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self.meanwhile: Any = lambda: None
        start = threading.Thread.start

        def starts(thread: threading.Thread) -> None:
            if self.left and thread.name.startswith("tenure-body"):
                self.left -= 1
                self.meanwhile()
                raise RuntimeError("can't start new thread")
            start(thread)

        patch.setattr(threading.Thread, "start", starts)


async def test_a_thread_that_cannot_be_started_costs_no_attempt_and_its_body_does_not_start_later(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool has the call in its line all the same; the thread of another body comes free and finds it, beside the next attempt."""
    monkeypatch.setattr(body, "_NO_THREAD_SECONDS", 0.5)
    threads, gate, bodies = NoThread(monkeypatch), threading.Event(), list[int]()

    @app.actor
    def blocks() -> None:
        gate.wait(30)

    @app.actor(retry=None)
    def work(ctx: Context) -> int:
        bodies.append(ctx.attempt)
        return ctx.attempt

    async with workers.run(app) as running, opened_at_last(gate):
        first = await client.submit(blocks.call())
        await wait_until(lambda: running.worker.metrics.in_progress["blocks"], description="one body has its thread")
        threads.left = 1
        run = await client.submit(work.call())
        await wait_until(lambda: not threads.left, description="there was no thread for the other one")
        gate.set()
        await first.result(5)
        assert await run.result(5) == 2
        status = await run.status()
    assert status is not None
    assert (status.failures, bodies) == (0, [2])


async def test_a_call_that_a_thread_finds_which_comes_free_in_that_moment_is_waited_for(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses a thread, and before we hear of it another one has the call out of the pool's line."""
    threads, gate, begun, bodies = NoThread(monkeypatch), threading.Event(), threading.Event(), list[int]()
    ends = threading.Event()

    @app.actor
    def blocks() -> None:
        gate.wait(30)

    @app.actor(retry=None)
    def work(ctx: Context) -> int:
        bodies.append(ctx.attempt)
        begun.set()
        ends.wait(30)
        return ctx.attempt

    def meanwhile() -> None:
        gate.set()
        begun.wait(30)

    threads.meanwhile = meanwhile
    async with workers.run(app) as running, opened_at_last(gate, ends):
        await client.submit(blocks.call())
        await wait_until(lambda: running.worker.metrics.in_progress["blocks"], description="one body has its thread")
        threads.left = 1
        run = await client.submit(work.call())
        await wait_until(begun.is_set, description="the body has begun")
        assert [live.in_body for live in running.worker.table.all() if live.actor == "work"] == [True]
        ends.set()
        assert await run.result(5) == 1
    assert bodies == [1]


@pytest.mark.usefixtures("nothing_left")
async def test_a_thread_that_cannot_be_started_in_a_child_process_costs_no_attempt_either(
    client: Client, workers: Workers, tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TENURE_TEST_NO_THREAD", "1")
    async with workers.run(tasks.app):
        run = await client.submit(tasks.once.call(str(tmp_path / "started")))
        assert await run.result(15) == 2
        status = await run.status()
    assert status is not None
    assert (status.failures, (tmp_path / "started").read_text()) == (0, "2\n")


async def test_a_stranger_that_cancels_tasks_does_not_end_an_attempt_before_its_thread(
    app: App, client: Client, workers: Workers
) -> None:
    """A body cancels every task that it finds. The plain one goes on: no second attempt of it may start beside it."""
    begun, gate, bodies = threading.Event(), threading.Event(), list[int]()

    @app.actor(retry=Retry(max_attempts=3, initial=0.01))
    def plain(ctx: Context) -> int:
        bodies.append(ctx.attempt)
        begun.set()
        gate.wait(30)
        return ctx.attempt

    @app.actor(retry=None)
    async def rude() -> None:
        for live in running.worker.table.all():
            if live.actor == "plain" and live.task is not None:
                live.task.cancel()
                live.task.cancel()

    async with workers.run(app) as running, opened_at_last(gate):
        run = await client.submit(plain.call())
        await wait_until(begun.is_set, description="its body has begun")
        for _ in range(2):
            await (await client.submit(rude.call())).result(5)
        assert [live.in_body for live in running.worker.table.all() if live.actor == "plain"] == [True]
        gate.set()
        assert await run.result(5) == 1
    assert bodies == [1]


async def test_a_stranger_that_cancels_tasks_does_not_take_the_result_of_a_body_that_has_returned(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has reported last is being said then, over a crowded connection."""
    saying, gate = asyncio.Event(), asyncio.Event()

    @app.actor(retry=None)
    def plain(ctx: Context) -> int:
        ctx.report(1, 1, "done")
        return ctx.attempt

    async def slow(_sessions: Sessions, _key: str, _progress: Progress) -> None:
        saying.set()
        await gate.wait()

    monkeypatch.setattr(Sessions, "note", slow)
    async with workers.run(app) as running:
        run = await client.submit(plain.call())
        await saying.wait()
        (live,) = running.worker.table.all()
        await wait_until(lambda: not live.in_body, description="its body has returned")
        assert live.task is not None
        live.task.cancel()
        gate.set()
        assert await run.result(5) == 1


async def test_a_run_is_not_taken_over_by_its_own_process_while_a_thread_of_it_runs(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of ours ends the handling of an attempt in the middle; its wake-up comes again to the process that has its thread."""
    begun, gate, bodies = threading.Event(), threading.Event(), list[int]()
    outcome = Threaded.outcome

    @app.actor(retry=None)
    def plain(ctx: Context) -> int:
        bodies.append(ctx.attempt)
        begun.set()
        gate.wait(30)
        return ctx.attempt

    async def broken(threaded: Threaded, live: Live) -> Any:
        if not gate.is_set():
            await wait_until(begun.is_set, description="its body has begun")
            raise ZeroDivisionError("a defect")
        return await outcome(threaded, live)

    monkeypatch.setattr(Threaded, "outcome", broken)
    monkeypatch.setattr(body, "describe", None)  # so that it is ours, and not the body's
    async with workers.run(app) as running, opened_at_last(gate):
        run = await client.submit(plain.call())
        await wait_until(begun.is_set, description="its body has begun")
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["plain", "busy"] >= 2, description="its wake-up has come again")
        assert bodies == [1]
        gate.set()
        assert await run.result(15) == 2
    assert bodies == [1, 2]
