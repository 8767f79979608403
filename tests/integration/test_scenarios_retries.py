"""Scenarios 17 and 18: what an attempt that is over, or a look that is stale, can still do to a retry: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from tenure import App, Client, Context, Retry
from tenure.cli.look import row_of
from tenure.core import commands as c
from tenure.core.records import Holder, encode, state_of
from tenure.nats.runs import Committed
from tenure.status import Status
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.support import wait_until

RETRY = Retry(max_attempts=2, initial=0.02, jitter=0.0)


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("returns", ["before the retry", "during the retry", "after the retry"])
async def test_scenario_17_a_timed_out_attempt_that_ignores_its_cancellation_cannot_write(
    app: App, client: Client, workers: Workers, returns: str, kind: str
) -> None:
    """hatchet#1022.

    Timeout 0.1 s; attempt 1 ignores it and returns a value within its grace, while attempt 2 runs, or after it.

    In every case attempt 2's result stands, and attempt 1 is told why it should have stopped.
    """
    grace = 5.0 if returns == "before the retry" else 0.1
    gates = {1: threading.Event(), 2: threading.Event()}
    seen: dict[int, Any] = {}

    @app.actor(name="async", timeout=0.1, grace=grace, retry=RETRY)
    async def stubborn(ctx: Context) -> str:
        seen[ctx.attempt] = ctx
        while not gates[ctx.attempt].is_set():
            try:
                await asyncio.sleep(0.005)  # body: deaf
            except asyncio.CancelledError:
                continue
        return f"attempt {ctx.attempt}"

    @app.actor(name="plain", timeout=0.1, grace=grace, retry=RETRY)
    def deaf(ctx: Context) -> str:
        seen[ctx.attempt] = ctx
        gates[ctx.attempt].wait(10)
        return f"attempt {ctx.attempt}"

    async with workers.run(app) as running, opened_at_last(*gates.values()):
        worker = running.worker
        run = await client.submit(app.actors[kind].call(), key="k")
        await wait_until(
            lambda: 1 in seen and seen[1].stop_reason == "timeout", description="attempt 1 is told to stop"
        )
        if returns == "before the retry":
            gates[1].set()
        await wait_until(lambda: 2 in seen, description="attempt 2 runs")
        if returns == "during the retry":
            gates[1].set()
            await wait_until(lambda: not worker.table.stuck, description="attempt 1 has ended")
        gates[2].set()
        assert await run.result(5) == "attempt 2"
        if returns == "after the retry":
            gates[1].set()
            await wait_until(lambda: not worker.table.stuck, description="attempt 1 has ended")
        await wait_until(lambda: not len(worker.table), description="everything is counted")
        status = await client.status("k")
        outcomes = {what: n for (_, what), n in worker.metrics.outcomes.items() if n}

    assert status is not None
    assert (status.phase, status.attempt, status.failures) == ("succeeded", 2, 1)
    assert outcomes == {"retried": 1, "succeeded": 1}
    assert await run.result(1) == "attempt 2"


async def test_scenario_17_nor_can_one_that_somebody_else_has_ended(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hatchet#1022.

    The worker of attempt 1 is slow: another process ends the attempt for it, and attempt 2 runs.

    Attempt 1 then returns in a process that knows of nothing; the store refuses its value.
    """
    gates = {1: asyncio.Event(), 2: asyncio.Event()}
    seen: list[int] = []

    @app.actor(timeout=0.1, grace=0.0, retry=RETRY)
    async def work(ctx: Context) -> str:
        seen.append(ctx.attempt)
        while not gates[ctx.attempt].is_set():
            with contextlib.suppress(asyncio.CancelledError):  # deaf
                await gates[ctx.attempt].wait()
        return f"attempt {ctx.attempt}"

    async with workers.run(app) as slow, workers.run(app) as other, opened_at_last(*gates.values()):
        for running in (slow, other):
            monkeypatch.setattr(running.worker._handler, "_timed_out", lambda _live: None)  # no timer of its own fires
        run = await client.submit(work.call(), key="k")
        await wait_until(lambda: seen == [1], description="attempt 1 runs")
        record = (await client.stores.runs.read("k")).record
        assert record is not None
        holder = record.holder
        assert isinstance(holder, Holder)

        async def evicted() -> bool:
            command = c.Evict(holder=holder, next_run_id=client.stores.clock.new_id(), jitter=0.5)
            result = await client.stores.runs.commit("k", command)
            if isinstance(result, Committed):
                await client.stores.carry_out(result, client.stores.runs.patience())
            return isinstance(result, Committed)

        await wait_until(evicted, description="attempt 1 is past its deadline and its grace")
        one = slow if holder.session == slow.worker.lease.id else other
        await wait_until(
            lambda: seen == [1, 2], description="attempt 2 runs"
        )  # here or there: the stuck one has no slot
        gates[1].set()
        await wait_until(lambda: one.worker.metrics.fenced["work"], description="attempt 1's value is refused")
        gates[2].set()
        assert await run.result(5) == "attempt 2"

        def counted() -> int:
            return sum(running.worker.metrics.outcomes["work", "succeeded"] for running in (slow, other))

        await wait_until(counted, description="it is counted")
        assert counted() == 1


