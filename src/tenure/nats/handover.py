"""Offers of deliveries between workers, over plain NATS. The only module that sends, takes or answers them.

An offer names a stored wake-up and its ack subject, and goes to one of those who know the actor and serve the queue (a
queue group). It does not carry the record: whoever takes it reads that, and its claim decides. So an offer or an answer
that gets lost, comes twice or comes late costs a look at most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial

import msgspec
from nats.aio.msg import Msg

from tenure.core.errors import InvalidCall
from tenure.core.given import UNREADABLE
from tenure.core.subjects import Names
from tenure.nats.acks import parse_ack
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.work import Delivery

Close = Callable[[], Awaitable[None]]
_GROUP = "workers"
_TAKEN, _BUSY = b"taken", b"busy"


class Reply(Enum):
    """What came back for an offer."""

    TAKEN = "the delivery is another worker's now"
    BUSY = "somebody knows the actor, and has no room now"
    SILENT = "somebody listens, and did not answer in time: it may have taken it"
    NOBODY = "nobody listens: nobody knows the actor"


class _Offer(msgspec.Struct):
    """``r``: the revision of its key when the wake-up was sent (0: not known)."""

    subject: str
    reply: str
    r: int = 0


_offer = msgspec.json.Decoder(_Offer)


class Handovers:
    """Offers in one namespace."""

    def __init__(self, conn: Connection, names: Names) -> None:
        self._conn = conn
        self._names = names

    async def offer(self, delivery: Delivery, actor: str, timeout: float) -> Reply:
        """Offer a delivery of ours to whoever knows ``actor``."""
        if delivery.to is None:
            return Reply.NOBODY
        try:
            subject = self._names.handover(delivery.to.queue, actor)
            payload = msgspec.json.encode(_Offer(delivery.subject, delivery.reply, delivery.revision))
            answer = await self._conn.request(subject, payload, timeout=timeout)
        except (NotSent, InvalidCall):  # no worker can have a name that is refused here
            return Reply.NOBODY
        except Lost:
            return Reply.SILENT
        return Reply.TAKEN if answer.data == _TAKEN else Reply.BUSY

    async def listen(self, queue: str, actor: str, take: Callable[[Delivery], Awaitable[bool]]) -> Close:
        """Have ``take`` say of each offer for ``actor`` whether the delivery is this worker's from now on.

        Returns what ends that, once all that was under way is answered.
        """

        async def offered(msg: Msg) -> None:
            delivery = self._open(msg.data, queue)
            taken = delivery is not None and await take(delivery)
            await self._conn.publish(msg.reply, _TAKEN if taken else _BUSY)

        subscription = await self._conn.subscribe(self._names.handover(queue, actor), offered, group=_GROUP)
        return partial(self._conn.drain, subscription)

    def _open(self, data: bytes, queue: str) -> Delivery | None:
        """None for what names no wake-up of ``queue``, or would have us publish acks to a subject that is not its."""
        try:
            offer = _offer.decode(data)
        except UNREADABLE:
            return None
        to, ack = self._names.parse_work(offer.subject), parse_ack(offer.reply)
        if to is None or to.queue != queue or ack is None:
            return None
        consumer = self._names.consumer(queue, to.priority)
        if ack.consumer != consumer or f".{self._names.work_stream}.{consumer}." not in offer.reply:
            return None
        return Delivery(
            offer.subject, offer.reply, ack.deliveries, to, offered=True, revision=offer.r, stored_at=ack.stored_at
        )
