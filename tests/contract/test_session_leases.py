"""Contract of the sessions bucket.

Leases by compare-and-swap, stop signals that are final, progress that may be skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from tenure.core.errors import Unavailable
from tenure.core.records import Holder
from tenure.core.sessions import Progress, Session, StopReason, StopSignal
from tenure.nats.connection import Lost
from tenure.nats.patience import Patience
from tenure.nats.sessions import NoSession, SeenSession
from tenure.stores import Stores
from tests.contract.support import connect, proxied, submitted
from tests.support import wait_until


def session(name: str = "01JA") -> Session:
    return Session(id=name, kind="worker", host="here", pid=1, ttl=5.0, started_at=1.0)


def holder(run_id: str, session: str, attempt: int = 1) -> Holder:
    return Holder(session=session, run_id=run_id, attempt=attempt)


def patience(stores: Stores, seconds: float = 3.0) -> Patience:
    return Patience(stores.clock, seconds)


async def test_a_session_is_created_renewed_and_closed_at_the_revision_it_was_last_seen_at(stores: Stores):
    mine = session()
    first = await stores.sessions.create(mine, patience(stores))
    assert await stores.sessions.read(mine.id) == SeenSession(mine, first)
    beat = replace(mine, beat=1)
    second = await stores.sessions.write(beat, first)
    assert second > first
    assert await stores.sessions.read(mine.id) == SeenSession(beat, second)
    closed = replace(beat, closed="drain")
    third = await stores.sessions.write(closed, second)
    assert await stores.sessions.read(mine.id) == SeenSession(closed, third)


async def test_a_renewal_at_an_older_revision_is_refused(stores: Stores):
    """Whoever closed it did so in between: the holder learns it from the refusal, and cannot open it again."""
    mine = session()
    first = await stores.sessions.create(mine, patience(stores))
    closed = replace(mine, closed="expired")
    assert await stores.sessions.write(closed, first)
    assert await stores.sessions.write(replace(mine, beat=1), first) == 0
    assert await stores.sessions.write(mine, 0) == 0
    seen = await stores.sessions.read(mine.id)
    assert seen is not None
    assert seen.session == closed


async def test_a_renewal_beats_a_close_at_the_revision_before_it(stores: Stores):
    """The supervisor saw an old beat: its close is refused, the session lives [16]."""
    mine = session()
    first = await stores.sessions.create(mine, patience(stores))
    assert await stores.sessions.write(replace(mine, beat=1), first)
    assert await stores.sessions.write(replace(mine, closed="expired"), first) == 0
    seen = await stores.sessions.read(mine.id)
    assert seen is not None
    assert seen.session.closed is None


async def test_of_many_who_close_one_session_one_wins(stores: Stores):
    """A cluster may say to all but one that a write is in flight, and has proposed none of theirs: they ask again."""
    mine = session()
    first = await stores.sessions.create(mine, patience(stores))

    async def close(number: int) -> int:
        while True:
            try:
                return await stores.sessions.write(replace(mine, closed=f"by {number}"), first)
            except Lost:
                await asyncio.sleep(0.01)  # paused: until that is stored

    revisions = await asyncio.gather(*map(close, range(20)))
    assert sum(1 for revision in revisions if revision) == 1


async def test_a_create_whose_answer_is_lost_finds_itself(nats_server: str, namespace: str):
    """Session ids are unique: an entry that exists is my own write."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        lost = proxy.lose_answer(lambda p: p.subject == stores.names.session("01JA"))
        revision = await stores.sessions.create(session(), patience(stores))
        assert len(lost.hits) == 1
        assert await stores.sessions.read("01JA") == SeenSession(session(), revision)


async def test_a_session_that_cannot_be_stored_is_unavailable(nats_server: str, namespace: str):
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        await proxy.take_down()
        await wait_until(lambda: not stores.conn.is_connected, description="noticed")
        with pytest.raises(Unavailable):
            await stores.sessions.create(session(), patience(stores, 0.2))
        with pytest.raises(Unavailable):
            await stores.sessions.signal(holder("run", "01JA"), "cancel", patience(stores, 0.2))
        with pytest.raises(Unavailable):
            await stores.sessions.read("01JA")


@pytest.mark.parametrize(
    ("data", "headers"), [(b"", {"KV-Operation": "DEL"}), (b"\xff not ours", {}), (b'{"id":"\xff no text"}', {})]
)
async def test_what_holds_no_session_is_none_at_its_revision(stores: Stores, data: bytes, headers: dict[str, str]):
    """Removed with a key-value tool, or overwritten: read as missing, and only at that revision can one be created."""
    await stores.sessions.create(session(), patience(stores))
    ack = await stores.conn.put(stores.names.session("01JA"), data, headers)
    assert await stores.sessions.read("01JA") is None
    assert await stores.sessions.find("01JA") == NoSession(ack.seq)
    assert await stores.sessions.write(session(), 0) == 0
    assert await stores.sessions.write(session(), ack.seq)


async def test_a_session_of_a_kind_that_only_a_newer_tenure_knows_can_be_read(stores: Stores):
    """Else it would count as missing, and an older supervisor would close it."""
    newer = replace(session(), kind="newer")
    revision = await stores.sessions.create(newer, patience(stores))
    assert await stores.sessions.read("01JA") == SeenSession(newer, revision)


