"""What holds across a server that is killed and started again: its own server, never the shared one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from nats.aio.msg import Msg

from tenure.clock import SYSTEM
from tenure.core.commands import Cancel, Replace
from tenure.core.records import Holder, Phase
from tenure.core.sessions import StopSignal
from tenure.core.subjects import Names
from tenure.nats.connection import Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.runs import NOTHING
from tenure.stores import Stores
from tests.contract.conftest import submit
from tests.contract.support import OwnServer
from tests.support import FAST, wait_until


@pytest.fixture
async def stores(own_server: OwnServer, namespace: str) -> AsyncIterator[Stores]:
    stores = await Stores.open(own_server.url, Names(namespace), FAST, name="reconnect")
    try:
        yield stores
    finally:
        await stores.close()


async def killed_and_back(own_server: OwnServer) -> None:
    await own_server.kill()
    await own_server.start()


def block(seconds: float) -> None:
    time.sleep(seconds)  # body: what a body does that computes


async def consumers(stores: Stores, stream: str) -> int:
    info = await stores.conn.api(f"STREAM.INFO.{stream}", {})
    assert isinstance(info, dict)
    return int(info["state"]["consumer_count"])


async def test_follow_sees_what_was_written_while_it_was_cut_off(
    stores: Stores, own_server: OwnServer, namespace: str
) -> None:
    """Events are not repeated for those who were away: a reconnect has to read."""
    await stores.runs.commit("k", submit("k", "r1"), at=NOTHING)
    async with stores.runs.follow("k") as changes:
        await changes.next()
        await own_server.kill()
        await wait_until(lambda: not stores.conn.is_connected, description="the connection is lost")
        following = asyncio.create_task(changes.next())
        await own_server.start()
        other = await Stores.open(own_server.url, Names(namespace), FAST, name="other")
        await other.runs.commit("k", Cancel(run_id="r1"))
        await other.close()
        found = await following
        while found.record is None or found.record.phase is not Phase.CANCELLED:
            found = await changes.next()


async def test_a_write_that_meets_a_restart_is_stored_once(stores: Stores, own_server: OwnServer) -> None:
    await stores.runs.commit("k", submit("k", "r0"), at=NOTHING)
    found = await stores.runs.read("k")
    assert found.record is not None
    await own_server.kill()
    writing = asyncio.create_task(stores.runs.commit("k", Replace(key="k", run_id="r1", task=found.record.task)))
    await own_server.start()
    await writing
    after = await stores.runs.read("k")
    assert after.record is not None
    assert (after.record.generation, after.record.run_id) == (2, "r1")


async def test_a_watch_is_live_again_about_a_second_after_a_restart(stores: Stores, own_server: OwnServer) -> None:
    heard: list[StopSignal] = []
    live = asyncio.Event()
    watch = asyncio.create_task(stores.sessions.watch_stops("s", heard.append).run(live))
    try:
        await live.wait()
        await stores.sessions.signal(Holder(session="s", run_id="before", attempt=1), "cancel", Patience(SYSTEM, 5.0))
        await wait_until(lambda: len(heard) == 1, description="the first signal")
        await killed_and_back(own_server)
        back = time.monotonic()
        await stores.sessions.signal(Holder(session="s", run_id="after", attempt=1), "cancel", Patience(SYSTEM, 5.0))
        await wait_until(lambda: len(heard) == 2, description="the second signal")
        assert time.monotonic() - back < 2.5
        assert [signal.run_id for signal in heard] == ["before", "after"]
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def test_reconnects_leak_no_consumers(stores: Stores, own_server: OwnServer) -> None:
    live = asyncio.Event()
    watch = asyncio.create_task(stores.sessions.watch_stops("s", lambda _signal: None).run(live))
    try:
        await live.wait()
        for _ in range(5):
            await killed_and_back(own_server)
            await wait_until(lambda: stores.conn.is_connected, description="connected again")
            await wait_until(live.is_set, description="watching again")

        async def one() -> bool:
            return await consumers(stores, stores.names.sessions_stream) == 1

        await wait_until(one, description="one consumer is left")
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    async def none() -> bool:
        return await consumers(stores, stores.names.sessions_stream) == 0

    await wait_until(none, description="an ended watch leaves none")


async def test_a_drain_that_meets_a_frozen_server_leaves_no_subscription_and_no_broken_connection(
    stores: Stores, own_server: OwnServer
) -> None:
    """The answer to its ping comes when nobody waits for it any more; a subscription that stayed would be renewed for ever."""
    conn = stores.conn
    known = len(conn.raw._subs)

    async def nothing(_msg: Msg) -> None: ...

    subscription = await conn.subscribe("drained", nothing)
    own_server.suspend()
    try:
        await conn.drain(subscription)
    finally:
        own_server.resume()
    assert len(conn.raw._subs) == known
    await conn.raw.flush()
    assert (conn.is_connected, conn.raw.stats["reconnects"]) == (True, 0)


async def test_who_waits_when_the_connection_breaks_hears_no_answer_of_the_next_one(stores: Stores) -> None:
    """nats-py sends on it what it has not written, or not for certain: that answer may be to a second copy, and refuse the first."""
    conn = stores.conn
    asking = asyncio.create_task(conn.request("$JS.API.INFO", b""))
    await conn.raw._process_op_err(ConnectionResetError())  # before it is written, and before anybody is told
    assert not conn.is_connected
    with pytest.raises(Lost, match="broke"):
        await asking
    await conn.wait_connected()
    assert await conn.api("INFO", {})


@pytest.mark.parametrize("timeout", [None, 0.5])
async def test_an_answer_that_comes_while_the_loop_is_blocked_is_no_lost_one(
    stores: Stores, timeout: float | None
) -> None:
    """A body that computes keeps the loop from reading it; the timer that is over by then must not be believed."""
    asking = asyncio.create_task(stores.conn.request("$JS.API.INFO", b"", timeout=timeout))
    for _ in range(4):
        await asyncio.sleep(0)  # body: it is written and flushed, and its answer not here yet
    block((timeout or FAST.request_timeout_seconds) + 0.3)
    assert (await asking).data


@pytest.mark.parametrize(("requests", "size"), [(100, 100_000), (2_500, 4_000)])
async def test_a_server_that_stands_still_is_left_whatever_was_written_to_it(
    stores: Stores, own_server: OwnServer, requests: int, size: int
) -> None:
    """More than it and the kernel take in between; and more requests than nats-py's queue for its flusher has room for."""
    lost = asyncio.Event()
    stores.conn.on_disconnect(lost.set)
    own_server.suspend()
    try:
        asked = [asyncio.create_task(stores.conn.request("tenure.nobody", b"x" * size)) for _ in range(requests)]
        await asyncio.wait_for(lost.wait(), 12.0)  # three pings, of two seconds each
        await asyncio.wait(asked, timeout=5.0)
        assert all(isinstance(one.exception(), Lost | NotSent) for one in asked)
    finally:
        own_server.resume()
    await wait_until(lambda: stores.conn.is_connected, description="it is connected again")
    assert await stores.conn.api("INFO", {})


