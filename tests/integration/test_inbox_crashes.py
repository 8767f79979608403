"""The inbox under crashes: whatever dies, and wherever, each acknowledged command is applied once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tenure.core.marks import Place
from tenure.nats.inbox import Message
from tenure.nats.patience import Patience
from tenure.supervisor.marks import LATER_SECONDS
from tenure.wishes import Refusal
from tests.conftest import Supervisors, Workers
from tests.strangers import (
    Stranger,
    another,
    is_marked,
    killed_at,
    mortal_app,
    rejected,
    until_empty,
    until_forgotten,
)
from tests.support import FAST, wait_until


@pytest.fixture
def app(namespace: str) -> App:
    return mortal_app(namespace)


STEPS = ("before the write", "before the effects", "before the ack", "before it is forgotten")


# -- at each step --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("verb", ["submit", "replace"])
async def test_a_supervisor_that_dies_leaves_one_run_however_much_happens_before_the_next_one_comes(
    verb: str,
    step: str,
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    nats_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[13] applied, dead before the ack; the run and two later ones end, so that nothing but the mark shows it; redelivery."""
    await stranger.send(f"{verb}.add", {"one": 1}, Tenure_Key="k")
    async with another(app, nats_server) as commands:
        await killed_at(commands, step, monkeypatch)
    applied = step != "before the write"
    for _ in range(2):
        run = await client.replace(app.actors["add"].call(9), key="k")
        await run.cancel()
    async with supervisors.run(app):
        await until_empty(stranger, client)
        await until_forgotten(client, "k")
        status = await client.status("k")
    assert status is not None
    assert status.generation == 3, "one run of the command, and the two"
    assert (status.phase == "cancelled") == applied


