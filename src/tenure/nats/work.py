"""The work stream: wake-ups and timers. The only module that publishes, pulls, answers or looks up messages there.

A wake-up decides nothing: it names (queue, priority, key, run id) in its subject and carries what makes the usual claim
one CAS with no read: the bucket's incarnation, the record's revision and its bytes. It has no ``Nats-Msg-Id`` (a repair
inside the duplicate window would be acknowledged and not stored [25]).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from nats.aio.msg import Msg

from tenure.core.errors import MAX_DELAY_SECONDS, NewerSchema, Unavailable, UnreadableRecord
from tenure.core.given import UNREADABLE
from tenure.core.pace import needs_leave
from tenure.core.policy import SHORT_DELAY, TIMER_LEAD
from tenure.core.records import Record
from tenure.core.sealing import Codec
from tenure.core.subjects import Names, WorkSubject
from tenure.nats.acks import parse_ack
from tenure.nats.asking import DEPOSED_SECONDS, ask, cause, told_by
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE, Found
from tenure.nats.stored import Messages, Stored
from tenure.telemetry import get_logger

_log = get_logger("tenure.work")
_DIFFERS = 10148
"""Error code of the server: the consumer exists, with other settings."""
_MOST_FOREIGN = 1_000


AHEAD = "high"
"""The lane in which a run is woken for whom a place under a limit is reserved: behind a backlog the place would lie idle."""


class _Head(msgspec.Struct):
    """First line of a wake-up's payload: incarnation of the bucket, generation, revision of the record that follows.

    ``p``: it was parked, and was woken because a place is reserved for it.
    """

    i: str
    g: int
    r: int
    p: int = 0


_head = msgspec.json.Decoder(_Head)


class Delivery(msgspec.Struct, frozen=True):
    """One delivered wake-up.

    ``found``: the record it carried (None: none, or not of this bucket); ``deliveries`` counts from 1. ``was_parked``: a
    place is reserved for its run. ``pending``: how many more its lane held that were never delivered. ``offered``: it is another
    worker's that could not use it. ``revision``: its key's when it was sent (0: not known, or of another bucket);
    ``stored_at``: when it was stored, by the server's clock.
    """

    subject: str
    reply: str
    deliveries: int
    to: WorkSubject | None
    generation: int = 0
    found: Found | None = None
    was_parked: bool = False
    pending: int = 0
    offered: bool = False
    revision: int = 0
    stored_at: float = 0.0

    def since(self, now: float) -> int:
        """The revision than which its key is not older [49]; 0 once no leader can be left that was deposed before it was sent."""
        return self.revision if now - self.stored_at < DEPOSED_SECONDS else 0


def spec(names: Names, replicas: int, storage: str) -> dict[str, Any]:
    """Settings of the stream."""
    return {
        "name": names.work_stream,
        "subjects": [names.work_prefix + ">", names.timer_prefix + ">", names.park_prefix + ">"],
        "retention": "workqueue",
        "discard": "old",
        "storage": storage,
        "num_replicas": replicas,
        "allow_msg_schedules": True,
        "allow_rollup_hdrs": True,
    }


class _Subjects(msgspec.Struct):
    subjects: dict[str, int] = msgspec.field(default_factory=dict)


class _Page(msgspec.Struct):
    ts: datetime = datetime.fromtimestamp(0, UTC)
    total: int = 0
    state: _Subjects = msgspec.field(default_factory=_Subjects)
    error: ApiError | None = None


_page = msgspec.json.Decoder(_Page)


def consumer_spec(names: Names, queue: str, priority: str, ack_wait_seconds: float) -> dict[str, Any]:
    """Settings of a lane's durable consumer.

    Unlimited deliveries and acks pending: the record counts, not the server [26].
    """
    return {
        "durable_name": names.consumer(queue, priority),
        "filter_subject": names.work_filter(queue, priority),
        "ack_policy": "explicit",
        "ack_wait": int(ack_wait_seconds * 1_000_000_000),
        "deliver_policy": "all",
        "max_deliver": -1,
        "max_ack_pending": -1,
    }


class Work:
    """Wake-ups of one namespace."""

    def __init__(self, conn: Connection, names: Names, incarnation: str, codec: Codec) -> None:
        self._conn = conn
        self._codec = codec
        self._names = names
        self.incarnation = incarnation

    # -- publish -----------------------------------------------------------------------------------------------------

    async def wake(self, record: Record, data: bytes, revision: int, now: float, patience: Patience) -> None:
        """Store a wake-up for a waiting record: now if it is due within seconds, else as a server-side schedule.

        Repeated until the server has it; a second copy is harmless. Raises Unavailable once patience is spent.
        """
        task = record.task
        subject = self._names.work(task.queue, task.priority, record.key, record.run_id)
        payload = self.payload(record, data, revision)
        headers = None
        if record.due - now > SHORT_DELAY:
            due = min(record.due, now + MAX_DELAY_SECONDS)  # a backoff may name a year that no calendar has
            at = datetime.fromtimestamp(due - TIMER_LEAD, UTC).isoformat()
            headers = {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": subject}
            subject = self._timer(record)
        while True:
            try:
                ack = await self._conn.put(subject, payload, headers)
            except (NotSent, Lost) as error:
                why: object = error
            else:
                if ack.error is None:
                    return
                why = ack.error.description
            if not await patience.pause():
                why = await cause(self._conn, self._names.work_stream, why)
                msg = f"the run of {record.key!r} is stored, but not its wake-up yet: {why}"
                raise Unavailable(msg)

    def _timer(self, record: Record) -> str:
        """Subject of the timer of a run's attempt; one that was put off by later submits has another for each due."""
        which = f"-{int(record.due * 1000)}" if record.settling is not None else ""
        return f"{self._names.timer(record.key, record.run_id, record.attempt)}{which}"

    def payload(self, record: Record, data: bytes, revision: int, *, parked: bool = False) -> bytes:
        """What a wake-up carries: its first line, and the record's bytes unless they are too many."""
        mark = ',"p":1' if parked else ""
        head = f'{{"i":"{self.incarnation}","g":{record.generation},"r":{revision}{mark}}}\n'.encode()
        return head + data if len(data) <= self._conn.config.wake_limit_bytes else head

    async def is_stored(self, record: Record, patience: Patience | None = None, *, timer: bool = True) -> bool:
        """Whether a wake-up, a timer or a parked message [38] of the record's run is stored: up to three look-ups.

        Without ``timer`` that does not count. Raises Unavailable: at once, or when ``patience`` is spent.
        """
        return (
            await self.is_awake(record, patience)
            or (timer and await self._has(self._timer(record), patience))
            or await self._has(self._names.park("*", record.key, record.run_id), patience)
        )

    async def is_awake(self, record: Record, patience: Patience | None = None) -> bool:
        """Whether a wake-up of the record's run is stored. Raises as ``is_stored``."""
        task = record.task
        priorities = [task.priority]
        if needs_leave(task.policy) and task.priority != AHEAD:  # its turn may have come
            priorities.append(AHEAD)
        for priority in priorities:
            if await self._has(self._names.work(task.queue, priority, record.key, record.run_id), patience):
                return True
        return False

    async def stored(self, patience: Patience) -> Stored:
        """Every run that has a wake-up or a timer, or is parked, by the subjects of the stream alone. Raises Unavailable."""
        wakeups: set[str] = set()
        timers: set[str] = set()
        parked: dict[str, set[tuple[str, str]]] = {}
        foreign: set[str] = set()
        names, take = self._names, self._subjects
        lanes: Counter[tuple[str, str]] = Counter()

        def take_wakeup(parts: tuple[str, ...]) -> None:
            queue, priority, token, run_id = parts
            wakeups.add(f"{queue}.{token}.{run_id}")
            lanes[queue, priority] += 1

        at = await take(names.work_prefix, take_wakeup, foreign, patience)
        await take(names.timer_prefix, lambda parts: timers.add(f"{parts[0]}.{parts[1]}"), foreign, patience)
        # A run that is woken between two of these lists is in none of them: whoever looks after it asks once more.
        await take(
            names.park_prefix,
            lambda parts: parked.setdefault(parts[0], set()).add((parts[1], parts[2])),
            foreign,
            patience,
        )
        return Stored(at, Messages(wakeups), Messages(timers), parked, frozenset(foreign), lanes)

    async def _subjects(
        self, prefix: str, take: Callable[[tuple[str, ...]], object], foreign: set[str], patience: Patience
    ) -> float:
        """Call ``take`` with the tokens after the prefix of each stored subject, if a Tenure can have stored it there.

        Returns the server's time when it was asked.
        """
        at, offset = 0.0, 0
        while True:
            try:
                answer = await self._conn.request(
                    f"$JS.API.STREAM.INFO.{self._names.work_stream}",
                    msgspec.json.encode({"subjects_filter": f"{prefix}>", "offset": offset}),
                    timeout=self._conn.config.patience_seconds,  # a page is up to 100,000 subjects
                )
            except (NotSent, Lost) as error:
                why: object = error
            else:
                page = _page.decode(answer.data)
                if page.error is None:
                    at = at or page.ts.timestamp()
                    for subject in page.state.subjects:
                        parts = self._names.stored_for(prefix, subject)
                        if parts is not None:
                            take(parts)
                        elif len(foreign) < _MOST_FOREIGN:
                            foreign.add(subject)
                    offset += len(page.state.subjects)
                    if not page.state.subjects or offset >= page.total:
                        return at
                    continue
                why = page.error.description
            if not await patience.pause():
                msg = f"cannot list the wake-ups: {why}"
                raise Unavailable(msg)

    async def _has(self, subject: str, patience: Patience | None) -> bool:
        while True:
            try:
                answer = await self._conn.api(f"STREAM.MSG.GET.{self._names.work_stream}", {"last_by_subj": subject})
            except (NotSent, Lost) as error:
                why: object = error
            else:
                if not isinstance(answer, ApiError):
                    return True
                if answer.err_code == NO_MESSAGE:
                    return False
                why = told_by(answer, self._names.work_stream)
            if patience is None or not await patience.pause():
                msg = f"cannot look up {subject}: {why}"
                raise Unavailable(msg)

    # -- deliveries --------------------------------------------------------------------------------------------------

    def open(self, msg: Msg) -> Delivery:
        """Take a delivered message apart. Never raises: what is malformed is looked up in the record, or is foreign."""
        to = self._names.parse_work(msg.subject)
        ack = parse_ack(msg.reply)
        deliveries, pending, stored_at = (ack.deliveries, ack.pending, ack.stored_at) if ack else (1, 0, 0.0)
        line, _, data = msg.data.partition(b"\n")
        try:
            head = _head.decode(line)
        except UNREADABLE:
            return Delivery(msg.subject, msg.reply, deliveries, to, pending=pending)
        ours = head.i == self.incarnation  # revisions of another bucket mean nothing here [12]
        found = self._carried(data, to, head.r) if ours and data and to is not None else None
        revision, parked = head.r if ours else 0, bool(head.p)
        return Delivery(
            msg.subject,
            msg.reply,
            deliveries,
            to,
            head.g,
            found,
            parked,
            pending,
            revision=revision,
            stored_at=stored_at,
        )

    def _carried(self, data: bytes, to: WorkSubject, revision: int) -> Found | None:
        """The record that came with a wake-up; None: it is looked up, the bucket may hold another one by now."""
        try:
            record = self._codec.decode(data, to.key)
        except (NewerSchema, UnreadableRecord, *UNREADABLE):
            return None
        return Found(record, revision) if (record.key, record.run_id) == (to.key, to.run_id) else None

    async def ack(self, reply: str) -> None:
        """The wake-up has done its duty. A hint: if it gets lost the wake-up comes again and finds nothing to do."""
        await self._conn.publish(reply, b"+ACK")

    async def nak(self, reply: str, delay: float = 0.0) -> None:
        """Deliver it again after ``delay`` seconds."""
        nanos = int(min(delay, MAX_DELAY_SECONDS) * 1_000_000_000)
        await self._conn.publish(reply, b'-NAK {"delay": %d}' % nanos if nanos > 0 else b"-NAK")

    async def term(self, reply: str, reason: str) -> None:
        """Throw a foreign message away, with the reason in the server's advisory."""
        await self._conn.publish(reply, b"+TERM " + reason.encode())

    # -- consumers ---------------------------------------------------------------------------------------------------

    async def ensure_consumer(self, queue: str, priority: str) -> None:
        """Create a lane's durable consumer or bring it up to date; the same settings again change nothing.

        One that an older Tenure, or workers with another ``ack_wait``, made is changed for everybody, and that is told: the
        settings that were written last hold for all of them. Raises Unavailable.
        """
        settings = consumer_spec(self._names, queue, priority, self._conn.config.ack_wait_seconds)
        body = {"stream_name": self._names.work_stream, "config": settings}
        call = f"CONSUMER.DURABLE.CREATE.{self._names.work_stream}.{self._names.consumer(queue, priority)}"
        try:
            answer = await self._conn.api(call, body | {"action": "create"})
            if isinstance(answer, ApiError) and answer.err_code == _DIFFERS:
                wait = self._conn.config.ack_wait_seconds
                _log.warning("consumer.changed", consumer=self._names.consumer(queue, priority), ack_wait_seconds=wait)
                answer = await self._conn.api(call, body)
        except (NotSent, Lost) as error:
            msg = f"cannot create the consumer of queue {queue!r}: {error}"
            raise Unavailable(msg) from error
        if isinstance(answer, ApiError):
            msg = f"cannot create the consumer of queue {queue!r}: {answer.description}"
            raise Unavailable(msg)

    async def queues(self, patience: Patience) -> set[str]:
        """Every queue that was ever worked on: those that have a consumer. Raises Unavailable."""
        found: set[str] = set()
        call, offset = f"CONSUMER.NAMES.{self._names.work_stream}", 0
        while True:
            answer = await ask(self._conn, call, {"offset": offset}, patience, what="list the queues") or {}
            names: list[str] = answer.get("consumers") or []
            found |= {name.rpartition("-")[0] for name in names}
            offset += len(names)
            if not names or offset >= int(answer.get("total", 0)):
                return found

    async def pending(self, queue: str, priority: str) -> tuple[int, int]:
        """(wake-ups not yet delivered, delivered and not yet answered) of a lane. Raises Unavailable."""
        call = f"CONSUMER.INFO.{self._names.work_stream}.{self._names.consumer(queue, priority)}"
        try:
            answer = await self._conn.api(call, {})
        except (NotSent, Lost) as error:
            raise Unavailable(str(error)) from error
        if isinstance(answer, ApiError):
            raise Unavailable(answer.description)
        return int(answer["num_pending"]), int(answer["num_ack_pending"])
