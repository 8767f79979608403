"""The dead stream: a copy of every run that failed for good. The only module that reads or writes it.

Beside those letters, under subjects that no letter has, lie the commands of strangers that were rejected.

One message a subject (actor, key, run id), created by a CAS that expects none, so that storing a letter again makes no
second copy. A letter is removed by a CAS at its sequence that leaves an empty marker for an hour (as a key's record
does): a purge would let in the copy of a process that was frozen just before it sent it, and a run that was replayed
would be dead again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct

from tenure.core.dead import DeadLetter, Rejected
from tenure.core.errors import StillOwed, Unavailable, UnreadableRecord
from tenure.core.expiry import MARK_SECONDS
from tenure.core.given import UNREADABLE
from tenure.core.sealing import Codec
from tenure.core.subjects import Names
from tenure.nats.asking import NO_STREAM, cause, gone
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.nats.swaps import EXPECT, IN_FLIGHT, WRONG_SEQUENCE, swap
from tenure.telemetry import get_logger

_DAY_NANOS = 86_400 * 1_000_000_000
_REFUSALS = 5
"""So often a server that answers may refuse a letter, or say that the stream is gone: nothing may wait for a person."""
_log = get_logger("tenure.dead")


class Kept(Struct, frozen=True):
    """A letter in the stream, and where. ``sealed``: why no more of it can be read than is in clear; else empty."""

    letter: DeadLetter
    sequence: int
    sealed: str = ""


def spec(names: Names, replicas: int, storage: str) -> dict[str, Any]:
    """Settings of the stream, but for the age (see ``max_age``)."""
    return {
        "name": names.dead_stream,
        "subjects": [names.dead_prefix + ">"],
        "retention": "limits",
        "discard": "old",
        "max_msgs_per_subject": 1,
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": False,
        "allow_msg_ttl": True,
        "deny_delete": True,
    }


def max_age(days: float) -> dict[str, Any]:
    """The setting that removes letters after so many days."""
    return {"max_age": int(days * _DAY_NANOS)}


class Dead:
    """Dead letters of one namespace."""

    def __init__(self, conn: Connection, names: Names, codec: Codec) -> None:
        self._conn = conn
        self._codec = codec
        self._names = names
        self._refuses = False
        """Whether the last letter was refused: the next one is tried once then, for there may be thousands."""

    async def keep(self, letter: DeadLetter, patience: Patience) -> None:
        """Store a letter, once.

        Raises Unavailable once patience is spent, StillOwed if the server answers and will not take it (its stream is
        gone or full: a person must look).
        """
        about = f"the dead letter of {letter.key!r}"
        await self._create(self._subject(letter), self._codec.encode_letter(letter), about, patience)

    async def keep_rejected(self, rejected: Rejected, patience: Patience) -> None:
        """Store a rejected command, once. Raises as ``keep``."""
        about = f"what was rejected of {rejected.subject!r}"
        data = self._codec.encode_rejected(rejected)
        await self._create(self._names.rejected(rejected.command), data, about, patience)

    async def is_rejected(self, command: str, sent_at: float, patience: Patience) -> bool:
        """Whether this command was rejected, as it was sent then (a later copy may be carried out). Raises Unavailable."""
        found = await self._next(self._names.rejected(command), 1, patience)
        try:
            return found is not None and self._codec.decode_rejected(found[2]).sent_at == sent_at
        except UNREADABLE:  # a newer Tenure's: its reason is none of ours
            return True

    async def find_rejected(self, patience: Patience) -> AsyncIterator[Rejected]:
        """Every rejected command, the oldest first. Raises Unavailable."""
        wanted, sequence = self._names.rejected("*"), 1
        while (found := await self._next(wanted, sequence, patience)) is not None:
            sequence, _, data = found
            try:
                yield self._codec.decode_rejected(data)
            except UNREADABLE as error:
                _log.warning("letter.unreadable", stream=self._names.dead_stream, sequence=sequence, error=str(error))
            sequence += 1

    async def remove(self, kept: Kept, patience: Patience) -> bool:
        """Remove a letter; False if somebody else did. Raises, once patience is spent, Unavailable or OutcomeUnknown."""
        headers = {EXPECT: str(kept.sequence), "Nats-TTL": f"{MARK_SECONDS}s"}
        letter = kept.letter
        revision, unsure, _ = await swap(
            self._conn,
            self._subject(letter),
            b"",
            headers,
            patience,
            stream=self._names.dead_stream,
            what=f"the removal of the dead letter of {letter.key!r}",
            key=letter.key,
            run_id=letter.run_id,
        )
        return revision > 0 or unsure  # then by my own earlier copy, as far as anybody can tell

    async def holds(self, kept: Kept, patience: Patience) -> bool:
        """Whether a letter that was found is still there. Raises Unavailable.

        One that was removed has left its marker. Who shows neither may be a leader that was deposed, and does not know it
        yet, before the letter was stored: asked again while ``patience`` lasts.
        """
        while True:
            found = await self._next(self._subject(kept.letter), kept.sequence, patience)
            if found is not None or not await patience.pause():
                return found is not None and found[0] == kept.sequence

    async def remove_of(self, key: str, run_id: str, patience: Patience) -> None:
        """Remove the letter of a run that had one, if it is still there. Raises as ``remove``; who shows nothing: as for ``holds``."""
        wanted = self._names.dead_filter(None, key, run_id)
        while await self._next(wanted, 1, patience) is None and await patience.pause():
            pass
        async for kept in self.find(patience, key=key, run_id=run_id):
            await self.remove(kept, patience)

    async def find(
        self,
        patience: Patience,
        *,
        actor: str | None = None,
        key: str | None = None,
        run_id: str | None = None,
        strict: bool = False,
    ) -> AsyncIterator[Kept]:
        """Every letter of these, the oldest first. Raises Unavailable, InvalidCall for a key that is none.

        One that cannot be read, such as a newer Tenure's, is passed over; ``strict``: raises UnreadableRecord.
        """
        wanted = self._names.dead_filter(actor, key, run_id)
        sequence = 1
        while (found := await self._next(wanted, sequence, patience)) is not None:
            sequence, subject, data = found
            if data:
                try:
                    letter, sealed = self._codec.decode_letter(data)
                    if self._subject(letter) == subject:  # else it was copied here: it would be replayed as another's
                        yield Kept(letter, sequence, sealed)
                except UNREADABLE as error:
                    _log.warning(
                        "letter.unreadable", stream=self._names.dead_stream, sequence=sequence, error=str(error)
                    )
                    if strict:
                        raise UnreadableRecord(f"a dead letter cannot be read: {error}") from error
            sequence += 1

    async def _create(self, subject: str, data: bytes, about: str, patience: Patience) -> None:
        """Store what is stored once under its subject."""
        refusals = 0
        while True:
            try:
                ack = await self._conn.put(subject, data, {EXPECT: "0"})
            except (NotSent, Lost) as error:
                why: object = error
                refusals += isinstance(error, NotSent) and self._conn.is_connected
            else:
                if ack.error is None or ack.error.err_code == WRONG_SEQUENCE:
                    self._refuses = False
                    return
                why = ack.error.description
                refusals += ack.error.err_code != IN_FLIGHT
            if refusals >= (1 if self._refuses else _REFUSALS):
                self._refuses = True
                why = await cause(self._conn, self._names.dead_stream, why)
                raise StillOwed(f"{about} is not taken by {self._names.dead_stream}: {why}; try `tenure setup`")
            if not await patience.pause():
                raise Unavailable(f"{about} is not stored yet: {why}")

    async def _next(self, wanted: str, sequence: int, patience: Patience) -> tuple[int, str, bytes] | None:
        call = f"STREAM.MSG.GET.{self._names.dead_stream}"
        refusals = 0
        while True:
            try:
                answer = await self._conn.api(call, {"seq": sequence, "next_by_subj": wanted})
            except (NotSent, Lost) as error:
                why: object = error
            else:
                if not isinstance(answer, ApiError):
                    message = answer["message"]
                    return int(message["seq"]), message["subject"], msgspec.convert(message.get("data", ""), bytes)
                if answer.err_code == NO_MESSAGE:
                    return None
                why = answer.description
                if answer.err_code == NO_STREAM:
                    why = gone(self._names.dead_stream)
                    refusals += 1
            if refusals >= _REFUSALS or not await patience.pause():
                msg = f"cannot read dead letters: {why}"
                raise Unavailable(msg)

    def _subject(self, letter: DeadLetter) -> str:
        return self._names.dead(letter.actor, letter.key, letter.run_id)
