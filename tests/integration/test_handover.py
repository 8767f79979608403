"""Hand-overs between workers: when nobody has room, when one drains, when answers get lost or come twice."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context
from tenure.core.subjects import WorkSubject
from tenure.metrics import Metrics
from tenure.nats.acks import parse_ack
from tenure.nats.handover import Handovers, Reply
from tenure.nats.work import Delivery
from tenure.worker.handover import Offers
from tests.conftest import Workers
from tests.contract.support import Pulled, connect
from tests.gates import opened_at_last
from tests.proxy import Proxy, Publish
from tests.support import FAST, wait_until

LONG = replace(FAST, ack_wait_seconds=30.0)
"""A redelivery must not be what helps."""


class New:
    """The app as the new release has it: its actor counts its bodies, which wait at a gate."""

    def __init__(self, namespace: str) -> None:
        self.app = App(namespace, config=LONG)
        self.gate = asyncio.Event()
        self.started: list[tuple[str, int]] = []
        self.now = self.most = 0

        @self.app.actor
        async def newer(ctx: Context) -> int:
            self.started.append((ctx.key, ctx.attempt))
            self.now += 1
            self.most = max(self.most, self.now)
            await self.gate.wait()
            self.now -= 1
            return ctx.attempt

        self.call = newer.call


@pytest.fixture
def new(namespace: str) -> New:
    return New(namespace)


@pytest.fixture
def old(namespace: str) -> App:
    """The app as the old release has it."""
    app = App(namespace, config=LONG)

    @app.actor
    async def older() -> str:
        return "old"

    return app


@pytest.fixture
async def client(new: New, nats_server: str) -> AsyncIterator[Client]:
    async with new.app.connect(nats_server) as client:
        yield client


@asynccontextmanager
async def naks(proxy: Proxy) -> AsyncIterator[list[float]]:
    """Seconds after which a worker behind the proxy asks for what it hands back, one for each time."""
    delays: list[float] = []

    def look(publish: Publish) -> bool:
        delay = re.match(rb'-NAK(?: {"delay": (\d+)})?\Z', publish.payload)
        if delay is not None:
            delays.append(int(delay[1] or 0) / 1e9)
        return False

    fault = proxy.lose(look)
    yield delays
    fault.clear()


@asynccontextmanager
async def deliveries(client: Client, *keys: str) -> AsyncIterator[list[Delivery]]:
    """The wake-ups of these keys, as a worker that pulled them has them."""
    pulled = Pulled(client.stores, "default")
    await pulled.lane.open()
    try:
        await pulled.lane.want(len(keys))
        yield [await pulled.next() for _ in keys]
    finally:
        await pulled.lane.close()


async def nothing_left(client: Client) -> None:
    async def none() -> bool:
        info = await client.stores.conn.api(f"STREAM.INFO.{client.app.names.work_stream}", {})
        return isinstance(info, dict) and info["state"]["messages"] == 0

    await wait_until(none, description="every wake-up is acknowledged")


async def test_a_full_worker_takes_no_more_than_it_has_slots(
    new: New, old: App, client: Client, workers: Workers
) -> None:
    """Twenty wake-ups, two slots, in front of them an old worker with eight: never three bodies, and none is forgotten."""
    async with workers.run(old, concurrency=8) as before, workers.run(new.app, concurrency=2), opened_at_last(new.gate):
        runs = [await client.submit(new.call(), key=f"k-{n}") for n in range(20)]
        claims = before.worker.metrics.claims
        await wait_until(lambda: claims["newer", "unknown_actor"] >= 20, description="the new worker has no room")
        assert len(new.started) == 2
        new.gate.set()
        assert await asyncio.gather(*(run.result(15) for run in runs)) == [1] * 20
        await nothing_left(client)
    assert new.most == 2
    assert len(new.started) == 20


async def test_who_has_no_room_is_asked_again_within_two_seconds(
    new: New, old: App, client: Client, proxy: Proxy, workers: Workers
) -> None:
    """The tenth delivery of a wake-up: without anybody who knows the actor its next look is half a minute away."""
    async with workers.run(new.app, concurrency=1) as full, opened_at_last(new.gate):
        for key in ("in the way", "k"):
            await client.submit(new.call(), key=key)
        await wait_until(lambda: new.now == 1, description="its slot is taken")
        async with connect(proxy.url, old.namespace, LONG) as stores, naks(proxy) as delays:
            offers = Offers(stores, metrics := Metrics("", (), ()))
            subject = stores.names.work("default", "normal", "k", "r")
            reply = f"$JS.ACK.{stores.names.work_stream}.default-normal.10.7.9.1790000000000000000.0"
            delivery = Delivery(subject, reply, 10, WorkSubject("default", "normal", "k", "r"))
            for _ in range(5):
                await offers.place(delivery, "newer")
            await wait_until(lambda: len(delays) == 5, description="they are handed back")
            assert all(1.0 <= delay <= 2.1 for delay in delays), delays
            assert metrics.claims["newer", "unknown_actor"] == 5
            new.gate.set()
            await full.stop()
            await offers.place(delivery, "newer")
            await wait_until(lambda: len(delays) == 6, description="it is handed back")
            assert delays[5] >= 15.0


async def test_a_backlog_is_not_asked_for_all_at_once(new: New, client: Client, proxy: Proxy) -> None:
    """Two hundred wake-ups that somebody knows and has no room for: their looks are spread over a second more."""
    desk = Handovers(client.stores.conn, client.stores.names)

    async def no_room(_delivery: Delivery) -> bool:
        return False

    await desk.listen("default", "newer", no_room)
    await client.stores.conn.api("INFO", {})
    async with connect(proxy.url, new.app.namespace, LONG) as stores, naks(proxy) as delays:
        offers = Offers(stores, Metrics("", (), ()))
        subject = stores.names.work("default", "normal", "k", "r")
        delivery = Delivery(subject, "nobody.hears", 1, WorkSubject("default", "normal", "k", "r"))
        await asyncio.gather(*(offers.place(delivery, "newer") for _ in range(200)))
        await wait_until(lambda: len(delays) == 200, description="they are handed back")
    assert min(delays) < 0.2
    assert 0.8 < max(delays) < 1.2


async def test_who_does_not_answer_takes_few_slots_and_is_left_in_peace(new: New, client: Client, proxy: Proxy) -> None:
    """A frozen process still listens. Each question keeps a slot of a worker that has work of its own."""
    asked: list[Delivery] = []
    thawed = asyncio.Event()

    async def hesitate(delivery: Delivery) -> bool:
        asked.append(delivery)
        return await thawed.wait()

    desk = Handovers(client.stores.conn, client.stores.names)
    for _ in range(20):
        await desk.listen("default", "newer", hesitate)
    await client.stores.conn.api("INFO", {})
    async with connect(proxy.url, new.app.namespace, LONG) as stores, naks(proxy) as delays:
        offers = Offers(stores, Metrics("", (), ()))
        subject = stores.names.work("default", "normal", "k", "r")
        reply = f"$JS.ACK.{stores.names.work_stream}.default-normal.1.7.9.1790000000000000000.0"
        delivery = Delivery(subject, reply, 1, WorkSubject("default", "normal", "k", "r"))
        for _ in range(2):
            await asyncio.gather(*(offers.place(delivery, "newer") for _ in range(20)))
        await wait_until(lambda: len(delays) == 40, description="all are handed back")
        thawed.set()
    assert 1 <= len(asked) <= 8
    assert max(delays) < 0.5


async def test_nobody_knows_the_actor(
    new: New, old: App, client: Client, proxy: Proxy, behind: Workers, workers: Workers
) -> None:
    """The wake-up stays, and is looked at ever more seldom, as before; whoever comes to know the actor runs it."""
    async with naks(proxy) as delays, behind.run(old) as running, opened_at_last(new.gate):
        run = await client.submit(new.call(), key="k")
        await wait_until(lambda: len(delays) >= 4, description="it is handed back again and again")
        assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
        status = await run.status()
        assert status is not None
        assert (status.phase, status.attempt) == ("queued", 0)
        assert running.worker.metrics.claims["newer", "handed_over"] == 0
        new.gate.set()
        async with workers.run(new.app):
            assert await run.result(5) == 1


@pytest.mark.parametrize("state", ["draining", "not trusted", "free"])
async def test_a_worker_that_may_start_nothing_takes_nothing(
    state: str, new: New, client: Client, workers: Workers
) -> None:
    """The offer comes between the drain signal and the end of its subscription, or while it can trust in nothing."""
    await client.submit(new.call(), key="k")
    async with (
        deliveries(client, "k") as (delivery,),
        workers.run(new.app) as running,
        opened_at_last(new.gate),
    ):
        if state == "draining":
            running.worker.puller.pulling = False
        elif state == "not trusted":
            running.worker.stores.presence.missing = "the sessions bucket is gone"
        reply = await Handovers(client.stores.conn, client.stores.names).offer(delivery, "newer", 1.0)
        assert reply is (Reply.TAKEN if state == "free" else Reply.BUSY)
        assert len(running.worker.table) == (state == "free")
        new.gate.set()


async def test_a_drained_worker_is_not_asked(new: New, client: Client, workers: Workers) -> None:
    """Its last body may run for a long time: meanwhile offers go to others, or nobody knows the actor."""
    for key in ("runs", "k"):
        await client.submit(new.call(), key=key)
    async with (
        deliveries(client, "runs", "k") as (first, second),
        workers.run(new.app) as running,
        opened_at_last(new.gate),
    ):
        offers = Handovers(client.stores.conn, client.stores.names)
        assert await offers.offer(first, "newer", 1.0) is Reply.TAKEN
        await wait_until(lambda: new.now == 1, description="the body runs")
        running.worker.stop()

        async def nobody() -> bool:
            reply = await offers.offer(second, "newer", 1.0)
            assert reply in {Reply.BUSY, Reply.NOBODY}
            return reply is Reply.NOBODY

        await wait_until(nobody, description="it does not listen any more")
        assert new.now == 1
        new.gate.set()
    assert len(new.started) == 1


async def test_a_lost_answer_costs_nothing(new: New, old: App, client: Client, proxy: Proxy, behind: Workers) -> None:
    """The new worker has taken it; the old one hears nothing, hands it back, and it comes again while the body runs."""
    keys = [f"k-{n}" for n in range(10)]
    fault = proxy.lose(lambda publish: publish.payload == b"taken", times=100)
    async with (
        naks(proxy) as delays,
        behind.run(old, concurrency=10) as before,
        behind.run(new.app, concurrency=10),
        opened_at_last(new.gate),
    ):
        for key in keys:
            await client.submit(new.call(), key=key)
        await wait_until(fault.done.is_set, description="an answer is lost")
        await wait_until(lambda: len(delays) >= 2 * len(fault.hits), description="the old worker hands it back")
        claims = before.worker.metrics.claims
        assert claims["newer", "unknown_actor"] >= len(fault.hits)
        assert claims["newer", "handed_over"] == 0
        new.gate.set()
        assert [await client.run(key).result(10) for key in keys] == [1] * 10
        await nothing_left(client)
    assert sorted(new.started) == [(key, 1) for key in keys]


async def test_a_lost_offer_costs_a_second_look(
    new: New, old: App, client: Client, proxy: Proxy, behind: Workers, workers: Workers
) -> None:
    """The offer never arrives. It is handed back, and whoever listens is left in peace for a while, not forgotten."""
    fault = proxy.lose(lambda publish: ".handover." in publish.subject)
    new.gate.set()
    async with naks(proxy) as delays, behind.run(old), workers.run(new.app, concurrency=1):
        runs = [await client.submit(new.call(), key=f"k-{n}") for n in range(20)]
        assert await asyncio.gather(*(run.result(15) for run in runs)) == [1] * 20
    assert fault.hits
    assert max(delays) <= 2.2


async def test_an_offer_that_comes_twice_starts_one_body(new: New, client: Client, workers: Workers) -> None:
    """To the same worker, which knows the message, or to two, of which one wins the claim."""
    keys = [f"k-{n}" for n in range(10)]
    for key in keys:
        await client.submit(new.call(), key=key)
    async with (
        deliveries(client, *keys) as came,
        workers.run(new.app),
        workers.run(new.app),
        opened_at_last(new.gate),
    ):
        offers = Handovers(client.stores.conn, client.stores.names)
        replies = await asyncio.gather(*(offers.offer(delivery, "newer", 1.0) for delivery in [*came, *came]))
        assert set(replies) == {Reply.TAKEN}
        await wait_until(lambda: new.now == 10, description="each has a body")
        new.gate.set()
        assert [await client.run(key).result(10) for key in keys] == [1] * 10
        await nothing_left(client)
    assert sorted(new.started) == [(key, 1) for key in sorted(keys)]


async def test_another_message_of_a_run_in_hand_is_not_taken(new: New, client: Client, workers: Workers) -> None:
    """The wake-up of a retry, while the attempt before is about to be done with: its ack is not that of this one."""
    run = await client.submit(new.call(), key="k")
    async with deliveries(client, "k") as (first,), workers.run(new.app), opened_at_last(new.gate):
        offers = Handovers(client.stores.conn, client.stores.names)
        assert await offers.offer(first, "newer", 1.0) is Reply.TAKEN
        await wait_until(lambda: new.now == 1, description="the body runs")
        ack = parse_ack(first.reply)
        assert ack is not None
        place = f".{ack.deliveries}.{ack.stream_sequence}."
        assert first.reply.count(place) == 1
        other = first.reply.replace(place, f".{ack.deliveries}.{ack.stream_sequence + 1}.")
        assert await offers.offer(replace(first, reply=other), "newer", 1.0) is Reply.BUSY
        assert await offers.offer(first, "newer", 1.0) is Reply.TAKEN
        new.gate.set()
        assert await run.result(5) == 1


async def test_a_taken_delivery_is_kept_for_as_long_as_its_body_runs(
    new: New, client: Client, workers: Workers, nats_server: str
) -> None:
    """Three times ``ack_wait``: the taker's in-progress acks go to the ack subject that came with the offer.

    Whoever offered it leaves it alone. Nobody gets it a second time.
    """
    new.app.config = quick = replace(FAST, ack_wait_seconds=1.6)
    run = await client.submit(new.call(), key="k")
    async with connect(nats_server, new.app.namespace, quick) as stores:
        pulled = Pulled(stores, "default")
        await pulled.lane.open()
        await pulled.lane.want(10)
        delivery = await pulled.next()
        async with workers.run(new.app) as running, opened_at_last(new.gate):
            await Offers(stores, metrics := Metrics("", (), ())).place(delivery, "newer")
            assert metrics.claims["newer", "handed_over"] == 1
            await wait_until(lambda: new.now == 1, description="the body runs")
            await asyncio.sleep(3 * quick.ack_wait_seconds)  # body: it runs that long
            assert len(pulled.at) == 1
            assert running.worker.metrics.claims["", "busy"] == 0
            assert await stores.work.pending("default", "normal") == (0, 1)
            new.gate.set()
            assert await run.result(5) == 1
            await nothing_left(client)
        await pulled.lane.close()
    assert new.started == [("k", 1)]
