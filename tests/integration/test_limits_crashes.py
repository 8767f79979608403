"""Places under a limit whose holder was killed or frozen come back, and are given back once."""

from __future__ import annotations

import asyncio
import time

from tenure import Client, Run
from tests.processes import WITHIN_SECONDS, Event, Site
from tests.support import wait_until


def most_at_once(events: list[Event], dead: dict[int, float]) -> int:
    """How many bodies ran at one instant; those of a process that is dead (or void) from a time on end then."""
    edges: list[tuple[float, int]] = []
    for began in (event for event in events if event.what == "started"):
        ends = [e.at for e in events if e.what == "ended" and (e.key, e.attempt) == (began.key, began.attempt)]
        edges += [(began.at, 1), (min([*ends, dead.get(began.pid, 1e12)]), -1)]
    now = most = 0
    for _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most


async def submit(site: Site, client: Client, number: int) -> list[Run[str]]:
    call = site.app.actors["limited"].call
    return [await client.submit(call(), key=f"k{i}") for i in range(number)]


async def started(site: Site, number: int, timeout: float = 10.0) -> list[Event]:
    await wait_until(
        lambda: len(site.events("started")) >= number, description=f"{number} bodies have started", timeout=timeout
    )
    return site.events("started")


async def test_scenario_33_places_of_killed_holders_come_back_with_no_new_traffic(site: Site) -> None:
    """solid_queue#546. n = 2. The worker that holds both is killed; four runs are parked and nothing else happens."""
    await site.start_supervisor()
    first = await site.start_worker()
    async with site.app.connect(site.url) as client:
        runs = await submit(site, client, 6)
        held = {event.key for event in await started(site, 2)}
        second = await site.start_worker()
        await asyncio.sleep(0.5)  # paused: all others are parked
        killed = time.time()
        await first.kill()
        again = await started(site, 4, WITHIN_SECONDS)
        print(f"kill -9 to the next start: {again[2].at - killed:.2f} s")
        assert {event.key for event in again[2:4]}.isdisjoint(held), "who was parked first comes first"
        for run in runs:
            site.open(run.key)
        for run in runs:
            await run.result(20)
        await wait_until(lambda: len(site.events("ended")) == 6, description="all have ended")
    assert most_at_once(site.events(), {first.pid: killed}) == 2
    assert {event.pid for event in site.events("ended")} == {second.pid}


async def test_scenario_32_a_holder_that_was_frozen_gives_back_nothing_that_is_anothers(site: Site) -> None:
    """solid_queue#761. n = 2. The holder of both is frozen until others have its places, then goes on and ends its bodies."""
    await site.start_supervisor()
    first = await site.start_worker()
    async with site.app.connect(site.url) as client:
        runs = await submit(site, client, 8)
        held = {event.key for event in await started(site, 2)}
        await site.start_worker()
        await asyncio.sleep(0.5)  # paused: all others are parked
        frozen = time.time()
        first.freeze()
        await started(site, 4, WITHIN_SECONDS)
        for key in held:
            site.open(key)
        first.thaw()
        await asyncio.sleep(1.0)  # paused: what the holder does now must change nothing
        running = [event.key for event in site.events("started")[2:]]
        assert len(running) == 2, "both places are taken, and nobody gave them back"
        for run in runs:
            site.open(run.key)
        for run in runs:
            await run.result(20)
    assert most_at_once(site.events(), {first.pid: frozen}) == 2
