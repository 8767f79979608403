"""A leader that was deposed and does not know it yet answers, and something is told or acknowledged without a write.

A cancel of the inbox that finds nothing to do is acknowledged, and so lost, if what it found is over; a client is told that
there is no such key though it has just stored it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tenure.core.errors import InvalidCall
from tenure.nats import belief
from tenure.nats.connection import ApiError, Connection, PubAck
from tenure.nats.swaps import EXPECT, WRONG_SEQUENCE
from tenure.supervisor import commands as of_commands
from tenure.supervisor.commands import Commands
from tests.integration.test_deposed_refusals import remembers
from tests.strangers import Stranger, another, killed_at, mortal_app, phase, until_empty
from tests.support import wait_until


@pytest.fixture
def app(namespace: str) -> App:
    return mortal_app(namespace)


@asynccontextmanager
async def of_three(app: App, url: str) -> AsyncIterator[Commands]:
    """What a supervisor does about the inbox where each stream has three copies, once ``working``."""
    async with another(app, url) as commands:
        stores = commands._stores
        stores.topology = replace(stores.topology, session_copies=3)
        yield commands


@asynccontextmanager
async def working(commands: Commands) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(commands.pull()), asyncio.create_task(commands.apply())]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def told(commands: Commands) -> dict[tuple[str, str], int]:
    """What became of the first command, and of those that came with it."""
    counted = commands._metrics.commands
    await wait_until(lambda: sum(counted.values()), description="a command had its turn")
    return {what: number for what, number in counted.items() if number}


# -- the inbox ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["nothing", "an older run"])
async def test_a_cancel_is_not_acknowledged_because_its_run_is_not_shown(
    shown: str, app: App, client: Client, stranger: Stranger, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with of_three(app, nats_server) as commands:
        if shown == "an older run":
            await (await client.submit(app.actors["add"].call(1), key="k", delay=60)).cancel()
        deposed = await remembers(commands._stores, "k", monkeypatch)
        await client.submit(app.actors["add"].call(1), key="k", delay=60)
        deposed.left = 1
        await stranger.send("cancel", Tenure_Key="k")
        async with working(commands):
            assert await told(commands) == {("cancel", "applied"): 1}
            await until_empty(stranger, client)
        assert not deposed.left
    assert await phase(client, "k") == "cancelled"


@pytest.mark.parametrize("found", ["nothing", "a run that has ended"])
async def test_a_cancel_with_nothing_to_do_is_told_at_once_and_hits_no_later_run(
    found: str, app: App, client: Client, stranger: Stranger, nats_server: str
) -> None:
    """What it has found is stored once more, which no leader does that was deposed: nothing has to be waited for."""
    if found != "nothing":
        await (await client.submit(app.actors["add"].call(1), key="k", delay=60)).cancel()
    before = await client.stores.runs.read("k")
    async with of_three(app, nats_server) as commands:
        await stranger.send("cancel", Tenure_Key="k")
        async with working(commands):
            assert await told(commands) == {("cancel", "kept"): 1}
            await until_empty(stranger, client)
            after = await client.stores.runs.read("k")
            assert after.record == before.record
            assert after.revision > before.revision
            run = await client.submit(app.actors["add"].call(1), key="k", delay=60)
            await stranger.send("cancel", Tenure_Key="other")
            await until_empty(stranger, client)
            assert run.accepted
    assert await phase(client, "k") == "scheduled"


async def test_a_cancel_that_a_deposed_leader_refuses_is_not_decided_on_what_it_shows(
    app: App, client: Client, stranger: Stranger, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses what was found to be stored once more, and names what is older; then it shows that."""
    call = app.actors["add"].call(1)
    await (await client.submit(call, key="k", delay=60)).cancel()
    async with of_three(app, nats_server) as commands:
        stores = commands._stores
        deposed = await remembers(stores, "k", monkeypatch)
        await (await client.submit(call, key="k", delay=60)).cancel()
        put, sent, over = stores.conn.put, list[float](), set[str]()

        async def refused(subject: str, data: bytes, headers: dict[str, str], *args: Any, **more: Any) -> PubAck:
            if subject == stores.names.record("k"):
                sent.append(stores.clock.steady())
                over.add(headers[EXPECT])
                if len(sent) <= 2:
                    deposed.left = 2 - len(sent)
                    return PubAck(
                        error=ApiError(code=400, err_code=WRONG_SEQUENCE, description="wrong last sequence: 0")
                    )
            return await put(subject, data, headers, *args, **more)

        monkeypatch.setattr(stores.conn, "put", refused)
        await stranger.send("cancel", Tenure_Key="k")
        async with working(commands):
            assert await told(commands) == {("cancel", "kept"): 1}
            await until_empty(stranger, client)
    assert len(sent) == 3
    assert len(over) == 1, "what it shows is not what was found"
    assert sent[2] - sent[1] > 0.009


