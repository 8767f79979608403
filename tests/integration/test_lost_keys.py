"""Keys whose encryption key is lost: people can end and forget them, and who has the key after all loses nothing that was stored."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tenure import App, Client, Context, EncryptedRecord, Encryption, Fail, InvalidCall, KeyIsLive, Limit, RunCancelled
from tenure.core import commands as c
from tenure.core.records import Entry, Failure, Holder, Phase, Record
from tenure.core.sessions import Session
from tenure.metrics import Metrics
from tenure.nats.runs import Committed
from tenure.supervisor.blobs import Leftovers
from tenure.supervisor.places import Places
from tenure.switchboard import Switchboard
from tests.conftest import Workers
from tests.proxy import Proxy
from tests.support import FAST, wait_until

LOST, NEW = os.urandom(32), os.urandom(32)
LARGE = "x" * 200_000
"""Over the inline limit."""
HAD = Encryption({"lost": LOST}, "lost")


def app_of(namespace: str, encryption: Encryption | None) -> App:
    app = App(namespace, config=FAST, encryption=encryption)

    @app.actor(retry=None)
    async def echo(text: str) -> str:
        return text

    @app.actor(limits=[Limit(1)])
    async def capped(text: str) -> str:
        return text

    @app.actor(on_cancel=echo.call("a hook"))
    async def waits(ctx: Context, text: str) -> None:
        await ctx.stopping.wait()

    @app.actor(retry=None)
    async def dies(text: str) -> None:
        raise Fail(text)

    return app


@pytest.fixture
def owner(namespace: str) -> App:
    return app_of(namespace, HAD)


@asynccontextmanager
async def both(owner: App, url: str) -> AsyncIterator[tuple[Client, Client]]:
    """A client that has the key, and one that has another."""
    other = app_of(owner.namespace, Encryption({"new": NEW}, "new"))
    async with owner.connect(url) as client, other.connect(url) as without:
        yield client, without


async def claim(client: Client, run_id: str, session: str) -> Holder:
    """As a worker does."""
    done = await client.stores.runs.commit("k", c.Claim(session=session, run_id=run_id, next_run_id=""))
    assert isinstance(done, Committed)
    assert done.record.holder is not None
    return done.record.holder


async def record_of(client: Client, key: str = "k") -> Record | None:
    return (await client.stores.runs.read(key)).record


# -- cancel ----------------------------------------------------------------------------------------------------------


async def test_a_run_that_waits_is_cancelled_and_who_has_the_key_sees_all_that_was_stored(
    owner: App, nats_server: str
) -> None:
    async with both(owner, nats_server) as (client, without):
        run = await client.submit(owner.actors["waits"].call("text"), key="k", delay=3_600)
        before = await record_of(client)
        assert before is not None
        with pytest.raises(EncryptedRecord):
            await without.cancel("k")
        with pytest.raises(InvalidCall, match="reason cannot be kept"):
            await without.cancel("k", encrypted=True, reason="because")
        assert (await without.cancel("k", encrypted=True)).outcome == "cancelled"
        assert (await without.cancel("k", encrypted=True)).outcome == "finished"
        with pytest.raises(RunCancelled):
            await run.result(timeout=5)
        record = await record_of(client)
        assert record is not None
        assert bytes(record.task.args) == b'{"text":"text"}'
        assert record.schema == before.schema
        assert record.outbox == (), "its hook stood in the box"


async def test_what_is_submitted_after_the_cancel_is_not_forgotten(owner: App, nats_server: str) -> None:
    """What is to go is the run that was cancelled: the key may have a new one by then."""
    async with both(owner, nats_server) as (client, without):
        old = await client.submit(owner.actors["echo"].call("text"), key="k", delay=3_600)
        assert (await without.cancel("k", encrypted=True)).run_id == old.run_id
        new = await client.submit(owner.actors["echo"].call("text"), key="k", delay=3_600)
        assert await without.purge("k", run_id=old.run_id, encrypted=True) is False
        assert await client.purge("k", run_id=old.run_id) is False
        status = await new.status()
        assert status is not None
        assert status.phase == "scheduled"
        assert await without.purge("k", run_id=new.run_id, encrypted=True)
        assert await client.status("k") is None


async def test_a_body_is_told_to_stop_by_who_cannot_read_its_record(owner: App, nats_server: str) -> None:
    async with both(owner, nats_server) as (client, without), Workers(nats_server).run(owner):
        run = await client.submit(owner.actors["waits"].call("text"), key="k")

        async def running() -> bool:
            status = await run.status()
            return status is not None and status.phase == "running"

        await wait_until(running, description="its body runs")
        assert (await without.cancel("k", encrypted=True)).outcome == "stopping"
        with pytest.raises(RunCancelled):
            await run.result(timeout=10)


async def test_a_stop_whose_process_is_gone_comes_to_its_end_at_once(owner: App, nats_server: str) -> None:
    """Supervisors without the key leave the record alone; of one whose process lives nobody takes the body away."""
    async with both(owner, nats_server) as (client, without):
        run = await client.submit(owner.actors["waits"].call("text"), key="k")
        session = Session(id="alive", kind="worker", host="", pid=1, ttl=60.0, started_at=client.now())
        await client.stores.sessions.create(session, client.stores.runs.patience())
        await claim(client, run.run_id, "alive")
        assert (await without.cancel("k", encrypted=True)).outcome == "stopping"
        with pytest.raises(KeyIsLive):
            await without.purge("k", encrypted=True)
        seen = await client.stores.sessions.read("alive")
        assert seen is not None
        closed = Session(**{name: getattr(session, name) for name in session.__struct_fields__} | {"closed": "expired"})
        assert await client.stores.sessions.write(closed, seen.revision)
        assert (await without.cancel("k", encrypted=True)).outcome == "cancelled"
        record = await record_of(client)
        assert record is not None
        assert (record.phase, record.holder) == (Phase.CANCELLED, None)


async def test_a_stop_that_its_holder_ends_meanwhile_is_told_as_one(
    owner: App, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session is found closed; before that is written its outcome arrives, and what is read then does not open either."""
    async with both(owner, nats_server) as (client, without):
        run = await client.submit(owner.actors["waits"].call("text"), key="k")
        holder = await claim(client, run.run_id, "gone")
        sessions = without.stores.sessions

        async def read(name: str, *_more: Any) -> None:
            assert name == holder.session
            await client.stores.runs.commit("k", c.Succeed(holder=holder, next_run_id=""))

        monkeypatch.setattr(sessions, "read", read)
        assert (await without.cancel("k", encrypted=True)).outcome == "stopping"
        record = await record_of(client)
        assert record is not None
        assert record.phase is Phase.CANCELLED


