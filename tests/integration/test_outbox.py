"""What an outcome owes to other keys: one of them that cannot take it keeps nothing from the others, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure import App, Client
from tenure.core import commands as c
from tenure.core.errors import StillOwed, Unavailable
from tenure.core.records import Entry, Holder
from tenure.metrics import Metrics
from tenure.nats.connection import Connection
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed
from tenure.supervisor.census import Census
from tenure.supervisor.keepers import Keepers
from tests.deposed import Deposed
from tests.poison import fails_for_good

MOST = 50_000


@pytest.fixture
def app(app: App) -> App:
    @app.actor
    async def echo(text: str) -> str:
        return text

    return app


def entry(app: App, key: str, text: str = "small") -> Entry:
    call = app.actors["echo"].call(text)
    return Entry(id=f"o-{key}", key=key, run_id=f"r-{key}", task=replace(call.task, args=Raw(call.args)))


async def owes(client: Client, app: App, *entries: Entry) -> Committed:
    """``parent`` has ended and owes these; its process was killed just then."""
    runs = client.stores.runs
    run = await client.submit(app.actors["echo"].call("x"), key="parent")
    await runs.commit("parent", c.Claim(session="s", run_id=run.run_id, next_run_id=""))
    holder = Holder(session="s", run_id=run.run_id, attempt=1)
    done = await runs.commit("parent", c.Succeed(holder=holder, next_run_id="", outbox=entries))
    assert isinstance(done, Committed)
    return done


async def test_what_no_message_can_hold_any_more_keeps_the_others_from_nothing(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry fits, but not beside what the record of its key holds already."""
    stores = client.stores
    full = await client.submit(app.actors["echo"].call("x"), key="full")
    await stores.runs.commit("full", c.Claim(session="s", run_id=full.run_id, next_run_id=""))
    holder = Holder(session="s", run_id=full.run_id, attempt=1)
    result = Raw(b'"%s"' % (b"x" * MOST))
    await stores.runs.commit("full", c.Succeed(holder=holder, next_run_id="", result=result))
    await owes(client, app, entry(app, "full", "x" * MOST), entry(app, "other"))
    monkeypatch.setattr(Connection, "max_payload", int(1.5 * MOST))
    with pytest.raises(StillOwed, match="still owes 1 runs or dead letters"):
        await stores.complete(await stores.runs.read("parent"), stores.runs.patience())
    assert await client.status("other") is not None
    found = await stores.runs.read("parent")
    assert found.record is not None
    assert [owed.key for owed in found.record.outbox] == ["full"]


@pytest.mark.parametrize("what", ["a run", "a dead letter"])
@pytest.mark.parametrize("lasts", [False, True])
async def test_what_a_deposed_leader_does_not_show_as_owed_is_not_cleared_unpaid(
    what: str, app: App, client: Client, monkeypatch: pytest.MonkeyPatch, *, lasts: bool
) -> None:
    """It shows the origin from before its outcome, as if somebody had paid already."""
    stores, key = client.stores, "parent" if what == "a run" else "k"
    deposed = Deposed(stores.conn, monkeypatch)
    await deposed.sees(f"STREAM.MSG.GET.{stores.names.runs_stream}", {"last_by_subj": stores.names.record(key)})
    await (owes(client, app, entry(app, "other")) if what == "a run" else fails_for_good(client, app))
    found = await stores.runs.read(key)
    if lasts:
        monkeypatch.setattr(stores.runs, "patience", lambda: Patience(stores.clock, 0.2))
        deposed.left = 1_000
        commit = stores.runs.commit

        async def until_it_clears(key: str, command: Any, **more: Any) -> Any:
            if isinstance(command, c.ClearOutbox):
                deposed.left = 0
            return await commit(key, command, **more)

        monkeypatch.setattr(stores.runs, "commit", until_it_clears)
        with pytest.raises(Unavailable):
            await stores.complete(found, stores.runs.patience())
        deposed.left = 0
    deposed.left = 0 if lasts else 2
    await stores.complete(found, stores.runs.patience())
    assert not deposed.left
    assert await (client.status("other") if what == "a run" else client.dead.list())
    after = (await stores.runs.read(key)).record
    assert after is not None
    assert not after.outbox


def keepers(client: Client) -> Keepers:
    stores, metrics = client.stores, Metrics("", {}, ())
    census = Census(
        stores.conn, stores.sessions, stores.clock, metrics,
        confirmed_at=stores.clock.steady, ttl=5.0, on_closed=lambda _session: None,
    )  # fmt: skip
    return Keepers(stores, census, metrics)


async def ends(client: Client, key: str, run_id: str) -> None:
    """A run of a key begins and ends, whoever had it."""
    await client.stores.runs.commit(key, c.Claim(session="s", run_id=run_id, next_run_id=""))
    holder = Holder(session="s", run_id=run_id, attempt=1)
    assert isinstance(await client.stores.runs.commit(key, c.Succeed(holder=holder, next_run_id="")), Committed)


async def test_what_a_deposed_leader_does_not_show_as_owed_is_not_forgotten_where_it_was_applied(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who pays is killed before it clears the debt, and a sweep finds the mark; then the key moves on, and the debt is found."""
    stores, patience = client.stores, client.stores.runs.patience
    deposed = Deposed(stores.conn, monkeypatch)
    await deposed.sees(f"STREAM.MSG.GET.{stores.names.runs_stream}", {"last_by_subj": stores.names.record("parent")})
    done = await owes(client, app, entry(app, "other"))
    await stores._apply_one("parent", done.revision, done.record.outbox[0], patience())
    other = await stores.runs.read("other")
    assert other.record is not None
    assert other.record.seen
    deposed.left = 1
    await keepers(client)._forget_seen(other, patience())
    assert not deposed.left
    await ends(client, "other", "r-other")
    await ends(client, "other", (await client.submit(app.actors["echo"].call("x"), key="other")).run_id)
    await stores.complete(await stores.runs.read("parent"), patience())
    after = (await stores.runs.read("other")).record
    assert after is not None
    assert after.generation == 2
