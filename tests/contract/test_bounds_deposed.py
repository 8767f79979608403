"""Entries of limits and rates that a leader shows which was deposed, and how many of them a process remembers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.permits import Answer, Give
from tenure.core.rates import SECOND, Start
from tenure.gates import Gates
from tenure.nats.connection import Connection
from tenure.pacing import Paces
from tenure.stores import Stores
from tests.contract import test_rates as rates
from tests.contract.test_limits import NAME, ask, give, parker, take
from tests.contract.test_limits_line import line_up
from tests.deposed import Deposed
from tests.support import wait_until


async def remembers(stores: Stores, subject: str, patch: pytest.MonkeyPatch) -> Deposed:
    """It goes on knowing the entry as it is now, and how far it had counted."""
    deposed = Deposed(stores.conn, patch)
    await deposed.sees(f"STREAM.INFO.{stores.names.runs_stream}", {"subjects_filter": subject})
    await deposed.sees(f"STREAM.MSG.GET.{stores.names.runs_stream}", {"last_by_subj": subject})
    return deposed


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "to be read again"])
async def test_places_are_not_counted_by_an_entry_older_than_ones_own_write(
    remembered: bool, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two places one was given back, and is another process's: c had it as well, by what was there before."""
    monkeypatch.setattr("tenure.crew._FIRST_WAIT_SECONDS", 5.0)
    patience, others = stores.runs.patience(), Gates(stores.limits, stores.parking, stores.clock)
    for run in ("a", "b"):
        assert await ask(stores, run, 2) is Answer.GRANTED
        assert await stores.gates.place(NAME, give(run), 1.0)
    deposed = await remembers(stores, stores.names.limit(NAME), monkeypatch)
    await stores.gates.give(NAME, give("a"), patience)
    elsewhere = replace(take("x", 2), session="o")
    assert await others.take(NAME, elsewhere, await parker(stores, "x"), patience) is Answer.GRANTED
    assert await others.place(NAME, Give(run_id="x", attempt=1, session="o"), 1.0)
    asked = await line_up(stores, "c", n=2)
    await wait_until(lambda: stores.gates.holding, description="c stands in line")
    if not remembered:
        stores.gates._gates[NAME].found = None  # as after an error
    deposed.left = 1
    await stores.gates.give(NAME, Give(run_id="zz"), patience)  # a run that was woken for a place and is over
    assert not deposed.left
    assert not asked["c"].done(), "b and c run here, x runs elsewhere: three under a limit of two"
    await stores.gates.give(NAME, give("b"), patience)
    assert await asked["c"] is Answer.GRANTED


async def test_a_refused_start_is_not_written_again_on_what_is_older_than_its_refusal(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Paces(stores.rates, stores.parking, stores.clock, 10.0)
    assert (await rates.ask(stores, "a", rates.MANY))[0] is Answer.GRANTED
    deposed = await remembers(stores, stores.names.rate(rates.NAME), monkeypatch)
    start, patience = Start(key="b", run_id="b", within=SECOND, n=rates.MANY), stores.runs.patience()
    assert (await others.start(rates.NAME, start, await rates.parker(stores, "b"), patience))[0] is Answer.GRANTED
    await others.close()
    writes, put = list[str](), Connection.put

    async def counted(conn: Connection, subject: str, *args: Any, **more: Any) -> Any:
        if subject == stores.names.rate(rates.NAME):
            writes.append(subject)
        return await put(conn, subject, *args, **more)

    monkeypatch.setattr(Connection, "put", counted)
    deposed.left = 6
    assert (await rates.ask(stores, "c", rates.MANY))[0] is Answer.GRANTED
    assert rates.number(await rates.stored(stores)) == 3
    assert not deposed.left
    assert len(writes) == 2


async def test_a_place_is_given_back_though_what_is_read_after_an_error_does_not_show_it(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was kept for a minute for a run that does not start, and whoever is parked behind it waited for that."""
    patience = stores.runs.patience()
    granted, mark = await rates.ask(stores, "a")
    assert granted is Answer.GRANTED
    assert (await rates.ask(stores, "b"))[0] is Answer.PARKED
    deposed = await remembers(stores, stores.names.rate(rates.NAME), monkeypatch)
    await stores.paces.leave(rates.NAME, "a", patience, mark)
    assert [place.run_id for place in (await rates.stored(stores)).places] == ["b"]
    stores.paces._paces[rates.NAME].found = None  # as after an error
    deposed.left = 1
    await stores.paces.leave(rates.NAME, "b", patience)
    assert not deposed.left
    assert not (await rates.stored(stores)).places


async def test_no_start_is_dropped_because_of_an_entry_that_a_deposed_leader_shows(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has not dealt with the rate yet: the start that it is shown was taken back."""
    others, patience = Paces(stores.rates, stores.parking, stores.clock, 10.0), stores.runs.patience()
    first = Start(key="a", run_id="a", within=SECOND, n=1)
    granted, mark = await others.start(rates.NAME, first, await rates.parker(stores, "a"), patience)
    assert granted is Answer.GRANTED
    deposed = await remembers(stores, stores.names.rate(rates.NAME), monkeypatch)
    await others.leave(rates.NAME, "a", patience, mark)
    await others.close()
    deposed.left = 1
    assert (await rates.ask(stores, "b", drop=True))[0] is Answer.GRANTED
    assert not deposed.left


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many limits are remembered, and those that nobody deals with for so long."""
    monkeypatch.setattr("tenure.gates._MOST_KNOWN", 5)
    monkeypatch.setattr("tenure.gates._FORGET_SECONDS", 0.01)


@pytest.mark.usefixtures("few")
async def test_one_that_is_busy_keeps_no_others_remembered(stores: Stores) -> None:
    """The oldest one is held all the while; under the others this process has parked, and was never asked again."""
    patience, others = stores.runs.patience(), Gates(stores.limits, stores.parking, stores.clock)
    assert await stores.gates.take("long", take("long"), await parker(stores, "long"), patience) is Answer.GRANTED
    for number in range(20):
        name, away = f"a={number}", replace(take(f"x{number}"), session="o")
        assert await others.take(name, away, await parker(stores, f"x{number}"), patience) is Answer.GRANTED
        here = take(f"r{number}")
        assert await stores.gates.take(name, here, await parker(stores, f"r{number}"), patience) is Answer.PARKED
    assert stores.gates.known <= 6


@pytest.mark.usefixtures("few")
async def test_what_is_left_of_a_place_that_could_not_be_given_back_is_forgotten(stores: Stores) -> None:
    patience = stores.runs.patience()
    for number in range(20):
        name, run = f"a={number}", f"r{number}"
        assert await stores.gates.take(name, take(run), await parker(stores, run), patience) is Answer.GRANTED
        stores.gates.leave(name, Give(run_id=run, attempt=1, session="s"))
    await asyncio.sleep(0)  # paused: nobody waits for anything
    assert stores.gates.known <= 6


async def test_a_rate_that_is_waited_for_keeps_no_others_remembered(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.pacing._MOST_KNOWN", 5)
    assert (await rates.ask(stores, "a", name=f"long={rates.WINDOW}us"))[0] is Answer.GRANTED
    assert (await rates.ask(stores, "b", name=f"long={rates.WINDOW}us"))[0] is Answer.PARKED
    for number in range(20):
        name = f"a{number}={rates.WINDOW}us"
        assert (await rates.ask(stores, f"r{number}", name=name))[0] is Answer.GRANTED
    assert stores.paces.known <= 6
