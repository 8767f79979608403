"""What hand-overs rest on: acks of another connection, and offers that go to one of those who know the actor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from msgspec.structs import replace

from tenure import InvalidCall
from tenure.clock import SYSTEM
from tenure.core.records import encode
from tenure.nats.handover import Close, Handovers, Reply
from tenure.nats.work import Delivery
from tenure.stores import Stores
from tests.contract.support import Pulled, connect, submitted
from tests.support import FAST, wait_until

ACK_WAIT = FAST.ack_wait_seconds


@pytest.fixture
async def other(stores: Stores, nats_server: str) -> AsyncIterator[Stores]:
    """Another worker's connection."""
    async with connect(nats_server, stores.names.namespace) as other:
        yield other


@pytest.fixture
async def pulled(stores: Stores) -> AsyncIterator[Pulled]:
    """A lane that takes deliveries, and answers none."""
    done = await submitted(stores)
    pulled = Pulled(stores, "default")
    await pulled.lane.open()
    try:
        await pulled.lane.want(10)
        await stores.work.wake(done.record, encode(done.record), done.revision, SYSTEM.now(), stores.runs.patience())
        yield pulled
    finally:
        await pulled.lane.close()


async def unanswered(stores: Stores) -> int:
    return (await stores.work.pending("default", "normal"))[1]


async def gone(stores: Stores) -> bool:
    return await unanswered(stores) == 0


async def test_an_ack_of_another_connection_removes_the_message(pulled: Pulled, stores: Stores, other: Stores) -> None:
    delivery = await pulled.next()
    assert await unanswered(stores) == 1
    await other.work.ack(delivery.reply)
    await wait_until(lambda: gone(stores), description="it is acknowledged")


async def test_a_nak_of_another_connection_has_it_delivered_again(pulled: Pulled, other: Stores) -> None:
    delivery = await pulled.next()
    await other.work.nak(delivery.reply, 0.2)
    again = await pulled.next(timeout=ACK_WAIT / 2)
    assert (again.subject, again.deliveries) == (delivery.subject, 2)
    assert pulled.at[1] - pulled.at[0] >= 0.2


async def test_in_progress_acks_of_another_connection_keep_it_and_so_do_those_of_an_older_delivery(
    pulled: Pulled, stores: Stores, other: Stores
) -> None:
    """The answer "taken" got lost: the sender handed it back, and it came again while the taker worked on the first."""
    first = await pulled.next()
    await stores.work.nak(first.reply)
    await pulled.next()
    for _ in range(8):
        await asyncio.sleep(ACK_WAIT / 4)  # paused: between two acks
        await other.conn.publish(first.reply, b"+WPI")
    assert len(pulled.at) == 2
    await pulled.next(timeout=2 * ACK_WAIT)
    await other.work.ack(first.reply)
    await wait_until(lambda: gone(stores), description="it is acknowledged")


def delivery_of(stores: Stores, queue: str = "default", reply: str = "") -> Delivery:
    names = stores.names
    subject = names.work(queue, "normal", "k", "r1")
    reply = reply or f"$JS.ACK.{names.work_stream}.{queue}-normal.3.7.9.1790000000000000000.0"
    return Delivery(subject, reply, 3, names.parse_work(subject), revision=5, stored_at=1_790_000_000.0)


async def listen(stores: Stores, actor: str, take: Callable[[Delivery], Awaitable[bool]]) -> Close:
    """Listen on the default queue; the server knows when this returns."""
    close = await Handovers(stores.conn, stores.names).listen("default", actor, take)
    await stores.conn.api("INFO", {})
    return close


async def test_an_offer_goes_to_one_of_those_who_know_the_actor(stores: Stores, other: Stores) -> None:
    taken: list[Delivery] = []

    async def take(delivery: Delivery) -> bool:
        taken.append(delivery)
        return True

    offers = Handovers(other.conn, other.names)
    delivery = delivery_of(stores)
    assert await offers.offer(delivery, "a", 1.0) is Reply.NOBODY
    closes = [await listen(stores, "a", take) for _ in range(2)]
    assert await offers.offer(delivery, "a", 1.0) is Reply.TAKEN
    assert taken == [replace(delivery, offered=True)]
    assert await offers.offer(delivery, "b", 1.0) is Reply.NOBODY
    assert await offers.offer(delivery_of(stores, "elsewhere"), "a", 1.0) is Reply.NOBODY
    for close in closes:
        await close()
    assert await offers.offer(delivery, "a", 1.0) is Reply.NOBODY
    assert taken == [replace(delivery, offered=True)]


async def test_no_for_an_answer_and_no_answer(stores: Stores, other: Stores) -> None:
    silent = asyncio.Event()

    async def refuse(_delivery: Delivery) -> bool:
        return False

    async def hesitate(_delivery: Delivery) -> bool:
        return await silent.wait()

    offers = Handovers(other.conn, other.names)
    await listen(stores, "refuses", refuse)
    await listen(stores, "is silent", hesitate)
    assert await offers.offer(delivery_of(stores), "refuses", 1.0) is Reply.BUSY
    assert await offers.offer(delivery_of(stores), "is silent", 0.1) is Reply.SILENT
    silent.set()


@pytest.mark.parametrize("actor", ["a.b", "*", ">", "a b", "ä"])
async def test_no_name_reaches_another_subject(actor: str, stores: Stores, other: Stores) -> None:
    """A record that somebody wrote may name anything as its actor."""
    taken: list[Delivery] = []

    async def take(delivery: Delivery) -> bool:
        taken.append(delivery)
        return True

    offers = Handovers(other.conn, other.names)
    await listen(stores, "a", take)
    assert await offers.offer(delivery_of(stores), actor, 1.0) is Reply.NOBODY
    await listen(stores, actor, take)
    assert await offers.offer(delivery_of(stores), actor, 1.0) is Reply.TAKEN
    assert len(taken) == 1


@pytest.mark.parametrize("actor", ["", "x" * 300, "\ud800"])
async def test_what_no_actor_can_be_called_is_known_to_nobody(actor: str, stores: Stores) -> None:
    with pytest.raises(InvalidCall):
        stores.names.handover("default", actor)
    assert await Handovers(stores.conn, stores.names).offer(delivery_of(stores), actor, 1.0) is Reply.NOBODY


@pytest.mark.parametrize(
    "kind", ["garbage", "no text", "another queue", "no wake-up", "no ack subject", "another consumer"]
)
async def test_an_offer_that_is_none_is_refused(kind: str, stores: Stores, other: Stores) -> None:
    """Else whoever may offer could have a worker publish acks to any subject."""
    taken: list[Delivery] = []

    async def take(delivery: Delivery) -> bool:
        taken.append(delivery)
        return True

    await listen(stores, "a", take)
    subject, good = stores.names.handover("default", "a"), delivery_of(stores)
    ack = good.reply
    payload = {
        "garbage": b"garbage",
        "no text": b'{"subject":"\xff","reply":""}',
        "another queue": _payload(stores.names.work("mail", "normal", "k", "r1"), ack),
        "no wake-up": _payload("orders.new", ack),
        "no ack subject": _payload(good.subject, "orders.new"),
        "another consumer": _payload(good.subject, ack.replace(stores.names.work_stream, "ORDERS")),
    }[kind]
    assert (await other.conn.request(subject, payload)).data == b"busy"
    assert not taken
    assert (await other.conn.request(subject, _payload(good.subject, ack))).data == b"taken"


def _payload(subject: str, reply: str) -> bytes:
    return f'{{"subject":"{subject}","reply":"{reply}"}}'.encode()
