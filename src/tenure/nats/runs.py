"""The runs bucket: one record per key. The only module that reads or writes records on the server.

Every write is a compare-and-swap on the revision it was decided on; ``commit`` is the whole of "read, decide, CAS":

* *refused* (10071): read and decide again.
* *unknown* (no answer, disconnect): repeat **the same** CAS until the server answers or the revision has moved.
  A read that does not show the write proves nothing: it may still be on its way [19]. Once the revision has moved it
  can no longer be applied.
* only the caller whose own write was unknown may recognise it in what it then reads (``mine``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from nats.aio.msg import Msg

from tenure.clock import Clock
from tenure.core.commands import PROVEN, Command, Confirm, Evict, ExpirePrevious, TakeCounts
from tenure.core.errors import EncryptedRecord, NewerSchema, TenureError, Unavailable, UnreadableRecord
from tenure.core.expiry import is_over
from tenure.core.given import UNREADABLE
from tenure.core.outcomes import Decision, Refused, Why, effects_of
from tenure.core.records import Count, Holder, Record
from tenure.core.sealing import Codec
from tenure.core.subjects import Names, decode_key
from tenure.core.transitions import transition
from tenure.core.upkeep import forgotten
from tenure.nats.asking import NO_STREAM, gone, is_gone
from tenure.nats.belief import Belief
from tenure.nats.changes import Changes
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.scan import OnHeader, scan
from tenure.nats.swaps import Swapped, headers_of, swap, unknown

NO_MESSAGE = 10037


class Found(msgspec.Struct, frozen=True):
    """What the bucket holds for a key: ``record`` at ``revision`` (None: nothing, or the mark of a life that is over).

    ``box``: what is hidden of a record that does not open and was read ``blind``; ``record`` is then what is in clear.
    """

    record: Record | None
    revision: int
    box: bytes = b""


NOTHING = Found(None, 0)


class Committed(msgspec.Struct, frozen=True):
    """``decision`` is stored at ``revision``; ``data`` are the record's bytes. ``told``: who had to hear of it first, and had not."""

    decision: Decision
    revision: int
    data: bytes
    told: tuple[Holder, ...] = ()

    @property
    def record(self) -> Record:
        """The stored record (of a decision that keeps one)."""
        if self.decision.record is None:
            msg = "a purge leaves no record"
            raise TenureError(msg)
        return self.decision.record


class Declined(msgspec.Struct, frozen=True):
    """The core refused on ``found``; ``unsure``: an earlier write of this command had no known fate."""

    refused: Refused
    found: Found
    unsure: bool = False


class _Stored(msgspec.Struct):
    seq: int
    data: bytes = b""
    hdrs: bytes = b""


class _Got(msgspec.Struct):
    message: _Stored | None = None
    error: ApiError | None = None


_got = msgspec.json.Decoder(_Got)


def spec(names: Names, replicas: int, storage: str) -> dict[str, Any]:
    """Settings of the bucket's stream."""
    return {
        "name": names.runs_stream,
        "subjects": [names.runs_prefix + ">"],
        "retention": "limits",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": False,
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "deny_delete": True,
        "subject_delete_marker_ttl": 0,
        "republish": {"src": names.runs_prefix + ">", "dest": names.event_prefix + ">"},
    }