async def test_a_close_does_not_wait_for_a_server_that_stands_still(stores: Stores, own_server: OwnServer) -> None:
    own_server.suspend()
    try:
        asked = [asyncio.create_task(stores.conn.request("tenure.nobody", b"x" * 4_000)) for _ in range(2_500)]
        await asyncio.sleep(0.2)  # paused: they are written, as far as there is room
        await asyncio.wait_for(stores.conn.close(), 4.0)
        await asyncio.wait(asked, timeout=2.0)
        assert all(isinstance(one.exception(), Lost | NotSent) for one in asked)
    finally:
        own_server.resume()


async def test_what_was_subscribed_and_given_up_while_away_is_not_there_afterwards(
    stores: Stores, own_server: OwnServer
) -> None:
    conn, inboxes = stores.conn, [stores.conn.new_inbox() for _ in range(2)]

    async def hear(_msg: Msg) -> None: ...

    await own_server.kill()
    await wait_until(lambda: not conn.is_connected, description="the connection is lost")
    for subscribe, inbox in zip((conn.listen, conn.subscribe), inboxes, strict=True):
        await conn.unsubscribe(await subscribe(inbox, hear))
    await own_server.start()
    await conn.wait_connected()
    for inbox in inboxes:
        with pytest.raises(NotSent, match="nobody answers"):
            await conn.request(inbox, b"?")