async def test_scenario_18_a_stale_read_never_starts_a_body_early(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """arq#482. B is paused between delivery and claim. A, woken by another copy, fails: retry in 60 s.

    B goes on: it skips.
    """
    ran: list[int] = []

    @app.actor(retry=Retry(max_attempts=3, initial=60.0, jitter=0.0))
    async def work(ctx: Context) -> None:
        ran.append(ctx.attempt)
        raise ValueError("later")

    delivered, resume = asyncio.Event(), asyncio.Event()
    async with workers.run(app, concurrency=1) as paused, opened_at_last(resume):
        b = paused.worker
        commit = b.stores.runs.commit

        async def commit_later(*args: Any, **options: Any) -> Any:
            delivered.set()
            await resume.wait()
            return await commit(*args, **options)

        monkeypatch.setattr(b.stores.runs, "commit", commit_later)
        await client.submit(work.call(), key="k")
        await wait_until(delivered.is_set, description="B has the wake-up")
        async with workers.run(app) as running:
            found = await client.stores.runs.read("k")
            assert found.record is not None
            patience = client.stores.runs.patience()
            await client.stores.work.wake(found.record, encode(found.record), found.revision, client.now(), patience)
            a = running.worker
            await wait_until(lambda: a.metrics.outcomes["work", "retried"], description="A has failed and will retry")
            resume.set()
            await wait_until(lambda: not len(b.table), description="B has handled its delivery")
        status = await client.status("k")
        assert b.metrics.claims["work", "not_due"] == 1
        assert b.metrics.claims["work", "won"] == 0

    assert ran == [1]
    assert status is not None
    assert (status.phase, status.attempt, status.failures) == ("scheduled", 1, 1)
    assert status.due is not None
    assert status.due.timestamp() - client.now() > 50


async def test_a_run_that_has_started_is_not_due_any_more(app: App, client: Client, workers: Workers) -> None:
    """After a retry its record keeps when that was due: nobody must read it as something to come."""

    @app.actor(retry=Retry(max_attempts=2, initial=0.01))
    async def work(ctx: Context) -> None:
        seen.append(await client.status("k"))
        if ctx.attempt == 1:
            raise ValueError("once more")

    seen: list[Status | None] = []
    async with workers.run(app):
        await (await client.submit(work.call(), key="k")).result(5)
    seen.append(await client.status("k"))
    assert [(status.phase, status.due) for status in seen if status] == [
        ("running", None),
        ("running", None),
        ("succeeded", None),
    ]
    found = await client.stores.runs.read("k")
    assert found.record is not None
    assert found.record.due
    row = row_of("k", state_of(found.record), client.now())
    assert row is not None
    assert (row.phase, row.due) == ("succeeded", None)


@pytest.mark.parametrize("ends", ["succeeded", "failed"])
async def test_a_final_status_tells_the_failures_whoever_asks_and_whenever(
    app: App, client: Client, workers: Workers, ends: str
) -> None:
    """``wait`` and ``status``, and for a run whose key has gone on to the next generation meanwhile."""

    @app.actor(retry=Retry(max_attempts=3, initial=0.01))
    async def work(ctx: Context, bad: int) -> None:
        if ctx.attempt <= bad:
            raise ValueError(ctx.attempt)

    failures = 2 if ends == "succeeded" else 3
    async with workers.run(app):
        run = await client.submit(work.call(failures), key="k")
        waited = await run.wait(10)
        status = await run.status()
        assert status is not None
        assert (waited.phase, waited.attempt, waited.failures) == (ends, 3, failures)
        assert (status.phase, status.attempt, status.failures) == (ends, 3, failures)
        newer = await client.submit(work.call(0), key="k", delay=60.0)
        assert newer.generation == 2
        status = await run.status()
        assert status is not None
        assert (status.phase, status.attempt, status.failures) == (ends, 3, failures)
        status = await newer.status()
        assert status is not None
        assert status.failures == 0
