"""What the stores promise of limits: entries, parked messages in order, and one write for many who ask."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.permits import Answer, Bound, Entry, Give, Permit, Take
from tenure.core.records import encode
from tenure.gates import Gates
from tenure.nats.connection import Connection, Lost
from tenure.nats.limits import FoundEntry
from tenure.nats.parking import Parking
from tenure.nats.runs import NOTHING, Committed
from tenure.stores import Stores
from tests.contract.conftest import submit
from tests.support import wait_until

NAME = "nobody"


def take(run: str, n: int = 1) -> Take:
    return Take(key=run, run_id=run, attempt=1, session="s", n=n)


def give(run: str) -> Give:
    return Give(run_id=run, attempt=1, session="s")


async def parker(stores: Stores, run: str) -> Any:
    """A waiting record of the run, and how its message is stored."""
    done = await stores.runs.commit(run, submit(run, run, limits=(Bound(n=1),)), at=NOTHING)
    assert isinstance(done, Committed)
    patience = stores.runs.patience()
    return partial(stores.parking.park, NAME, done.record, encode(done.record), done.revision, patience)


async def ask(stores: Stores, run: str, n: int = 1, gates: Gates | None = None) -> Answer:
    park = await parker(stores, run)
    return await (gates or stores.gates).take(NAME, take(run, n), park, stores.runs.patience())


async def stored(stores: Stores) -> Entry | None:
    return (await stores.limits.read(NAME, stores.runs.patience())).entry


async def oldest(stores: Stores, *skip: str) -> list[str]:
    return [one.run_id for one in await stores.parking.oldest(NAME, 10, skip, stores.runs.patience())]


async def test_an_entry_is_written_only_at_the_revision_that_was_read(stores: Stores) -> None:
    patience = stores.runs.patience()
    entry = Entry(n=2, permits=(Permit(key="a", run_id="r", attempt=1, session="s"),))
    revision, unsure, *_ = await stores.limits.write(NAME, entry, 0, patience)
    assert revision
    assert not unsure
    assert await stores.limits.read(NAME, patience) == FoundEntry(entry, revision)
    assert (await stores.limits.write(NAME, entry, 0, patience))[:2] == (0, False)
    gone, _, *_ = await stores.limits.write(NAME, None, revision, patience)
    assert await stores.limits.read(NAME, patience) == FoundEntry(None, gone)
    assert (await stores.limits.write(NAME, entry, 0, patience))[:2] == (0, False), (
        "a late create is refused by the marker"
    )
    assert (await stores.limits.write(NAME, entry, gone, patience))[0]


async def test_an_entry_that_is_gone_leaves_nothing_behind(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its marker vanishes by itself, and leaves no marker of its own."""
    monkeypatch.setattr("tenure.nats.limits.MARKER_TTL_SECONDS", 1)
    patience = stores.runs.patience()
    revision, _, *_ = await stores.limits.write(NAME, Entry(n=1), 0, patience)
    await stores.limits.write(NAME, None, revision, patience)

    async def gone() -> bool:
        return not await stores.limits.names(patience)

    await wait_until(gone, description="the marker is gone")


async def test_looks_at_all_records_pass_over_entries(stores: Stores) -> None:
    patience = stores.runs.patience()
    await parker(stores, "k")
    met: list[str] = []
    followed: list[str] = []
    stop = await stores.runs.follow_all(lambda key, _: followed.append(key))
    await stores.limits.write(NAME, Entry(n=1), 0, patience)
    await stores.runs.scan(lambda header: met.append(header.key))
    await parker(stores, "last")
    await wait_until(lambda: "last" in followed, description="a record's event")
    await stop()
    assert met == ["k"]
    assert followed == ["last"]
    assert await stores.limits.names(patience) == [NAME]


async def test_parked_runs_are_found_in_the_order_in_which_they_came_and_keep_their_place(stores: Stores) -> None:
    parks = {run: await parker(stores, run) for run in ("b", "a", "c")}
    for park in parks.values():
        assert await park()
    assert await parks["b"]() == 0, "it is there already"
    assert await oldest(stores) == ["b", "a", "c"]
    assert await oldest(stores, "b", "c") == ["a"]
    patience = stores.runs.patience()
    first = (await stores.parking.oldest(NAME, 1, (), patience))[0]
    await stores.parking.wake(first, patience)
    await stores.parking.wake(first, patience)
    assert await oldest(stores) == ["a", "c"]
    await stores.parking.remove(NAME, "a", "a", patience)
    assert await oldest(stores) == ["c"]


async def test_38_a_parked_message_counts_as_a_message_of_its_run(stores: Stores) -> None:
    patience = stores.runs.patience()
    park = await parker(stores, "k")
    record = (await stores.runs.read("k")).record
    assert record is not None
    assert not await stores.work.is_stored(record)
    await park()
    assert await stores.work.is_stored(record)
    assert not await stores.work.is_awake(record)
    assert not await stores.work.is_stored(replace(record, run_id="r2"))
    listed = await stores.work.stored(patience)
    assert listed.parked == {NAME: {("k", "k")}}
    assert not listed.wakeups.has("default.k", "k")


async def test_what_is_asked_at_once_is_one_write(stores: Stores) -> None:
    """Fifty ask together: the first CAS is for the one that came first, the next ones for all others."""
    answers = await asyncio.gather(*(ask(stores, f"r{i}", n=50) for i in range(50)))
    assert set(answers) == {Answer.GRANTED}
    before = (await stores.limits.read(NAME, stores.runs.patience())).revision
    await asyncio.gather(*(stores.gates.give(NAME, give(f"r{i}"), stores.runs.patience()) for i in range(50)))
    after = await stores.limits.read(NAME, stores.runs.patience())
    assert after.entry is None
    assert after.revision - before <= 2


