"""Scenarios 34 to 36: hours that come twice or not at all, many supervisors and one fire, restarts and the phase of an interval."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tenure import App, Client, Context
from tenure.testing import memory
from tests.conftest import Workers
from tests.processes import Site
from tests.support import FAST, sized, wait_until

EVERY_SECONDS = 0.5


async def tick_of(client: Client, ctx: Context) -> float:
    """The time that the schedule names of the run whose body asks."""
    found = await client.stores.runs.read(ctx.key)
    assert found.record is not None
    assert found.record.run_id == ctx.run_id
    return found.record.tick


def _has(ticks: list[float], number: int) -> bool:
    return len(ticks) >= number


# -- 34 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "day", "hourly", "daily"),
    [
        ("America/New_York", "2026-11-01", 25, "02:30 -0500"),
        ("America/New_York", "2026-03-08", 23, "03:00 -0400"),
        ("Australia/Lord_Howe", "2026-04-05", 25, "02:30 +1030"),
        ("Australia/Lord_Howe", "2026-10-04", 24, "02:30 +1100"),
    ],
)
async def test_scenario_34_hourly_fires_follow_the_clock_and_a_daily_one_comes_once(
    namespace: str, zone: str, day: str, hourly: int, daily: str
) -> None:
    """celery#10107: at each half past, and each day at half past two, where the clock is changed at two.

    On Lord Howe by half an hour: half past one comes twice in April, and half past two is the first minute after the gap in
    October.
    """
    place = ZoneInfo(zone)
    midnight = datetime.fromisoformat(day).replace(tzinfo=place)
    app = App(namespace)
    fired: dict[str, list[datetime]] = {"each_hour": [], "each_day": []}

    async def note(ctx: Context) -> None:
        fired[ctx.key].append(datetime.fromtimestamp(await tick_of(client, ctx), place))

    app.actor(name="each_hour", cron="30 * * * *", tz=zone, autostart=True)(note)
    app.actor(name="each_day", cron="30 2 * * *", tz=zone, autostart=True)(note)
    async with memory(app, start=midnight - timedelta(minutes=10)) as client:
        await asyncio.sleep(26 * 3_600.0)  # paused: in virtual time
    of_the_day = {key: [at for at in times if at.date() == midnight.date()] for key, times in fired.items()}
    assert len({at.timestamp() for at in of_the_day["each_hour"]}) == len(of_the_day["each_hour"]) == hourly
    assert {at.minute for at in of_the_day["each_hour"]} == {30}
    assert [at.strftime("%H:%M %z") for at in of_the_day["each_day"]] == [daily]


# -- 35 ------------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def killable(app: App, url: str) -> AsyncIterator[asyncio.Task[None]]:
    """A supervisor that has swept once; cancel its task, and it ends in the middle of what it does."""
    async with app.supervisor(url) as supervisor:
        task = asyncio.create_task(supervisor.run())
        try:
            await wait_until(lambda: not supervisor.why_not_ready or task.done(), description="the supervisor is ready")
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_scenario_35_six_supervisors_fire_each_tick_once(
    app: App, client: Client, workers: Workers, nats_server: str
) -> None:
    """arq#196: all six ask for the schedule from the start; three of them end in the middle, one after the other."""
    fires, ticks = sized(3, 120), list[float]()
    app = App(app.namespace, config=msgspec.structs.replace(FAST, sweep_seconds=0.1))

    @app.actor(cron="* * * * * *", autostart=True, catch_up="all")
    async def beat(ctx: Context) -> None:
        ticks.append(await tick_of(client, ctx))

    async with workers.run(app), contextlib.AsyncExitStack() as stack:
        asking = await asyncio.gather(*(stack.enter_async_context(killable(app, nats_server)) for _ in range(6)))
        for number, task in enumerate(asking[:3], start=1):
            await wait_until(partial(_has, ticks, number * fires // 3), description="it fires", timeout=60.0)
            task.cancel()
        await wait_until(lambda: len(ticks) >= fires, description=f"{fires} fires", timeout=60.0)
    assert ticks == [ticks[0] + number for number in range(len(ticks))]
    assert ticks[0] == int(ticks[0])


@pytest.mark.long
async def test_scenario_35_six_supervisor_processes_of_which_three_are_killed(site: Site, client: Client) -> None:
    """Their sessions are closed by those that are left, and the chain goes on."""
    worker = await site.start_worker(target="tests.site_app:beating")
    asking = await asyncio.gather(*(site.start_supervisor(target="tests.site_app:beating") for _ in range(6)))
    for number, supervisor in enumerate(asking[:3], start=1):
        await site.wait_for("tick", "beat", 2 * number, timeout=30.0)
        await supervisor.kill()
    await site.wait_for("tick", "beat", sized(12, 120), timeout=180.0)
    assert await worker.end() == 0
    fires = site.events("tick", "beat")
    assert [fire.generation for fire in fires] == list(range(1, len(fires) + 1))
    assert len(fires) <= fires[-1].at - fires[0].at + 2.0  # one each second, of which the first may have been late


# -- 36 ------------------------------------------------------------------------------------------------------------------


async def test_scenario_36_restarts_keep_an_intervals_phase(
    app: App, client: Client, workers: Workers, nats_server: str
) -> None:
    """posthog#42607: worker and supervisor are started anew after each fire, at another moment between two ticks each time."""
    fires, ticks = sized(4, 40), list[float]()
    app = App(app.namespace, config=msgspec.structs.replace(FAST, sweep_seconds=0.1))

    @app.actor(every=EVERY_SECONDS, autostart=True)
    async def beat(ctx: Context) -> None:
        ticks.append(await tick_of(client, ctx))

    while len(ticks) < fires:
        seen = len(ticks)
        async with workers.run(app), killable(app, nats_server):
            await wait_until(partial(_has, ticks, seen + 1), description="it fires")
            await asyncio.sleep(0.1 * (seen % 3))  # paused: so long after a fire it is stopped
    first, *others = ticks[1:]  # the very first run is due at once, and its end begins the count
    steps = [(tick - first) / EVERY_SECONDS for tick in others]
    assert steps == pytest.approx([round(step) for step in steps], abs=1e-3)
    assert [round(step) for step in steps] == sorted({round(step) for step in steps})
    assert round(steps[0]) >= 1


@pytest.mark.long
async def test_scenario_36_restarts_that_are_more_frequent_than_the_interval_leave_no_tick_out(
    app: App, client: Client, workers: Workers, nats_server: str
) -> None:
    """A supervisor never lives as long as the interval is; the worker stays."""
    ticks = list[float]()
    app = App(app.namespace, config=msgspec.structs.replace(FAST, sweep_seconds=0.1))

    @app.actor(every=1.0, autostart=True, catch_up="all")
    async def beat(ctx: Context) -> None:
        ticks.append(await tick_of(client, ctx))

    async with asyncio.timeout(40.0), workers.run(app):
        while len(ticks) < 7:
            async with killable(app, nats_server):
                await asyncio.sleep(0.4)  # paused: so long it lives
    first, *others = ticks[1:7]  # the very first run is due at once, and its end begins the count
    assert [tick - first for tick in others] == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0], abs=1e-3)
