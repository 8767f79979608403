"""What the stores promise of rates: entries that vanish, one write for many who ask, and answers that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tenure.core.errors import Unavailable
from tenure.core.permits import Answer
from tenure.core.rates import SECOND, Entry, Pace, Place, Rate, Start
from tenure.core.records import encode
from tenure.core.subjects import Names
from tenure.nats.connection import Connection, Lost
from tenure.nats.rates import FoundRate
from tenure.nats.runs import NOTHING, Committed
from tenure.stores import Stores
from tests.contract.conftest import submit
from tests.support import FAST, wait_until

WINDOW = 128 * SECOND
NAME = f"nobody={WINDOW}us"
MANY = 1_000
"""Under so many, starts in the same second have the same mark."""


@pytest.fixture
async def other(namespace: str, nats_server: str) -> AsyncIterator[Stores]:
    stores = await Stores.open(nats_server, Names(namespace), FAST, name="other")
    try:
        yield stores
    finally:
        await stores.close()


async def parker(stores: Stores, run: str, name: str = NAME) -> Callable[[], Awaitable[int]]:
    """A waiting record of the run, and how its message is stored."""
    pace = Pace(rates=(Rate(n=1, seconds=128.0),))
    done = await stores.runs.commit(run, submit(run, run, pace=pace), at=NOTHING)
    assert isinstance(done, Committed)
    patience = stores.runs.patience()
    return partial(stores.parking.park, name, done.record, encode(done.record), done.revision, patience)


async def ask(stores: Stores, run: str, n: int = 1, *, name: str = NAME, drop: bool = False) -> tuple[Answer, int]:
    start = Start(key=run, run_id=run, within=SECOND // 10, n=n, drop=drop)
    return await stores.paces.start(name, start, await parker(stores, run, name), stores.runs.patience())


async def stored(stores: Stores, name: str = NAME) -> Entry:
    entry = (await stores.rates.read(name, stores.runs.patience())).entry
    assert entry is not None
    return entry


def number(entry: Entry) -> int:
    return sum(starts for _, starts in entry.marks)


async def once(monkeypatch: pytest.MonkeyPatch, stores: Stores, meanwhile: Callable[[], Awaitable[Any]]) -> None:
    """The next write of a rate is applied, its answer is lost, and something happens before it is made again."""
    plain, left = Connection.put, [True]

    async def put(self: Connection, subject: str, *more: Any) -> Any:
        answer = await plain(self, subject, *more)
        if left and self is stores.conn and subject.startswith(stores.names.rate_prefix):
            left.clear()
            await meanwhile()
            raise Lost("its answer is lost")
        return answer

    monkeypatch.setattr(Connection, "put", put)


async def nothing() -> None:
    """Nothing happens."""


async def test_an_entry_is_written_only_at_the_revision_that_was_read_and_vanishes(stores: Stores) -> None:
    patience = stores.runs.patience()
    entry = Entry(n=2, marks=((5, 1),), places=(Place(key="a", run_id="r", at=1),))
    revision, unsure, *_ = await stores.rates.write(NAME, entry, 0, 1, patience)
    assert revision
    assert not unsure
    assert await stores.rates.read(NAME, patience) == FoundRate(entry, revision)
    assert (await stores.rates.write(NAME, entry, 0, 1, patience))[:2] == (0, False)

    async def gone() -> bool:
        return (await stores.rates.read(NAME, patience)).entry is None

    await wait_until(gone, description="it has expired")
    revision = (await stores.rates.read(NAME, patience)).revision
    assert (await stores.rates.write(NAME, entry, revision, 1, patience))[0], "over what the server has left of it"


async def test_looks_at_all_records_pass_over_entries(stores: Stores) -> None:
    met: list[str] = []
    await ask(stores, "k")
    await stores.runs.scan(lambda header: met.append(header.key))
    assert met == ["k"]
    assert await stores.limits.names(stores.runs.patience()) == []


async def test_what_is_asked_meanwhile_is_one_write(stores: Stores) -> None:
    parks = {f"r{i}": await parker(stores, f"r{i}") for i in range(100)}
    before = (await stores.rates.read(NAME, stores.runs.patience())).revision
    patience = stores.runs.patience()
    asked = [
        stores.paces.start(NAME, Start(key=run, run_id=run, within=SECOND, n=MANY), park, patience)
        for run, park in parks.items()
    ]
    answers = await asyncio.gather(*asked)
    after = (await stores.rates.read(NAME, stores.runs.patience())).revision
    assert {answer for answer, _ in answers} == {Answer.GRANTED}
    assert number(await stored(stores)) == 100
    assert after - before <= 100 + 4, "a revision for each record, and hardly one for each start"


async def test_a_start_whose_answer_is_lost_is_known_by_its_tag_and_not_made_twice(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await once(monkeypatch, stores, nothing)
    assert (await ask(stores, "a", n=2))[0] is Answer.GRANTED
    assert number(await stored(stores)) == 1


async def test_a_start_whose_answer_is_lost_under_another_write_is_wasted_not_forgotten(
    stores: Stores, other: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await once(monkeypatch, stores, lambda: ask(other, "b", MANY))
    assert (await ask(stores, "a", MANY))[0] is Answer.GRANTED
    assert number(await stored(stores)) == 3


async def test_a_mark_that_is_taken_out_by_a_write_of_unknown_fate_is_not_taken_out_twice(
    stores: Stores, other: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Applied, its answer lost, and another has written over it: what lies at that mark now is another run's start."""
    _, mark = await ask(stores, "a", MANY)
    while (await ask(other, f"b{mark}", MANY))[1] != mark:  # in the same part of the window: the same mark
        _, mark = await ask(stores, f"a{mark}", MANY)
    await stores.paces.look(NAME, stores.runs.patience())
    before = number(await stored(stores))
    await once(monkeypatch, stores, lambda: ask(other, "c", MANY))
    await stores.paces.leave(NAME, "a", stores.runs.patience(), mark)
    assert number(await stored(stores)) == before - 1 + 1