# -- stop signals ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def watching(stores: Stores, name: str) -> AsyncIterator[list[StopSignal]]:
    """The signals that reach a session."""
    seen: list[StopSignal] = []
    live = asyncio.Event()
    watch = asyncio.create_task(stores.sessions.watch_stops(name, seen.append).run(live))
    await live.wait()
    try:
        yield seen
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def test_a_session_gets_the_signals_sent_before_and_after_it_listens_and_nobody_elses(stores: Stores):
    await stores.sessions.signal(holder("run-1", "01JA"), "cancel", patience(stores))
    await stores.sessions.signal(holder("run-2", "01JB"), "cancel", patience(stores))
    async with watching(stores, "01JA") as seen:
        await wait_until(lambda: len(seen) == 1, description="the one already stored")
        await stores.sessions.signal(holder("run-3", "01JA"), "superseded", patience(stores))
        await wait_until(lambda: len(seen) == 2, description="the new one")
    assert seen == [
        StopSignal(run_id="run-1", attempt=1, reason="cancel"),
        StopSignal(run_id="run-3", attempt=1, reason="superseded"),
    ]


async def test_the_first_signal_to_an_attempt_is_final(stores: Stores):
    """Superseded after a cancel, or the same once more: what was said first stays said, and is said once."""
    async with watching(stores, "01JA") as seen:
        reasons: list[StopReason] = ["cancel", "superseded", "cancel"]
        for reason in reasons:
            await stores.sessions.signal(holder("run", "01JA"), reason, patience(stores))
        await stores.sessions.signal(holder("other", "01JA"), "superseded", patience(stores))
        await wait_until(lambda: any(s.run_id == "other" for s in seen), description="the later one")
    assert [(s.run_id, s.reason) for s in seen] == [("run", "cancel"), ("other", "superseded")]
    async with watching(stores, "01JA") as again:
        await wait_until(lambda: len(again) == 2, description="both are kept for who comes late")
    assert again == seen


async def test_each_attempt_of_a_run_has_a_signal_of_its_own(stores: Stores):
    """An evicted body was told; the next attempt under the same session must still be reached by a later cancel."""
    async with watching(stores, "01JA") as seen:
        await stores.sessions.signal(holder("run", "01JA", 1), "superseded", patience(stores))
        await stores.sessions.signal(holder("run", "01JA", 2), "cancel", patience(stores))
        await wait_until(lambda: len(seen) == 2, description="both arrive")
    assert [(s.attempt, s.reason) for s in seen] == [(1, "superseded"), (2, "cancel")]


async def test_a_signal_whose_answer_is_lost_is_sent_once(nats_server: str, namespace: str):
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores, watching(stores, "01JA") as seen:
        lost = proxy.lose_answer(lambda p: p.subject == stores.names.stop("01JA", "run", 1))
        await stores.sessions.signal(holder("run", "01JA"), "cancel", patience(stores))
        await stores.sessions.signal(holder("other", "01JA"), "cancel", patience(stores))
        await wait_until(lambda: len(seen) >= 2, description="both")
        assert len(lost.hits) == 1
    assert [s.run_id for s in seen] == ["run", "other"]


# -- progress --------------------------------------------------------------------------------------------------------


def note(done: float, run_id: str = "run") -> Progress:
    return Progress(run_id=run_id, attempt=1, done=done, at=1.0, total=10.0, note="half-way")


async def test_progress_is_the_latest_of_its_run(stores: Stores):
    assert await stores.sessions.progress("a key", "run") is None
    for done in (1.0, 2.0, 3.0):
        await stores.sessions.note("a key", note(done))
    await stores.sessions.note("a key", note(9.0, "another run"))

    async def newest() -> bool:
        return await stores.sessions.progress("a key", "run") == note(3.0)

    await wait_until(newest, description="the latest progress")
    assert await stores.sessions.progress("b key", "run") is None
    await stores.conn.put(stores.names.progress("a key", "run"), b"", {"KV-Operation": "DEL"})
    assert await stores.sessions.progress("a key", "run") is None


async def test_progress_can_be_followed_and_no_more_after_the_end(stores: Stores):
    seen: list[Progress] = []

    async def on_progress(progress: Progress) -> None:
        seen.append(progress)

    stop = await stores.sessions.follow_progress("k", on_progress)
    await stores.conn.raw.flush()
    await stores.sessions.note("k", note(1.0))
    await stores.sessions.note("other", note(5.0))
    await wait_until(lambda: seen, description="it arrives")
    await stop()
    await stores.sessions.note("k", note(2.0))

    async def stored() -> bool:
        return await stores.sessions.progress("k", "run") == note(2.0)

    await wait_until(stored, description="the second is stored")
    assert seen == [note(1.0)]


async def test_progress_costs_the_record_no_revision(stores: Stores):
    """Else a chatty body would starve every cancel of its compare-and-swap."""
    made = await submitted(stores)
    for done in range(20):
        await stores.sessions.note("k", note(float(done), made.record.run_id))
    assert (await stores.runs.read("k")).revision == made.revision
