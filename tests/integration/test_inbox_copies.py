"""The inbox and copies: of what was sent twice, of what the server has forgotten, and of a thousand when a process is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest
from msgspec.structs import replace

from tenure import App, Client
from tenure.core.marks import is_mark
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.inbox import CONSUMER
from tenure.supervisor import commands as supervisor_commands
from tenure.supervisor.commands import Commands
from tests.conftest import Supervisors
from tests.processes import Site
from tests.strangers import Stranger, another, mortal_app, phase, rejected, until_empty, until_forgotten
from tests.support import FAST, wait_until


@pytest.fixture
def app(namespace: str) -> App:
    return mortal_app(namespace)


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


@pytest.mark.one_server("its own server is restarted with its store")
async def test_copies_that_the_server_does_not_know_any_more_are_one_command_each(app: App, namespace: str) -> None:
    """A server that is started again has forgotten the ids of what was acknowledged: the copies are stored once more.

    One has no key. The other is a replace, and two runs later its key's record shows its run no more.
    """
    with EmbeddedServer() as server:
        async with app.connect(server.url) as client:
            keys: set[str] = set()
            stop = await client.stores.runs.follow_all(lambda key, _found: keys.add(key))
            connected = await nats.connect(server.url)
            stranger = Stranger(connected, namespace)

            async def publish() -> int:
                await stranger.raw("replace.add", b'{"one": 1}', {"Nats-Msg-Id": "one", "Tenure-Key": "k"})
                return await stranger.raw("submit.add", b'{"one": 1}', {"Nats-Msg-Id": "other"})

            async with Supervisors(server.url).run(app):
                first = await publish()
                await until_empty(stranger, client)
                await wait_until(lambda: len(keys) == 2, description="they are there")
                for key in keys:
                    await until_forgotten(client, key)
            for number in (2, 3):
                await client.replace(app.actors["add"].call(number), key="k")
            await asyncio.to_thread(server.restart)
            await wait_until(lambda: connected.is_connected, description="connected again")
            async with Supervisors(server.url).run(app) as supervisor:
                assert await publish() == first + 2, "stored once more"
                await wait_until(lambda: sum(supervisor.metrics.commands.values()) == 2, description="looked at")
            statuses = {key: await client.status(key) for key in keys}
            generations = {key: status.generation for key, status in statuses.items() if status is not None}
            assert generations == {"k": 3} | dict.fromkeys(keys - {"k"}, 1)
            assert len(keys) == 2
            await stop()
            await connected.close()


# -- forgotten by the server ---------------------------------------------------------------------------------------


async def forgotten_by_the_server(client: Client, stranger: Stranger) -> None:
    """Kills of the server leave such messages below the ack floor; so does a consumer whose filter is put back, every time."""
    stores, stream = client.stores, client.app.names.inbox_stream
    await stranger.send("cancel", Tenure_Key="nobody")
    config = {"durable_name": CONSUMER, "ack_policy": "explicit", "filter_subject": f"{stranger.root}.cancel"}
    await stores.conn.api(f"CONSUMER.DURABLE.CREATE.{stream}.{CONSUMER}", {"stream_name": stream, "config": config})
    inbox = stranger.client.new_inbox()
    pulled = await stranger.client.subscribe(inbox)
    await stranger.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{CONSUMER}", b"1", reply=inbox)
    await stranger.client.request((await pulled.next_msg(timeout=5)).reply, b"+ACK", timeout=5)
    await stores.inbox.ensure_consumer()
    assert await stores.inbox.strays(1, 1, stores.runs.patience())


async def test_a_command_that_its_consumer_takes_for_acknowledged_is_applied_all_the_same(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    await stranger.send("submit.add", {"one": 1}, Tenure_Key="lost")
    await forgotten_by_the_server(client, stranger)
    async with supervisors.run(app) as supervisor:
        await phase(client, "lost")
        await until_empty(stranger, client)
        await until_forgotten(client, "lost")
        assert supervisor.metrics.repairs["stray"] == 1
        assert supervisor.metrics.commands["submit", "applied"] == 1


async def test_one_of_them_that_cannot_be_carried_out_hides_no_other_and_is_rejected_in_the_end(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No nak puts it off, so that is done here; and it has no number of deliveries but that of the looks."""
    monkeypatch.setattr(supervisor_commands, "_STRAY_SECONDS", 0.05)
    monkeypatch.setattr(supervisor_commands, "_LONGEST_SECONDS", 0.25)
    monkeypatch.setattr(supervisor_commands, "_STRAYS_AT_ONCE", 2)
    app.config = replace(app.config, command_patience_seconds=0.1)
    for actor in ("unknown", "unheard", "strange"):
        await stranger.send(f"submit.{actor}", {}, Tenure_Key=actor)
    await stranger.send("submit.add", {"one": 1}, Tenure_Key="lost")
    await forgotten_by_the_server(client, stranger)
    async with supervisors.run(app) as supervisor:
        await phase(client, "lost")
        assert supervisor.metrics.commands["submit", "rejected"] == 0
        await rejected(client, 3)
        await until_empty(stranger, client)
        assert supervisor.metrics.commands["submit", "put_off"] == 3 * 8
        assert supervisor.metrics.repairs["stray"] == 4


async def test_what_the_server_forgot_and_cannot_be_carried_out_is_not_looked_at_all_the_time(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few that crash whoever applies them would end the supervisor: so many unexpected errors a minute are too many."""
    monkeypatch.setattr(supervisor_commands, "_STRAY_SECONDS", 0.01)
    monkeypatch.setattr(supervisor_commands, "_SHORTEST_SECONDS", 30.0)
    for number in range(3):
        await stranger.send("submit.unknown", {}, Tenure_Key=f"{number}")
    await stranger.send("submit.add", {"one": 1}, Tenure_Key="first")
    await forgotten_by_the_server(client, stranger)
    async with supervisors.run(app) as supervisor:
        await phase(client, "first")
        passes = 0
        strays = supervisor.stores.inbox.strays

        async def counted(*args: Any) -> Any:
            nonlocal passes
            passes += 1
            return await strays(*args)

        monkeypatch.setattr(supervisor.stores.inbox, "strays", counted)
        await wait_until(lambda: passes > 10, description="they were looked at again and again")
        assert supervisor.metrics.commands["submit", "put_off"] == 3


# -- many ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
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
                return not any(record is not None and any(map(is_mark, record.to_forget)) for record in left)

            await wait_until(marks, description="the dead one's marks are forgotten too", timeout=30.0)
            assert await client.dead.rejected() == []
            await connected.close()
            await other.end()
    finally:
        site.close()


async def test_a_supervisor_that_is_told_to_stop_hands_back_what_it_has_not_begun(
    namespace: str, stranger: Stranger, nats_server: str
) -> None:
    """Another one need not wait until the server misses an ack: each is delivered again at once."""
    app = App(namespace, config=replace(FAST, ack_wait_seconds=30.0))
    for number in range(20):
        await stranger.send("submit.add", {"one": number})

    async def pulls(commands: Commands) -> None:
        pulling = asyncio.create_task(commands.pull())
        await wait_until(lambda: commands._in_hand == 20, description="it has them in hand")
        pulling.cancel()
        await asyncio.wait([pulling])

    async with another(app, nats_server) as first, another(app, nats_server) as second:
        await pulls(first)
        await pulls(second)
