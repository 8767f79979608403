"""Bodies in this process that ignore their stop: visible, without a slot, and too many of them are no healthy worker."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest

from tenure import App, Client, Context, Retry
from tenure.worker import Worker
from tests.conftest import Supervisors, Workers
from tests.gates import opened_at_last
from tests.proxy import Proxy, wake_up
from tests.support import FAST, wait_until


def stuck(app: App, gate: threading.Event | asyncio.Event, started: list[int]) -> None:
    """Register ``deaf``: it hears nothing before the gate opens; as a plain body or an async one."""
    if isinstance(gate, threading.Event):

        @app.actor(name="deaf", grace=0.1, retry=Retry(max_attempts=2))
        def plain(ctx: Context) -> str:
            started.append(ctx.generation)
            gate.wait(30)
            return "too late"

    else:

        @app.actor(name="deaf", grace=0.1, retry=None)
        async def swallowing(ctx: Context) -> str:
            started.append(ctx.generation)
            while not gate.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await gate.wait()
            return "too late"

    @app.actor
    async def work() -> str:
        return "ran"


GATES = pytest.mark.parametrize("gate", [threading.Event, asyncio.Event], ids=["plain", "async"])


@GATES
async def test_a_superseded_body_that_ignores_its_stop_frees_its_slot_and_confirms_when_it_ends(
    app: App, client: Client, workers: Workers, gate: type[threading.Event | asyncio.Event]
) -> None:
    """One slot. Replaced while it runs, its grace passes: the next generation has the slot, the body counts as stuck.

    A later replace with overlap ``wait`` is not held up by it: its deadline is over. When the body ends at last it is
    counted as superseded, once, and takes its entry out of the record.
    """
    opened = gate()
    started: list[int] = []
    stuck(app, opened, started)
    async with workers.run(app, concurrency=1) as running, opened_at_last(opened):
        worker = running.worker
        await client.submit(app.actors["deaf"].call(), key="k")
        await wait_until(lambda: started, description="the body runs")
        following = await client.replace(app.actors["work"].call(), key="k")
        assert await following.result(5) == "ran"
        assert worker.table.stuck_by_actor() == {"deaf": 1}
        assert 'tenure_runs_stuck{actor="deaf"} 1.0' in scrape(worker)
        assert worker.why_not_ready == ""
        opened.set()
        await wait_until(lambda: not worker.table.stuck, description="the body has ended")
        assert worker.metrics.superseded["deaf", "tail"] == 1
        assert 'tenure_runs_stuck{actor="deaf"} 0.0' in scrape(worker)
        found = await client.stores.runs.read("k")
        assert found.record is not None
        assert found.record.previous == ()


def scrape(worker: Worker) -> str:
    return generate_latest(worker.metrics.registry).decode()


async def test_a_redelivered_wake_up_does_not_confirm_a_stuck_body(app: App, client: Client, workers: Workers) -> None:
    """The superseded run's own message comes again while its body still runs, without a slot: its entry must stay."""
    gate = threading.Event()
    started: list[int] = []
    stuck(app, gate, started)
    async with workers.run(app) as running, opened_at_last(gate):
        run = await client.submit(app.actors["deaf"].call(), key="k")
        await wait_until(lambda: started, description="the body runs")
        await client.replace(app.actors["work"].call(), key="k", delay=30)
        await wait_until(lambda: running.worker.table.stuck, description="the body is stuck")
        found = await client.stores.runs.read("k")
        assert found.record is not None
        old = replace(found.record, run_id=run.run_id, due=0.0)
        await client.stores.work.wake(old, b"{}", 1, client.now(), client.stores.runs.patience())
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["work", "superseded"], description="the copy was looked at")
        found = await client.stores.runs.read("k")
        assert found.record is not None
        assert [entry.run_id for entry in found.record.previous] == [run.run_id]


async def test_a_cancel_and_then_a_replace_leave_a_deaf_body_no_slot(
    app: App, client: Client, workers: Workers
) -> None:
    """Told `cancel`, then superseded before its grace is over: the eviction is refused, for it is not the holder any more."""
    gate = threading.Event()
    started: list[int] = []
    stuck(app, gate, started)
    app.actors["deaf"].task = replace(
        app.actors["deaf"].task, policy=replace(app.actors["deaf"].task.policy, grace=0.5)
    )
    async with workers.run(app, concurrency=1) as running, opened_at_last(gate):
        run = await client.submit(app.actors["deaf"].call(), key="k")
        await wait_until(lambda: started, description="the body runs")
        assert (await run.cancel()).outcome == "stopping"
        following = await client.replace(app.actors["work"].call(), key="k")
        assert await following.result(5) == "ran"
        assert running.worker.table.stuck_by_actor() == {"deaf": 1}


