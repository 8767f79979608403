"""Schedules whose actor is paused."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

import pytest

from tenure import Client, Context
from tenure.nats.runs import Found
from tests.conftest import Supervisors, Workers
from tests.integration.test_pause import quick, until_held
from tests.support import wait_until

EVERY = 0.5


class Step(NamedTuple):
    """A run of a schedule has ended, and the next one is written: its tick follows from the tick of the one before, and the time."""

    tick: float
    ended: float
    following: float


async def test_a_paused_schedule_fires_no_ticks_and_goes_on_by_its_catch_up(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Each every 0.5 s, paused for 2 s: the run that was due starts late, once; then nothing, one or all of what was missed.

    Which ticks are run is read from the records: how soon, is a matter of how busy the machine is.
    """
    app = quick(namespace)
    bodies: Counter[str] = Counter()

    async def tick(ctx: Context) -> None:
        bodies[ctx.key] += 1

    for policy in ("none", "one", "all"):
        app.actor(name=policy, every=EVERY, autostart=True, catch_up=policy)(tick)
    steps: dict[str, list[Step]] = {name: [] for name in app.actors}
    newest: dict[str, tuple[float, str]] = {}

    def saw(_key: str, found: Found) -> None:
        if (record := found.record) is None:
            return
        tick, ended = newest.get(record.task.actor, (0.0, ""))
        if record.last is not None and record.last.run_id != ended:
            steps[record.task.actor].append(Step(tick, record.last.at, record.tick))
        newest[record.task.actor] = (record.tick, record.last.run_id if record.last is not None else "")

    stop = await client.stores.runs.follow_all(saw)
    async with workers.run(app), supervisors.run(app):
        await wait_until(lambda: all(len(seen) >= 2 for seen in steps.values()), description="all tick")
        for name in app.actors:
            await client.pause(actor=name)
        await until_held(client, 3)
        before = dict(bodies)
        await asyncio.sleep(4 * EVERY)  # paused: ticks that are missed
        assert bodies == before
        resumed = client.now()
        for name in app.actors:
            await client.resume(actor=name)
        await wait_until(
            lambda: all(seen[-1].tick > resumed for seen in steps.values()), description="all tick as before"
        )
    await stop()
    late = {name: next(step for step in seen if step.ended > resumed) for name, seen in steps.items()}
    assert all(step.tick < resumed - 3 * EVERY for step in late.values()), "the run that was due comes first"
    assert late["none"].ended < late["none"].following <= late["none"].ended + EVERY, "the next one that is to come"
    assert late["one"].ended - EVERY < late["one"].following <= late["one"].ended, (
        "the latest of those that were missed"
    )
    for step in steps["all"]:
        assert step.following - step.tick == pytest.approx(EVERY), "each of them"
