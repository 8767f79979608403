"""Contract of a watch.

The latest of every subject, then every change, in order, through crashes, and no consumer left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from nats.aio.msg import Msg

from tenure.nats.topology import ensure
from tenure.nats.watch import Watch
from tenure.stores import Stores
from tests.contract.support import OwnServer, connect, consumers, crash, proxied
from tests.support import wait_until


@dataclass
class Watched:
    """What a watch has said."""

    live: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[bytes] = field(default_factory=list)

    async def received(self, msg: Msg) -> None:
        self.seen.append(msg.data)

    def has(self, data: bytes) -> Callable[[], bool]:
        return lambda: data in self.seen


@asynccontextmanager
async def watched(stores: Stores) -> AsyncIterator[Watched]:
    """A watch over the stop signals of one session."""
    it = Watched()
    watch = Watch(stores.conn, stores.names.sessions_stream, stores.names.stops("w"), it.received)
    task = asyncio.create_task(watch.run(it.live))
    async with asyncio.timeout(5):
        await it.live.wait()
    try:
        yield it
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def put(stores: Stores, name: str, data: bytes) -> None:
    ack = await stores.conn.put(stores.names.stop("w", name, 1), data)
    assert ack.error is None, ack


async def test_a_watch_gives_the_latest_of_each_subject_and_then_every_change_in_order(stores: Stores):
    for data in (b"a1", b"a2"):
        await put(stores, "a", data)
    await put(stores, "b", b"b1")
    await stores.conn.put(stores.names.stop("somebody-else", "a", 1), b"foreign")
    async with watched(stores) as it:
        await wait_until(it.has(b"b1"), description="what is stored")
        for n in range(100):  # one subject each: what is overwritten before it is delivered is gone
            await put(stores, f"c{n}", b"c%d" % n)
        await wait_until(it.has(b"c99"), description="what comes")
    assert it.seen == [b"a2", b"b1", *(b"c%d" % n for n in range(100))]


async def test_a_watch_that_ends_leaves_no_consumer(stores: Stores):
    before = await consumers(stores, stores.names.sessions_stream)
    async with watched(stores):
        assert await consumers(stores, stores.names.sessions_stream) == before + 1
    assert await consumers(stores, stores.names.sessions_stream) == before


async def test_a_watch_is_live_again_about_a_second_after_a_crash_of_the_server(own_server: OwnServer, namespace: str):
    """Kill -9 and restart: nats-py's own watch took eighteen seconds.

    What was written meanwhile arrives, nothing twice.
    """
    async with connect(own_server.url, namespace) as stores, watched(stores) as it:
        await put(stores, "a", b"before")
        await wait_until(it.has(b"before"), description="before the crash")
        await crash(own_server, stores)
        back = asyncio.get_running_loop().time()
        await put(stores, "b", b"after")
        await wait_until(it.has(b"after"), description="after the crash")
        assert asyncio.get_running_loop().time() - back < 2.0
        assert it.seen == [b"before", b"after"]


def reconnected(stores: Stores, since: int) -> bool:
    return stores.conn.raw.stats["reconnects"] > since and stores.conn.is_connected


async def test_reconnects_leak_no_consumers(nats_server: str, namespace: str):
    """Scenario 42: each reconnect starts a consumer of its own and deletes the one before."""
    async with (
        connect(nats_server, namespace) as direct,
        proxied(nats_server) as proxy,
        connect(proxy.url, namespace) as stores,
    ):
        async with watched(stores) as it:
            for n in range(15):
                before = stores.conn.raw.stats["reconnects"]
                await proxy.cut()
                await wait_until(partial(reconnected, stores, before), description="reconnected")
                await put(direct, "a", b"%d" % n)
                await wait_until(it.has(b"%d" % n), description=f"live after reconnect {n}")
            assert it.seen == [b"%d" % n for n in range(15)]
            assert await consumers(direct, stores.names.sessions_stream) <= 2
        assert await consumers(direct, stores.names.sessions_stream) <= 1


async def test_a_watch_whose_consumer_was_deleted_starts_another(stores: Stores):
    """No message says so, only the silence of its heartbeats."""
    stream = stores.names.sessions_stream
    async with watched(stores) as it:
        answer = await stores.conn.api(f"CONSUMER.NAMES.{stream}", {})
        assert isinstance(answer, dict)
        for name in answer["consumers"]:
            await stores.conn.api(f"CONSUMER.DELETE.{stream}.{name}", {})
        await put(stores, "a", b"after")
        await wait_until(it.has(b"after"), description="a new consumer delivers it", timeout=6)


async def test_a_watch_waits_for_a_server_that_is_away_when_it_starts(nats_server: str, namespace: str):
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        await put(stores, "a", b"early")
        await proxy.take_down()
        await wait_until(lambda: not stores.conn.is_connected, description="noticed")
        it = Watched()
        watch = Watch(stores.conn, stores.names.sessions_stream, stores.names.stops("w"), it.received)
        task = asyncio.create_task(watch.run(it.live))
        assert not it.live.is_set()
        await proxy.bring_up()
        await wait_until(it.has(b"early"), description="it starts once the server is there")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_sees_a_bucket_that_was_deleted_and_made_anew_from_its_start(stores: Stores):
    """Its sequences begin at 1 again: going on after the last one seen would pass over what is there already."""
    names = stores.names
    async with watched(stores) as it:
        for number in range(20):
            await put(stores, f"old{number}", b"old")
        await wait_until(lambda: len(it.seen) == 20, description="all of the old bucket")
        deleted = await stores.conn.api(f"STREAM.DELETE.{names.sessions_stream}", {})
        assert isinstance(deleted, dict)
        await ensure(stores.conn, names, stores.clock, stores.config)
        await put(stores, "new", b"new")
        await wait_until(it.has(b"new"), description="the new bucket's first entry")
        await put(stores, "later", b"later")
        await wait_until(it.has(b"later"), description="and what comes")
