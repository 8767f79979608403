"""Scenarios 1 and 2.

A perpetual key whose schedule is replaced while it runs, and whose outcomes must not hide its successor.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from actors import monitor
from tenure import App, Cancelled, Client, Context, Retry, RunSuperseded
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.support import wait_until


@pytest.mark.parametrize("overlap", ["parallel", "stop"])
@pytest.mark.parametrize("ending", ["returns", "fails", "reschedules", "cancels itself"])
async def test_scenario_01_the_slower_old_run_never_overwrites_the_newer_schedule(
    app: App, client: Client, workers: Workers, ending: str, overlap: str
) -> None:
    """docket#331.

    A (every 2 s) runs; replace sets B (every 0.2 s); B's first run ends; then A ends: each later run is B's.

    ``stop``: A ignores that it is told to stop, so B starts when A's grace is over. A's end would be an outcome with a
    successor 2 s ahead, a retry, a successor of its own choice, or a cancel of what it takes for its own chain.
    """
    ran: list[str] = []
    release, old_ended = asyncio.Event(), asyncio.Event()
    cancels: list[asyncio.Task[Cancelled]] = []

    @app.actor(every=2.0, grace=0.1, retry=Retry(max_attempts=3, initial=0.01, jitter=0.0))
    async def old(ctx: Context) -> str:
        ran.append("old")
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        old_ended.set()
        if ending == "fails":
            raise ValueError(ending)
        if ending == "reschedules":
            ctx.reschedule(delay=0.01)
        if ending == "cancels itself":
            cancels.append(asyncio.create_task(client.cancel(ctx.key, run_id=ctx.run_id)))
            await asyncio.wait(cancels)  # its own stop signal may reach it before the answer does
        return "old"

    @app.actor(every=0.2, grace=0.1)
    async def quick() -> str:
        ran.append("quick")
        return "quick"

    async with workers.run(app) as running, opened_at_last(release):
        first = await client.submit(old.call(), key="k")
        await wait_until(lambda: ran, description="A runs")
        second = await client.replace(quick.call(), key="k", overlap=overlap)  # type: ignore[arg-type]  # a parameter
        assert await second.result(5) == "quick"
        assert not old_ended.is_set()
        release.set()
        superseded = running.worker.metrics.superseded
        await wait_until(
            lambda: sum(n for (actor, _), n in superseded.items() if actor == "old"), description="A's end is refused"
        )
        seen = len(ran)
        await wait_until(lambda: len(ran) >= seen + 3, description="three more runs")
        status = await client.status("k")

    assert set(ran[1:]) == {"quick"}
    assert status is not None
    assert (status.actor, status.phase in {"scheduled", "queued", "running"}) == ("quick", True)
    with pytest.raises(RunSuperseded):
        await first.result(1)
    if ending == "fails":  # under `stop` it was void since its grace was over: the claim that followed has counted it
        assert superseded["old", "tail" if overlap == "stop" else "retry"] == 1
    told = "stopping" if overlap == "parallel" else "finished"  # under `stop` A's place was given up with its grace
    assert [(await out).outcome for out in cancels] == ([told] if ending == "cancels itself" else [])


async def test_scenario_01_a_replaced_monitor_goes_on_with_its_new_interval(
    app: App, client: Client, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docket#331 with the example actor.

    A check of the old interval hangs in its thread, the new one runs, the old one ends.

    Both intervals are asked for with ``ctx.reschedule`` inside the body.
    """
    hanging, targets, probe = asyncio.Event(), [], monitor.probe
    loop = asyncio.get_running_loop()
    old, new = str(tmp_path / "old"), str(tmp_path / "new")

    def slow(target: str) -> monitor.Check:
        targets.append(target)
        if target == old:
            asyncio.run_coroutine_threadsafe(hanging.wait(), loop).result(10)
        return probe(target)

    monkeypatch.setattr(monitor, "probe", slow)
    check = app.actor(name="check", every=2.0)(monitor.check.function)
    async with workers.run(app) as running, opened_at_last(hanging):
        await client.submit(check.call(old, interval=0.05), key="watch")
        await wait_until(lambda: targets, description="the old check hangs")
        replaced = await client.replace(check.call(new, interval=0.05), key="watch", overlap="parallel")
        assert (await replaced.result(5)).target == new
        hanging.set()
        await wait_until(
            lambda: running.worker.metrics.superseded["check", "reschedule"], description="old end refused"
        )
        await wait_until(lambda: len(targets) > 5, description="more checks")
        status = await client.status("watch")

    assert targets.count(old) == 1
    assert status is not None
    assert status.generation > 4


@pytest.mark.parametrize("kept_seconds", [0.0, 60.0])
async def test_scenario_02_the_old_generations_outcome_never_hides_the_successor(
    app: App, client: Client, workers: Workers, kept_seconds: float
) -> None:
    """docket#335.

    A perpetual run ends and its result is kept 0 s or 60 s: at every look the successor is there and due, then runs.

    The time to the successor is longer than the shortest time a record may live (1 s): an expiry meant for the result
    would take the successor along.
    """
    every = 2.5

    @app.actor(every=every, result_ttl=kept_seconds)
    async def tick(ctx: Context) -> int:
        return ctx.generation

    looks: list[tuple[int, str]] = []

    async def second_has_run() -> bool:
        status = await client.status("k")
        assert status is not None, f"the key vanished after {looks[-1:]}"
        looks.append((status.generation, status.phase))
        return status.generation == 3

    async with workers.run(app):
        run = await client.submit(tick.call(), key="k")
        assert await run.result(5) == 1
        after = await client.status("k")
        assert after is not None
        assert (after.generation, after.phase) == (2, "scheduled")
        assert after.due is not None
        assert 0 < after.due.timestamp() - client.now() <= every
        final = await run.wait(1)
        assert (final.generation, final.phase) == (1, "succeeded")  # the successor hides the outcome as little
        await wait_until(second_has_run, description="the successor runs at its time")

    assert {phase for generation, phase in looks if generation < 3} <= {"scheduled", "queued", "running"}