async def test_a_place_goes_to_who_has_parked_first(stores: Stores) -> None:
    """Three ask of other processes, which give nothing back: they park at once."""
    gates = [Gates(stores.limits, stores.parking, stores.clock) for _ in range(2)]
    patience = stores.runs.patience()
    assert await ask(stores, "a") is Answer.GRANTED
    for run in ("b", "c", "d"):
        park = await parker(stores, run)
        other = replace(take(run), session="other")
        assert await gates[0].take(NAME, other, park, patience) is Answer.PARKED
    await stores.gates.give(NAME, give("a"), patience)
    entry = await stored(stores)
    assert entry is not None
    assert [(one.run_id, one.session) for one in entry.permits] == [("b", "")]
    assert await oldest(stores) == ["c", "d"]
    record = (await stores.runs.read("b")).record
    assert record is not None
    assert await stores.work.is_awake(record)


async def test_a_run_waits_a_little_for_a_place_that_its_own_process_gives_back(stores: Stores) -> None:
    """The same session holds the place, so nothing is parked if it comes back within milliseconds; else it is."""
    patience = stores.runs.patience()
    assert await ask(stores, "a") is Answer.GRANTED
    waits = asyncio.create_task(ask(stores, "b"))
    await wait_until(lambda: stores.gates.holding, description="it is held")
    await stores.gates.give(NAME, give("a"), patience)
    assert await waits is Answer.GRANTED
    assert await oldest(stores) == []
    assert await ask(stores, "c") is Answer.PARKED
    assert await oldest(stores) == ["c"]


async def test_36_the_search_comes_after_the_read(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody parks between A's search and its CAS: the CAS is refused, and A looks again."""
    patience = stores.runs.patience()
    others = Gates(stores.limits, stores.parking, stores.clock)
    assert await ask(stores, "a") is Answer.GRANTED
    parks = {run: await parker(stores, run) for run in ("b", "c")}
    assert await others.take(NAME, replace(take("b"), session="o"), parks["b"], patience) is Answer.PARKED
    search, late = Parking.oldest, [parks["c"]]

    async def slow(self: Parking, *args: Any) -> Any:
        found = await search(self, *args)
        if late:
            assert await others.take(NAME, replace(take("c"), session="o"), late.pop(), patience) is Answer.PARKED
        return found

    monkeypatch.setattr(Parking, "oldest", slow)
    await stores.gates.give(NAME, give("a"), patience)
    entry = await stored(stores)
    assert entry is not None
    assert [one.run_id for one in entry.permits] == ["b"]
    assert entry.parked, "c is not forgotten"


async def test_35_a_message_that_is_not_removed_yet_is_passed_over(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N = 2: A and B leave one after the other; what C has parked, who got A's place, is still there."""
    patience = stores.runs.patience()
    others = Gates(stores.limits, stores.parking, stores.clock)
    for run in ("a", "b"):
        assert await ask(stores, run, n=2) is Answer.GRANTED
    for run in ("c", "d"):
        park = await parker(stores, run)
        assert await others.take(NAME, replace(take(run, n=2), session="o"), park, patience) is Answer.PARKED

    async def fails(*_: Any) -> None:
        """The removal is on its way."""

    monkeypatch.setattr(Parking, "drop", fails)
    for run in ("a", "b"):
        await stores.gates.give(NAME, give(run), patience)
    assert await oldest(stores) == ["c", "d"]
    entry = await stored(stores)
    assert entry is not None
    assert [(one.run_id, one.session) for one in entry.permits] == [("c", ""), ("d", "")]


async def test_34_who_has_parked_and_then_finds_room_leaves_no_message(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B reads full, A leaves, B publishes, its CAS is refused, it finds room."""
    patience = stores.runs.patience()
    others = Gates(stores.limits, stores.parking, stores.clock)
    assert await ask(stores, "a") is Answer.GRANTED
    park = await parker(stores, "b")

    async def slow() -> int:
        await stores.gates.give(NAME, give("a"), patience)
        return int(await park())

    assert await others.take(NAME, replace(take("b"), session="o"), slow, patience) is Answer.FROM_PARKED
    await others.look(NAME, patience)
    assert await oldest(stores) == []


async def test_a_write_whose_answer_is_lost_is_found_out_about(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken, and handed over, by a CAS that nobody heard of: no second place, and whoever was reserved for is woken."""
    patience = stores.runs.patience()
    put, lost = Connection.put, [0]

    async def deaf(self: Connection, subject: str, *args: Any, **options: Any) -> Any:
        answer = await put(self, subject, *args, **options)
        if lost[0] and subject == stores.names.limit(NAME):
            lost[0] -= 1
            raise Lost("no answer in time")
        return answer

    monkeypatch.setattr(Connection, "put", deaf)
    lost[0] = 1
    assert await ask(stores, "a") is Answer.GRANTED
    others = Gates(stores.limits, stores.parking, stores.clock)
    assert (
        await others.take(NAME, replace(take("b"), session="o"), await parker(stores, "b"), patience) is Answer.PARKED
    )
    await stores.gates.look(NAME, patience)  # so that it is the write which counts whose answer is lost
    lost[0] = 1
    await stores.gates.give(NAME, give("a"), patience)
    assert not lost[0]
    entry = await stored(stores)
    assert entry is not None
    assert [(one.run_id, one.session) for one in entry.permits] == [("b", "")]
    record = (await stores.runs.read("b")).record
    assert record is not None
    assert await stores.work.is_awake(record)
