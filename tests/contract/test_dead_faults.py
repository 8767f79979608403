"""Contract of the dead stream under faults: what a server that has another write of the subject under way (10164) makes of a letter."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.dead import DeadLetter
from tenure.core.errors import StillOwed
from tenure.core.records import Failure, Task
from tenure.nats.dead import Kept
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tests.contract.support import connect, proxied, say_in_flight
from tests.deposed import Deposed
from tests.support import FAST

LETTER = DeadLetter(
    schema=1,
    key="k",
    run_id="r",
    generation=1,
    actor="a",
    queue="default",
    priority="normal",
    task=Task(actor="a"),
    attempts=1,
    failures=1,
    failure=Failure(type="ValueError", message="no"),
    queued_at=1.0,
    died_at=2.0,
)


async def letters(stores: Stores) -> list[Kept]:
    return [kept async for kept in stores.dead.find(Patience(stores.clock, 5.0))]


async def test_a_letter_is_kept_however_often_the_server_says_that_one_is_in_flight(nats_server: str, namespace: str):
    """That passes by itself: it is no refusal, of which a few are enough to call for a person."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace, FAST) as stores:
        lost = proxy.lose(lambda p: p.subject.startswith(stores.names.dead_prefix), times=6)
        answers = asyncio.create_task(say_in_flight(proxy, lost, 6))
        await stores.dead.keep(LETTER, Patience(stores.clock, 20.0))
        await answers
        assert [kept.letter for kept in await letters(stores)] == [LETTER]


async def test_a_removal_that_the_server_says_is_in_flight_may_be_an_earlier_copy_of_ones_own(
    nats_server: str, namespace: str
):
    """Made again it is refused, since the letter is gone: by this removal, so the caller is not told that it was another's."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        await stores.dead.keep(LETTER, Patience(stores.clock, 5.0))
        (kept,) = await letters(stores)
        proxy.lose_answer(lambda p: p.subject.startswith(stores.names.dead_prefix))
        second = proxy.lose(lambda p: p.subject.startswith(stores.names.dead_prefix))
        answers = asyncio.create_task(say_in_flight(proxy, second, 1))
        assert await stores.dead.remove(kept, Patience(stores.clock, 5.0))
        await answers
        assert await letters(stores) == []
        assert not await stores.dead.remove(kept, Patience(stores.clock, 5.0))


@pytest.mark.parametrize("what", ["a letter that was found is held", "the letter of a replay is removed"])
async def test_that_there_is_no_letter_is_not_believed_at_once_of_who_shows_no_marker_either(
    stores: Stores, what: str, monkeypatch: pytest.MonkeyPatch
):
    """A leader that was deposed before the letter was stored shows neither, and what was removed has left a marker."""
    wanted = stores.names.dead_filter("a" if "held" in what else None, "k", "r")
    deposed = Deposed(stores.conn, monkeypatch)
    await deposed.sees(f"STREAM.MSG.GET.{stores.names.dead_stream}", {"seq": 1, "next_by_subj": wanted})
    await stores.dead.keep(LETTER, Patience(stores.clock, 5.0))
    (kept,) = await letters(stores)
    deposed.left = 2
    if "held" in what:
        assert await stores.dead.holds(kept, Patience(stores.clock, 5.0))
        await stores.dead.remove(kept, Patience(stores.clock, 5.0))
    else:
        await stores.dead.remove_of("k", "r", Patience(stores.clock, 5.0))
    assert not deposed.left
    assert await letters(stores) == []
    deposed.left = 2
    assert not await stores.dead.holds(kept, Patience(stores.clock, 5.0))


async def test_a_stream_that_refuses_is_asked_once_for_each_letter_until_it_takes_one(
    nats_server: str, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    """Five times for the first one: a moment later it may take that. There may be thousands, which others wait for."""
    async with connect(nats_server, namespace, FAST) as stores:
        put, tries = stores.conn.put, list[str]()

        async def counted(subject: str, *args: Any, **kwargs: Any) -> Any:
            tries.append(subject)
            return await put(subject, *args, **kwargs)

        monkeypatch.setattr(stores.conn, "put", counted)

        async def asked(number: int) -> int:
            tries.clear()
            letter = replace(LETTER, run_id=f"r{number}")
            with contextlib.suppress(StillOwed):
                await stores.dead.keep(letter, Patience(stores.clock, 20.0))
            return len(tries)

        await stores.conn.api(f"STREAM.DELETE.{stores.names.dead_stream}", {})
        assert [await asked(number) for number in range(3)] == [5, 1, 1]
        async with connect(nats_server, namespace):  # makes what is missing
            pass
        assert [await asked(number) for number in range(2)] == [1, 1]
        await stores.conn.api(f"STREAM.DELETE.{stores.names.dead_stream}", {})
        assert [await asked(number) for number in range(2, 4)] == [5, 1]
