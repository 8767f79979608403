"""What the stream of wake-ups promises: wake-ups, timers, lanes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy

from msgspec.structs import replace

from tenure.clock import SYSTEM
from tenure.core.records import Record, encode
from tenure.nats.lane import Lane
from tenure.nats.patience import Patience
from tenure.nats.runs import NOTHING, Committed
from tenure.nats.work import Delivery
from tenure.stores import Stores
from tests.contract.conftest import submit
from tests.support import wait_until


async def record_of(stores: Stores, key: str = "k", run_id: str = "r1") -> tuple[Record, bytes, int]:
    done = await stores.runs.commit(key, submit(key, run_id), at=NOTHING)
    assert isinstance(done, Committed)
    return done.record, done.data, done.revision


class Arrivals:
    """A lane and what it delivered, with the time of arrival."""

    def __init__(self, stores: Stores, priority: str = "normal") -> None:
        self.got: list[tuple[float, Delivery]] = []
        self.lane = Lane(
            stores.conn,
            stores.names,
            stores.work,
            clock=SYSTEM,
            queue="default",
            priority=priority,
            on_delivery=self._received,
        )

    async def _received(self, _lane: Lane, delivery: Delivery) -> None:
        self.got.append((time.monotonic(), delivery))


@asynccontextmanager
async def lane_of(stores: Stores, *, wanted: int = 10) -> AsyncIterator[Arrivals]:
    """Tended as a worker does it: in a cluster a pull right after the consumer was made may reach nobody."""
    arrivals = Arrivals(stores)
    await arrivals.lane.open()

    async def tend() -> None:
        while True:
            await asyncio.sleep(0.2)  # paused: between two looks
            await arrivals.lane.tend()

    tending = asyncio.create_task(tend())
    try:
        await arrivals.lane.want(wanted)
        yield arrivals
    finally:
        tending.cancel()
        await asyncio.wait([tending])
        await arrivals.lane.close()


def patience() -> Patience:
    return Patience(SYSTEM, 5.0)


async def test_a_wake_up_carries_the_record_and_its_revision(stores: Stores) -> None:
    record, data, revision = await record_of(stores)
    async with lane_of(stores) as arrivals:
        await stores.work.wake(record, data, revision, SYSTEM.now(), patience())
        await wait_until(lambda: arrivals.got, description="the wake-up arrives")
        delivery = arrivals.got[0][1]
        assert delivery.to is not None
        assert (delivery.to.key, delivery.to.run_id, delivery.deliveries) == ("k", "r1", 1)
        assert delivery.found is not None
        assert (delivery.found.record, delivery.found.revision) == (record, revision)
        await stores.work.ack(delivery.reply)


async def test_a_wake_up_of_another_bucket_carries_no_revision(stores: Stores) -> None:
    """The bucket was deleted and made again: an old revision would claim blindly in the new one [12]."""
    record, data, revision = await record_of(stores)
    async with lane_of(stores) as arrivals:
        work = copy(stores.work)
        work.incarnation = "another"
        await work.wake(record, data, revision, SYSTEM.now(), patience())
        await wait_until(lambda: arrivals.got, description="the wake-up arrives")
        assert arrivals.got[0][1].found is None
        assert arrivals.got[0][1].revision == 0


async def test_a_large_record_travels_by_name_only(stores: Stores) -> None:
    record, _, revision = await record_of(stores)
    async with lane_of(stores) as arrivals:
        padding = b" " * (stores.config.wake_limit_bytes + 1)
        await stores.work.wake(record, encode(record) + padding, revision, SYSTEM.now(), patience())
        await wait_until(lambda: arrivals.got, description="the wake-up arrives")
        delivery = arrivals.got[0][1]
        assert delivery.found is None
        assert delivery.to is not None
        assert delivery.since(delivery.stored_at + 59.0) == revision, "a leader that was deposed before may show less"
        assert delivery.since(delivery.stored_at + 61.0) == 0, "one that was restored from a backup has never had it"


async def test_is_stored_knows_wake_ups_and_timers_by_their_run(stores: Stores) -> None:
    record, data, revision = await record_of(stores)
    assert not await stores.work.is_stored(record)
    await stores.work.wake(record, data, revision, SYSTEM.now(), patience())
    assert await stores.work.is_stored(record)
    assert not await stores.work.is_stored(replace(record, run_id="r2"))
    late = replace(record, run_id="r3", due=SYSTEM.now() + 60)
    await stores.work.wake(late, encode(late), 1, SYSTEM.now(), patience())
    assert await stores.work.is_stored(late)
    assert not await stores.work.is_stored(replace(late, attempt=1))


async def test_the_listing_tells_runs_of_a_key_apart(stores: Stores) -> None:
    """Of wake-ups and of timers. For the record of an older Tenure, which does not tell its run, any run of the key counts.

    What has another number of tokens was not stored by a Tenure.
    """
    record, data, revision = await record_of(stores)
    await stores.work.wake(record, data, revision, SYSTEM.now(), patience())
    late = replace(record, key="late", run_id="r2", due=SYSTEM.now() + 60, attempt=3)
    await stores.work.wake(late, encode(late), 1, SYSTEM.now(), patience())
    for foreign in ("default.normal.odd", "default.normal.odd.r1.more"):
        await stores.conn.put(stores.names.work_prefix + foreign, b"")
    listed = await stores.work.stored(patience())
    for messages, whose, other, run_id in (
        (listed.wakeups, "default.k", "elsewhere.k", "r1"),
        (listed.timers, "late", "k", "r2"),
    ):
        assert messages.has(whose, run_id)
        assert not messages.has(whose, "r9")
        assert not messages.has(other, run_id)
        assert messages.has(whose, "")
        assert not messages.has(other, "")
    assert not any(listed.wakeups.has("default.odd", run_id) for run_id in ("r1", "more", ""))


async def test_an_unanswered_wake_up_is_delivered_again_after_ack_wait(stores: Stores) -> None:
    record, data, revision = await record_of(stores)
    async with lane_of(stores) as arrivals:
        await stores.work.wake(record, data, revision, SYSTEM.now(), patience())
        await wait_until(lambda: len(arrivals.got) == 2, description="it is delivered twice")
        assert arrivals.got[1][1].deliveries == 2
        assert arrivals.got[1][0] - arrivals.got[0][0] >= stores.config.ack_wait_seconds * 0.9


async def test_a_nak_delays_by_what_it_says(stores: Stores) -> None:
    record, data, revision = await record_of(stores)
    async with lane_of(stores) as arrivals:
        await stores.work.wake(record, data, revision, SYSTEM.now(), patience())
        await wait_until(lambda: arrivals.got, description="the wake-up arrives")
        sent = time.monotonic()
        await stores.work.nak(arrivals.got[0][1].reply, 0.3)
        await wait_until(lambda: len(arrivals.got) == 2, description="it comes again")
        assert 0.29 <= arrivals.got[1][0] - sent < 1.0


async def test_a_long_delay_becomes_a_timer_that_fires_early_into_the_lane(stores: Stores) -> None:
    record, _, revision = await record_of(stores)
    due = SYSTEM.now() + 2.5
    late = replace(record, due=due)
    async with lane_of(stores) as arrivals:
        await stores.work.wake(late, encode(late), revision, SYSTEM.now(), patience())
        await wait_until(lambda: arrivals.got, description="the timer fires")
        assert SYSTEM.now() < due + 0.1
        delivery = arrivals.got[0][1]
        assert delivery.to is not None
        assert delivery.found is not None
        assert delivery.found.record == late


async def test_an_acknowledged_wake_up_leaves_the_stream(stores: Stores) -> None:
    record, data, revision = await record_of(stores)
    async with lane_of(stores) as arrivals:
        await stores.work.wake(record, data, revision, SYSTEM.now(), patience())
        await wait_until(lambda: arrivals.got, description="the wake-up arrives")
        await stores.work.ack(arrivals.got[0][1].reply)

        async def gone() -> bool:
            return not await stores.work.is_stored(record)

        await wait_until(gone, description="the stream is empty")
        assert await stores.work.pending("default", "normal") == (0, 0)


async def test_an_idle_lane_delivers_at_once_after_its_pull_has_expired(stores: Stores) -> None:
    """The server answers an old pull with "expired": the lane must ask again by itself (nats.py#933)."""
    async with lane_of(stores, wanted=1) as arrivals:
        expiry = stores.config.pull_expires_seconds
        start = time.monotonic()
        await wait_until(
            lambda: time.monotonic() - start > expiry + 0.5, description="the pull expires", timeout=expiry + 5
        )
        record, data, revision = await record_of(stores)
        sent = time.monotonic()
        await stores.work.wake(record, data, revision, SYSTEM.now(), patience())
        await wait_until(lambda: arrivals.got, description="the wake-up arrives")
        assert arrivals.got[0][0] - sent < 0.2


async def test_a_lane_asks_for_no_more_than_is_wanted(stores: Stores) -> None:
    async with lane_of(stores, wanted=3) as arrivals:
        for number in range(8):
            record, data, revision = await record_of(stores, f"k{number}", f"r{number}")
            await stores.work.wake(record, data, revision, SYSTEM.now(), patience())
        await wait_until(lambda: len(arrivals.got) == 3, description="three arrive")
        assert await stores.work.pending("default", "normal") == (5, 3)
        await arrivals.lane.want(5)
        await wait_until(lambda: len(arrivals.got) == 8, description="the rest arrives")


async def test_a_deleted_consumer_comes_back(stores: Stores) -> None:
    async with lane_of(stores, wanted=1) as arrivals:
        call = f"CONSUMER.DELETE.{stores.names.work_stream}.{stores.names.consumer('default', 'normal')}"
        await stores.conn.api(call, {})
        record, data, revision = await record_of(stores)
        await stores.work.wake(record, data, revision, SYSTEM.now(), patience())

        async def arrived() -> bool:
            await arrivals.lane.tend()
            return bool(arrivals.got)

        await wait_until(arrived, description="the lane makes its consumer again and delivers")


async def test_concurrent_lanes_share_and_deliver_each_wake_up_once(stores: Stores) -> None:
    async with lane_of(stores, wanted=50) as one, lane_of(stores, wanted=50) as two:
        made = await asyncio.gather(*(record_of(stores, f"k{i}", f"r{i}") for i in range(100)))
        for record, data, revision in made:
            await stores.work.wake(record, data, revision, SYSTEM.now(), patience())
        await wait_until(lambda: len(one.got) + len(two.got) == 100, description="all arrive")
        keys = [d.to.key for _, d in one.got + two.got if d.to is not None]
        assert len(set(keys)) == 100
