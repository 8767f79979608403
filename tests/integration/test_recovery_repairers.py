"""Whoever repairs dies in the middle of it, and fresh processes go on: supervisors, drains, replays, schedules, switches."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tenure import App, Client
from tests.integration.test_pause import until_held
from tests.mortal import BEATING, TARGET
from tests.processes import WITHIN_SECONDS, Site
from tests.rows import AGAIN, SOON, Ledger, die_at_work, start_fresh, starts, to_queue
from tests.support import close_session, no_limit_in_use


@pytest.fixture
def site(site: Site) -> Site:
    site.settings = SOON
    return site


@pytest.fixture
def app(site: Site) -> App:
    return site.app


# -- in the middle of a takeover ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("closer", ["sweep", "redelivery"])
async def test_a_supervisor_that_dies_when_it_has_closed_a_session_and_woken_nobody(
    site: Site, app: App, client: Client, ledger: Ledger, closer: str
) -> None:
    """No close makes the next supervisor look any more: its sweep finds it. Without one, the server delivers again."""
    site.settings = SOON | (AGAIN if closer == "redelivery" else {})
    deaths = {"k": ("before tests.site_app:_Folder.gate", app.actors["hold"].call())}
    site.open("k")
    await die_at_work(site, client, deaths)
    await site.dies("before tenure.supervisor.service:Supervisor._on_closed", "supervisor", TARGET)
    for seen in await client.stores.sessions.all():
        if seen.session.closed is None:  # its own
            await close_session(client, seen.session.id)
    await start_fresh(site, deaths, *(["--with-supervisor"] if closer == "sweep" else []))
    assert await client.run("k").result(WITHIN_SECONDS) == "attempt 2"
    assert [(e.attempt, e.failures) for e in site.events("started", "k")] == [(1, 0), (2, 1)]
    site.settings = SOON | AGAIN  # from now on, for what is in dead hands too
    if closer == "sweep":
        await start_fresh(site, deaths)
    await ledger.comes_to_rest({"k": "succeeded"})


async def test_a_supervisor_that_dies_when_it_has_ended_a_body_that_does_not_hear_and_woken_nobody(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """Its worker lives, blocked, and has the run's message in its hands: that is no wake-up."""
    run = await client.submit(to_queue("own", app.actors["overruns"].call()), key="k")
    blocked = await site.start_worker("--queue", "own")
    await site.wait_for("blocked", "k")
    await site.dies("after tenure.nats.runs:Runs.commit(Evict)", "supervisor", TARGET)
    await start_fresh(site, {"own": ""}, "--with-supervisor")
    assert await run.result(WITHIN_SECONDS) == "attempt 2"
    site.open("k")
    await site.wait_for("ended", "k", 2)
    site.settings = SOON | AGAIN  # from now on, for what its worker does not answer too
    await start_fresh(site, {"own": ""})
    await ledger.comes_to_rest({"k": "succeeded"})
    assert [e.attempt for e in site.events("started", "k") if e.pid == blocked.pid] == [1]
    assert starts(site, "k") == [1, 2]


# -- others ------------------------------------------------------------------------------------------------------------


async def test_a_worker_that_dies_when_it_has_handed_back_and_woken_nobody(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """It drains; the record waits again, which costs no retry. Its message, un-acknowledged, comes again."""
    site.settings = SOON | AGAIN | {"drain_seconds": 0.1}
    dying = asyncio.create_task(site.dies("before tenure.nats.work:Work.wake", "worker", TARGET))
    run = await client.submit(app.actors["hold"].call(), key="k")
    os.kill((await site.wait_for("started", "k")).pid, signal.SIGTERM)
    await dying
    site.open("k")
    await site.start_worker()
    assert await run.result(WITHIN_SECONDS) == "attempt 2"
    assert [(e.attempt, e.failures) for e in site.events("started", "k")] == [(1, 0), (2, 0)]
    await ledger.comes_to_rest({"k": "succeeded"})


async def test_a_supervisor_that_dies_when_it_has_started_a_schedule_and_woken_nobody(
    site: Site, client: Client
) -> None:
    """The chain is there, so no other supervisor starts one: a sweep finds that nothing wakes it."""
    await site.dies("after tenure.nats.runs:Runs.commit(KeepAlive)", "supervisor", BEATING)
    await site.start_worker("--with-supervisor", target="tests.site_app:beating")
    await site.wait_for("tick", "beat", 2)
    ticks = site.events("tick", "beat")
    assert [event.generation for event in ticks[:2]] == [1, 2]


async def test_a_caller_that_dies_when_it_has_replayed_a_letter_and_not_removed_it(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """The run runs once, and its letter goes: only the new death's is left."""
    run = await client.submit(app.actors["fails"].call(), key="k")
    site.open("k")
    await site.start_worker()
    assert (await run.wait(WITHIN_SECONDS)).phase == "failed"
    await ledger.comes_to_rest({"k": "failed"})
    await site.dies("before tenure.nats.dead:Dead.remove", "dead", "replay", "k", "--app", TARGET)
    await site.start_supervisor()
    await ledger.comes_to_rest({"k": "failed"})
    (letter,) = await client.dead.list()
    assert letter.generation == 2
    assert [event.generation for event in site.events("started", "k")] == [1, 2]


async def test_a_supervisor_that_dies_between_the_wake_up_of_what_was_paused_and_its_removal(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    await site.start_worker()
    await client.pause(actor="quick")
    await client.submit(app.actors["quick"].call(), key="k")
    await until_held(client, 1)
    await client.resume(actor="quick")
    await site.dies("before tenure.nats.parking:Parking.drop", "supervisor", TARGET)
    await site.start_supervisor()
    await ledger.comes_to_rest({"k": "succeeded"})
    assert starts(site, "k") == [1]


async def test_workers_that_die_between_a_place_under_a_limit_and_the_claim(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """Both places of the limit are dead sessions'; a third run is parked, and nothing else happens."""
    site.settings = SOON | AGAIN
    limited = app.actors["limited"].call()
    deaths = dict.fromkeys("ab", ("after tenure.gates:Gates.take", limited))
    for key in "abc":
        site.open(key)
    await die_at_work(site, client, deaths)
    await client.submit(limited, key="c")
    await start_fresh(site, deaths, "--with-supervisor")
    await ledger.comes_to_rest(dict.fromkeys("abc", "succeeded"))
    assert [starts(site, key) for key in "abc"] == [[1]] * 3
    await no_limit_in_use(client)