@GATES
async def test_more_stuck_bodies_than_the_limit_are_not_ready_and_take_no_runs(
    app: App, client: Client, workers: Workers, gate: type[threading.Event | asyncio.Event]
) -> None:
    """stuck_limit 1, two bodies stuck: /ready says so, another run waits; one ends, and it runs."""
    app.config = replace(FAST, stuck_limit=1)
    opened = gate()
    started: list[int] = []
    stuck(app, opened, started)
    async with workers.run(app) as running, opened_at_last(opened):
        worker = running.worker
        for key in ("a", "b"):
            await client.submit(app.actors["deaf"].call(), key=key)
        await wait_until(lambda: len(started) == 2, description="both run")
        for key in ("a", "b"):
            assert (await client.cancel(key)).outcome == "stopping"
        await wait_until(lambda: worker.why_not_ready, description="too many are stuck")
        assert "2 bodies ignore their stop (stuck_limit 1)" in worker.why_not_ready
        late = await client.submit(app.actors["work"].call())
        with pytest.raises(TimeoutError):
            await late.result(0.5)
        opened.set()
        assert await late.result(5) == "ran"
        assert worker.why_not_ready == ""


async def test_the_wake_up_of_a_stuck_body_is_not_taken_for_the_one_of_the_next_attempt(
    app: App, client: Client, behind: Workers, supervised_behind: Supervisors, proxy: Proxy
) -> None:
    """The work stream takes nothing while the body is evicted and its entry expires: both wake-ups of attempt 2 are lost.

    What is left is the message of attempt 1, under the same subject: kept in hand as long as the body lives, it would
    tell every sweep that all is well.
    """
    app.config = replace(FAST, sweep_seconds=0.3, patience_seconds=0.5, request_timeout_seconds=0.3)
    gate, again = threading.Event(), threading.Event()

    @app.actor(timeout=0.2, grace=0.1, retry=Retry(max_attempts=2, initial=0.01))
    def deaf(ctx: Context) -> None:
        if ctx.attempt == 1:
            gate.wait(30)
        else:
            again.set()

    async with behind.run(app) as running, supervised_behind.run(app) as supervisor, opened_at_last(gate):
        lost = proxy.lose(wake_up(app, "k"), times=1_000)
        await client.submit(deaf.call(), key="k")
        await wait_until(lambda: running.worker.table.stuck, description="the body is evicted")

        async def expired() -> bool:
            record = (await client.stores.runs.read("k")).record
            gave_up = supervisor.metrics.errors["server"]
            return again.is_set() or bool(gave_up and record and not record.holder and not record.previous)

        await wait_until(expired, description="its entry has expired, the wake-up for that has been given up")
        assert running.worker.metrics.outcomes["deaf", "retried"] == 1
        lost.clear()
        await wait_until(again.is_set, description="attempt 2 runs beside the stuck body")


async def test_a_thread_that_outlives_a_lost_session_stays_visible(app: App, client: Client, workers: Workers) -> None:
    """The session is closed under a deaf plain body: its run is given up and runs again, its thread is still there."""
    gate = threading.Event()
    started: list[int] = []
    stuck(app, gate, started)
    async with workers.run(app) as running, opened_at_last(gate):
        worker = running.worker
        await client.submit(app.actors["deaf"].call(), key="k")
        await wait_until(lambda: started, description="the body runs")
        first = worker.lease.id
        seen = await client.stores.sessions.read(first)
        assert seen is not None
        await client.stores.sessions.write(replace(seen.session, closed="expired"), seen.revision)
        await wait_until(lambda: len(started) == 2 and worker.lease.id != first, description="it runs again")
        assert worker.table.stuck_by_actor() == {"deaf": 1}
        gate.set()
        await wait_until(lambda: not worker.table.stuck_by_actor(), description="the thread has ended")


async def test_a_plain_body_that_raises_stopiteration_fails(app: App, client: Client, workers: Workers) -> None:
    """No future carries it: unless it is made another error, the run hangs in its slot for ever."""

    @app.actor(retry=None)
    def empty() -> int:
        return next(iter(()))

    async with workers.run(app):
        status = await (await client.submit(empty.call())).wait(5)
        assert (status.phase, status.error) == ("failed", "RuntimeError: the body raised StopIteration()")
