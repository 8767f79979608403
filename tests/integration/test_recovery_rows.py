"""DESIGN's table of gaps, row by row: a process kills itself exactly there, and fresh processes recover.

Victims and recoverers are commands; ``tests.mortal`` puts the death into one function of the shipped code.
"""

from __future__ import annotations

import asyncio

import pytest

from tenure import App, Client
from tenure.core.aftermath import derived_id
from tests.mortal import TARGET
from tests.processes import WITHIN_SECONDS, Site
from tests.rows import AGAIN, SOON, Ledger, die_at_work, start_fresh, starts, to_queue
from tests.strangers import Stranger, phase, until_empty


@pytest.fixture
def site(site: Site) -> Site:
    site.settings = SOON
    return site


@pytest.fixture
def app(site: Site) -> App:
    return site.app


async def lose_messages(client: Client) -> None:
    await client.stores.conn.api(f"STREAM.PURGE.{client.app.names.work_stream}", {})


# -- record and wake-up ------------------------------------------------------------------------------------------------


async def test_scenario_43_row_1_a_producer_that_dies_between_record_and_wake_up(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """One of a run that is due, one of a run that is scheduled, one of a replace whose old wake-up is still stored."""
    await client.submit(app.actors["quick"].call(), key="replaced")
    producers = (("submit", "due"), ("submit", "later", "--delay", "60s"), ("replace", "replaced"))
    deaths = (
        site.dies("before tenure.nats.work:Work.wake", command, TARGET, "quick", "--key", key, *options)
        for command, key, *options in producers
    )
    await asyncio.gather(*deaths)
    fresh = await site.start_worker("--with-supervisor")
    assert await client.run("due").result(WITHIN_SECONDS) == "attempt 1"
    assert await client.run("replaced").result(WITHIN_SECONDS) == "attempt 1"
    await ledger.comes_to_rest({"due": "succeeded", "later": "waiting", "replaced": "succeeded"}, messages=1)
    stored = await client.stores.work.stored(client.stores.runs.patience())
    assert stored.timers.has("later", (await client.run("later")).run_id)
    assert [(e.generation, e.pid) for e in site.events("started", "replaced")] == [(2, fresh.pid)]
    assert starts(site, "due") == [1]
    assert starts(site, "later") == []


# -- claim and body, body and outcome ----------------------------------------------------------------------------------


async def test_row_2_a_worker_that_dies_between_claim_and_outcome(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """Before the body, in it, and after it; each message is in dead hands for half a minute."""
    hold = app.actors["hold"].call()
    deaths = {
        "claimed": ("after tenure.worker.head:Head.look", hold),
        "running": ("before tests.site_app:_Folder.gate", hold),
        "returned": ("before tenure.worker.tail:Tail.store", hold),
    }
    for key in deaths:
        site.open(key)
    await die_at_work(site, client, deaths)
    fresh = await start_fresh(site, deaths, "--with-supervisor")
    for key in deaths:
        assert await client.run(key).result(WITHIN_SECONDS) == "attempt 2"
        assert site.events("started", key)[-1].failures == 1
        assert [e.pid for e in site.events("ended", key)][-1] == fresh.pid
    assert [starts(site, key) for key in deaths] == [[2], [1, 2], [1, 2]]
    site.settings = SOON | AGAIN  # from now on, for what is in dead hands too
    await start_fresh(site, deaths)
    await ledger.comes_to_rest(dict.fromkeys(deaths, "succeeded"))


async def test_row_2_a_worker_that_dies_with_a_wake_up_it_has_not_claimed(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """No session holds it, no supervisor is there: the server delivers it again."""
    site.settings = SOON | AGAIN
    deaths = {"k": ("before tenure.worker.head:Head.look", app.actors["quick"].call())}
    await die_at_work(site, client, deaths)
    await start_fresh(site, deaths)
    assert await client.run("k").result(WITHIN_SECONDS) == "attempt 1"
    await ledger.comes_to_rest({"k": "succeeded"})


# -- outcome and its effects, outcome and ack --------------------------------------------------------------------------


async def test_row_3_a_worker_that_dies_between_an_outcome_and_its_effects_is_followed_by_a_sweep(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """Spawned runs, a hook and a dead letter, a successor, a retry; before each, and between the writes that one of them takes.

    The message, which would come again, is lost as well.
    """
    deaths = {
        "unspawned": ("before tenure.worker.tail:Tail.settle", app.actors["spawns"].call()),
        "uncleared": ("before tenure.nats.runs:Runs.commit(ClearOutbox)", app.actors["spawns"].call()),
        "unforgotten": ("after tenure.nats.runs:Runs.commit(ClearOutbox)", app.actors["spawns"].call()),
        "buried": ("after tenure.nats.dead:Dead.keep", app.actors["hooked"].call(fails=True)),
        "successor": ("before tenure.nats.work:Work.wake", app.actors["chains"].call(delay=0.0)),
        "retry": ("before tenure.nats.work:Work.wake", app.actors["fails_once"].call()),
    }
    await die_at_work(site, client, deaths)
    await lose_messages(client)
    dead = await client.run("buried")
    hook = derived_id(dead.run_id, "failed.0")
    await start_fresh(site, deaths, "--with-supervisor")
    spawned = [f"{key}-child" for key in ("unspawned", "uncleared", "unforgotten")]
    ends = dict.fromkeys([*deaths, *spawned, hook], "succeeded")
    await ledger.comes_to_rest(ends | {"buried": "failed"})
    twice = {"successor": [1, 1], "retry": [1, 2]}
    assert {key: starts(site, key) for key in deaths} == {key: twice.get(key, [1]) for key in deaths}
    assert [starts(site, key) for key in spawned] == [[1], [1], [1]]
    assert [event.key for event in site.events("heard:failed")] == [hook]
    assert [letter.run_id for letter in await client.dead.list()] == [dead.run_id]


async def test_row_3_what_is_paid_is_known_to_be_paid_until_its_debt_is_cleared(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """It dies before it clears the debt. Before that is paid again, the run is over, and two more came after it [7].

    Nothing but the mark at the target shows it then: had it been forgotten first, the same run would run once more.
    """
    site.settings = SOON | AGAIN
    await die_at_work(
        site, client, {"k": ("before tenure.nats.runs:Runs.commit(ClearOutbox)", app.actors["spawns"].call())}
    )
    await site.start_worker("--queue", "default")
    assert await client.run("k-child").result(WITHIN_SECONDS) == "attempt 1"
    for _ in range(2):
        again = await client.submit(app.actors["quick"].call(), key="k-child")
        assert await again.result(WITHIN_SECONDS) == "attempt 1"
    await site.start_worker("--queue", "k", "--with-supervisor")
    await ledger.comes_to_rest({"k": "succeeded", "k-child": "succeeded"})
    assert [(e.generation, e.attempt) for e in site.events("started", "k-child")] == [(1, 1), (2, 1), (3, 1)]


async def test_row_3_a_worker_that_dies_between_an_outcome_and_its_effects_is_followed_by_a_redelivery(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """With no supervisor at all: who gets the message next does what is owed, and acknowledges."""
    site.settings = SOON | AGAIN
    deaths = {
        "unwoken": ("after tenure.nats.runs:Runs.commit(Submit)", app.actors["spawns"].call()),
        "unburied": ("before tenure.nats.dead:Dead.keep", app.actors["hooked"].call(fails=True)),
        "successor": ("before tenure.nats.work:Work.wake", app.actors["chains"].call(delay=60.0)),
        "retry": ("before tenure.nats.work:Work.wake", app.actors["fails_once"].call()),
    }
    await die_at_work(site, client, deaths)
    dead = await client.run("unburied")
    hook = derived_id(dead.run_id, "failed.0")
    await start_fresh(site, deaths)
    ends = dict.fromkeys([*deaths, "unwoken-child", hook], "succeeded")
    await ledger.comes_to_rest(ends | {"unburied": "failed", "successor": "waiting"}, messages=1)
    twice = {"retry": [1, 2]}
    assert {key: starts(site, key) for key in deaths} == {key: twice.get(key, [1]) for key in deaths}
    assert starts(site, "unwoken-child") == [1]
    assert [event.key for event in site.events("heard:failed")] == [hook]
    assert [letter.run_id for letter in await client.dead.list()] == [dead.run_id]


async def test_row_4_a_worker_that_dies_between_an_outcome_and_its_ack(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """The message comes again, finds the record finished, and is acknowledged."""
    site.settings = SOON | AGAIN
    deaths = {"k": ("before tenure.nats.work:Work.ack", app.actors["quick"].call())}
    await die_at_work(site, client, deaths)
    assert await client.run("k").result(1) == "attempt 1"
    await start_fresh(site, deaths)
    await ledger.comes_to_rest({"k": "succeeded"})
    assert starts(site, "k") == [1]


# -- cancel and its signal ---------------------------------------------------------------------------------------------


async def test_row_5_a_caller_that_dies_between_the_record_and_the_signal_of_a_stop(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """A cancel, a replace; and a cancel of a body that would not hear its signal either, for it blocks its loop.

    The two are told, and end by themselves; the third is fenced after its grace, in a worker that lives.
    """
    site.settings = SOON | AGAIN
    listening, deaf = await site.start_worker(), await site.start_worker("--queue", "deaf")
    cancelled = await client.submit(app.actors["listens"].call(), key="cancelled")
    replaced = await client.submit(app.actors["hold"].call(), key="replaced")
    blocked = await client.submit(to_queue("deaf", app.actors["blocks"].call()), key="deaf")
    await site.wait_for("blocked", "deaf")
    for run in (cancelled, replaced):
        await site.wait_for("started", run.key)
    signals = "before tenure.nats.sessions:Sessions.signal"
    await asyncio.gather(
        site.dies(signals, "cancel", "cancelled", "--app", TARGET),
        site.dies(signals, "replace", TARGET, "quick", "--key", "replaced"),
        site.dies(signals, "cancel", "deaf", "--app", TARGET),
    )
    assert [await phase(client, run.key) for run in (cancelled, replaced, blocked)] == [
        "stopping",
        "queued",
        "stopping",
    ]
    await site.start_supervisor()
    assert (await site.wait_for("stopped:cancel", "cancelled")).pid == listening.pid
    assert (await site.wait_for("stopped:superseded", "replaced")).pid == listening.pid
    assert (await blocked.wait(WITHIN_SECONDS)).phase == "cancelled"
    assert not site.events("ended", "deaf")
    site.open("deaf")
    assert (await site.wait_for("ended", "deaf")).pid == deaf.pid
    await ledger.comes_to_rest({"cancelled": "cancelled", "replaced": "succeeded", "deaf": "cancelled"})
    assert [(e.generation, e.attempt) for e in site.events("started", "replaced")] == [(1, 1), (2, 1)]
    assert starts(site, "cancelled") == starts(site, "deaf") == [1]


# -- a superseded body's end and its confirm ---------------------------------------------------------------------------


@pytest.mark.parametrize("closer", ["a closed session", "its deadline"])
async def test_row_6_a_worker_that_dies_between_a_superseded_bodys_end_and_its_confirm(
    site: Site, app: App, client: Client, ledger: Ledger, closer: str
) -> None:
    """The next generation waits for a body that is gone: for its session, or (overlap ``stop``) for its grace.

    With a deadline there is no supervisor, and the session stays open.
    """
    sweeps = closer == "a closed session"
    site.settings = SOON | ({} if sweeps else AGAIN)
    dying = asyncio.create_task(
        site.dies("before tenure.worker.tail:Tail.confirm", "worker", TARGET, "--queue", "own", "--concurrency", "1")
    )
    await client.submit(to_queue("own", app.actors["hold"].call()), key="k")
    await site.wait_for("started", "k")
    run = await client.replace(app.actors["quick"].call(), key="k", overlap="wait" if sweeps else "stop")
    if sweeps:
        site.open("k")
    await dying
    await start_fresh(site, {"own": ""}, *(["--with-supervisor"] if sweeps else []))
    assert await run.result(WITHIN_SECONDS) == "attempt 1"
    if sweeps:
        site.settings = SOON | AGAIN  # from now on, for what is in dead hands too
        await start_fresh(site, {"own": ""})
    await ledger.comes_to_rest({"k": "succeeded"})
    assert [(e.generation, e.attempt) for e in site.events("started", "k")] == [(1, 1), (2, 1)]


# -- command and its effects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        "before tenure.supervisor.commands:Commands._commit",
        "after tenure.supervisor.commands:Commands._commit",
        "before tenure.supervisor.marks:Forgetter._forget",
    ],
)
async def test_row_7_a_supervisor_that_dies_between_a_command_and_its_effects(
    site: Site, app: App, client: Client, ledger: Ledger, stranger: Stranger, point: str
) -> None:
    """Before it is applied, before its wake-up, and before its mark is forgotten."""
    site.settings = SOON | AGAIN
    await stranger.send("submit.quick", Tenure_Key="k")
    await site.dies(point, "supervisor", TARGET)
    await site.start_worker("--with-supervisor")
    await until_empty(stranger, client)
    await ledger.comes_to_rest({"k": "succeeded"})
    assert [(e.generation, e.attempt) for e in site.events("started")] == [(1, 1)]


async def test_row_7_a_supervisor_that_dies_between_a_command_and_its_ack(
    site: Site, app: App, client: Client, ledger: Ledger, stranger: Stranger
) -> None:
    """The run is over, and two more came after it, before the message comes again: nothing but its mark shows it."""
    site.settings = SOON | AGAIN
    await stranger.send("replace.quick", Tenure_Key="k")
    await site.dies("before tenure.nats.inbox:Inbox.ack", "supervisor", TARGET)
    assert await phase(client, "k") == "queued"
    for _ in range(2):
        await client.cancel("k")
        await client.submit(app.actors["quick"].call(), key="k")
    await site.start_supervisor()
    await until_empty(stranger, client)
    await site.start_worker()
    await ledger.comes_to_rest({"k": "succeeded"})
    assert [(e.generation, e.attempt) for e in site.events("started")] == [(3, 1)]


# -- nothing to wake it ------------------------------------------------------------------------------------------------


async def test_row_8_a_stream_that_is_purged_and_consumers_that_are_deleted(
    site: Site, app: App, client: Client, ledger: Ledger
) -> None:
    """Under runs that are due and scheduled, and one whose worker died in its body: no message and no consumer is left."""
    hold = app.actors["hold"].call()
    deaths = {"running": ("before tests.site_app:_Folder.gate", hold)}
    site.open("running")
    await die_at_work(site, client, deaths)
    await client.submit(app.actors["quick"].call(), key="due")
    later = await client.submit(app.actors["quick"].call(), key="later", delay=60.0)
    await lose_messages(client)
    for name in await consumers(client):
        await client.stores.conn.api(f"CONSUMER.DELETE.{app.names.work_stream}.{name}", {})
    await start_fresh(site, deaths, "--with-supervisor")
    assert await client.run("due").result(WITHIN_SECONDS) == "attempt 1"
    assert await client.run("running").result(WITHIN_SECONDS) == "attempt 2"
    await ledger.comes_to_rest({"running": "succeeded", "due": "succeeded", "later": "waiting"}, messages=1)
    stored = await client.stores.work.stored(client.stores.runs.patience())
    assert stored.timers.has("later", later.run_id)
    assert [starts(site, key) for key in ("running", "due", "later")] == [[1, 2], [1], []]


async def consumers(client: Client) -> list[str]:
    """Names of those of the work stream."""
    names = await client.stores.conn.api(f"CONSUMER.NAMES.{client.app.names.work_stream}", {})
    assert isinstance(names, dict)
    found: list[str] = names["consumers"]
    assert found
    return found