async def test_what_was_rejected_is_not_applied_later_though_its_supervisor_died_before_the_ack(
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    nats_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key was live, so its sender was told no; then it was free, and the same message came again."""
    live = await client.submit(app.actors["add"].call(1), key="k")
    await stranger.send("submit.add", {"one": 2}, Tenure_Key="k", Tenure_If_Live="reject")
    async with another(app, nats_server) as commands:
        await killed_at(commands, "before the ack", monkeypatch)
    await rejected(client)
    await live.cancel()
    async with supervisors.run(app):
        await until_empty(stranger, client)
    assert (await client.run("k")).run_id == live.run_id
    await rejected(client)


async def test_who_stood_still_says_no_to_nobody_whom_another_has_said_yes(
    app: App, client: Client, stranger: Stranger, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found the key live; whoever had the message next found it free, applied it, and has acknowledged it since."""
    told: list[str] = []
    await stranger.send("submit.add", {"one": 2}, Tenure_Key="k", Tenure_If_Live="reject")
    async with another(app, nats_server) as commands:

        async def refuse_late(message: Message, *_more: object) -> str:
            call = f"STREAM.MSG.DELETE.{app.names.inbox_stream}"
            await client.stores.conn.api(call, {"seq": message.place.sequence})
            told.append(await commands._refused(message, Refusal("live", "it was")))
            return told[-1]

        monkeypatch.setattr(commands, "_take", refuse_late)
        tasks = [asyncio.create_task(commands.pull()), asyncio.create_task(commands.apply())]
        await wait_until(lambda: told, description="it has had its turn")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert told == ["kept"]
    assert await client.dead.rejected() == []


@pytest.mark.parametrize("verb", ["submit", "replace", "cancel"])
async def test_what_nobody_knew_is_not_applied_by_who_knows_it_once_it_was_rejected(
    verb: str,
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    nats_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the reason was; here the letter is there and the message still is, with no more said of why."""
    await client.submit(app.actors["add"].call(1), key="k") if verb == "cancel" else None
    what = verb if verb == "cancel" else f"{verb}.add"
    await stranger.send(what, {} if verb == "cancel" else {"one": 2}, Tenure_Key="k")
    async with another(app, nats_server) as commands:

        async def refuse(message: Message, *_more: object) -> str:
            return await commands._refused(message, Refusal("arguments", "of no use"))

        monkeypatch.setattr(commands, "_take", refuse)
        await killed_at(commands, "before the ack", monkeypatch)
    async with supervisors.run(app):
        await until_empty(stranger, client)
    status = await client.status("k")
    assert (status.phase if status is not None else "") == ("queued" if verb == "cancel" else "")


@pytest.mark.parametrize("step", STEPS)
async def test_a_cancel_whose_supervisor_dies_does_not_hit_the_run_after_it(
    step: str,
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    nats_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[13] the cancel hits run 1, dead before the ack; run 2 is submitted; redelivery."""
    await client.submit(app.actors["add"].call(1), key="k")
    await stranger.send("cancel", Tenure_Key="k")
    async with another(app, nats_server) as commands:
        await killed_at(commands, step, monkeypatch)
    status = await client.status("k")
    assert status is not None
    if step == "before the write":
        assert status.phase == "queued"
    else:
        assert status.phase == "cancelled"
        await client.submit(app.actors["add"].call(2), key="k")
    async with supervisors.run(app):
        await until_empty(stranger, client)
        await until_forgotten(client, "k")
        status = await client.status("k")
    assert status is not None
    assert (status.generation, status.phase) == ((1, "cancelled") if step == "before the write" else (2, "queued"))


@pytest.mark.parametrize("step", STEPS)
async def test_a_command_without_a_key_gets_the_same_one_from_the_next_supervisor(
    step: str,
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    nats_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[15] the key is made from the command, not by whoever has it in hand."""
    keys: set[str] = set()
    stop = await client.stores.runs.follow_all(lambda key, _found: keys.add(key))
    await stranger.send("submit.add", {"one": 1})
    async with another(app, nats_server) as commands:
        await killed_at(commands, step, monkeypatch)
    async with supervisors.run(app):
        await until_empty(stranger, client)
        await wait_until(lambda: keys, description="the run is there")
    await stop()
    assert len(keys) == 1
    status = await client.status(keys.pop())
    assert status is not None
    assert status.generation == 1


async def test_a_run_whose_supervisor_died_before_its_wake_up_starts(
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    workers: Workers,
    nats_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await stranger.send("submit.add", {"one": 40}, Tenure_Key="k")
    async with another(app, nats_server) as commands:
        await killed_at(commands, "before the effects", monkeypatch)
    async with supervisors.run(app), workers.run(app):
        assert await (await client.run("k")).result(10) == 42


async def test_a_record_does_not_expire_before_its_command_is_acknowledged(
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    workers: Workers,
    nats_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[13] applied, dead before the ack; the run ends and its record would be gone after a second; redelivery: run again."""
    await stranger.send("submit.brief", Tenure_Key="k")
    async with another(app, nats_server) as commands, workers.run(app):
        await killed_at(commands, "before the ack", monkeypatch)
        first = await client.run("k")
        await first.wait(5)
        await asyncio.sleep(1.6)  # work: it would be gone by now
        assert await client.status("k") is not None
        async with supervisors.run(app):
            await until_empty(stranger, client)

            async def gone() -> bool:
                status = await client.status("k")
                assert status is None or status.run_id == first.run_id
                return status is None

            await wait_until(gone, description="it expires once the command is forgotten")


# -- a look that is wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["replace.add", "cancel"])
async def test_what_the_inbox_does_not_show_is_not_acknowledged(
    what: str,
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it is gone an ack is of no use; if it is not, a look was answered wrongly, and an accepted command would be lost."""
    live = await client.submit(app.actors["add"].call(1), key="k")
    looks: list[bool] = []
    async with supervisors.run(app) as supervisor:
        holds = supervisor.stores.inbox.holds

        async def wrong_at_first(place: Place, patience: Patience) -> bool:
            looks.append(await holds(place, patience))
            return looks[-1] and len(looks) > 1

        monkeypatch.setattr(supervisor.stores.inbox, "holds", wrong_at_first)
        await stranger.send(what, None if what == "cancel" else {"one": 2}, Tenure_Key="k")
        await until_empty(stranger, client)
        status = await client.status("k")
        assert status is not None
        assert (status.phase == "cancelled") if what == "cancel" else (status.generation == 2)
        assert (await live.status() is None) == (what != "cancel")
        assert looks[0]


# -- frozen, then late ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["submit.add", "replace.add", "cancel"])
@pytest.mark.parametrize("where", ["before the write", "between read and look"])
async def test_a_frozen_supervisor_that_comes_back_after_all_is_forgotten_applies_nothing(
    what: str,
    where: str,
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    nats_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the command in hand; another one applies, acknowledges and forgets it; two runs come and end; it goes on."""
    if what != "submit.add":
        await client.submit(app.actors["add"].call(0), key="k")
    await stranger.send(what, None if what == "cancel" else {"one": 1}, Tenure_Key="k")
    async with another(app, nats_server) as frozen:
        go_on, reached = asyncio.Event(), asyncio.Event()
        stores = frozen._stores
        method = stores.runs.commit if where == "before the write" else stores.inbox.holds

        async def late(*args: Any, **options: Any) -> Any:
            reached.set()
            await go_on.wait()
            return await method(*args, **options)

        patched: tuple[object, str] = (
            (stores.runs, "commit") if where == "before the write" else (stores.inbox, "holds")
        )
        monkeypatch.setattr(*patched, late)
        if where != "before the write" and what == "submit.add":
            await (await client.submit(app.actors["add"].call(0), key="k")).cancel()
        pulling, applying = asyncio.create_task(frozen.pull()), asyncio.create_task(frozen.apply())
        await reached.wait()
        pulling.cancel()  # its pulls expire
        async with supervisors.run(app):
            await until_empty(stranger, client)
            await until_forgotten(client, "k")
            for number in range(2):
                run = await client.replace(app.actors["add"].call(7 + number), key="k")
                await run.cancel()
            last = await client.submit(app.actors["add"].call(99), key="k")
            before = await client.stores.runs.read("k")
            go_on.set()
            await wait_until(lambda: sum(frozen._metrics.commands.values()) == 1, description="it has gone on")
            after = await client.stores.runs.read("k")
        applying.cancel()
        await asyncio.wait([pulling, applying])
    assert after == before
    assert after.record is not None
    assert after.record.run_id == last.run_id


# -- forgetting ----------------------------------------------------------------------------------------------------


async def test_a_mark_stays_while_its_message_does_though_its_supervisor_has_acknowledged(
    app: App, client: Client, stranger: Stranger, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ack is lost, as a hint may be: the message comes again, and must be known."""
    await stranger.send("submit.add", {"one": 1}, Tenure_Key="k")
    async with another(app, nats_server) as commands:

        async def lose(_message: Message) -> None:
            pass

        monkeypatch.setattr(commands._stores.inbox, "ack", lose)
        loops = (commands.pull, commands.apply, commands.forgetter.forget)
        tasks = [asyncio.create_task(loop()) for loop in loops]
        await wait_until(lambda: commands._metrics.commands["submit", "applied"] >= 3, description="it came again")
        await asyncio.sleep(LATER_SECONDS + 1.0)  # work: it would be forgotten by now
        assert await is_marked(client, "k")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    status = await client.status("k")
    assert status is not None
    assert status.generation == 1


async def test_a_sweep_forgets_no_mark_whose_message_may_come_again(
    namespace: str,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
    nats_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dead before the ack: the message is in dead hands for a whole ack_wait, and every sweep looks at the mark meanwhile."""
    app = App(namespace, config=replace(FAST, ack_wait_seconds=30.0, sweep_seconds=0.3))
    app.actor(name="add")(_add)
    await stranger.send("submit.add", {"one": 1}, Tenure_Key="k")
    async with another(app, nats_server) as commands:
        await killed_at(commands, "before the ack", monkeypatch)
    async with supervisors.run(app) as supervisor:
        await asyncio.sleep(LATER_SECONDS + 2.0)  # work: several sweeps
        assert await is_marked(client, "k")
        assert supervisor.metrics.repairs["seen"] == 0


async def _add(one: int, two: int = 2) -> int:
    return one + two