class Runs(Belief):
    """Records of one namespace."""

    def __init__(self, conn: Connection, names: Names, clock: Clock, newest: int, codec: Codec) -> None:
        self._newest = newest  # the highest revision known to exist: what has a lower one was not written after now
        self.codec = codec
        self._conn = conn
        self._names = names
        self.clock = clock
        self.conflicts: Callable[[str], None] = lambda _operation: None
        self.count: Callable[[tuple[Count, ...]], None] | None = None
        """Told what a stored decision has to count."""
        self.tell: Callable[[Holder, Patience], Awaitable[bool]] | None = None
        """Tells an older body to stop; False: it was told before. Raises Unavailable."""

    def is_open(self) -> bool:
        """Whether its connection was not closed yet."""
        return not self._conn.raw.is_closed

    def patience(self) -> Patience:
        """The time that a client call may take."""
        return Patience(self.clock, self._conn.config.patience_seconds)

    # -- read --------------------------------------------------------------------------------------------------------

    async def read(self, key: str, patience: Patience | None = None, *, blind: bool = False, since: int = 0) -> Found:
        """Read a record from the stream's leader. Raises Unavailable, NewerSchema, UnreadableRecord.

        ``since``: a revision that the key is known to have had. Who shows an older one, or nothing, may be a leader that was
        deposed: asked again until ``patience`` (one that ends) is spent, and believed then.
        """
        subject = self._names.record(key)
        body = msgspec.json.encode({"last_by_subj": subject})
        patience = patience or self.patience()
        while True:
            # An answer may lie unread until after the record's time, and another life may have begun.
            asked = self.clock.now()
            try:
                answer = await self._conn.request(f"$JS.API.STREAM.MSG.GET.{self._names.runs_stream}", body)
            except (NotSent, Lost) as error:
                if await patience.pause():
                    continue
                msg = f"cannot read the record of {key!r}: {error}"
                raise Unavailable(msg).about(key=key) from error
            got = _got.decode(answer.data)
            absent = got.error is not None and got.error.err_code == NO_MESSAGE
            if since and (absent or (got.message is not None and got.message.seq < since)) and await patience.pause():
                continue
            if got.message is not None:
                self._newest = max(self._newest, got.message.seq)
                return _found(self.codec, key, got.message, asked, blind=blind)
            if absent:
                return NOTHING
            text = got.error.description if got.error else "empty answer"
            if got.error is not None and got.error.err_code == NO_STREAM:
                text = gone(self._names.runs_stream)
            if not await patience.pause():
                msg = f"cannot read the record of {key!r}: {text}"
                raise Unavailable(msg).about(key=key)

    # -- write -------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        key: str,
        command: Command,
        *,
        at: Found | None = None,
        mine: Callable[[Record], bool] | None = None,
        check: Callable[[], Awaitable[bool]] | None = None,
        once: Callable[[Record | None], bool] | None = None,
        patience: Patience | None = None,
        blind: bool = False,
        since: int = 0,
    ) -> Committed | Declined:
        """Decide ``command`` on the record and store what comes out, until that is certain.

        ``at``: what the caller believes the bucket holds (checked by the CAS itself); None: read first, and what is older than
        ``since``, a revision that the key is known to have had, is not decided on; nor is what is older than a refusal. ``mine``
        recognises the effect of this very command in a record, asked only after a write of unknown fate. ``check`` is
        asked after every read and before the write that follows; if it says no, nothing is written. ``once``: the
        command must not be decided anew after a write of unknown fate unless the record that moved on shows (``once``
        says yes) that it was applied [14]. ``blind``: of a record that does not open the head alone is changed. Raises
        Unavailable if patience ran out and nothing happened, OutcomeUnknown if the fate of a write stays unknown.
        """
        patience = patience or self.patience()
        found = await self.read_on(key, since, patience, blind=blind) if at is None else at
        unsure, before = False, self._newest
        while True:
            if check is not None and not await check():
                return Declined(Refused(Why.NOTHING), found, unsure)
            result = transition(found.record, command, self.clock.now())
            if isinstance(result, Refused):
                return Declined(result, found, unsure)
            told = await self._told(found, result.record, command, patience, unsure=unsure)
            proven, data = type(command) in PROVEN, b""
            if result.record is not None:
                data = self.codec.encode_to_store(result.record, proven=proven, box=found.box)
            revision, repeated, met = await self._store(key, result.record, data, found.revision, patience)
            if revision:
                return self._won(Committed(result, revision, data, told))
            self.conflicts(type(command).__name__.lower())
            unsure, tried = unsure or repeated, found.revision
            try:
                found = await self.read_on(key, max(min(found.revision, self._newest), met), patience, blind=blind)
            except Unavailable as error:
                if not unsure:
                    raise
                msg = f"a write to {key!r} may have happened, and the record cannot be read to find out: {error}"
                raise unknown(msg, key, result.record, found.revision) from error
            if repeated and mine is not None and found.record is not None and mine(found.record):
                adopted = Decision(result.did, found.record, effects_of(found.record), result.counts)
                return self._won(Committed(adopted, found.revision, self.codec.encode(found.record)))
            # Nobody wrote there since before the first try, so that was not applied. If the read was stale, the CAS says so.
            untouched = 0 < found.revision <= before
            if unsure and once is not None and not untouched and not once(found.record):
                msg = f"a write to {key!r} may have happened, but the record has moved on: look before you repeat it"
                raise unknown(msg, key, result.record, tried)

    async def take(
        self,
        key: str,
        command: Confirm | ExpirePrevious | TakeCounts | Evict,
        patience: Patience,
        *,
        at: Found | None = None,
        blind: bool = False,
        since: int = 0,
    ) -> Committed | Declined:
        """``commit`` of a command by which something is counted: its tag tells this very write."""

        def mine(record: Record) -> bool:
            return record.taken == command.tag

        return await self.commit(key, command, at=at, mine=mine, patience=patience, blind=blind, since=since)

    async def _told(
        self, found: Found, after: Record | None, command: Command, patience: Patience, *, unsure: bool
    ) -> tuple[Holder, ...]:
        """Tell those to stop whom nobody knows any more once this is stored: first, for whoever stores it may die after it [46]."""
        if self.tell is None or found.record is None or not found.record.previous:
            return ()
        try:
            return tuple([one for one in forgotten(found.record, after, command) if await self.tell(one, patience)])
        except Unavailable as error:
            if not unsure:
                raise
            msg = f"a write to {found.record.key!r} may have happened, and cannot be made again: {error}"
            raise unknown(msg, found.record.key, after, found.revision) from error

    def _won(self, committed: Committed) -> Committed:
        if committed.decision.counts and self.count is not None:
            self.count(committed.decision.counts)
        return committed

    async def _store(self, key: str, record: Record | None, data: bytes, revision: int, patience: Patience) -> Swapped:
        """One CAS, repeated until its fate is known."""
        swapped = await swap(
            self._conn,
            self._names.record(key),
            data,
            headers_of(record, revision),
            patience,
            stream=self._names.runs_stream,
            what=f"the record of {key!r}",
            key=key,
            generation=record.generation if record is not None else None,
            run_id=record.run_id if record is not None else None,
        )
        self._newest = max(self._newest, swapped.revision)
        return swapped

    # -- scan --------------------------------------------------------------------------------------------------------

    async def scan(
        self,
        on_header: OnHeader,
        batch: int = 500,
        pace: Callable[[], Awaitable[None]] | None = None,
        *,
        to_end: bool = False,
    ) -> None:
        """Call ``on_header`` for every record, without reading any. Raises Unavailable.

        With ``pace``, awaited after each ``batch``, it ends at what was stored when it began. Else, or ``to_end``, a record that is
        written meanwhile is met again, and the pass ends at what was stored when it had come to the first of these.
        """
        await scan(self._conn, self._names, on_header, batch, pace, to_end=to_end)

    # -- follow ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def follow(self, key: str, *, fresh: bool = False, since: int = 0) -> AsyncIterator[Changes]:
        """Every state of a key from now on; none older than ``since``, until it was told so for ten seconds.

        Subscribe, then read; re-read after a reconnect and every ``reread_seconds``, in a cluster soon for the first time. Of
        a run that is ``fresh``, having been started just now, an event is expected first.
        Only an error that no waiting mends is raised: the bucket is gone (Unavailable), or a record cannot be read.
        """
        read, decode = partial(self._read_for, key), partial(_event, self.codec, key)
        changes = Changes(read, decode, self._conn, fresh=fresh, since=since)
        subscription = await self._conn.listen(self._names.event(key), changes.on_event)
        offs = [on(changes.look) for on in (self._conn.on_reconnect, self._conn.on_disconnect)]
        try:
            yield changes
        finally:
            changes.close()
            for off in offs:
                off()
            await self._conn.unsubscribe(subscription)

    async def _read_for(self, key: str) -> Found:
        """Read for somebody who waits: however long the server is away, but a bucket that is gone no longer than for a call."""
        while True:
            try:
                return await self.read(key, Patience(self.clock, self._conn.config.patience_seconds, self.is_open))
            except Unavailable:
                if not self.is_open() or await is_gone(self._conn, self._names.runs_stream):
                    raise

    async def follow_all(self, on_change: Callable[[str, Found], None]) -> Callable[[], Awaitable[None]]:
        """Call ``on_change(key, state)`` for every write of every record from now on; returns a function that ends it.

        Plain NATS, at most once: states may be missed around a reconnect. Records of a newer schema are passed over.
        """
        prefix = self._names.event_prefix

        async def received(msg: Msg) -> None:
            try:
                key = decode_key(msg.subject[len(prefix) :])
                found = _event(self.codec, key, msg)
            except (NewerSchema, UnreadableRecord, ValueError):
                return
            on_change(key, found)

        subscription = await self._conn.subscribe(prefix + "*", received)

        async def stop() -> None:
            await self._conn.unsubscribe(subscription)

        return stop


