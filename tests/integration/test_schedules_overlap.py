"""A fire whose run takes longer than its schedule's step: what comes over it, by ``overlap`` and by ``catch_up``."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tenure import App, Context, RunSuperseded
from tenure.core.records import Overlap
from tenure.testing import memory

ACTORS_OVERLAPS: tuple[Overlap, ...] = ("stop", "wait")
"""A schedule with another one is refused."""


class Bodies:
    """How many there are at once, and how each ended."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.ended: list[str] = []

    async def body(self, ctx: Context, seconds: float) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        how = "done"
        try:
            await asyncio.sleep(seconds)  # body: in virtual time
        except asyncio.CancelledError:
            how = str(ctx.stop_reason)
            raise
        finally:
            self.now -= 1
            self.ended.append(f"{ctx.generation} {how}")


@pytest.mark.parametrize("overlap", ACTORS_OVERLAPS)
@pytest.mark.parametrize(("schedule", "catch_up"), [({"every": 10.0}, "none"), ({"cron": "*/10 * * * * *"}, "all")])
async def test_fires_of_one_schedule_never_overlap_whatever_the_policy(
    namespace: str, schedule: dict[str, Any], catch_up: Any, overlap: Overlap
) -> None:
    """A run of 25 s, each 10 s: the next one is written by its outcome, and what was missed goes by ``catch_up``."""
    app, bodies, ticks = App(namespace), Bodies(), list[float]()

    @app.actor(**schedule, catch_up=catch_up, overlap=overlap, autostart=True)
    async def report(ctx: Context) -> None:
        record = (await client.stores.runs.read(ctx.key)).record
        assert record is not None
        ticks.append(record.tick)
        await bodies.body(ctx, 25.0)

    async with memory(app) as client:
        await asyncio.sleep(110.0)  # paused: in virtual time
    assert bodies.most == 1
    steps = [round(late - early) for early, late in pairwise(ticks[1:])]
    assert set(steps) == ({30} if catch_up == "none" else {10})


@pytest.mark.parametrize("overlap", ACTORS_OVERLAPS)
async def test_a_trigger_or_a_submit_over_a_running_fire_starts_nothing(namespace: str, overlap: Overlap) -> None:
    app, bodies = App(namespace), Bodies()

    @app.actor(every=100.0, overlap=overlap)
    async def report(ctx: Context) -> None:
        await bodies.body(ctx, 20.0)

    async with memory(app) as client:
        run = await client.submit(report.call(), key="k")
        await asyncio.sleep(5.0)  # paused: it runs
        for again in (await client.trigger("k"), await client.submit(report.call(), key="k")):
            assert not again.accepted
            assert again.run_id == run.run_id
        await asyncio.sleep(60.0)  # paused: it is over
        status = await client.status("k")
        assert status is not None
        assert (status.generation, status.phase) == (2, "scheduled")
    assert bodies.most == 1
    assert bodies.ended == ["1 done"]


@pytest.mark.parametrize(
    ("overlap", "most", "ended"),
    [
        ("stop", 1, ["1 superseded", "2 done"]),
        ("wait", 1, ["1 done", "2 done"]),
        ("parallel", 2, ["1 done", "2 done"]),
    ],
)
async def test_a_replace_over_a_running_fire_goes_by_the_overlap_that_it_says(
    namespace: str, overlap: Overlap, most: int, ended: list[str]
) -> None:
    """Told to stop, waited for, or left beside it; in each case one chain goes on, that of the new schedule."""
    app, bodies = App(namespace), Bodies()

    @app.actor(every=100.0)
    async def report(ctx: Context, seconds: float = 20.0) -> None:
        await bodies.body(ctx, seconds)

    async with memory(app) as client:
        old = await client.submit(report.call(), key="k")
        await asyncio.sleep(5.0)  # paused: it runs
        new = await client.replace(report.call(30.0), key="k", overlap=overlap)
        await new.result()
        with pytest.raises(RunSuperseded):
            await old.result()
        status = await client.status("k")
        assert status is not None
        assert (status.generation, status.phase) == (3, "scheduled")
        assert bodies.ended == ended
        await asyncio.sleep(140.0)  # paused: the next fire is over
    assert bodies.most == most
    assert bodies.ended == [*ended, "3 done"]
