"""The sessions bucket: leases, stop signals and progress. The only module that reads or writes it.

A session is created once, renewed and closed by CAS at the revision of its own last renewal, and never created again. A
stop signal is created once per (session, run id, attempt) and vanishes by itself. Progress is for people: the latest value of
each run, blind and lossy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec
from nats.aio.msg import Msg

from tenure.core.errors import Unavailable
from tenure.core.given import UNREADABLE
from tenure.core.records import Holder
from tenure.core.sealing import Codec
from tenure.core.sessions import (
    CLOSED_KEPT_SECONDS,
    SIGNAL_KEPT_SECONDS,
    Progress,
    Session,
    StopReason,
    StopSignal,
    decode_session,
    decode_signal,
    encode_session,
)
from tenure.core.subjects import Names, decode_key
from tenure.nats.acks import parse_ack
from tenure.nats.asking import cause, counted, told_by
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.nats.swaps import EXPECT, WRONG_SEQUENCE
from tenure.nats.watch import Watch
from tenure.telemetry import get_logger

T = TypeVar("T")
_log = get_logger("tenure.sessions")


class SeenSession(msgspec.Struct, frozen=True):
    """A session's entry and the revision it was read at. ``at``: when that was stored (server's time; 0: not told)."""

    session: Session
    revision: int
    at: float = 0.0


class NoSession(msgspec.Struct, frozen=True):
    """There is no entry (revision 0), or none that says anything: a marker of the key-value tools, or somebody else's."""

    revision: int


def spec(names: Names, replicas: int, storage: str) -> dict[str, Any]:
    """Settings of the bucket's stream. No delete markers: nothing is ever created twice under one name here."""
    return {
        "name": names.sessions_stream,
        "subjects": [names.sessions_prefix + ">"],
        "retention": "limits",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": False,
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "deny_delete": True,
        "republish": {
            "src": names.sessions_prefix + "progress.*.*",
            "dest": names.note_prefix + "{{wildcard(1)}}.{{wildcard(2)}}",
        },
    }


