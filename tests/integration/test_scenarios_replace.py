"""Scenarios 3, 4 and 5: replacing what runs, and keys whose record is gone."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tenure import App, Client, Context, RunSuperseded
from tenure.core.commands import Claim
from tenure.core.records import encode
from tenure.nats.runs import Committed, Found
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.support import wait_until


def superseded(counts: dict[tuple[str, str], int]) -> int:
    return sum(counts.values())


@pytest.mark.parametrize("overlap", ["stop", "wait", "parallel"])
async def test_scenario_03_waiting_for_generation_2_is_not_woken_by_the_end_of_generation_1(
    app: App, client: Client, workers: Workers, overlap: str
) -> None:
    """As in docket 0.27: a running plain task is replaced and both handles are awaited.

    The old body returns while the new one waits for it (stop, wait) or runs beside it (parallel). An outcome of a run
    before both is stored all the while.
    """
    gates = {name: asyncio.Event() for name in ("earlier", "first", "second")}
    running: list[str] = []

    @app.actor
    async def work(name: str) -> str:
        running.append(name)
        try:
            await gates[name].wait()
        except asyncio.CancelledError:
            await gates[name].wait()  # told to stop, and not quick about it
        return name

    async with workers.run(app) as worker, opened_at_last(*gates.values()):
        gates["earlier"].set()
        assert await (await client.submit(work.call("earlier"), key="k")).result(5) == "earlier"
        one = await client.submit(work.call("first"), key="k")
        first = asyncio.create_task(one.result(10))
        await wait_until(lambda: "first" in running, description="the first body runs")
        two = await client.replace(work.call("second"), key="k", overlap=overlap)  # type: ignore[arg-type]  # a parameter
        second = asyncio.create_task(two.result(10))
        if overlap == "parallel":
            await wait_until(lambda: "second" in running, description="the second runs beside the first")
        assert running.count("second") == (overlap == "parallel")

        gates["first"].set()
        await wait_until(lambda: superseded(worker.worker.metrics.superseded), description="the old end is refused")
        await wait_until(lambda: "second" in running, description="the second body runs")
        status = await client.status("k")
        assert status is not None
        assert (status.phase, status.generation, second.done()) == ("running", 3, False)

        gates["second"].set()
        assert await second == "second"
        with pytest.raises(RunSuperseded) as error:
            await first
        assert (error.value.generation, error.value.by_generation) == (2, 3)
        assert await one.result(1, follow=True) == "second"


async def test_scenario_04_a_purge_does_not_restart_generations(app: App, client: Client, workers: Workers) -> None:
    """As in docket 0.27.

    Messages of generations 1 to 3 are pending when the key is purged and submitted anew; a worker starts.

    The new life is at generation 1 again, so the old messages name a generation that will come up: their run ids do
    not.
    """
    ran: list[str] = []

    @app.actor
    async def work(name: str) -> str:
        ran.append(name)
        return name

    old = [await client.submit(work.call("old 1"), key="k")]
    old += [await client.replace(work.call(f"old {n}"), key="k") for n in (2, 3)]
    assert [run.generation for run in old] == [1, 2, 3]
    assert await client.purge("k")
    new = await client.submit(work.call("new"), key="k")
    assert (new.generation, new.accepted) == (1, True)
    assert new.run_id not in {run.run_id for run in old}
    assert (await old[2].cancel()).outcome == "finished"  # nor does a cancel out of the old life hit the new one

    async with workers.run(app) as running:
        assert await new.result(5) == "new"
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["work", "superseded"] == 3, description="three old messages are dropped")
        again = [await client.replace(work.call(f"new {n}"), key="k") for n in (2, 3)]  # the old numbers come up again
        assert await again[1].result(5) == "new 3"

    assert set(ran) <= {"new", "new 2", "new 3"}
    for run in old:
        with pytest.raises(RunSuperseded):
            await run.result(1)


async def test_scenario_04_an_expired_record_does_not_restart_generations(
    app: App, client: Client, workers: Workers
) -> None:
    """As in docket 0.27.

    A record expires with a message of its generation 3 still pending; the key is submitted anew.
    """
    ran: list[str] = []

    @app.actor(result_ttl=1.0)
    async def work(name: str) -> str:
        ran.append(name)
        return name

    await client.submit(work.call("old 1"), key="k")
    await client.replace(work.call("old 2"), key="k")
    old = await client.replace(work.call("old 3"), key="k")
    pending = await client.stores.runs.read("k")
    async with workers.run(app):
        assert await old.result(5) == "old 3"
    await wake_again(client, pending)

    async def gone() -> bool:
        return await client.status("k") is None

    await wait_until(gone, description="the record expires")
    new = await client.submit(work.call("new"), key="k")
    assert new.generation == 1
    async with workers.run(app) as running:
        status = await new.wait(5)
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["work", "superseded"] == 1, description="the old message is dropped")
    assert Counter(ran) == {"old 3": 1, "new": 1}
    assert (status.phase, status.generation, status.attempt) == ("succeeded", 1, 1)
    with pytest.raises(RunSuperseded):
        await old.result(1)


async def wake_again(client: Client, found: Found) -> None:
    """Store another copy of the wake-up of a record as it was: what a repair or a redelivery leaves behind."""
    assert found.record is not None
    stores = client.stores
    await stores.work.wake(found.record, encode(found.record), found.revision, client.now(), stores.runs.patience())


@pytest.mark.parametrize("pace", ["at once", "one by one"])
async def test_scenario_05_replacing_five_times_stops_each_body_before_the_next(
    app: App, client: Client, workers: Workers, pace: str
) -> None:
    """As in docket 0.27.

    Overlap ``stop``, two workers, bodies that need a moment to stop: never two at once; the last one wins.

    At once: five replaces in a row while the first body runs. One by one: each when the body before runs.
    """
    now, most, started = 0, 0, []

    @app.actor
    async def work(number: int) -> int:
        nonlocal now, most
        started.append(number)
        now += 1
        most = max(most, now)
        try:
            await asyncio.sleep(0.05 if number == 5 else 30)  # body: only the last may end by itself
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)  # body: it takes a moment to stop
            raise
        finally:
            now -= 1
        return number

    async with workers.run(app), workers.run(app):
        runs = [await client.submit(work.call(0), key="k")]
        for number in range(1, 6):
            if number == 1 or pace == "one by one":
                await wait_until(lambda: len(started) == len(runs), description="the body before runs")
            runs.append(await client.replace(work.call(number), key="k", overlap="stop"))
        assert await runs[5].result(10) == 5

    assert most == 1
    assert started == sorted(set(started))
    assert (started[0], started[-1]) == (0, 5)
    for run in runs[:5]:
        with pytest.raises(RunSuperseded):
            await run.result(1)


async def test_scenario_05_replacing_five_times_in_parallel_gives_five_bodies_and_one_outcome(
    app: App, client: Client, workers: Workers
) -> None:
    """As in docket 0.27.

    Overlap ``parallel``: five bodies at once; the newest returns in their middle; only its value counts.
    """
    gates = [asyncio.Event() for _ in range(5)]
    started: list[int] = []

    @app.actor
    async def work(ctx: Context, number: int) -> int:
        started.append(number)
        await gates[number].wait()
        assert ctx.stop_reason is None
        return number

    async with workers.run(app) as one, workers.run(app) as other, opened_at_last(*gates):
        runs = []
        for number in range(5):
            runs.append(await client.replace(work.call(number), key="k", overlap="parallel"))
            await wait_until(lambda: len(started) == len(runs), description="it runs beside the others")

        def ended(metric: str) -> int:
            return sum(
                n
                for w in (one, other)
                for (actor, _), n in getattr(w.worker.metrics, metric).items()
                if actor == "work"
            )

        for place, number in enumerate((1, 3, 4, 0, 2), 1):
            gates[number].set()
            await wait_until(
                lambda: ended("superseded") + ended("outcomes") == place,  # noqa: B023  (awaited before the next)
                description=f"body {number} ends",
            )
        assert (ended("outcomes"), ended("superseded")) == (1, 4)
        assert await runs[4].result(1) == 4
        status = await client.status("k")

    assert started == [0, 1, 2, 3, 4]
    assert status is not None
    assert (status.phase, status.generation) == ("succeeded", 5)
    for run in runs[:4]:
        with pytest.raises(RunSuperseded):
            await run.result(1)


async def test_a_superseded_body_confirms_its_end_to_who_waits_for_it_in_another_process(
    app: App, client: Client, workers: Workers
) -> None:
    """Its own process gets no delivery of the key any more, in whose head check its end would be seen [20]."""
    started, enough = asyncio.Event(), asyncio.Event()

    @app.actor(queue="old", grace=60.0)
    async def first() -> None:
        started.set()
        await enough.wait()

    @app.actor(queue="new")
    async def second() -> str:
        return "second"

    async with workers.run(app, queues=["old"]), workers.run(app, queues=["new"]), opened_at_last(enough):
        await client.submit(first.call(), key="k")
        await started.wait()
        run = await client.replace(second.call(), key="k", overlap="wait")
        enough.set()
        assert await run.result(timeout=5) == "second"


async def test_a_delivery_confirms_for_an_older_body_that_its_own_process_does_not_have(
    app: App, client: Client, workers: Workers
) -> None:
    """A claim of this process was stored after it had been given up, and its run was replaced: no body will say that it ended [20]."""

    @app.actor(queue="elsewhere")
    async def first() -> None: ...

    @app.actor
    async def second() -> str:
        return "second"

    async with workers.run(app, queues=["default"]) as running:
        run = await client.submit(first.call(), key="k")
        late = Claim(session=running.worker.lease.id, run_id=run.run_id, next_run_id="")
        assert isinstance(await client.stores.runs.commit("k", late), Committed)
        after = await client.replace(second.call(), key="k", overlap="wait")
        assert await after.result(timeout=5) == "second"