async def test_who_is_parked_is_woken_in_order_when_the_window_has_room(stores: Stores) -> None:
    name = f"nobody={SECOND // 5}us"
    answers = [await ask(stores, run, name=name) for run in ("a", "b", "c")]
    assert [answer for answer, _ in answers] == [Answer.GRANTED, Answer.PARKED, Answer.PARKED]
    await stored_wakeup(stores, "b")
    entry = await stored(stores, name)
    assert ([place.run_id for place in entry.places], entry.marks, entry.parked) == (["b"], (), True)
    await stores.paces.leave(name, "b", stores.runs.patience())
    await stored_wakeup(stores, "c")
    assert (await stores.work.stored(stores.runs.patience())).parked == {}


async def stored_wakeup(stores: Stores, run: str) -> None:
    async def there() -> bool:
        record = (await stores.runs.read(run)).record
        return record is not None and await stores.work.is_awake(record)

    await wait_until(there, description=f"{run} is woken")


async def test_what_is_to_be_dropped_parks_nothing(stores: Stores) -> None:
    await ask(stores, "a")
    assert (await ask(stores, "b", drop=True))[0] is Answer.EXCESS
    assert (await stores.work.stored(stores.runs.patience())).parked == {}


@pytest.mark.long
async def test_stores_that_close_wake_nobody_any_more(namespace: str, nats_server: str) -> None:
    """Else each parked run would leave a timer behind, and an error in the log."""
    stores = await Stores.open(nats_server, Names(namespace), FAST, name="brief")
    name = f"nobody={SECOND // 5}us"
    for run in ("a", "b"):
        await ask(stores, run, name=name)
    await stores.close()
    with pytest.raises(Unavailable, match="not connected"):
        await stores.paces.look(name, stores.runs.patience())
