"""Scenario 27 at its worst: many workers of an old release, one of the new, on one queue."""

from __future__ import annotations

import asyncio

import pytest

from tenure import App, Client, Config
from tests.processes import OLD_TARGET, Site

TASKS = 20


@pytest.fixture
def app(site: Site) -> App:
    return site.app


@pytest.fixture
def site(site: Site) -> Site:
    """Redeliveries as they are by default."""
    site.settings["ack_wait_seconds"] = Config().ack_wait_seconds
    return site


async def test_scenario_27_one_new_worker_among_many_old_ones_runs_every_new_task_within_seconds(
    site: Site, app: App, client: Client
) -> None:
    """docket#438. Four old workers hold eighty of the open pulls, the new one holds one: nearly every delivery is theirs.

    Handed back alone, 12 of 20 had run after five minutes. Handed over, each runs as soon as the one slot is free. The old
    workers still run what they know.
    """
    *_, new = await asyncio.gather(
        *(site.start_worker("--concurrency", "20", target=OLD_TARGET) for _ in range(4)),
        site.start_worker("--concurrency", "1"),
    )
    async with asyncio.timeout(10):
        runs = [await client.submit(app.actors["quick"].call(), key=f"k-{n}") for n in range(TASKS)]
        assert await asyncio.gather(*(run.result() for run in runs)) == ["attempt 1"] * TASKS
    started = site.events("started")
    assert sorted(event.key for event in started) == sorted(f"k-{n}" for n in range(TASKS))
    assert {event.pid for event in started} == {new.pid}
