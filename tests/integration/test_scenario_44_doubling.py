"""Scenario 44 at the points where a spawned run or a hook could be doubled, or lost with whoever cancelled."""

from __future__ import annotations

import asyncio

import pytest

from tenure import App, Client
from tenure.core.aftermath import derived_id
from tests.conftest import Supervisors, Workers
from tests.contract.support import is_empty
from tests.processes import WITHIN_SECONDS, Site
from tests.proxy import Matches, Proxy, record, wake_up
from tests.support import wait_until

OFTEN = 1_000
TARGETS = {"spawn": ("spawns", "started"), "hook": ("hooked", "heard:succeeded")}


@pytest.fixture
def app(site: Site) -> App:
    site.settings = {"ack_wait_seconds": 1.0}
    return site.app


def clearing(app: App) -> Matches:
    """The write that takes what is paid out of the outbox of ``k``."""
    ended = record(app, "k", "succeeded")
    return lambda publish: ended(publish) and not publish.says('"outbox"')


BEFORE, AFTER = "before the target is woken", "after the target has ended"


@pytest.mark.parametrize(
    ("what", "when"),
    [
        ("hook", BEFORE),
        ("spawn", AFTER),
        pytest.param("spawn", BEFORE, marks=pytest.mark.long),
        pytest.param("hook", AFTER, marks=pytest.mark.long),
    ],
)
async def test_scenario_44_a_process_killed_between_the_target_and_the_origins_outbox_doubles_nothing(
    what: str, when: str, site: Site, app: App, client: Client, proxy: Proxy, workers: Workers
) -> None:
    """The target's record is stored and the origin owes it still: whoever comes applies it again, and must not start another.

    Whether the target has not even begun, or is over by then and its key has been another's since.
    """
    actor, did = TARGETS[what]
    cleared = proxy.lose(clearing(app), OFTEN)
    victim = await site.start_worker(url=proxy.url)
    run = await client.submit(app.actors[actor].call(), key="k", delay=0.3)  # until its target's key is known
    target = "k-child" if what == "spawn" else derived_id(run.run_id, "succeeded.0")
    woken = proxy.lose(wake_up(app, target), OFTEN if when == BEFORE else 0)
    await (woken if when == BEFORE else cleared).done.wait()
    if when == AFTER:
        assert await client.run(target).result(5) == "attempt 1"
        later = await client.submit(app.actors["quick"].call(), key=target)
        assert await later.result(5) == "attempt 1"
    await victim.kill()
    found = await client.stores.runs.read("k")
    assert found.record is not None
    assert [entry.key for entry in found.record.outbox] == [target]
    assert (await client.stores.runs.read(target)).record is not None
    async with workers.run(app):
        await site.wait_for(did, target, timeout=WITHIN_SECONDS)
        await wait_until(lambda: paid(client), description="nothing is owed any more")
        await wait_until(lambda: is_empty(client.stores), description="no message is left")
    assert [event.generation for event in site.events(did, target)].count(1) == 1
    assert len(site.events("started", "k")) == 1
    status = await client.status(target)
    assert status is not None
    assert (status.generation, status.phase) == (1 if when == BEFORE else 2, "succeeded")


async def paid(client: Client) -> bool:
    found = await client.stores.runs.read("k")
    return found.record is not None and not found.record.outbox


async def test_scenario_44_a_cancelling_client_killed_before_the_hook_is_created_loses_nothing(
    site: Site, app: App, client: Client, proxy: Proxy, workers: Workers, supervisors: Supervisors
) -> None:
    """``cancelled`` is stored, and no message of the run is left to be delivered again: a sweep finds what is owed."""
    run = await client.submit(app.actors["hooked"].call(), key="k", delay=3_600.0)
    hook = derived_id(run.run_id, "cancelled.0")
    lost = proxy.lose(lambda publish: publish.subject == app.names.record(hook), OFTEN)
    command = site.command("cancel", "k", url=proxy.url)
    await lost.done.wait()
    command.kill()
    await asyncio.to_thread(command.wait, 10)
    status = await run.status()
    assert status is not None
    assert status.phase == "cancelled"
    assert (await client.stores.runs.read(hook)).record is None
    async with workers.run(app), supervisors.run(app):
        await site.wait_for("heard:cancelled", hook, timeout=WITHIN_SECONDS)
        await wait_until(lambda: paid(client), description="nothing is owed any more")
    assert len(site.events("heard", hook)) == 1
    assert not site.events("started", "k")
