"""A leader that was deposed and does not know it yet answers the first that somebody asks of a key.

Who asks has a message, or an entry, that was stored after the key's record: a leader that shows less, and has not counted so
far, is not believed. Else a run that waits would be taken for over and its wake-up acknowledged, or a place under a limit
given back while its body runs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import App, Client, Context, Limit
from tenure.core import commands as c
from tenure.core.errors import Unavailable
from tenure.metrics import Metrics
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed
from tenure.stores import Stores
from tenure.supervisor.census import Census
from tenure.supervisor.places import Places
from tenure.switchboard import Switchboard
from tenure.worker.head import Head
from tenure.worker.tail import Tail
from tests.conftest import Workers
from tests.deposed import Deposed
from tests.integration.test_deposed_refusals import Go, asked_at, remembers, runs
from tests.support import wait_until

_A_READ_AND_HOW_FAR = 2
"""Answers of the deposed leader: what it has of the key, and how far it has counted."""


@pytest.fixture
def go() -> Go:
    """Lets the body of ``slow`` end."""
    return asyncio.Event()


@pytest.fixture
def app(app: App, go: Go) -> App:
    @app.actor
    async def slow(text: str) -> str:
        await go.wait()
        return text

    @app.actor(queue="two")
    async def other(text: str) -> str:
        return text

    @app.actor(timeout=60.0)
    async def timed(text: str) -> str:
        return text

    @app.actor(limits=[Limit(1)])
    async def capped(text: str) -> str:
        await go.wait()
        return text

    return app


async def test_a_run_of_an_actor_unknown_here_is_not_over_because_it_is_not_shown(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = App(app.namespace, config=app.config)

    @older.actor(queue="two")
    async def another() -> None:
        """All that it knows."""

    async with workers.run(older) as running:
        deposed = await remembers(running.worker.stores, "k", monkeypatch)
        deposed.left = _A_READ_AND_HOW_FAR
        run = await client.submit(app.actors["other"].call("z"), key="k")
        await wait_until(lambda: not deposed.left, description="the deposed leader was asked")
    async with workers.run(app):
        assert await run.result(10) == "z"


async def test_a_run_whose_older_body_was_confirmed_is_not_over_because_it_is_not_shown(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker takes out what is left of its own older attempt, and reads what there is to claim then."""
    async with workers.run(app, queues=["two"]) as running:
        stores = running.worker.stores
        deposed = await remembers(stores, "k", monkeypatch)
        real = Head._knowing_more

        async def and_then(head: Head, *args: Any) -> c.Claim | None:
            again = await real(head, *args)
            deposed.left = _A_READ_AND_HOW_FAR if again is not None else 0
            return again

        monkeypatch.setattr(Head, "_knowing_more", and_then)
        run = await client.submit(app.actors["slow"].call("x"), key="k")
        claim = c.Claim(session=running.worker.lease.id, run_id=run.run_id, next_run_id="")
        assert isinstance(await client.stores.runs.commit("k", claim), Committed)
        new = await client.replace(app.actors["other"].call("z"), key="k", overlap="wait")
        assert await new.result(10) == "z"
        assert not deposed.left


