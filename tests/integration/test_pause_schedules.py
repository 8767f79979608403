"""Schedules whose actor is paused."""

from __future__ import annotations

import asyncio
import time

from tenure import Client
from tests.conftest import Supervisors, Workers
from tests.integration.test_pause import quick, until_held
from tests.support import wait_until


async def test_a_paused_schedule_fires_no_ticks_and_goes_on_by_its_catch_up(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Each every 0.5 s, paused for 2 s: the run that was due starts late, once; then nothing, one or all of what was missed."""
    app = quick(namespace)
    seen: dict[str, list[float]] = {"none": [], "one": [], "all": []}

    @app.actor(every=0.5, autostart=True)
    async def tick_none() -> None:
        seen["none"].append(time.monotonic())

    @app.actor(every=0.5, autostart=True, catch_up="one")
    async def tick_one() -> None:
        seen["one"].append(time.monotonic())

    @app.actor(every=0.5, autostart=True, catch_up="all")
    async def tick_all() -> None:
        seen["all"].append(time.monotonic())

    names = {"none": "tick_none", "one": "tick_one", "all": "tick_all"}
    async with workers.run(app), supervisors.run(app):
        await wait_until(lambda: all(len(ticks) >= 2 for ticks in seen.values()), description="all tick")
        for name in names.values():
            await client.pause(actor=name)
        await until_held(client, 3)
        before = {policy: len(ticks) for policy, ticks in seen.items()}
        await asyncio.sleep(2.0)  # paused: ticks that are missed
        assert {policy: len(ticks) for policy, ticks in seen.items()} == before
        resumed = time.monotonic()
        for name in names.values():
            await client.resume(actor=name)
        await wait_until(
            lambda: all(ticks[-1] > resumed + 1.0 for ticks in seen.values()), description="all tick as before"
        )
    at_once = {policy: sum(resumed < at < resumed + 0.4 for at in ticks) for policy, ticks in seen.items()}
    print(f"in the first 0.4 s: {at_once}")
    assert at_once["none"] in {1, 2}, "the late one, and maybe one on time"
    assert at_once["one"] in {2, 3}
    assert at_once["all"] >= 4
