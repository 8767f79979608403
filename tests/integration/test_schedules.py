"""Cron keys on a real server: their fires, what was missed, and settings that cannot be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import App, Client, ConfigError, Context
from tenure.core import commands as c
from tenure.nats.runs import Committed
from tests.conftest import Workers
from tests.support import wait_until

EACH_SECOND = "* * * * * *"


async def test_a_cron_key_fires_once_at_each_of_its_seconds(app: App, client: Client, workers: Workers) -> None:
    """The first run is the next fire, not now; each outcome and its successor are one write."""
    ran: list[tuple[int, float]] = []

    @app.actor(cron=EACH_SECOND)
    async def tick(ctx: Context) -> None:
        ran.append((ctx.generation, client.now()))

    async with workers.run(app):
        run = await client.submit(tick.call(), key="k")
        status = await run.status()
        assert status is not None
        due = status.due
        assert due is not None
        assert due.microsecond == 0
        await wait_until(lambda: len(ran) >= 4, description="four fires")
    first = due.timestamp()
    assert [generation for generation, _ in ran[:4]] == [1, 2, 3, 4]
    for number, (_, at) in enumerate(ran[:4]):
        assert first + number <= at < first + number + 1.0


@pytest.mark.parametrize(("catch_up", "at_once"), [("none", 0), ("one", 1), ("all", 4)])
async def test_fires_missed_while_nobody_worked_are_made_up_for_as_asked(
    app: App, client: Client, workers: Workers, catch_up: Any, at_once: int
) -> None:
    """The run of four seconds ago ends half a second past a fire: so many of those missed start in the next 0.3 s."""
    started: list[float] = []

    @app.actor(cron=EACH_SECOND, catch_up=catch_up)
    async def tick() -> None:
        if not started:
            await asyncio.sleep(1.5 - client.now() % 1.0)  # body: it ends half past
        started.append(client.now())

    command = c.Submit(key="k", run_id=client.stores.clock.new_id(), task=tick.call().task, due=client.now() // 1 - 4)
    stored = await client.stores.runs.commit("k", command)
    assert isinstance(stored, Committed)
    await client.stores.carry_out(stored, client.stores.runs.patience())
    async with workers.run(app):
        await wait_until(lambda: len(started) > at_once + 1, description="the fires that follow")
    ended, *after = started
    late = [at for at in after if at < ended + 0.3]
    assert len(late) == at_once if catch_up != "all" else len(late) >= at_once


async def test_a_cron_key_that_is_replaced_starts_with_the_next_fire_of_its_new_schedule(
    app: App, client: Client, workers: Workers
) -> None:
    ran: list[str] = []

    @app.actor(cron="0 0 1 1 *", tz="Europe/Berlin")
    async def yearly() -> None:
        ran.append("yearly")

    @app.actor(cron=EACH_SECOND)
    async def quick() -> None:
        ran.append("quick")

    async with workers.run(app):
        old = await client.submit(yearly.call(), key="k")
        status = await old.status()
        assert status is not None
        assert status.phase == "scheduled"
        assert status.due is not None
        assert (status.due.month, status.due.day, status.due.hour) in {(12, 31, 23), (1, 1, 0)}
        await client.replace(quick.call(), key="k")
        await wait_until(lambda: ran.count("quick") >= 2, description="the new schedule fires")
    assert "yearly" not in ran


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"cron": "61 * * * *"}, "'61 [*]"),
        ({"cron": "0 0 31 2 *"}, "'0 0 31 2"),
        ({"cron": ""}, "''"),
        ({"cron": 5}, "cron and tz must be text"),
        ({"cron": "0 4 * * *", "tz": "Mars/Olympus"}, "Mars/Olympus"),
        ({"cron": "0 4 * * *", "tz": None}, "cron and tz must be text"),
        ({"cron": "0 4 * * *", "every": 5}, "either every= or cron="),
        ({"cron": "0 4 * * *", "catch_up": "some"}, "catch_up must be none, one or all"),
        ({"every": 5, "tz": "Europe/Berlin"}, "tz belongs to cron="),
        ({"catch_up": "all"}, "belong to a schedule"),
        ({"tz": "Europe/Berlin"}, "belong to a schedule"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_where_the_actor_is_made(settings: dict[str, Any], named: str) -> None:
    app = App("schedules")
    with pytest.raises(ConfigError, match=named) as caught:

        @app.actor(**settings)
        async def report() -> None: ...

    assert "actor report" in str(caught.value)
