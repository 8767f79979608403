"""The inbox: commands that anybody may publish, in any language. The only module that pulls, answers or looks up there.

Whoever may only publish here must do no harm, and a publish that was acknowledged is never lost. So the stream's settings
refuse, in the answer to the publish, every header by which a message acts on others (schedules, rollups, TTLs, batches,
counters); nothing expires; and where somebody sets a limit, the newest command is refused, not the oldest dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from nats.aio.msg import Msg

from tenure.clock import Clock
from tenure.core.errors import MAX_DELAY_SECONDS, Unavailable
from tenure.core.marks import Place
from tenure.core.subjects import Names
from tenure.nats.acks import parse_ack
from tenure.nats.asking import NO_STREAM
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.lane import OnCrash, Pull
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.telemetry import get_logger

CONSUMER = "supervisors"
_DIFFERS = 10148
_NO_HEADERS: dict[str, str] = {}
_EPOCH = datetime.fromtimestamp(0, UTC)
_log = get_logger("tenure.inbox")


def spec(names: Names, replicas: int, storage: str) -> dict[str, Any]:
    """Settings of the stream."""
    return {
        "name": names.inbox_stream,
        "subjects": names.inbox_subjects,
        "retention": "workqueue",
        "discard": "new",
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": False,
        "allow_rollup_hdrs": False,
        "allow_msg_ttl": False,
        "allow_msg_schedules": False,
        "allow_atomic": False,
        "allow_batched": False,
        "allow_msg_counter": False,
    }


class Message(msgspec.Struct, frozen=True):
    """One delivery of a command."""

    subject: str
    reply: str
    place: Place
    headers: Mapping[str, str]
    data: bytes
    deliveries: int = 1


class _State(msgspec.Struct, frozen=True):
    first_seq: int = 0
    last_seq: int = 0


class _Info(msgspec.Struct):
    created: str = ""
    state: _State = _State()
    error: ApiError | None = None


class _Stored(msgspec.Struct):
    time: str = ""
    seq: int = 0
    subject: str = ""
    data: bytes = b""
    hdrs: bytes = b""


class _Floor(msgspec.Struct, frozen=True):
    stream_seq: int = 0


class _Consumer(msgspec.Struct):
    ack_floor: _Floor = _Floor()


class _Got(msgspec.Struct):
    message: _Stored | None = None
    error: ApiError | None = None


_info = msgspec.json.Decoder(_Info)
_consumer = msgspec.json.Decoder(_Consumer)
_got = msgspec.json.Decoder(_Got)


class Inbox:
    """The inbox of one namespace."""

    def __init__(self, conn: Connection, names: Names) -> None:
        self._conn = conn
        self._names = names

    def open(self, msg: Msg) -> Message | None:
        """Take a delivered message apart; None for one that JetStream has not delivered."""
        ack = parse_ack(msg.reply)
        if ack is None:
            return None
        place = Place(ack.stream_sequence, ack.stored_ns // 1_000)
        return Message(msg.subject, msg.reply, place, msg.headers or _NO_HEADERS, msg.data, ack.deliveries)

    async def ack(self, message: Message) -> None:
        """It has done its duty. A hint: if it gets lost the message comes again."""
        if message.reply:
            await self._conn.publish(message.reply, b"+ACK")
        else:
            with contextlib.suppress(NotSent, Lost):
                await self._conn.api(f"STREAM.MSG.DELETE.{self._names.inbox_stream}", {"seq": message.place.sequence})

    async def nak(self, message: Message, delay: float = 0.0) -> None:
        """Deliver it again, to whichever supervisor asks, after ``delay`` seconds."""
        if not message.reply:
            return
        nanos = int(min(delay, MAX_DELAY_SECONDS) * 1_000_000_000)
        await self._conn.publish(message.reply, b'-NAK {"delay": %d}' % nanos if nanos > 0 else b"-NAK")

    async def reject(self, reply: str, reason: str, text: str) -> None:
        """Tell the sender, who listens on ``reply``. A hint: it may get lost, or come again with the message."""
        await self._conn.publish(reply, msgspec.json.encode({"error": reason, "text": text}))

    async def strays(self, sequence: int, most: int, patience: Patience) -> list[Message]:
        """Commands that the consumer takes for acknowledged and that are stored all the same: nobody will get them.

        The oldest from ``sequence`` on, and so many at most.

        Kills of the server leave such (ARCHITECTURE, *Decisions*); and one that is just being removed looks so for a moment.
        Raises Unavailable.
        """
        stream, strays, floor = self._names.inbox_stream, list[Message](), -1
        while len(strays) < most:
            wanted = msgspec.json.encode({"seq": sequence, "next_by_subj": ">"})
            found = _got.decode(await self._ask(f"STREAM.MSG.GET.{stream}", wanted, patience)).message
            if found is None:  # so it is with an idle inbox: one question
                break
            if floor < 0:
                answer = await self._ask(f"CONSUMER.INFO.{stream}.{CONSUMER}", b"", patience)
                floor = _consumer.decode(answer).ack_floor.stream_seq
            if found.seq > floor:
                break
            headers = await self._conn.raw._process_headers(found.hdrs)  # noqa: SLF001  (it has no other way)
            place, sequence = Place(found.seq, _microseconds(found.time)), found.seq + 1
            strays.append(Message(found.subject, "", place, headers or _NO_HEADERS, found.data))
        return strays

    async def ends(self, patience: Patience) -> tuple[int, int]:
        """What was stored before the first sequence is gone; up to the last one the leader has had them all.

        One question about thousands of commands. Raises Unavailable.
        """
        state = (await self._look(patience)).state
        return state.first_seq, state.last_seq

    async def holds(self, place: Place, patience: Patience, *, had: bool = False) -> bool:
        """Whether the command that lies there is still stored: else it was acknowledged. Raises Unavailable.

        That it is not is believed of nobody who has never had it: so it is with a leader that was deposed, and does not know it
        yet, before the command was stored. One that has had later ones, or has counted that far, has had this one too;
        ``had``: so it is, as the caller has just seen.
        """
        body = msgspec.json.encode({"seq": place.sequence})
        while True:
            got = _got.decode(await self._ask(f"STREAM.MSG.GET.{self._names.inbox_stream}", body, patience))
            if got.message is not None:  # another one, if the stream was made again
                return _microseconds(got.message.time) == place.stored_us
            code = got.error.err_code if got.error is not None else 0
            if place.sequence == 0 or code == NO_STREAM or (code == NO_MESSAGE and had):
                return False
            if code == NO_MESSAGE:
                info = await self._look(patience)
                if info.error is not None or info.state.first_seq > place.sequence or _was_made_after(info, place):
                    return False
                had = info.state.last_seq >= place.sequence
                if had:  # this one is asked: between the two answers another may have become the leader
                    continue
            if not await patience.pause():
                why = got.error.description if got.error else "no answer"
                raise Unavailable(f"cannot look into the inbox: {why}")

    async def _look(self, patience: Patience) -> _Info:
        """At the stream; its ``error`` says only that there is none. Raises Unavailable."""
        info = _info.decode(await self._ask(f"STREAM.INFO.{self._names.inbox_stream}", b"", patience))
        if info.error is not None and info.error.err_code != NO_STREAM:
            raise Unavailable(f"cannot look at the inbox: {info.error.description}")
        return info

    async def _ask(self, call: str, body: bytes, patience: Patience) -> bytes:
        while True:
            try:
                return (await self._conn.request(f"$JS.API.{call}", body)).data
            except (NotSent, Lost) as error:
                if not await patience.pause():
                    raise Unavailable(f"cannot look into the inbox: {error}") from error

    async def ensure_consumer(self) -> None:
        """Create the consumer that all supervisors share, or bring it up to date. Raises Unavailable."""
        stream, wait = self._names.inbox_stream, self._conn.config.ack_wait_seconds
        settings = {
            "durable_name": CONSUMER,
            "ack_policy": "explicit",
            "ack_wait": int(wait * 1_000_000_000),
            "deliver_policy": "all",
            "max_deliver": -1,
            "max_ack_pending": -1,
        }
        body, call = {"stream_name": stream, "config": settings}, f"CONSUMER.DURABLE.CREATE.{stream}.{CONSUMER}"
        try:
            answer = await self._conn.api(call, body | {"action": "create"})
            if isinstance(answer, ApiError) and answer.err_code == _DIFFERS:
                _log.warning("consumer.changed", consumer=CONSUMER, ack_wait_seconds=wait)
                answer = await self._conn.api(call, body)
        except (NotSent, Lost) as error:
            raise Unavailable(f"cannot create the consumer of the inbox: {error}") from error
        if isinstance(answer, ApiError):
            raise Unavailable(f"cannot create the consumer of the inbox: {answer.description}")


def _microseconds(time: str) -> int:
    """Whole ones since the epoch, the rest cut off as in a delivery's ack subject: rounded, a command would have two ids [15]."""
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1)


def _was_made_after(info: _Info, place: Place) -> bool:
    return bool(info.created) and _microseconds(info.created) > place.stored_us


class InboxLane(Pull):
    """The pull of the inbox. ``on_message`` gets each command; it must not block. ``on_crash``: see ``Pull``."""

    def __init__(
        self,
        conn: Connection,
        names: Names,
        inbox: Inbox,
        *,
        clock: Clock,
        on_message: Callable[[Message], Awaitable[None]],
        on_crash: OnCrash,
    ) -> None:
        super().__init__(conn, clock=clock, stream=names.inbox_stream, consumer=CONSUMER, on_crash=on_crash)
        self._inbox_of = inbox
        self._on_message = on_message

    async def _ensure_consumer(self) -> None:
        await self._inbox_of.ensure_consumer()

    async def _deliver(self, msg: Msg) -> None:
        message = self._inbox_of.open(msg)
        if message is not None:
            await self._on_message(message)