def _record(codec: Codec, key: str, revision: int, data: bytes) -> Record:
    try:
        return codec.decode(data, key)
    except (NewerSchema, EncryptedRecord) as error:
        error.about(key=key, revision=revision)
        raise
    except UNREADABLE as error:
        msg = f"the bucket holds what is no record of Tenure ({error}), {len(data)} bytes"
        raise UnreadableRecord(msg).about(key=key, revision=revision) from error


def _found(codec: Codec, key: str, stored: _Stored, asked: float, *, blind: bool) -> Found:
    """What a read shows that was asked for at ``asked``. An expired record is its own mark.

    The server's marks are not used: they take whatever is stored at that moment with them, a run just submitted too.
    """
    if b"KV-Operation:" in stored.hdrs:
        return Found(None, stored.seq)
    try:
        record = _record(codec, key, stored.seq, stored.data)
    except EncryptedRecord as error:
        if error.record is not None and is_over(error.record, asked):
            return Found(None, stored.seq)
        if error.record is None or not blind:
            raise
        return Found(error.record, stored.seq, error.box)
    return Found(None if is_over(record, asked) else record, stored.seq)


def _event(codec: Codec, key: str, msg: Msg) -> Found:
    """What was written; it was in force then, however late it is heard of."""
    headers = msg.headers or {}
    revision = int(headers.get("Nats-Sequence", "0"))
    return Found(None if "KV-Operation" in headers else _record(codec, key, revision, msg.data), revision)