async def test_what_it_owes_is_not_paid_from_what_is_in_clear(owner: App, nats_server: str) -> None:
    """A task without its arguments would run under the other key. Who has the key pays, from the box."""
    async with both(owner, nats_server) as (client, without):
        run = await client.submit(owner.actors["echo"].call("text"), key="k")
        holder = await claim(client, run.run_id, "gone")
        spawned = owner.actors["echo"].call("spawned")
        entry = Entry(id="o1", key="child", run_id="r1", task=spawned.task)
        again = c.Successor(due=client.now() + 3_600)
        await client.stores.runs.commit(
            "k", c.Succeed(holder=holder, next_run_id="r2", outbox=(entry,), successor=again)
        )
        assert (await without.cancel("k", encrypted=True)).outcome == "cancelled"
        assert await client.status("child") is None
        found = await client.stores.runs.read("k")
        assert found.record is not None
        assert [(one.id, one.task) for one in found.record.outbox] == [("o1", spawned.task)]
        await client.stores.complete(found, client.stores.runs.patience())
        record = await record_of(client, "child")
        assert record is not None
        assert bytes(record.task.args) == b'{"text":"spawned"}'


async def test_no_wake_up_is_stored_of_a_run_without_its_arguments(owner: App, nats_server: str) -> None:
    """Whoever took it would claim by what is in it, with no read, and write the arguments away."""
    async with both(owner, nats_server) as (client, without):
        old = await client.submit(owner.actors["waits"].call("old"), key="k")
        await claim(client, old.run_id, "gone")
        new = await client.replace(owner.actors["echo"].call("new"), key="k")
        stores = without.stores
        await stores.conn.api(f"STREAM.PURGE.{stores.names.work_stream}", {})
        for _ in range(2):
            told = await without.cancel("k", run_id=old.run_id, encrypted=True)
            assert told.outcome == "stopping"
        record = await record_of(client)
        assert record is not None
        assert not await stores.work.is_stored(record, stores.runs.patience())
        async with Workers(nats_server).run(owner):
            assert (await client.trigger("k")).run_id == new.run_id
            assert await new.result(timeout=20) == "new"


async def test_a_body_is_told_also_for_a_caller_that_goes_away_in_the_middle(owner: App, proxy: Proxy) -> None:
    """The cancel is stored and its signal is not: no supervisor without the key would send that."""
    async with both(owner, proxy.url) as (client, without):
        run = await client.submit(owner.actors["waits"].call("text"), key="k")
        await claim(client, run.run_id, "s")
        stops = owner.names.sessions_prefix + "stop."
        lost = proxy.lose(lambda publish: publish.subject.startswith(stops))
        caller = asyncio.create_task(without.cancel("k", encrypted=True))
        await lost.done.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await wait_until(partial(_is_told, client, run.run_id), description="it is told to stop")


async def _is_told(client: Client, run_id: str) -> bool:
    stop = {"last_by_subj": client.app.names.stop("s", run_id, 1)}
    got = await client.stores.conn.api(f"STREAM.MSG.GET.{client.app.names.sessions_stream}", stop)
    return isinstance(got, dict)


# -- purge -----------------------------------------------------------------------------------------------------------


