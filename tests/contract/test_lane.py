"""Contract of a lane.

As many as wanted, at once, for ever - through expired pulls, deleted consumers and crashed servers.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from msgspec.structs import replace

from tenure.stores import Stores
from tests.contract.support import QUICK, OwnServer, Pulled, connect, consumers, crash, depth, pull, submitted
from tests.support import wait_until

IMPATIENT = replace(QUICK, pull_expires_seconds=0.5, idle_heartbeat_seconds=0.25)


async def publish(stores: Stores, number: int, first: int = 0, size: int = 0) -> None:
    for n in range(first, first + number):
        made = await submitted(stores, f"k{n}", args={"text": "x" * size})
        await stores.work.wake(made.record, made.data, made.revision, stores.clock.now(), stores.runs.patience())


async def keys(pulled: Pulled, number: int) -> list[str]:
    """The keys of the next deliveries, acknowledged."""
    out = []
    for _ in range(number):
        got = await pulled.next()
        assert got.to is not None
        out.append(got.to.key)
        await pulled.stores.work.ack(got.reply)
    return out


async def test_a_lane_delivers_what_is_stored_and_what_comes_in_order(stores: Stores):
    await publish(stores, 5)
    async with pull(stores, wanted=100) as pulled:
        assert await keys(pulled, 5) == [f"k{n}" for n in range(5)]
        await publish(stores, 5, first=5)
        assert await keys(pulled, 5) == [f"k{n}" for n in range(5, 10)]


async def test_a_lane_delivers_no_more_than_was_wanted(stores: Stores):
    """A worker with two free slots gets two; the rest stays for others."""
    await publish(stores, 10)
    async with pull(stores, wanted=2) as pulled:
        await wait_until(lambda: len(pulled.at) == 2, description="two arrive")
        assert pulled.lane.outstanding == 0
        assert await stores.work.pending("default", "normal") == (8, 2)
        await pulled.lane.want(3)
        await wait_until(lambda: len(pulled.at) == 5, description="three more arrive")
        assert await stores.work.pending("default", "normal") == (5, 5)


async def test_two_lanes_share_a_consumer_and_get_each_message_once(stores: Stores):
    async with pull(stores, wanted=100) as one, pull(stores, wanted=100) as other:
        await publish(stores, 40)
        await wait_until(lambda: len(one.at) + len(other.at) == 40, description="all forty arrive")
        got = await keys(one, len(one.at)) + await keys(other, len(other.at))
    assert sorted(got) == sorted(f"k{n}" for n in range(40))
    assert await consumers(stores, stores.names.work_stream) == 1


def over(since: float) -> bool:
    return asyncio.get_running_loop().time() > since + 1.5 * IMPATIENT.pull_expires_seconds


async def test_an_idle_lane_delivers_at_once_after_its_pull_has_expired(nats_server: str, namespace: str):
    """Scenario 29: pulls run out again and again while nothing comes; then one message: here within 200 ms."""
    async with connect(nats_server, namespace, IMPATIENT) as stores, pull(stores, wanted=3) as pulled:
        loop = asyncio.get_running_loop()
        for turn in range(3):
            idle = loop.time()
            await wait_until(partial(over, idle), description="a pull has run out")
            assert pulled.lane.alive
            sent = loop.time()
            await publish(stores, 1, first=turn)
            assert await keys(pulled, 1) == [f"k{turn}"]
            assert pulled.at[-1] - sent < 0.2
            await pulled.lane.want(3)


async def test_what_was_delivered_while_the_lane_closes_is_not_lost(stores: Stores):
    """Closed in the middle of a burst.

    What was on its way still arrives before ``close`` returns, the rest stays stored.
    """
    await publish(stores, 200, size=8_000)  # several reads of the socket
    async with pull(stores, wanted=0) as pulled:
        await pulled.lane.want(200)
        await pulled.first.wait()
        await pulled.lane.close()
        arrived = len(pulled.at)
        waiting, in_hand = await stores.work.pending("default", "normal")
        assert (waiting + in_hand, in_hand) == (200, arrived)
        assert await depth(stores) == 200


async def test_a_lane_goes_on_soon_after_a_crash_of_the_server(own_server: OwnServer, namespace: str):
    """Scenario 28: kill -9 and restart, publish: here within a second or two, not after the pull's own end.

    The crash may take the ack of what came before with it: then that comes once more, first.
    """
    async with connect(own_server.url, namespace) as stores, pull(stores, wanted=5) as pulled:
        await publish(stores, 1)
        assert await keys(pulled, 1) == ["k0"]
        await crash(own_server, stores)
        back = asyncio.get_running_loop().time()
        await publish(stores, 1, first=1)
        came = await keys(pulled, 1)
        assert (await keys(pulled, 1) if came == ["k0"] else came) == ["k1"]
        assert asyncio.get_running_loop().time() - back < 2.0


@pytest.mark.parametrize("while_idle", [True, False])
async def test_a_lane_whose_consumer_was_deleted_makes_it_anew(while_idle: bool, stores: Stores):
    """With a pull outstanding the server says so; without one, only the next pull shows it."""
    async with pull(stores, wanted=0 if while_idle else 5) as pulled:
        call = f"CONSUMER.DELETE.{stores.names.work_stream}.{stores.names.consumer('default', 'normal')}"
        await stores.conn.api(call, {})
        await publish(stores, 1)

        async def delivered() -> bool:
            await pulled.lane.want(5)
            await pulled.lane.tend()
            return bool(pulled.at)

        await wait_until(delivered, description="a new consumer delivers it")
        assert await keys(pulled, 1) == ["k0"]


async def test_a_deaf_lane_is_not_alive_and_hears_again(own_server: OwnServer, namespace: str):
    """The server is suspended: connected, and silent. Ready must be false; afterwards all is well by itself."""
    async with connect(own_server.url, namespace, IMPATIENT) as stores, pull(stores, wanted=5) as pulled:
        await wait_until(lambda: pulled.lane.alive, description="alive")
        own_server.suspend()
        await wait_until(lambda: not pulled.lane.alive, description="deaf", timeout=3)
        own_server.resume()

        async def alive() -> bool:
            await pulled.lane.tend()
            return pulled.lane.alive

        await wait_until(alive, description="alive again")
        await publish(stores, 1)
        assert await keys(pulled, 1) == ["k0"]
