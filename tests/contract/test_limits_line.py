"""What the gates of one process do for its own runs: places that are passed on, and who waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.app import App
from tenure.core.permits import Answer, Entry, Give, Permit
from tenure.crew import Gate
from tenure.gates import Gates
from tenure.metrics import Metrics
from tenure.nats.limits import FoundEntry, Limits
from tenure.stores import Stores
from tenure.supervisor.places import Places
from tenure.switchboard import Switchboard
from tests.contract.test_limits import NAME, ask, give, oldest, parker, stored, take
from tests.support import wait_until


class Counted:
    """How often the limit's entry is written."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        write = Limits.write

        async def counted(limits: Limits, *args: Any) -> Any:
            self.calls += 1
            return await write(limits, *args)

        patch.setattr(Limits, "write", counted)


async def line_up(stores: Stores, *runs: str, n: int = 1) -> dict[str, asyncio.Task[Answer]]:
    """Have them ask one after the other; those that get no place at once stand in line."""
    asked: dict[str, asyncio.Task[Answer]] = {}
    for number, run in enumerate(runs):
        asked[run] = asyncio.create_task(ask(stores, run, n))

        async def named(run: str = run, number: int = number) -> bool:
            permits, line = await names(stores)
            return run in permits + line and len(asked) == number + 1

        await wait_until(named, description=f"{run} is named")
    return asked


async def names(stores: Stores) -> tuple[list[str], list[str]]:
    entry = await stored(stores)
    return ([], []) if entry is None else ([p.run_id for p in entry.permits], [p.run_id for p in entry.line])


