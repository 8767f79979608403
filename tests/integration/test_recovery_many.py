"""More that a dead session held than may wait for a keeper at once: all of it is taken over at once, nothing waits for a sweep.

The next sweep is in an hour. So what takes over is no sweep, however long it takes: as many times as the submits and claims of the
same runs have taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tenure import App, Client
from tenure.core import commands as c
from tenure.core.sessions import Session
from tenure.nats.runs import Committed
from tenure.supervisor import census, keepers, sweep
from tests.conftest import Supervisors, Workers
from tests.processes import Site
from tests.support import close_session, wait_until

MOST = 4
RUNS = 30


@pytest.fixture
def app(site: Site) -> App:
    site.settings = {"sweep_seconds": 3_600.0, "repairs_at_once": 1}
    return site.app


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "_MOST_WAITING", MOST)
    monkeypatch.setattr(sweep, "_PAGE", MOST)


async def holding(client: Client, keys: list[str], *, closed: bool = False) -> tuple[str, float]:
    """A session that holds a run of each key, whose wake-ups are gone; and within how many seconds all are to start again."""
    stores, began = client.stores, time.time()
    session = Session(id=stores.clock.new_id(), kind="worker", host="h", pid=1, ttl=60.0, started_at=client.now())
    await stores.sessions.create(session, stores.runs.patience())
    for key in keys:
        run = await client.submit(client.app.actors["quick"].call(), key=key)
        claim = c.Claim(session=session.id, run_id=run.run_id, next_run_id="")
        assert isinstance(await stores.runs.commit(key, claim), Committed)
    await stores.conn.api(f"STREAM.PURGE.{stores.names.work_stream}", {})
    if closed:
        await close_session(client, session.id)
    return session.id, 10.0 + 5 * (time.time() - began)


def keys_of(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(RUNS)]


async def test_a_dead_session_that_held_more_than_may_wait_has_all_of_it_taken_over(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """The next sweep is in an hour; what waits never grows past the room and one page of a scan."""
    async with supervisors.run(app) as supervisor:
        session, seconds = await holding(client, keys_of("k"))
        assert supervisor._keepers is not None
        most = Most(supervisor._keepers)
        await close_session(client, session)
        async with workers.run(app):
            await wait_until(
                lambda: len(site.events("started")) == RUNS, description="all start again", timeout=seconds
            )
        assert {event.attempt for event in site.events("started")} == {2}
        assert most.waited <= 2 * MOST


async def test_a_run_that_is_cancelled_during_the_look_for_what_a_dead_session_held_is_not_passed_over(
    app: App, client: Client, supervisors: Supervisors
) -> None:
    """Its record is written while that look waits for room: nobody else would look before the next sweep."""
    last = keys_of("k")[-1]
    async with supervisors.run(app) as supervisor:
        session, seconds = await holding(client, keys_of("k"))
        keepers = supervisor._keepers
        assert keepers is not None
        room = keepers.room
        cancelled: list[str] = []

        async def cancel_first() -> None:
            if not cancelled:
                cancelled.append((await client.cancel(last)).outcome)
            await room()

        keepers.room = cancel_first  # type: ignore[method-assign]  # to be there in the middle of the look
        await close_session(client, session)
        assert (await (await client.run(last)).wait(seconds)).phase == "cancelled"
        assert cancelled == ["stopping"]


class Most:
    """How many keys waited at once."""

    def __init__(self, asked: keepers.Keepers) -> None:
        self.waited = 0
        self._ask: Callable[..., bool] = asked.ask
        self._asked = asked._asked
        asked.ask = self.ask  # type: ignore[method-assign]  # to look each time

    def ask(self, key: str, revision: int, *, news: bool = False) -> bool:
        room = self._ask(key, revision, news=news)
        self.waited = max(self.waited, len(self._asked))
        return room


async def test_a_session_that_is_closed_during_a_long_rescue_is_rescued_after_it(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the pass before has taken: by then it was not closed lately."""
    monkeypatch.setattr(census, "_RECENT_SECONDS", 0.0)
    async with supervisors.run(app):
        session, seconds = await holding(client, ["k"])
        await close_session(client, session)
        async with workers.run(app):
            await site.wait_for("started", "k", timeout=seconds)


async def test_what_a_sweep_has_no_room_for_is_told_and_found_by_the_next_one(
    site: Site, client: Client, workers: Workers, supervisors: Supervisors, caplog: pytest.LogCaptureFixture
) -> None:
    """Of sessions that were closed while no supervisor ran; nothing tells one of them but the records."""
    site.settings = {"sweep_seconds": 0.1, "repairs_at_once": 1}
    _, seconds = await holding(client, keys_of("k"), closed=True)
    async with workers.run(site.app), supervisors.run(site.app):
        await wait_until(lambda: len(site.events("started")) == RUNS, description="all start again", timeout=seconds)
    assert "keys.put_off" in caplog.text
