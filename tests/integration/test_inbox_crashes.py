"""The inbox under crashes: whatever dies, and wherever, each acknowledged command is applied once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from msgspec.structs import replace

from tenure import App, Client, Context
from tenure.core.marks import is_mark
from tenure.metrics import Metrics
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.inbox import CONSUMER
from tenure.stores import Stores
from tenure.supervisor.commands import Commands
from tests.conftest import Supervisors, Workers
from tests.integration.test_inbox import Stranger, phase, stranger, until_forgotten
from tests.processes import Site
from tests.support import FAST, wait_until

__all__ = ["stranger"]


class Killed(BaseException):
    """The process is gone from one instruction to the next."""


@pytest.fixture
def app(namespace: str) -> App:
    app = App(namespace, config=replace(FAST, ack_wait_seconds=1.0, request_timeout_seconds=0.5, sweep_seconds=0.5))

    @app.actor
    async def add(one: int, two: int = 2) -> int:
        return one + two

    @app.actor(result_ttl=1)
    async def brief() -> None:
        pass

    @app.actor(grace=1.0)
    async def hold(ctx: Context) -> None:
        await ctx.stopping.wait()

    return app


@asynccontextmanager
async def another(app: App, url: str) -> AsyncIterator[Commands]:
    """What a supervisor's process does about the inbox, to be killed or frozen in the middle."""
    stores = await Stores.open(url, app.names, app.config, name="another")
    yield Commands(stores, Metrics("0", app.actors, ()), app.actors)
    await stores.close()


async def killed_at(commands: Commands, step: str, patch: pytest.MonkeyPatch) -> None:
    """Let it have one command and die at ``step``."""

    async def die(*_args: object, **_options: object) -> Any:
        raise Killed

    def die_at_once(*_args: object, **_options: object) -> Any:
        raise Killed

    stores = commands._stores
    places: dict[str, tuple[object, str, Any]] = {
        "before the write": (stores.runs, "commit", die),
        "before the effects": (stores, "carry_out", die),
        "before the ack": (stores.inbox, "ack", die),
        "before it is forgotten": (commands.forgetter, "later", die_at_once),
    }
    patch.setattr(*places[step])
    pulling = asyncio.create_task(commands.pull())
    with pytest.raises(Killed):
        await commands.apply()
    pulling.cancel()
    await asyncio.wait([pulling])


STEPS = ("before the write", "before the effects", "before the ack", "before it is forgotten")


async def until_empty(stranger: Stranger, client: Client) -> None:
    async def empty() -> bool:
        return (await stranger.js.stream_info(client.app.names.inbox_stream)).state.messages == 0

    await wait_until(empty, description="the inbox is empty")


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


# -- copies --------------------------------------------------------------------------------------------------------


async def test_a_copy_with_the_same_message_id_is_one_command(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    for _ in range(3):
        await stranger.raw("submit.add", b'{"one": 1}', {"Nats-Msg-Id": "only", "Tenure-Key": "k"})
    async with supervisors.run(app) as supervisor:
        await phase(client, "k")
        await until_empty(stranger, client)
        assert supervisor.metrics.commands["submit", "applied"] == 1


async def test_a_copy_that_the_server_does_not_know_any_more_is_one_command_without_a_key_too(
    app: App, namespace: str
) -> None:
    """A server that is started again has forgotten the ids of what was acknowledged: the copy is stored once more."""
    with EmbeddedServer() as server:
        async with app.connect(server.url) as client:
            keys: set[str] = set()
            stop = await client.stores.runs.follow_all(lambda key, _found: keys.add(key))
            connected = await nats.connect(server.url)
            stranger = Stranger(connected, namespace)
            headers = {"Nats-Msg-Id": "only"}
            async with Supervisors(server.url).run(app):
                first = await stranger.raw("submit.add", b'{"one": 1}', headers)
                await until_empty(stranger, client)
                (key,) = await wait_until(lambda: keys, description="it is there")
                await until_forgotten(client, key)
            await asyncio.to_thread(server.restart)
            await wait_until(lambda: connected.is_connected, description="connected again")
            async with Supervisors(server.url).run(app) as supervisor:
                second = await stranger.raw("submit.add", b'{"one": 1}', headers)
                assert second != first, "stored once more"
                await wait_until(lambda: sum(supervisor.metrics.commands.values()) == 1, description="looked at")
            assert keys == {key}
            status = await client.status(key)
            assert status is not None
            assert status.generation == 1
            await stop()
            await connected.close()


# -- forgotten by the server ---------------------------------------------------------------------------------------


async def test_a_command_that_its_consumer_takes_for_acknowledged_is_applied_all_the_same(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    """Kills of the server leave such messages below the ack floor; so does a consumer whose filter is put back, every time."""
    stores, stream = client.stores, app.names.inbox_stream
    await stranger.send("submit.add", {"one": 1}, Tenure_Key="lost")
    await stranger.send("cancel", Tenure_Key="nobody")
    config = {"durable_name": CONSUMER, "ack_policy": "explicit", "filter_subject": f"{stranger.root}.cancel"}
    await stores.conn.api(f"CONSUMER.DURABLE.CREATE.{stream}.{CONSUMER}", {"stream_name": stream, "config": config})
    inbox = stranger.client.new_inbox()
    pulled = await stranger.client.subscribe(inbox)
    await stranger.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{CONSUMER}", b"1", reply=inbox)
    await stranger.client.request((await pulled.next_msg(timeout=5)).reply, b"+ACK", timeout=5)
    await stores.inbox.ensure_consumer()
    assert await stores.inbox.stray(stores.runs.patience()) is not None
    async with supervisors.run(app) as supervisor:
        await phase(client, "lost")
        await until_empty(stranger, client)
        await until_forgotten(client, "lost")
        assert supervisor.metrics.repairs["stray"] == 1
        assert supervisor.metrics.commands["submit", "applied"] == 1


# -- many ----------------------------------------------------------------------------------------------------------


async def test_a_thousand_queued_commands_are_applied_once_each_though_a_supervisor_is_killed_among_them(
    tmp_path: Path, nats_server: str, namespace: str
) -> None:
    """1,000 commands, half of them replaces of keys of their own: one applied twice would be a second generation."""
    site = Site(tmp_path, nats_server, namespace, ack_wait_seconds=2.0)
    try:
        async with site.app.connect(nats_server) as client:
            connected = await nats.connect(nats_server)
            stranger = Stranger(connected, namespace)
            for number in range(500):
                await stranger.send("submit.hold", Tenure_Key=f"s{number}")
                await stranger.send("replace.hold", Tenure_Key=f"r{number}")
            doomed = await site.start_supervisor()
            other = await site.start_supervisor()
            keys: dict[str, int] = {}

            def seen(header: Any) -> None:
                keys[header.key] = header.revision

            async def some(number: int) -> bool:
                keys.clear()
                await client.stores.runs.scan(seen)
                return len(keys) >= number

            await wait_until(lambda: some(50), description="they have begun")
            await doomed.kill()
            await wait_until(lambda: some(1_000), description="all are there", timeout=30.0)
            await until_empty(stranger, client)
            for key in keys:
                found = await client.stores.runs.read(key)
                assert found.record is not None
                assert found.record.generation == 1, key
            assert len(keys) == 1_000

            async def marks() -> bool:
                left = [(await client.stores.runs.read(key)).record for key in keys]
                return not any(record is not None and any(map(is_mark, record.seen)) for record in left)

            await wait_until(marks, description="the dead one's marks are forgotten too", timeout=30.0)
            assert await client.dead.rejected() == []
            await connected.close()
            await other.end()
    finally:
        site.close()