async def test_a_place_passes_to_the_next_in_line_with_no_write(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty runs one after the other under a limit of one: the entry is written a few times, not fifty."""
    monkeypatch.setattr("tenure.crew._FIRST_WAIT_SECONDS", 5.0)
    monkeypatch.setattr("tenure.gates._UNSEEN_SECONDS", 5.0)
    patience = stores.runs.patience()
    runs = [f"r{i}" for i in range(50)]
    parks = {run: await parker(stores, run) for run in runs}
    counted = Counted(monkeypatch)
    order: list[str] = []
    running: set[str] = set()

    async def body(run: str) -> None:
        assert await stores.gates.take(NAME, take(run), parks[run], patience) is Answer.GRANTED
        assert await stores.gates.place(NAME, give(run), 5.0)
        running.add(run)
        assert running == {run}, "one at a time"
        await asyncio.sleep(0)  # body: others may run
        order.append(run)
        running.discard(run)
        await stores.gates.give(NAME, give(run), patience)

    await asyncio.gather(*map(body, runs))
    assert order == runs
    assert counted.calls < 12
    assert await stored(stores) is None


async def test_the_entry_names_who_has_the_places_after_each_write(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.crew._FIRST_WAIT_SECONDS", 5.0)
    monkeypatch.setattr("tenure.gates._UNSEEN_SECONDS", 5.0)
    patience = stores.runs.patience()
    asked = await line_up(stores, "a", "b", "c", "d", n=2)
    assert await names(stores) == (["a", "b"], ["c", "d"])
    await stores.gates.give(NAME, give("a"), patience)
    assert await asked["c"] is Answer.GRANTED
    assert not asked["d"].done()
    assert await names(stores) == (["a", "b"], ["c", "d"]), "no write yet"
    await stores.gates.look(NAME, patience)
    assert await names(stores) == (["c", "b"], ["d"])
    for run in ("b", "c", "d"):
        await stores.gates.give(NAME, give(run), patience)
    assert await stored(stores) is None


async def test_a_line_that_is_full_names_nobody_more_and_holds_up_nobody(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four are named in line at most, and four places would use up sixteen: who is not named waits for room, and the loop goes on."""
    monkeypatch.setattr("tenure.crew._MOST_NAMED", 4)
    monkeypatch.setattr("tenure.crew._FIRST_WAIT_SECONDS", 5.0)
    monkeypatch.setattr("tenure.gates._UNSEEN_SECONDS", 5.0)
    batch, empty = Gate.batch, [0]

    def counted(gate: Gate, now: float) -> Any:
        decided = batch(gate, now)
        empty[0] += not decided[0]
        return decided

    monkeypatch.setattr(Gate, "batch", counted)
    patience = stores.runs.patience()
    runs = [f"r{number:02}" for number in range(24)]
    asked: dict[str, asyncio.Task[Answer]] = {}
    for number, run in enumerate(runs):
        asked[run] = asyncio.create_task(ask(stores, run, 4))

        def is_in(run: str = run, number: int = number) -> bool:
            return asked[run].done() or stores.gates.holding == number - 3

        await wait_until(is_in, description=f"{run} has a place, or waits")
    most = len((await names(stores))[1])
    for run in runs:
        assert await asked[run] is Answer.GRANTED
        await stores.gates.give(NAME, give(run), patience)
        most = max(most, len((await names(stores))[1]))
    assert (most, empty) == (4, [0])
    assert await stored(stores) is None


async def test_a_line_does_not_keep_room_empty_that_others_leave(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N = 2, one place here, one elsewhere that is given back: the next pass looks, and both places are used here."""
    monkeypatch.setattr("tenure.crew._FIRST_WAIT_SECONDS", 5.0)
    monkeypatch.setattr("tenure.gates._UNSEEN_SECONDS", 0.0)
    patience = stores.runs.patience()
    others = Gates(stores.limits, stores.parking, stores.clock)
    elsewhere = replace(take("x", 2), session="o")
    assert await others.take(NAME, elsewhere, await parker(stores, "x"), patience) is Answer.GRANTED
    asked = await line_up(stores, "a", "b", "c", "d", n=2)
    await others.give(NAME, Give(run_id="x", attempt=1, session="o"), patience)
    await stores.gates.give(NAME, give("a"), patience)
    assert await asked["b"] is Answer.GRANTED
    assert await asyncio.wait_for(asked["c"], 2.0) is Answer.GRANTED
    assert not asked["d"].done()


async def test_who_gives_way_in_line_is_not_started_while_it_parks(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B has waited for too long and stores its message; meanwhile A leaves. B gets the place once, by the write, or later."""
    monkeypatch.setattr("tenure.crew._FIRST_WAIT_SECONDS", 0.2)
    monkeypatch.setattr("tenure.gates._UNSEEN_SECONDS", 5.0)
    patience = stores.runs.patience()
    assert await ask(stores, "a") is Answer.GRANTED
    park, left = await parker(stores, "b"), [True]

    async def slow() -> int:
        if left.pop():
            left.append(False)
            giving.append(asyncio.create_task(stores.gates.give(NAME, give("a"), patience)))
            await asyncio.sleep(0.05)  # paused: so that whoever were to start it could
            assert not waits.done(), "its name may be struck out by the write that is on its way"
        return int(await park())

    giving: list[asyncio.Task[None]] = []
    waits = asyncio.create_task(stores.gates.take(NAME, take("b"), slow, patience))
    assert await waits in {Answer.PARKED, Answer.FROM_PARKED}
    await giving[0]
    entry = await stored(stores)
    assert entry is not None
    assert [(one.run_id, one.session) for one in entry.permits] == [("b", "")], "woken for the place that A left"
    assert entry.line == ()


async def test_who_waited_for_too_long_parks_and_who_is_behind_does_too(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.crew._FIRST_WAIT_SECONDS", 0.2)
    asked = await line_up(stores, "a", "b", "c")
    assert await asked["b"] is Answer.PARKED
    assert await asked["c"] is Answer.PARKED
    assert sorted(await oldest(stores)) == ["b", "c"]
    assert await names(stores) == (["a"], [])


async def test_a_run_that_is_parked_elsewhere_is_next_after_the_line(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It parks behind B, who stands in line. C, who comes after it, does not get ahead of it."""
    monkeypatch.setattr("tenure.crew._FIRST_WAIT_SECONDS", 5.0)
    patience = stores.runs.patience()
    others = Gates(stores.limits, stores.parking, stores.clock)
    asked = await line_up(stores, "a", "b")
    elsewhere = replace(take("x"), session="o")
    assert await others.take(NAME, elsewhere, await parker(stores, "x"), patience) is Answer.PARKED
    assert await ask(stores, "c") is Answer.PARKED
    await stores.gates.give(NAME, give("a"), patience)
    assert await asked["b"] is Answer.GRANTED
    await stores.gates.give(NAME, give("b"), patience)
    entry = await stored(stores)
    assert entry is not None
    assert [(one.run_id, one.session) for one in entry.permits] == [("x", "")]
    assert await oldest(stores) == ["c"]


async def test_whoever_asked_and_is_gone_keeps_nobody_waiting(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled while it stands in line: its turn is the next one's."""
    monkeypatch.setattr("tenure.crew._FIRST_WAIT_SECONDS", 5.0)
    patience = stores.runs.patience()
    asked = await line_up(stores, "a", "b", "c")
    asked["b"].cancel()
    await asyncio.wait([asked["b"]])
    await stores.gates.give(NAME, give("a"), patience)
    assert await asked["c"] is Answer.GRANTED
    await stores.gates.give(NAME, give("c"), patience)
    assert await stored(stores) is None


async def test_a_dead_sessions_line_is_struck_out_with_its_places(stores: Stores, app: App) -> None:
    patience = stores.runs.patience()
    held = [Permit(key=run, run_id=run, attempt=1, session="dead", at=1.0) for run in ("a", "b", "c")]
    await stores.limits.write(NAME, Entry(n=1, permits=(held[0],), line=tuple(held[1:])), 0, patience)
    metrics = Metrics("0", app.actors, ())
    places = Places(stores, _Closed(), metrics, Switchboard(stores))  # type: ignore[arg-type]  # of the census it asks for this alone
    await places.look(lambda _: True)
    assert await stored(stores) is None
    assert metrics.repairs["place"] == 3


class _Closed:
    """A census to which every session is closed."""

    def is_closed(self, _session: str) -> bool:
        return True


async def test_who_is_named_while_another_run_has_the_place_waits_without_asking_all_the_time(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor has taken out who was told to come and did not yet: the next one is named, and has to wait for that one."""
    writes = Counted(monkeypatch)
    assert await ask(stores, "a", 1) is Answer.GRANTED
    found = await stores.limits.read(NAME, stores.runs.patience())
    await stores.limits.write(NAME, None, found.revision, stores.runs.patience())
    asked = asyncio.create_task(ask(stores, "b", 1))
    await asyncio.sleep(0.3 + 0.2)  # paused: b has given way once, and is named again
    assert writes.calls < 10
    assert not asked.done()
    await stores.gates.give(NAME, give("a"), stores.runs.patience())
    assert await asked is Answer.GRANTED


async def quick_ends(stores: Stores, monkeypatch: pytest.MonkeyPatch, n: int = 1) -> None:
    """Places come back here soon enough to claim ahead, however slow this machine; one that is not needed is kept while a test runs."""
    monkeypatch.setattr("tenure.crew._JUDGED_SECONDS", 1e-6)
    monkeypatch.setattr("tenure.crew._BURST_SECONDS", 0.0)
    monkeypatch.setattr("tenure.crew._FORGET_SECONDS", 60.0)
    monkeypatch.setattr("tenure.crew._AHEAD_SECONDS", 60.0)
    monkeypatch.setattr("tenure.gates._KEEP_SECONDS", 60.0)
    for run in ("first", "second"):
        assert await ask(stores, run, n) is Answer.GRANTED
        assert await stores.gates.place(NAME, give(run), 5.0)
        await stores.gates.give(NAME, give(run), stores.runs.patience())


async def test_the_end_of_a_run_and_the_start_of_the_next_are_one_write_where_they_follow_soon(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody else runs here. What is left is given back at the end, by whoever says that nobody follows."""
    await quick_ends(stores, monkeypatch)
    counted = Counted(monkeypatch)
    for number in range(20):
        run = f"r{number}"
        assert await ask(stores, run) is Answer.GRANTED
        assert await stores.gates.place(NAME, give(run), 5.0)
        await stores.gates.give(NAME, give(run), stores.runs.patience())
        assert await names(stores) == ([run], []), "it is named, and nobody runs"
    assert counted.calls == 20
    await stores.gates.rest(5.0)
    assert await stored(stores) is None
    assert counted.calls == 21


async def test_who_ends_does_not_wait_for_what_gets_no_answer(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks tries for as long as its session lives; the end of a worker has its bound."""
    begun, answered, read = asyncio.Event(), asyncio.Event(), stores.limits.read

    async def late(*asked: Any) -> FoundEntry:
        begun.set()
        await answered.wait()
        return await read(*asked)

    monkeypatch.setattr(stores.limits, "read", late)
    asked = asyncio.create_task(ask(stores, "first"))
    await begun.wait()
    async with asyncio.timeout(5.0):
        await stores.gates.rest(0.01)
    assert not asked.done()
    answered.set()
    assert await asked is Answer.GRANTED


async def test_a_place_is_not_kept_for_later_while_others_wait_for_it(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X has parked in another process, which this one has seen: its last run's end hands over at once."""
    await quick_ends(stores, monkeypatch)
    others = Gates(stores.limits, stores.parking, stores.clock)
    assert await ask(stores, "a") is Answer.GRANTED
    assert await stores.gates.place(NAME, give("a"), 5.0)
    elsewhere = replace(take("x"), session="o")
    assert await others.take(NAME, elsewhere, await parker(stores, "x"), stores.runs.patience()) is Answer.PARKED
    await stores.gates.look(NAME, stores.runs.patience())
    await stores.gates.give(NAME, give("a"), stores.runs.patience())
    entry = await stored(stores)
    assert entry is not None
    assert [(one.run_id, one.session) for one in entry.permits] == [("x", "")]
