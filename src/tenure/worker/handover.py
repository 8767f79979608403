"""Handing over: a wake-up whose actor this worker does not know, or whose record it cannot read, goes to one that does.

In a rolling deploy the old workers hold most of the open pulls, so most redeliveries of a new actor's wake-ups come to them,
and of those whose records a newer Tenure has written. Handed back alone, each waits for the luck of the draw, ever longer. So
it is offered (`nats/handover`) to those who know the actor, or read the schema; whoever takes it treats it as a delivery of
its own, with the ack subject that it came with, and this worker forgets it.

Nothing rests on it: what is lost is handed back or delivered again, what is doubled meets the claim. Workers that know
every actor and every schema they meet never offer anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from tenure.core.policy import second_look
from tenure.core.records import PLAIN_SCHEMA, SCHEMA
from tenure.metrics import Metrics
from tenure.nats.acks import parse_ack
from tenure.nats.handover import Close, Handovers, Reply
from tenure.nats.work import Delivery
from tenure.stores import Stores
from tenure.telemetry import get_logger
from tenure.together import all_of
from tenure.worker.table import Table

_log = get_logger("tenure.run")
_ANSWER_SECONDS = 1.0
_SILENCE_SECONDS = 5.0
"""For how long a frozen process, which still listens, is not asked again: each question keeps a slot for a second."""
_AT_ONCE = 8
"""Slots that may wait for answers: the rest is for what this worker knows."""
_KNOWN_SECONDS = 2.0
"""Longest pause between two looks while somebody knows the actor: a slot may come free there at any time."""
_SPACING_SECONDS = 0.005
"""Between two of these looks, over all keys: a backlog of thousands must not keep both sides busy with asking."""


def readers_of(schema: int) -> str:
    """As whom those are asked who can read a record of this schema: no actor has such a name."""
    return f"schema {schema}"


_READERS = tuple(map(readers_of, range(PLAIN_SCHEMA + 1, SCHEMA + 1)))
"""As whom this release is asked: by one that knows less."""


class Offers:
    """What this worker offers, because it does not know the actor or cannot read the record."""

    def __init__(self, stores: Stores, metrics: Metrics) -> None:
        self._stores = stores
        self._metrics = metrics
        self._handovers = Handovers(stores.conn, stores.names)
        self._asking = 0
        self._silent: dict[tuple[str, str], float] = {}
        self._turn = 0.0

    async def place(self, delivery: Delivery, wanted: str, why: str = "unknown_actor") -> None:
        """Leave the delivery to a worker that is ``wanted`` (knows that actor, is of those ``readers_of``), or hand it back.

        ``why``: what is counted then. What was left to this one is handed back: of two, one may know the actor and the other
        the schema, and it would go to and fro between them without a pause.
        """
        key, run_id = (delivery.to.key, delivery.to.run_id) if delivery.to is not None else ("", "")
        actor = wanted if why == "unknown_actor" else ""
        reply = Reply.BUSY if delivery.offered else await self._ask(delivery, wanted)
        if reply is Reply.TAKEN:  # neither ack nor nak: both are the other's
            self._metrics.claims[actor, "handed_over"] += 1
            _log.debug("delivery.handed_over", key=key, actor=wanted)
            return
        self._metrics.claims[actor, why] += 1
        look = second_look(delivery.deliveries, self._stores.config.ack_wait_seconds)
        if reply is not Reply.NOBODY:
            look = self._soon(look)
            _log.debug("actor.crowded", key=key, actor=wanted)
        elif actor:
            _log.warning("actor.unknown", key=key, actor=actor)
        else:
            look = min(look, self._stores.config.ack_wait_seconds)
            _log.error("record.newer", key=key, run_id=run_id)
        await self._stores.work.nak(delivery.reply, look)

    async def _ask(self, delivery: Delivery, actor: str) -> Reply:
        about = (delivery.to.queue if delivery.to is not None else "", actor)
        clock = self._stores.clock
        if self._asking >= _AT_ONCE or self._silent.get(about, 0.0) > clock.steady():
            return Reply.BUSY
        self._asking += 1
        try:
            limit = min(_ANSWER_SECONDS, self._stores.config.ack_wait_seconds / 4)
            reply = await self._handovers.offer(delivery, actor, limit)
        finally:
            self._asking -= 1
        if reply is Reply.SILENT:
            now = clock.steady()
            self._silent = {other: until for other, until in self._silent.items() if until > now}
            self._silent[about] = now + _SILENCE_SECONDS
        return reply

    def _soon(self, look: float) -> float:
        """When to look again: soon, spread out (a wave would find the one free slot once), and in turn behind the others."""
        now = self._stores.clock.steady()
        longest = second_look(64, self._stores.config.ack_wait_seconds)
        self._turn = min(max(self._turn, now) + _SPACING_SECONDS, now + longest)
        return min(look, _KNOWN_SECONDS) * (0.5 + 0.5 * self._stores.clock.random()) + self._turn - now


class Desk:
    """Where this worker takes what others offer, while its lanes are open."""

    def __init__(
        self,
        stores: Stores,
        queues: list[str],
        actors: Iterable[str],
        table: Table,
        on_crash: Callable[[], None],
    ) -> None:
        self._handovers = Handovers(stores.conn, stores.names)
        self._about = [(queue, wanted) for queue in queues for wanted in (*actors, *_READERS)]
        self._table = table
        self._on_crash = on_crash
        self._closes: list[Close] = []

    async def open(self, start: Callable[[Delivery], Awaitable[bool]]) -> None:
        """Listen. ``start`` starts a delivery if there is a slot for it now, and says whether."""
        take = partial(self._take, start)
        for queue, wanted in self._about:
            self._closes.append(await self._handovers.listen(queue, wanted, take))

    async def close(self) -> None:
        """Stop listening; what was under way is answered before this returns."""
        closes, self._closes = self._closes, []
        await all_of(*(close() for close in closes))

    async def _take(self, start: Callable[[Delivery], Awaitable[bool]], delivery: Delivery) -> bool:
        live = self._table.get(delivery.to.run_id) if delivery.to is not None else None
        if live is not None:  # the very message, whose answer got lost: it is ours. Another one: its turn comes later
            return _message(live.reply) == _message(delivery.reply)
        try:
            return await start(delivery)
        except Exception:  # noqa: BLE001  (nats-py would keep it to itself; the message comes again)
            self._on_crash()
            return False


def _message(reply: str) -> int | None:
    ack = parse_ack(reply)
    return ack.stream_sequence if ack is not None else None
