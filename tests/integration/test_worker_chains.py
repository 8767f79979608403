"""What a run leaves behind with its outcome: spawned runs and successors, exactly once, or none at all."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure import App, Client, Context, Fail, Retry, RunCancelled, RunFailed, RunSuperseded
from tenure.core.commands import Claim, Succeed
from tenure.core.records import MAX_PREVIOUS, SCHEMA, Entry, Holder, Phase, Previous, Record, encode
from tests.conftest import Workers
from tests.support import wait_until


async def test_spawned_runs_start_exactly_once_with_the_outcome(app: App, client: Client, workers: Workers) -> None:
    """The body spawns in a first attempt that fails and in a second that succeeds: only the second's count, each once.

    With a key, without one, with a delay, and over a key that is live already: that run is kept.
    """
    ran: Counter[str] = Counter()

    @app.actor
    async def child(ctx: Context, name: str) -> None:
        ran[name] += 1

    @app.actor(retry=Retry(max_attempts=2, initial=0.01))
    async def parent(ctx: Context) -> None:
        ctx.spawn(child.call(f"keyed {ctx.attempt}"), key="child")
        ctx.spawn(child.call(f"anonymous {ctx.attempt}"))
        ctx.spawn(child.call(f"delayed {ctx.attempt}"), key="delayed", delay=0.3)
        ctx.spawn(child.call(f"joined {ctx.attempt}"), key="live")
        await asyncio.sleep(0.05)  # body: what it spawned must wait for its end
        assert not ran
        if ctx.attempt == 1:
            raise ValueError("once")

    live = await client.submit(child.call("live"), key="live", delay=60.0)
    async with workers.run(app):
        run = await client.submit(parent.call(), key="parent")
        await run.result(5)
        await wait_until(lambda: ran["delayed 2"], description="the delayed child runs")
        status = await client.status("live")
        assert status is not None
        assert (status.run_id, status.phase) == (live.run_id, "scheduled")
        await client.trigger("live")
        await live.result(5)

        async def settled() -> bool:
            found = await client.stores.runs.read("parent")
            return found.record is not None and not found.record.outbox

        await wait_until(settled, description="the parent's outbox is empty")
    assert ran == {"keyed 2": 1, "anonymous 2": 1, "delayed 2": 1, "live": 1}


@pytest.mark.parametrize("ending", ["fails", "cancelled", "superseded"])
async def test_a_run_that_does_not_succeed_spawns_nothing(
    app: App, client: Client, workers: Workers, ending: str
) -> None:
    """The body spawns, then fails for good, or is cancelled, or is replaced.

    In the last two it returns as if nothing were.
    """
    started, ended = asyncio.Event(), asyncio.Event()

    @app.actor
    async def child() -> None: ...

    @app.actor
    async def parent(ctx: Context) -> None:
        ctx.spawn(child.call(), key="child")
        started.set()
        if ending == "fails":
            raise Fail(ending)
        await ctx.stopping.wait()

    @app.actor
    async def other() -> str:
        ended.set()
        return "other"

    async with workers.run(app) as running:
        run = await client.submit(parent.call(), key="parent")
        await wait_until(started.is_set, description="the body runs")
        if ending == "fails":
            with pytest.raises(RunFailed):
                await run.result(5)
        elif ending == "cancelled":
            await run.cancel()
            with pytest.raises(RunCancelled):
                await run.result(5)
        else:
            replaced = await client.replace(other.call(), key="parent")
            assert await replaced.result(5) == "other"
            with pytest.raises(RunSuperseded):
                await run.result(1)
        await wait_until(lambda: not len(running.worker.table), description="nothing is in hand")
    assert await client.status("child") is None


async def test_reschedule_starts_a_successor_with_the_outcome(app: App, client: Client, workers: Workers) -> None:
    """Successors by ``reschedule``: the same call after a delay, another call at once, and one of a final failure."""
    seen: list[tuple[int, str, int]] = []

    @app.actor(retry=Retry(max_attempts=2, initial=0.01))
    async def step(ctx: Context, name: str) -> str:
        seen.append((ctx.generation, name, ctx.attempt))
        if ctx.generation == 1:
            ctx.reschedule(delay=60)
            ctx.reschedule(delay=0.1)  # the last one counts
        if ctx.generation == 2:
            ctx.reschedule(call=step.call("second"))
        if ctx.generation == 3:
            ctx.reschedule(call=step.call("third"))
            raise ValueError("twice")
        return name

    async with workers.run(app) as running:
        run = await client.submit(step.call("first"), key="k")
        assert await run.result(5) == "first"
        await wait_until(lambda: len(seen) == 5, description="the last generation")

        async def over() -> bool:
            status = await client.status("k")
            return status is not None and status.is_over

        await wait_until(over, description="the chain ends")
        await wait_until(lambda: not len(running.worker.table), description="everything is counted")
        outcomes = {what: n for (_, what), n in running.worker.metrics.outcomes.items() if n}
    assert seen == [(1, "first", 1), (2, "first", 1), (3, "second", 1), (3, "second", 2), (4, "third", 1)]
    assert outcomes == {"rescheduled": 2, "retried": 1, "failed": 1, "succeeded": 1}


async def test_a_perpetual_key_keeps_its_phase_whatever_its_runs_take(
    app: App, client: Client, workers: Workers
) -> None:
    """posthog#42607.

    Every 0.3 s; a run of 0.4 s, one that is retried, one that fails for good: the ticks stay on one grid.
    """
    every = 0.3
    seen: list[tuple[int, int]] = []
    ticks: list[float] = []

    @app.actor(every=every, retry=Retry(max_attempts=2, initial=0.05))
    async def tick(ctx: Context) -> None:
        found = await client.stores.runs.read(ctx.key)
        assert found.record is not None
        seen.append((ctx.generation, ctx.attempt))
        ticks.append(found.record.tick)
        if ctx.generation == 2:
            await asyncio.sleep(0.4)  # body: longer than the interval
        if (ctx.generation == 3 and ctx.attempt == 1) or ctx.generation == 4:
            raise ValueError("now and then")

    async with workers.run(app):
        await client.submit(tick.call(), key="k")
        await wait_until(lambda: len(seen) == 8, description="the sixth generation")
        out = await client.cancel("k")
        assert out.outcome in {"cancelled", "stopping"}

        async def ended() -> bool:
            status = await client.status("k")
            return status is not None and status.phase == "cancelled"

        await wait_until(ended, description="the chain has ended")
    assert seen[:8] == [(1, 1), (2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1), (6, 1)]
    steps = [(tick - ticks[0]) / every for tick in ticks[:8]]
    grain = len(ticks) * math.ulp(ticks[0]) / every  # each tick is rounded to what a float holds
    assert all(abs(step - round(step)) < grain for step in steps), steps
    first, second, third, again, fourth, fourth_again, fifth, sixth = (round(step) for step in steps)
    assert third >= second + 2, "the tick that its run outlasted is skipped"
    assert (again, fourth_again) == (third, fourth), "a retry stands for the tick of its generation"
    assert first < second < third < fourth < fifth < sixth


async def test_a_spawn_whose_key_has_no_room_is_owed_until_it_has(app: App, client: Client, workers: Workers) -> None:
    """The target is refused a new generation (too many older bodies): that is no application, nothing may be cleared."""

    @app.actor
    async def child() -> str:
        return "grown"

    @app.actor
    async def parent(ctx: Context) -> None:
        ctx.spawn(child.call(), key="child")

    older = Previous(session="s", run_id="r", attempt=1)
    crowded = Record(
        schema=SCHEMA,
        key="child",
        run_id="r0",
        generation=1,
        phase=Phase.CANCELLED,
        task=child.call().task,
        queued_at=client.now(),
        previous=tuple(replace(older, run_id=f"r{n}") for n in range(MAX_PREVIOUS + 1)),
    )
    conn, subject = client.stores.conn, app.names.record("child")
    await conn.put(subject, encode(crowded))
    async with workers.run(app):
        run = await client.submit(parent.call(), key="k")
        await run.wait(5)
        found = await client.stores.runs.read("k")
        assert found.record is not None
        assert [entry.key for entry in found.record.outbox] == ["child"]
        await conn.put(subject, encode(replace(crowded, previous=())))

        async def started() -> bool:
            status = await client.status("child")
            return status is not None and status.phase == "succeeded"

        await wait_until(started, description="the child has run", timeout=30)

        async def paid() -> bool:
            found = await client.stores.runs.read("k")
            return found.record is not None and not found.record.outbox

        await wait_until(paid, description="the debt is cleared")


async def test_what_a_run_spawned_exists_once_its_result_is_there(app: App, client: Client, workers: Workers) -> None:
    """The outcome is stored before the spawned runs are created; who waits for it must not meet that gap."""

    @app.actor
    async def child() -> str:
        return "grown"

    @app.actor
    async def parent(ctx: Context) -> str:
        ctx.spawn(child.call(), key=f"{ctx.key}/child")
        return "done"

    async with workers.run(app):
        for number in range(20):
            run = await client.submit(parent.call(), key=f"k{number}")
            assert await run.result(5) == "done"
            assert await client.status(f"k{number}/child") is not None


async def test_who_waits_pays_what_a_worker_left_owed(app: App, client: Client, workers: Workers) -> None:
    """The worker is cut down between the outcome and its effects: the outcome is stored, the spawned run is not."""

    @app.actor
    async def child() -> str:
        return "grown"

    @app.actor
    async def parent() -> str:
        return "done"

    run = await client.submit(parent.call(), key="k")
    runs = client.stores.runs
    await runs.commit("k", Claim(session="s", run_id=run.run_id, next_run_id=""))
    entry = Entry(id=f"{run.run_id}.1.0", key="child", run_id="r", task=child.call().task)
    holder = Holder(session="s", run_id=run.run_id, attempt=1)
    await runs.commit("k", Succeed(holder=holder, next_run_id="", result=Raw(b'"done"'), outbox=(entry,)))
    assert await run.result(5) == "done"
    status = await client.status("child")
    assert status is not None
    assert (status.run_id, status.phase) == ("r", "queued")
    async with workers.run(app):
        assert await client.run("child").result(5) == "grown"
