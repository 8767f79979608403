"""The history: every revision of every record for a while, and who was refused. The only module that reads or writes it.

Two streams, both for people, best effort, and never a decision's input:

* ``TENURE_<ns>_HISTORY`` is a mirror of the runs bucket. So a revision keeps its number and its time there, whatever the mirror was
  late; and nobody writes it but the server. The bucket keeps one revision a key: those that were overwritten before a mirror
  that lags got to them are missing.
* ``TENURE_<ns>_REFUSED`` takes what workers and supervisors say of those that were refused, who wrote no revision: fire and
  forget, and no more than ``_A_SECOND`` each.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from tenure.core.errors import EncryptedRecord, NewerSchema, TenureError, Unavailable
from tenure.core.given import UNREADABLE
from tenure.core.history import Refusal, Told, Written, decode_refusal, encode_refusal
from tenure.core.sealing import Codec
from tenure.core.subjects import Names
from tenure.nats.asking import NO_STREAM
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.telemetry import get_logger

PER_KEY = 1_000
REFUSALS_PER_KEY = 200
_REFUSALS_SHARE = 8
_DAY_NANOS = 86_400 * 1_000_000_000
_A_SECOND, _BURST = 50.0, 500.0
_log = get_logger("tenure.history")


def spec(names: Names, replicas: int, storage: str) -> dict[str, Any]:
    """Settings of the mirror, but for its age and size (see ``caps``). No TTLs: what expires in the bucket stays here."""
    return {
        "name": names.history_stream,
        "mirror": {"name": names.runs_stream, "filter_subject": names.runs_prefix + "*"},
        "retention": "limits",
        "discard": "old",
        "max_msgs_per_subject": PER_KEY,
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": False,
    }


def refused_spec(names: Names, replicas: int, storage: str) -> dict[str, Any]:
    """Settings of the stream of refusals, but for its age and size."""
    return {
        "name": names.refused_stream,
        "subjects": [names.refused_prefix + "*"],
        "retention": "limits",
        "discard": "old",
        "max_msgs_per_subject": REFUSALS_PER_KEY,
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": False,
    }


def caps(stream: dict[str, Any], days: float, most: int) -> dict[str, Any]:
    """The settings that bound it: so many days, and ``most`` revisions (refusals: an eighth of that).

    Not bytes: a server sets those aside when the stream is made, and refuses the next namespace its buckets.
    """
    return {"max_age": int(days * _DAY_NANOS), "max_msgs": most if "mirror" in stream else most // _REFUSALS_SHARE}


class _Stored(msgspec.Struct):
    seq: int
    time: datetime
    data: bytes = b""
    hdrs: bytes = b""


_stored = msgspec.json.Decoder(_Stored)


class History:
    """History of one namespace. ``enabled``: False where none is kept; then nothing is sent either."""

    def __init__(
        self, conn: Connection, names: Names, steady: Callable[[], float], codec: Codec, *, enabled: bool
    ) -> None:
        self._conn = conn
        self._codec = codec
        self.hides = codec.seals
        """Whether what users gave is not to be told in it."""
        self._names = names
        self._steady = steady
        self._enabled = enabled
        self._room, self._filled_at = _BURST, steady()
        self.dropped = 0
        """Refusals that were too many to be told."""

    async def tell(self, key: str, refusal: Refusal) -> None:
        """Say that somebody was refused: sent once, answered by nobody, dropped where there are too many."""
        if not self._enabled:
            return
        now = self._steady()
        self._room = min(_BURST, self._room + (now - self._filled_at) * _A_SECOND)
        self._filled_at = now
        if self._room < 1:
            self.dropped += 1
            return
        self._room -= 1
        await self._conn.publish(self._names.refused(key), encode_refusal(refusal))

    async def read(self, key: str, patience: Patience) -> tuple[list[Written], list[Told]]:
        """The revisions of a key that are kept, and the refusals. Raises Unavailable; TenureError if there is no history."""
        written = [
            _revision(self._codec, key, one)
            for one in await self._all(self._names.history_stream, self._names.record(key), patience)
        ]
        told = []
        for one in await self._all(self._names.refused_stream, self._names.refused(key), patience):
            try:
                told.append(Told(one.time.timestamp(), decode_refusal(one.data)))
            except UNREADABLE as error:
                _log.warning("refusal.unreadable", key=key, sequence=one.seq, error=str(error))
        return [one for one in written if one is not None], told

    async def _all(self, stream: str, subject: str, patience: Patience) -> list[_Stored]:
        found: list[_Stored] = []
        sequence = 1
        while (one := await self._next(stream, subject, sequence, patience)) is not None:
            found.append(one)
            sequence = one.seq + 1
        return found

    async def _next(self, stream: str, subject: str, sequence: int, patience: Patience) -> _Stored | None:
        while True:
            try:
                answer = await self._conn.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": subject})
            except (NotSent, Lost) as error:
                why: object = error
            else:
                if not isinstance(answer, ApiError):
                    return msgspec.convert(answer["message"], _Stored)
                if answer.err_code == NO_MESSAGE:
                    return None
                if answer.err_code == NO_STREAM:
                    msg = f"no history is kept in {self._names.namespace!r}: `tenure setup` makes it, unless history_days is 0"
                    raise TenureError(msg)
                why = answer.description
            if not await patience.pause():
                msg = f"cannot read the history: {why}"
                raise Unavailable(msg)


def _revision(codec: Codec, key: str, stored: _Stored) -> Written | None:
    at = stored.time.timestamp()
    if b"KV-Operation:" in stored.hdrs:
        return Written(stored.seq, at, None)
    try:
        return Written(stored.seq, at, codec.decode(stored.data, key))
    except EncryptedRecord as error:
        return Written(stored.seq, at, error.record)  # what happened is in clear
    except (NewerSchema, *UNREADABLE) as error:
        _log.warning("revision.unreadable", revision=stored.seq, error=str(error))
        return None
