"""Scenarios 6, 8, 9 and 10.

A cancel is final, stores nothing for nothing, is obeyed by a full worker, and frees the key.
"""

from __future__ import annotations

import asyncio

import pytest

from tenure import App, Client, Context, Fail, Retry, Run, RunCancelled, Snooze, Stopped
from tenure.nats.runs import NOTHING
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.support import wait_until

ENDINGS = ["obeys", "returns", "raises", "fails for good", "snoozes", "wants a successor"]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_scenario_06_a_cancel_is_not_a_timeout(app: App, client: Client, workers: Workers, ending: str) -> None:
    """docket#296.

    Timeout 60 s, three attempts; cancelled while it runs, whatever the body makes of its ``CancelledError``.
    """
    reasons: list[str | None] = []
    attempts: list[int] = []

    @app.actor
    async def other() -> None:
        attempts.append(-1)

    @app.actor(timeout=60.0, retry=Retry(max_attempts=3, initial=0.01, jitter=0.0))
    async def work(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        try:
            await asyncio.sleep(30)  # body: until it is cancelled
        except asyncio.CancelledError:
            reasons.append(ctx.stop_reason)
            if ending == "obeys":
                raise
            if ending == "raises":
                raise ValueError(ending) from None
            if ending == "fails for good":
                raise Fail(ending) from None
            if ending == "snoozes":
                raise Snooze(0.01) from None
            if ending == "wants a successor":
                ctx.spawn(other.call(), key="spawned")
                ctx.reschedule(delay=0.01)
        return "done all the same"

    async with workers.run(app) as running:
        run = await client.submit(work.call(), key="k")
        await wait_until(lambda: attempts, description="the body runs")
        out = await client.cancel("k", reason="not wanted")
        assert (out.outcome, out.run_id) == ("stopping", run.run_id)
        with pytest.raises(RunCancelled) as error:
            await run.result(5)
        assert error.value.reason == "not wanted"
        await idle(client, "default")
        metrics = running.worker.metrics
        status = await client.status("k")

    assert (attempts, reasons) == ([1], ["cancel"])
    assert status is not None
    assert (status.phase, status.generation, status.attempt, status.failures) == ("cancelled", 1, 1, 0)
    assert {what: n for (_, what), n in metrics.outcomes.items() if n} == {"cancelled": 1}
    assert metrics.cancelled["work", "running"] == 1
    assert await client.status("spawned") is None


async def idle(client: Client, queue: str) -> None:
    """Wait until no wake-up of a queue is left: whatever could still start has been looked at."""

    async def empty() -> bool:
        return await client.stores.work.pending(queue, "normal") == (0, 0)

    await wait_until(empty, description=f"queue {queue} is empty")


async def test_scenario_08_cancelling_an_absent_key_stores_nothing(app: App, client: Client, workers: Workers) -> None:
    """arq#485. Cancel a key that nobody has submitted, twice and by run id; then submit it: it runs."""

    @app.actor
    async def work() -> str:
        return "ran"

    assert (await client.cancel("k")).outcome == "not_found"
    assert (await client.cancel("k", run_id="01ARZ3NDEKTSV4RRFFQ69G5FAV", reason="guessed")).outcome == "not_found"
    assert await client.stores.runs.read("k") == NOTHING
    async with workers.run(app):
        run = await client.submit(work.call(), key="k")
        assert (run.generation, await run.result(5)) == (1, "ran")


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_scenario_09_a_full_worker_still_obeys_a_cancel(
    app: App, client: Client, workers: Workers, kind: str
) -> None:
    """arq#290. Concurrency 1: the run that is cancelled has the only slot, and more work waits.

    Obeyed in under a second.
    """
    loop = asyncio.get_running_loop()
    times: dict[str, float] = {}
    started = asyncio.Event()

    @app.actor(name="async")
    async def waiting() -> None:
        started.set()
        try:
            await asyncio.sleep(30)  # body: until it is cancelled
        finally:
            times["stopped"] = loop.time()

    @app.actor(name="plain")
    def looping(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        try:
            while True:
                ctx.check()
        except Stopped:
            times["stopped"] = loop.time()
            raise

    @app.actor
    async def after() -> str:
        return "ran"

    async with workers.run(app, concurrency=1):
        run = await client.submit(app.actors[kind].call(), key="k")
        await wait_until(started.is_set, description="the only slot is taken")
        waiting_run = await client.submit(after.call(), key="next")
        asked = loop.time()
        assert (await client.cancel("k")).outcome == "stopping"
        with pytest.raises(RunCancelled):
            await run.result(5)
        assert times["stopped"] - asked < 1.0
        assert await waiting_run.result(5) == "ran"


async def test_scenario_10_a_key_cancelled_while_it_waits_can_be_submitted_again_at_once(
    app: App, client: Client, workers: Workers
) -> None:
    """docket#336. Cancel a scheduled run, submit at once: accepted as the next generation, and only that one runs."""
    ran: list[str] = []

    @app.actor
    async def work(name: str) -> str:
        ran.append(name)
        return name

    one = await client.submit(work.call("one"), key="k", delay=0.3)
    assert (await one.cancel()).outcome == "cancelled"
    two = await client.submit(work.call("two"), key="k")
    assert (two.accepted, two.generation) == (True, 2)
    async with workers.run(app):
        assert await two.result(5) == "two"
        await idle(client, "default")  # the cancelled run's message was looked at when it came due
    assert ran == ["two"]
    assert (await two.cancel()).outcome == "finished"


@pytest.mark.parametrize("obedient", [True, False])
async def test_scenario_10_a_key_whose_body_is_still_stopping_can_be_submitted_again_at_once(
    app: App, client: Client, workers: Workers, obedient: bool
) -> None:
    """docket#336.

    Cancel a running body that takes its time, submit while it is stopping: accepted, and started once it has ended.

    The old run stays cancelled, whether its body then obeys or returns a value after all; two bodies never run at once.
    """
    bodies, release = 0, asyncio.Event()
    started: list[str] = []

    @app.actor
    async def work(name: str) -> str:
        nonlocal bodies
        started.append(name)
        bodies += 1
        assert bodies == 1
        try:
            if name == "one":
                await asyncio.sleep(30)  # body: until it is cancelled
        except asyncio.CancelledError:
            await release.wait()
            if obedient:
                raise
        finally:
            bodies -= 1
        return name

    async with workers.run(app) as left, workers.run(app) as right, opened_at_last(release):
        one = await client.submit(work.call("one"), key="k")
        await wait_until(lambda: started, description="the body runs")
        assert (await one.cancel(reason="enough")).outcome == "stopping"
        two = await client.submit(work.call("two"), key="k")
        assert (two.accepted, two.generation) == (True, 2)
        with pytest.raises(RunCancelled) as error:
            await one.result(5)
        assert error.value.reason == "enough"
        await wait_until(
            lambda: any(w.worker.metrics.claims["work", "busy"] for w in (left, right)),
            description="the new run must wait",
        )
        assert started == ["one"]
        release.set()
        assert await two.result(5) == "two"
        await idle(client, "default")
    assert started == ["one", "two"]


async def test_a_cancel_of_a_finished_run_says_so_also_where_it_stops_an_older_body(
    app: App, client: Client, workers: Workers
) -> None:
    """The newest run ended beside the body of an older one (parallel). The cancel stops that body, and ended nothing."""
    reasons: list[str | None] = []

    @app.actor
    async def work(ctx: Context, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)  # body: the older one until it is told to stop
        except asyncio.CancelledError:
            reasons.append(ctx.stop_reason)
            raise

    async with workers.run(app):
        older = await client.submit(work.call(30.0), key="k")
        await wait_until_phase(older, "running")
        newest = await client.replace(work.call(0.0), key="k", overlap="parallel")
        await newest.result(5)
        told = await client.cancel("k")
        assert (told.outcome, told.generation, told.run_id) == ("finished", 2, newest.run_id)
        await wait_until(lambda: reasons, description="the older body is told")


async def test_a_cancel_of_an_older_run_tells_the_generation_of_that_run(
    app: App, client: Client, workers: Workers
) -> None:
    """Its body runs beside that of the newest: once told to stop, once found so; and at last there is nothing to stop."""

    @app.actor
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)  # body: until it is cancelled

    async with workers.run(app):
        older = await client.submit(work.call(30.0), key="k")
        await wait_until_phase(older, "running")
        newest = await client.replace(work.call(30.0), key="k", overlap="parallel")
        told = await older.cancel()
        assert (told.outcome, told.generation, told.run_id) == ("stopping", 1, older.run_id)
        await wait_until_phase(newest, "running")
        assert (await newest.cancel()).generation == 2
    waiting = await client.submit(work.call(0.0), key="q", delay=60)
    await client.replace(work.call(0.0), key="q", delay=60)
    assert ((await waiting.cancel()).outcome, (await waiting.cancel()).generation) == ("finished", 0)


async def wait_until_phase(run: Run[None], phase: str) -> None:
    async def there() -> bool:
        status = await run.status()
        return status is not None and status.phase == phase

    await wait_until(there, description=f"it is {phase}")