@pytest.mark.parametrize("copies", [1, 3])
async def test_what_is_shown_is_believed_on_one_server_and_of_an_old_command(
    copies: int, app: App, client: Client, stranger: Stranger, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No leader shows what was so long before."""
    if copies == 3:
        monkeypatch.setattr(of_commands, "DEPOSED_SECONDS", 0.0)
    async with of_three(app, nats_server) as commands:
        stores = commands._stores
        stores.topology = replace(stores.topology, session_copies=copies)
        await stranger.send("cancel", Tenure_Key="k")
        async with working(commands):
            assert await told(commands) == {("cancel", "kept"): 1}
            await until_empty(stranger, client)
    assert not (await client.stores.runs.read("k")).revision


async def test_a_submit_that_comes_again_does_not_join_a_run_that_is_over(
    app: App, client: Client, stranger: Stranger, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await client.submit(app.actors["add"].call(1), key="k", delay=60)
    async with of_three(app, nats_server) as commands:
        deposed = await remembers(commands._stores, "k", monkeypatch)
        await old.cancel()
        await stranger.send("submit.add", {"one": 2}, Tenure_Key="k")
        async with another(app, nats_server) as dying:
            await killed_at(dying, "before the write", monkeypatch)
        deposed.left = 1
        async with working(commands):
            assert await told(commands) == {("submit", "applied"): 1}
        assert not deposed.left
    assert (await client.run("k")).run_id != old.run_id


# -- the client --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["nothing", "an older run"])
async def test_who_has_stored_a_run_is_not_told_that_it_is_not_there(
    shown: str, app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no handle: a cancel, a start before its time and a purge go by the key alone."""
    call = app.actors["add"].call(1)
    if shown == "an older run":
        await (await client.submit(call, key="k", delay=60)).cancel()
    deposed = await remembers(client.stores, "k", monkeypatch)
    run = await client.submit(call, key="k", delay=60)
    deposed.left = 1
    assert (await client.trigger("k")).run_id == run.run_id
    assert not deposed.left
    deposed.left = 3  # also how far it has counted, and once more
    assert (await client.cancel("k")).outcome == "cancelled"
    assert not deposed.left


async def test_who_has_stored_a_run_can_purge_it_though_it_is_not_shown(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    deposed = await remembers(client.stores, "k", monkeypatch)
    await client.submit(app.actors["add"].call(1), key="k", delay=60)
    deposed.left = 1
    assert await client.purge("k")
    assert not deposed.left


async def test_a_bucket_that_counts_from_the_start_again_is_believed_and_waited_for_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(belief, "_SURE_SECONDS", 1.5)
    runs, clock = client.stores.runs, client.stores.clock
    monkeypatch.setattr(Connection, "is_clustered", True)
    runs._newest += 1_000
    started = clock.steady()
    assert (await client.cancel("k")).outcome == "not_found"
    waited = clock.steady() - started
    assert waited > 1.4
    with pytest.raises(InvalidCall, match="no key"):
        await client.trigger("k")
    assert not await client.purge("k")
    assert clock.steady() - started - waited < 1.0