async def test_a_body_that_may_still_run_is_told_before_its_key_is_forgotten(owner: App, nats_server: str) -> None:
    """Whoever superseded it died before telling it, its grace is over, and no supervisor without the key takes it out."""
    async with both(owner, nats_server) as (client, without):
        old = await client.submit(owner.actors["waits"].call("old"), key="k")
        session = Session(id="s", kind="worker", host="", pid=1, ttl=60.0, started_at=client.now())
        await client.stores.sessions.create(session, client.stores.runs.patience())
        await claim(client, old.run_id, "s")
        newer = c.Replace(key="k", run_id="r2", task=owner.actors["echo"].call("new").task, due=client.now() + 3_600)
        clock = client.stores.clock
        now = clock.now
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clock, "now", lambda: now() - 3_600)
            await client.stores.runs.commit("k", newer)
        assert not await _is_told(client, old.run_id)
        assert await without.purge("k", encrypted=True)
        assert await _is_told(client, old.run_id)


async def test_a_key_is_forgotten_with_what_it_owes_and_may_be_taken_up_again(owner: App, nats_server: str) -> None:
    async with both(owner, nats_server) as (client, without):
        run = await client.submit(owner.actors["dies"].call("text"), key="k")
        holder = await claim(client, run.run_id, "gone")
        failed = c.FailAttempt(holder=holder, next_run_id="", failure=Failure(type="Fail", message="no"), jitter=0.0)
        await client.stores.runs.commit("k", failed)  # its dead letter is owed, and never stored
        with pytest.raises(EncryptedRecord):
            await without.purge("k")
        assert await without.purge("k", encrypted=True)
        assert not await without.purge("k", encrypted=True)
        assert await client.dead.list() == []
        fresh = await without.submit(without.app.actors["echo"].call("new"), key="k", delay=3_600)
        assert (fresh.accepted, fresh.generation) == (True, 1)


async def test_a_dead_letter_goes_without_its_key(owner: App, nats_server: str) -> None:
    """And its record, which does not open either, has no memory of it left."""
    async with both(owner, nats_server) as (client, without), Workers(nats_server).run(owner):
        run = await client.submit(owner.actors["dies"].call("text"), key="k")
        await run.wait(timeout=10)
        await wait_until(lambda: client.dead.get("k"), description="its letter is stored")
        assert await without.dead.purge("k") == 1
        assert await client.dead.list() == []
        assert (await record_of(client)) is not None


# -- what is named by what cannot be read ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["encrypted", "newer"])
async def test_a_blob_stays_that_a_dead_letter_may_name_which_cannot_be_read(
    how: str, owner: App, nats_server: str
) -> None:
    async with both(owner, nats_server) as (client, without), Workers(nats_server).run(owner):
        run = await client.submit(owner.actors["dies"].call("text"), key="k")
        await run.wait(timeout=10)
        await wait_until(lambda: client.dead.get("k"), description="its letter is stored")
        await client.purge("k")
        stores, patience = without.stores, without.stores.runs.patience()
        if how == "newer":
            subject = stores.names.dead("dies", "k", run.run_id)
            await stores.conn.put(subject, b'{"of": "a Tenure to come"}', {})
        await client.stores.blobs.put(f"{run.run_id}.hook", LARGE.encode(), key="k")
        sweep = Leftovers(stores, Metrics("0", {}, ()), lambda: lambda _key: True)
        later = stores.config.blob_grace_seconds + 1.0
        assert await _two_passes(sweep, stores.clock, later) == 0
        assert [blob.key async for blob in stores.blobs.kept(patience)] == ["k"]


async def _two_passes(sweep: Leftovers, clock: Any, later: float) -> int:
    now = clock.now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: now() + later)
        return await sweep.remove() + await sweep.remove()


async def test_whose_arguments_cannot_be_read_may_be_blocked_for_all_that_is_known(
    namespace: str, nats_server: str
) -> None:
    """The record was written anew with the newer key, its large arguments were not. A worker that has both keys sees."""
    old, rotated = app_of(namespace, HAD), app_of(namespace, Encryption({"new": NEW, "lost": LOST}, "new"))
    newest = app_of(namespace, Encryption({"new": NEW}, "new"))
    async with old.connect(nats_server) as first, rotated.connect(nats_server) as client:
        run = await first.submit(old.actors["capped"].call(LARGE), key="k", delay=3_600)
        await client.trigger("k")
        await client.block(actor="capped", args={"text": LARGE})
        async with newest.connect(nats_server) as without:
            for who, blocked in ((client, True), (without, False)):
                stores, patience = who.stores, who.stores.runs.patience()
                board = Switchboard(stores)
                board._take(await stores.switches.read(patience))
                board._live.set()
                record = await record_of(who)
                assert record is not None
                if blocked:
                    assert await board.of(record, patience) is not None
                else:
                    with pytest.raises(EncryptedRecord):
                        await board.of(record, patience)
                places = Places(stores, None, Metrics("0", {}, ()), board)  # type: ignore[arg-type]  # nobody holds it
                assert await places._could_start(record, run.run_id, patience) is (not blocked)
