"""What the bucket of sessions promises: leases, stop signals, progress."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from tenure.clock import SYSTEM
from tenure.core.records import Holder
from tenure.core.sessions import Progress, Session, StopSignal
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tests.support import wait_until


def session(name: str = "s1") -> Session:
    return Session(id=name, kind="worker", host="here", pid=1, ttl=2.0, started_at=SYSTEM.now())


def patience() -> Patience:
    return Patience(SYSTEM, 5.0)


async def test_a_session_is_created_renewed_and_closed_at_its_own_revision(stores: Stores) -> None:
    first = await stores.sessions.create(session(), patience())
    second = await stores.sessions.write(replace(session(), beat=1), first)
    assert second > first
    assert await stores.sessions.write(replace(session(), beat=2), first) == 0
    assert await stores.sessions.write(replace(session(), closed="drain"), second) > second
    seen = await stores.sessions.read("s1")
    assert seen is not None
    assert seen.session.closed == "drain"


async def test_creating_it_again_finds_ones_own_entry(stores: Stores) -> None:
    """The answer to the create was lost: ids are unique, so what is there is one's own."""
    first = await stores.sessions.create(session(), patience())
    assert await stores.sessions.create(session(), patience()) == first


async def test_a_session_nobody_made_is_missing(stores: Stores) -> None:
    assert await stores.sessions.read("nobody") is None


async def test_a_stop_signal_is_final_and_reaches_a_watch_started_before_or_after(stores: Stores) -> None:
    early: list[StopSignal] = []
    late: list[StopSignal] = []
    other: list[StopSignal] = []
    live = asyncio.Event()
    watches = [
        asyncio.create_task(stores.sessions.watch_stops("s1", early.append).run(live)),
        asyncio.create_task(stores.sessions.watch_stops("s2", other.append).run()),
    ]
    try:
        await live.wait()
        await stores.sessions.signal(Holder(session="s1", run_id="r1", attempt=1), "cancel", patience())
        await stores.sessions.signal(Holder(session="s1", run_id="r1", attempt=1), "superseded", patience())
        await wait_until(lambda: early, description="the early watch hears it")
        watches.append(asyncio.create_task(stores.sessions.watch_stops("s1", late.append).run()))
        await wait_until(lambda: late, description="the late watch hears it too")
        assert early == late == [StopSignal(run_id="r1", attempt=1, reason="cancel")]
        assert other == []
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def test_the_latest_progress_of_a_run_is_kept_and_repeated(stores: Stores) -> None:
    heard: list[Progress] = []

    async def hear(progress: Progress) -> None:
        heard.append(progress)

    stop = await stores.sessions.follow_progress("a b", hear)
    for done in (1.0, 2.0, 3.0):
        await stores.sessions.note("a b", Progress(run_id="r1", attempt=1, done=done, at=SYSTEM.now()))
    await wait_until(lambda: len(heard) == 3, description="three notes are heard")

    async def kept() -> bool:
        progress = await stores.sessions.progress("a b", "r1")
        return progress is not None and progress.done == 3.0

    await wait_until(kept, description="the newest is kept")
    assert await stores.sessions.progress("a b", "r2") is None
    await stop()