async def test_a_large_run_is_not_over_because_an_older_one_is_shown(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too large for its wake-up is read before it is known whether its body needs a child process."""
    large = "z" * (app.config.wake_limit_bytes + 1)
    async with workers.run(app) as running:
        monkeypatch.setattr(running.worker._handler, "_isolates", True)
        await (await client.submit(app.actors["other"].call("y"), key="k")).result(5)
        deposed = await remembers(running.worker.stores, "k", monkeypatch)
        deposed.left = 1
        run = await client.submit(app.actors["other"].call(large), key="k")
        assert await run.result(10) == large
        assert not deposed.left


async def test_an_attempt_of_unknown_fate_is_found_though_its_run_is_not_shown(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process looks again; it was `running` for as long as the session lived, without a body and without a wake-up."""
    async with workers.run(app) as running:
        stores = running.worker.stores
        deposed = await remembers(stores, "k", monkeypatch)
        claimed = unheard_claim(stores, monkeypatch)
        run = await client.submit(app.actors["other"].call("z"), key="k")
        await claimed.wait()
        deposed.left = _A_READ_AND_HOW_FAR
        assert await run.result(10) == "z"
        assert not deposed.left


async def test_what_is_left_of_an_attempt_is_confirmed_though_its_replace_is_not_shown(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process looks again, finds it superseded, and does not serve the queue of the run that waits for it."""
    async with workers.run(app, queues=["default"]) as running, workers.run(app, queues=["two"]):
        stores = running.worker.stores
        claimed = unheard_claim(stores, monkeypatch)
        await client.submit(app.actors["slow"].call("y"), key="k")
        await claimed.wait()
        deposed = await remembers(stores, "k", monkeypatch)
        asked_at(c.Confirm, stores, "take", deposed, monkeypatch)
        new = await client.replace(app.actors["other"].call("z"), key="k", overlap="wait")
        assert await new.result(10) == "z"
        assert not deposed.left


def unheard_claim(stores: Stores, patch: pytest.MonkeyPatch) -> asyncio.Event:
    """Its first claim is stored, and then its server is away: it does not know. Set by then."""
    real, claimed = stores.runs.commit, asyncio.Event()

    async def commit(key: str, command: Any, *args: Any, **more: Any) -> Any:
        done = await real(key, command, *args, **more)
        if isinstance(command, c.Claim) and isinstance(done, Committed) and not claimed.is_set():
            claimed.set()
            raise Unavailable("the server is away")
        return done

    patch.setattr(stores.runs, "commit", commit)
    return claimed


async def test_a_body_that_overstays_holds_its_key_though_its_claim_is_not_shown(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for fenced: its place and its slot were given away, and the record kept it as its holder."""
    stores = client.stores
    deposed = await remembers(stores, "k", monkeypatch)
    run = await client.submit(app.actors["timed"].call("y"), key="k")
    claimed = await stores.runs.commit("k", c.Claim(session="s", run_id=run.run_id, next_run_id=""))
    assert isinstance(claimed, Committed)
    body = Context(app=app, record=claimed.record, fence=claimed.revision, session="s", now=stores.clock.now)
    deposed.left = _A_READ_AND_HOW_FAR
    assert await Tail(stores).evict(body, stores.runs.patience()) is not None, "not yet"
    assert not deposed.left


async def test_that_nothing_is_there_is_believed_of_nobody_but_who_has_counted_so_far(
    client: Client, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers answer in turn: the one that has nothing, and the one that has counted."""
    deposed = Deposed(client.stores.conn, monkeypatch)
    names = client.stores.names
    await deposed.sees(f"STREAM.MSG.GET.{names.runs_stream}", {"last_by_subj": names.record("k")})
    run = await client.submit(app.actors["slow"].call("y"), key="k", delay=60)
    revision = (await client.stores.runs.read("k")).revision
    deposed.left = 3
    found = await client.stores.runs.read_on("k", revision, client.stores.runs.patience())
    assert found.record is not None
    assert found.record.run_id == run.run_id
    assert not deposed.left


async def test_what_was_restored_from_a_backup_is_believed_in_the_end(client: Client, app: App) -> None:
    """It never comes back to where it was: who waited for that would wait for ever."""
    stores = client.stores
    run = await client.submit(app.actors["slow"].call("y"), key="k", delay=60)
    await client.submit(app.actors["slow"].call("y"), key="other", delay=60)
    there, last = (await stores.runs.read("k")).revision, await stores.runs.last(stores.runs.patience())
    assert there < last
    found = await stores.runs.read_on("k", last, Patience(stores.clock, 0.5))
    assert found.record is not None
    assert found.record.run_id == run.run_id
    with pytest.raises(Unavailable, match="it is older than it was"):
        await stores.runs.read_on("k", last + 1, Patience(stores.clock, 0.5))


@pytest.mark.parametrize("shown", [1, _A_READ_AND_HOW_FAR + 1], ids=["once", "and not counted so far"])
async def test_a_place_is_not_given_back_because_the_run_that_has_it_is_not_shown(
    shown: int, app: App, client: Client, go: Go, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, and another run started beside it under a limit of one."""
    monkeypatch.setattr("tenure.supervisor.places._SETTLE_SECONDS", 0.0)
    stores = client.stores
    places = supervising(stores)
    deposed = await remembers(stores, "k", monkeypatch)
    async with workers.run(app):
        run = await client.submit(app.actors["capped"].call("y"), key="k")
        await runs(run)
        deposed.left = shown
        await places.look(lambda _name: True)
        assert deposed.left < shown
        deposed.left = 0
        entry = (await stores.limits.read("capped", stores.runs.patience())).entry
        assert entry is not None
        assert [permit.run_id for permit in entry.names] == [run.run_id]
        go.set()
        assert await run.result(10) == "y"


def supervising(stores: Stores) -> Places:
    """What a supervisor looks after limits with."""
    metrics = Metrics("1", [], [])
    census = Census(
        stores.conn,
        stores.sessions,
        stores.clock,
        metrics,
        confirmed_at=stores.clock.steady,
        ttl=stores.session_ttl,
        on_closed=lambda _session: None,
    )
    return Places(stores, census, metrics, Switchboard(stores))