class Sessions:
    """Leases of one namespace, over one connection."""

    def __init__(self, conn: Connection, names: Names, codec: Codec) -> None:
        self._conn = conn
        self._codec = codec
        self._names = names

    async def create(self, session: Session, patience: Patience) -> int:
        """Create the entry of a new session and return its revision. Raises Unavailable once patience is spent."""
        while True:
            try:
                revision = await self.write(session, 0)
            except (NotSent, Lost) as error:
                why: object = error
            else:
                if revision:
                    return revision
                seen = await self.read(session.id)  # ids are unique: an entry that exists is my own write
                if seen is not None:
                    return seen.revision
                why = "refused"
            if not await patience.pause():
                why = await cause(self._conn, self._names.sessions_stream, why)
                msg = f"cannot create a session: {why}"
                raise Unavailable(msg)

    async def write(self, session: Session, revision: int, *, timeout: float | None = None) -> int:
        """One CAS: renew or close. Its revision, or 0 if refused. Raises NotSent or Lost (then its fate is unknown)."""
        headers = {EXPECT: str(revision)}
        if session.closed is not None:
            headers["Nats-TTL"] = f"{CLOSED_KEPT_SECONDS}s"
        ack = await self._conn.put(self._names.session(session.id), encode_session(session), headers, timeout=timeout)
        if ack.error is None:
            return ack.seq
        if ack.error.err_code == WRONG_SEQUENCE:
            return 0
        raise Lost(ack.error.description)

    async def read(self, session: str, patience: Patience | None = None) -> SeenSession | None:
        """The entry of a session, None if there is none. Raises Unavailable: at once, or when ``patience`` is spent."""
        found = await self.find(session, patience)
        return found if isinstance(found, SeenSession) else None

    async def find(self, session: str, patience: Patience | None = None) -> SeenSession | NoSession:
        """The same, and where there is none the revision to create one at."""
        subject = self._names.session(session)
        while True:
            try:
                revision, data = await self._last(subject)
                break
            except Unavailable:
                if patience is None or not await patience.pause():
                    raise
        entry = _decoded(decode_session, subject, data)
        return NoSession(revision) if entry is None else SeenSession(entry, revision)

    async def is_gone(self, session: str, revision: int, patience: Patience) -> bool:
        """Whether a leader that has counted up to the session's revision has no entry of it. Raises Unavailable."""
        leader = await counted(self._conn, self._names.sessions_stream, self._names.session(session), patience)
        return leader.last >= revision and not leader.there

    async def signal(self, holder: Holder, reason: StopReason, patience: Patience) -> bool:
        """Tell the process of ``holder`` to stop its body; once is enough: False if it is told already.

        Raises Unavailable once patience is spent.
        """
        headers = {EXPECT: "0", "Nats-TTL": f"{SIGNAL_KEPT_SECONDS}s"}
        data = msgspec.json.encode(StopSignal(run_id=holder.run_id, attempt=holder.attempt, reason=reason))
        subject = self._names.stop(holder.session, holder.run_id, holder.attempt)
        while True:
            try:
                ack = await self._conn.put(subject, data, headers)
            except (NotSent, Lost) as error:
                why: object = error
            else:
                if ack.error is None or ack.error.err_code == WRONG_SEQUENCE:
                    return ack.error is None
                why = ack.error.description
            if not await patience.pause():
                why = await cause(self._conn, self._names.sessions_stream, why)
                msg = f"the stop of run {holder.run_id} is stored, but its signal is not sent yet: {why}"
                raise Unavailable(msg)

    def watch_stops(self, session: str, on_stop: Callable[[StopSignal], None]) -> Watch:
        """A watch that calls ``on_stop`` for every signal addressed to ``session``, those already stored included."""

        async def received(msg: Msg) -> None:
            signal = _decoded(decode_signal, msg.subject, msg.data)
            if signal is not None:
                on_stop(signal)

        return Watch(self._conn, self._names.sessions_stream, self._names.stops(session), received)

    def watch_all(self, on_session: Callable[[SeenSession], None]) -> Watch:
        """A watch that calls ``on_session`` for every session's entry and then for each renewal and close."""

        async def received(msg: Msg) -> None:
            ack = parse_ack(msg.reply)
            session = _decoded(decode_session, msg.subject, msg.data)
            if session is not None and ack is not None:
                on_session(SeenSession(session, ack.stream_sequence, ack.stored_at))

        return Watch(self._conn, self._names.sessions_stream, self._names.session("*"), received)

    async def all(self) -> list[SeenSession]:
        """Every entry that is stored, closed ones included, the oldest session first. Raises Unavailable."""
        found: dict[str, SeenSession] = {}
        loaded, heard = asyncio.Event(), False
        watch = self.watch_all(lambda seen: found.update({seen.session.id: seen}))
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch.run(loaded))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._conn.config.patience_seconds):
                    heard = await loaded.wait()
            watching.cancel()
        if not heard:
            raise Unavailable("the server does not list the sessions")
        return sorted(found.values(), key=lambda seen: seen.session.started_at)

    async def note(self, key: str, progress: Progress) -> None:
        """Publish a run's progress, at most once."""
        headers = {"Nats-TTL": f"{SIGNAL_KEPT_SECONDS}s"}
        await self._conn.publish(
            self._names.progress(key, progress.run_id), self._codec.encode_progress(progress, key), headers=headers
        )

    async def progress(self, key: str, run_id: str) -> Progress | None:
        """The latest progress of a run, None if there is none. Raises Unavailable."""
        subject = self._names.progress(key, run_id)
        return _decoded(partial(self._codec.decode_progress, key=key), subject, (await self._last(subject))[1])

    async def follow_progress(
        self, key: str, on_progress: Callable[[Progress], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        """Call ``on_progress`` for each progress of the key's runs from now on; returns a function that ends it."""
        decode = partial(self._codec.decode_progress, key=key)

        async def received(msg: Msg) -> None:
            progress = _decoded(decode, msg.subject, msg.data)
            if progress is not None:
                await on_progress(progress)

        subscription = await self._conn.subscribe(self._names.notes(key), received)

        async def stop() -> None:
            await self._conn.unsubscribe(subscription)

        return stop

    async def follow_all_progress(self, on_progress: Callable[[str, Progress], None]) -> Callable[[], Awaitable[None]]:
        """Call ``on_progress(key, progress)`` for each progress of any run from now on; returns a function that ends it."""
        prefix = self._names.note_prefix

        async def received(msg: Msg) -> None:
            try:
                key = decode_key(msg.subject[len(prefix) :].partition(".")[0])
            except ValueError:
                return
            progress = _decoded(partial(self._codec.decode_progress, key=key), msg.subject, msg.data)
            if progress is not None:
                on_progress(key, progress)

        subscription = await self._conn.subscribe(f"{prefix}*.*", received)

        async def stop() -> None:
            await self._conn.unsubscribe(subscription)

        return stop

    async def _last(self, subject: str) -> tuple[int, bytes]:
        """Revision and bytes of what is stored there; (0, nothing) if nothing is."""
        try:
            answer = await self._conn.api(f"STREAM.MSG.GET.{self._names.sessions_stream}", {"last_by_subj": subject})
        except (NotSent, Lost) as error:
            msg = f"cannot read {subject}: {error}"
            raise Unavailable(msg) from error
        if isinstance(answer, ApiError):
            if answer.err_code == NO_MESSAGE:
                return 0, b""
            msg = f"cannot read {subject}: {told_by(answer, self._names.sessions_stream)}"
            raise Unavailable(msg)
        message = answer["message"]
        return int(message["seq"]), msgspec.convert(message.get("data", ""), bytes)


def _decoded(decode: Callable[[bytes], T], subject: str, data: bytes) -> T | None:
    """What an entry holds; None where it was removed, and, with a word in the log, if somebody else wrote there.

    It must stop nobody.
    """
    if not data:
        return None
    try:
        return decode(data)
    except UNREADABLE as error:
        _log.error("entry.unreadable", subject=subject, error=str(error))
        return None
