"""The board of switches: many writers, what is told of it, what may be given, and what nobody can read."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure import App, Client, InvalidCall, UnreadableRecord
from tenure.nats.connection import Connection, Lost
from tests.conftest import Workers
from tests.support import wait_until


async def test_many_change_the_board_at_once_and_none_is_lost(app: App, client: Client, nats_server: str) -> None:
    """One document, many writers: each change is a compare-and-swap."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(app.connect(nats_server)) for _ in range(8)]
        await asyncio.gather(*(one.pause(actor=f"a{i}") for i in range(10) for one in clients))
        assert sorted(hold.name or "" for hold in await client.blocks()) == [f"a{i}" for i in range(10)]
        ended = await asyncio.gather(*(one.resume(actor=f"a{i}") for i in range(10) for one in clients))
    assert sum(hold is not None for hold in ended) == 10, "each is told to one of them"
    assert await client.blocks() == []


async def test_pausing_again_changes_the_time_and_the_reason(client: Client) -> None:
    first = await client.pause(queue="default", reason="one")
    again = await client.pause(queue="default", duration=60, reason="two")
    assert (again.id, again.since) == (first.id, first.since)
    (told,) = await client.blocks()
    assert (told.reason, told.until) == ("two", again.until)
    assert str(told) == "queue default"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "queue or an actor"),
        ({"queue": "a", "actor": "b"}, "queue or an actor"),
        ({"queue": "a b"}, "a b"),
        ({"actor": 7}, "7"),
        ({"queue": "a", "duration": -1}, "duration"),
        ({"queue": "a", "duration": 0}, "duration"),
        ({"queue": "a", "duration": "10m"}, "duration"),
        ({"queue": "a", "until": "tomorrow"}, "until"),
        ({"queue": "a", "until": 5, "duration": 5}, "until"),
        ({"queue": "a", "reason": 7}, "reason"),
        ({"queue": "a", "reason": "x" * 5_000}, "reason"),
    ],
)
async def test_what_cannot_be_paused_is_refused_by_name(client: Client, given: dict[str, Any], named: str) -> None:
    with pytest.raises(Exception, match=named) as refused:
        await client.pause(**given)
    assert type(refused.value).__name__ in {"InvalidCall", "ConfigError"}
    assert await client.blocks() == []


@pytest.mark.parametrize("given", [{}, {"queue": "a", "actor": "b"}])
async def test_a_pause_of_nothing_or_of_two_things_names_its_argument_as_a_block_does(
    client: Client, given: dict[str, Any]
) -> None:
    for call in (client.pause, client.resume):
        with pytest.raises(InvalidCall) as refused:
            await call(**given)
        assert refused.value.field == "queue"
    assert await client.blocks() == []


async def test_a_time_that_has_passed_is_refused(client: Client) -> None:
    with pytest.raises(InvalidCall, match=r"until=2020.* has passed"):
        await client.pause(queue="a", until=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidCall, match=r"until.* has no time zone"):
        await client.pause(queue="a", until=datetime(2090, 1, 1))  # noqa: DTZ001  (the point)


async def test_an_answer_that_is_lost_is_no_change_that_is_lost(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stores it, the answer does not come: the same write is repeated, is refused, and what is read is ours."""
    put, lost = Connection.put, [True, True]

    async def losing(self: Connection, *args: Any, **kwargs: Any) -> Any:
        ack = await put(self, *args, **kwargs)
        if lost and args[0].endswith("switch.board"):
            lost.pop()
            raise Lost("the answer")
        return ack

    monkeypatch.setattr(Connection, "put", losing)
    hold = await client.pause(actor="work", reason="why")
    assert (hold.name, hold.reason) == ("work", "why")
    assert [told.id for told in await client.blocks()] == [hold.id]
    lost.append(True)
    ended = await client.resume(actor="work")
    assert ended is not None, "told to whom it ended for, though it is not there any more when it is read"
    assert ended.id == hold.id
    assert await client.blocks() == []


@pytest.mark.parametrize("data", [b"not json", b'{"schema":99}', b'{"switches":[{"id":"x","kind":"moon","at":1}]}'])
async def test_who_cannot_read_what_is_paused_starts_nothing(
    app: App, client: Client, workers: Workers, data: bytes
) -> None:
    """A newer Tenure's, or somebody else's: the worker is not ready and says why; once it can be read all goes on."""
    ran: list[int] = []

    @app.actor
    async def work(n: int) -> None:
        ran.append(n)

    conn, names = client.stores.conn, client.stores.names
    async with workers.run(app) as running:
        await conn.put(names.board, data, {})
        await wait_until(lambda: running.worker.why_not_ready, description="it is not ready")
        assert "paused and blocked" in running.worker.why_not_ready
        run = await client.submit(work.call(1))
        await asyncio.sleep(1.5)  # paused: nothing starts
        assert not ran
        with pytest.raises(UnreadableRecord):
            await client.pause(actor="work")
        with pytest.raises(UnreadableRecord):
            await client.blocks()
        await conn.put(names.board, b"", {"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
        await run.result(10)
        await wait_until(lambda: not running.worker.why_not_ready, description="it is ready, as before")
