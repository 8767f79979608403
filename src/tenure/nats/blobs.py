"""The object store for arguments and results over the inline limit. The only module that reads or writes it.

A blob is named by the run that made it and never changes, so a stale writer cannot touch another run's payload; its
SHA-256 digest is in the record and is checked on every read (of what is encrypted the tag tells). It says itself for which
key it was stored, and by the run of which other key (of what was spawned): only their records and dead letters can name it,
so supervisors know where to look before they remove it (`supervisor/blobs`).

Whoever repeats a command stores its blob once more, before anybody can tell that the command was applied long ago: so what
is there stays, unless it is about to be too old; other bytes (encoded otherwise by newer code, say) get a name of their own,
for a record may name the first ones with their digest. A name is written with a compare-and-swap, and the chunks of another one
are left to the supervisors: a reader may be at them. (nats-py's own ``put`` writes the name over what is there, and removes
the chunks that it has just named if the answer is lost: the run could never read its arguments again.)
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import ObjectInfo, ObjectMetaOptions
from nats.js.object_store import OBJ_DEFAULT_CHUNK_SIZE, ObjectStore
from nats.nuid import NUID

from tenure.clock import Clock
from tenure.core.errors import EncryptedRecord, InvalidCall, OutcomeUnknown, TenureError, Unavailable
from tenure.core.given import UNREADABLE
from tenure.core.records import Blob
from tenure.core.sealing import Codec
from tenure.core.subjects import Names
from tenure.nats.asking import cause, told_by
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.nats.swaps import EXPECT, swap

_TRANSFER_SECONDS = 60.0
_SURE_SECONDS = 10.0
"""So long may a leader that was deposed unnoticed say that there is no such blob."""
_LOOK_SECONDS = 0.5
_KEY, _ORIGIN = "Tenure-Key", "Tenure-Origin"


class Kept(msgspec.Struct, frozen=True):
    """A blob as it lies in the store.

    Stored ``at`` that time of the server's, under the stream's ``sequence``; ``parts`` is the subject of its chunks. ``key``:
    whose record may name it (empty: a Tenure stored it that did not say so), ``origin``: the other one that may.
    """

    name: str
    parts: str
    key: str
    origin: str
    subject: str
    sequence: int
    at: float


class _Info(msgspec.Struct):
    name: str
    nuid: str
    headers: dict[str, list[str]] | None = None
    deleted: bool = False
    digest: str = ""


class _Meta(msgspec.Struct):
    subject: str
    seq: int
    time: datetime
    data: bytes = b""


_info = msgspec.json.Decoder(_Info)


def _digest(data: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


def spec(names: Names, replicas: int, storage: str) -> dict[str, Any]:
    """Settings of the object store's stream (those that nats-py gives an object store)."""
    return {
        "name": names.blobs_stream,
        "subjects": [f"$O.{names.blobs_bucket}.C.>", f"$O.{names.blobs_bucket}.M.>"],
        "retention": "limits",
        "discard": "new",
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
    }


class Blobs:
    """Blobs of one namespace."""

    def __init__(self, conn: Connection, names: Names, codec: Codec, clock: Clock) -> None:
        self._conn = conn
        self._codec = codec
        self._names = names
        self._clock = clock
        self._store: ObjectStore | None = None

    async def put(
        self, name: str, data: bytes, *, key: str = "", origin: str = "", patience: Patience | None = None
    ) -> Blob:
        """Store ``data`` under ``name``, unless it is there, and return where it lies.

        ``key``: whose record will name it; ``origin``: whose will before that. ``patience`` (default: ``patience_seconds``) is
        for the name of it: chunks are not sent again.

        Raises InvalidCall if it is over ``blob_limit_bytes``, Unavailable if it cannot be stored now.
        """
        limit = self._conn.config.blob_limit_bytes
        if len(data) > limit:
            msg = f"{len(data)} bytes are over the limit of {limit} for one payload (blob_limit_bytes): pass a reference instead"
            raise InvalidCall(msg)
        whose = {_KEY: [key], _ORIGIN: [origin]} if key else None
        try:
            async with asyncio.timeout(_TRANSFER_SECONDS):
                name = await self._put(name, data, whose, patience or self._patience())
        except (Unavailable, OutcomeUnknown, TimeoutError) as error:
            why = error if isinstance(error, TenureError) else f"it takes longer than {_TRANSFER_SECONDS:g} s"
            msg = f"cannot store the blob {name}: {why}"
            raise Unavailable(msg) from error
        # Of what was given: sealed anew by a repeat, or by who does not seal, it is the same.
        return Blob(name=name, size=len(data), digest=hashlib.sha256(data).hexdigest())

    async def _put(self, name: str, data: bytes, whose: dict[str, list[str]] | None, patience: Patience) -> str:
        while True:
            subject, nuid = self._subject(name), NUID().next().decode()
            there = await self._look({"last_by_subj": subject}, patience)
            same = None if there is None else await self._is_same(name, there, data, patience)
            if same is False:  # a record may name it, with the digest of what is there
                name = f"{name}.{nuid}"
                continue
            if there is not None and same and self._stays(there):
                return name
            info = ObjectInfo(
                name=name,
                headers=whose,
                options=ObjectMetaOptions(max_chunk_size=OBJ_DEFAULT_CHUNK_SIZE),
                bucket=self._names.blobs_bucket,
                nuid=nuid,
                mtime=datetime.now(UTC).isoformat(),
            )
            await self._put_parts(info, self._codec.seal_blob(data, name))
            headers = {EXPECT: str(0 if there is None else there.seq), "Nats-Rollup": "sub"}
            try:
                sequence, unsure, _ = await swap(
                    self._conn,
                    subject,
                    msgspec.json.encode(info.as_dict()),
                    headers,
                    patience,
                    stream=self._names.blobs_stream,
                    what="its name",
                )
            except Unavailable:
                await self._drop(nuid)
                raise
            if sequence:
                return name
            if not unsure:  # else it may be mine that is there, and its chunks are named
                await self._drop(nuid)
            if not await patience.pause():
                raise Unavailable("others write it too")

    async def _put_parts(self, info: ObjectInfo, data: bytes) -> None:
        """Store the chunks, and note in ``info`` what they are. Raises Unavailable."""
        subject = self._parts(info.nuid)
        for start in range(0, len(data), OBJ_DEFAULT_CHUNK_SIZE):
            try:
                ack = await self._conn.put(subject, data[start : start + OBJ_DEFAULT_CHUNK_SIZE])
            except (NotSent, Lost) as error:
                why: object = error
            else:
                if ack.error is None:
                    continue
                why = ack.error.description
            await self._drop(info.nuid)  # not once more: what has no answer may be stored, and would be twice
            raise Unavailable(str(await cause(self._conn, self._names.blobs_stream, why)))
        info.size, info.chunks = len(data), -(-len(data) // OBJ_DEFAULT_CHUNK_SIZE)
        info.digest = _digest(data)

    async def _drop(self, nuid: str) -> None:
        """Remove chunks that are not named, if that can be done now; else a supervisor does."""
        with suppress(Unavailable):
            await self.remove_parts(self._parts(nuid), Patience(self._clock, 0.0))

    async def _is_same(self, name: str, meta: _Meta, data: bytes, patience: Patience) -> bool | None:
        """Whether the bytes that are there are these; None: there are none.

        Whoever repeats a command may encode it otherwise: by newer code, in another order of a set; or it is another one with
        the same message id. And an older Tenure may have left a name without chunks.
        """
        try:
            info = _info.decode(meta.data)
        except UNREADABLE:
            return None
        if info.deleted or await self.last_at(self._parts(info.nuid), patience) is None:  # by a person
            return None
        if info.digest == _digest(data):
            return True
        try:
            return self._codec.open_blob((await (await self._open()).get(name)).data or b"", name) == data
        except nats.js.errors.NotFoundError:
            return None
        except (nats.errors.Error, EncryptedRecord):
            return False

    def _stays(self, meta: _Meta) -> bool:
        """Whether what is there will outlive the write that is to name it, as it would if it were stored now."""
        return self._clock.now() - meta.time.timestamp() < self._conn.config.blob_grace_seconds / 2

    async def get(self, blob: Blob) -> bytes:
        """Read a blob. Raises Unavailable, EncryptedRecord, or TenureError if it is gone or not what was stored."""
        gone = f"blob {blob.name} ({blob.size} bytes) is gone from {self._names.blobs_bucket}"
        until = self._clock.steady() + (_SURE_SECONDS if self._conn.is_clustered else 0.0)
        while True:
            try:
                async with asyncio.timeout(_TRANSFER_SECONDS):
                    data = (await (await self._open()).get(blob.name)).data or b""
                break
            except nats.js.errors.NotFoundError as error:
                if self._clock.steady() >= until:
                    raise TenureError(gone) from error
                await asyncio.sleep(_LOOK_SECONDS)
            except (nats.errors.Error, TimeoutError) as error:
                if isinstance(error, TimeoutError) and await self._is_hollow(blob.name):
                    msg = f"{gone}: its chunks are"
                    raise TenureError(msg) from error
                msg = f"cannot read the blob {blob.name}: {error!r}"
                raise Unavailable(msg) from error
        data = self._codec.open_blob(data, blob.name)
        if hashlib.sha256(data).hexdigest() != blob.digest:
            msg = f"blob {blob.name} is damaged: its digest is not {blob.digest}"
            raise TenureError(msg)
        return data

    async def _is_hollow(self, name: str) -> bool:
        """Whether there is a name, but nothing of what it names."""
        patience = self._patience()
        try:
            meta = await self._look({"last_by_subj": self._subject(name)}, patience)
            nuid = None if meta is None else _info.decode(meta.data).nuid
            return nuid is not None and await self.last_at(self._parts(nuid), patience) is None
        except (Unavailable, *UNREADABLE):
            return False

    # -- what is stored ------------------------------------------------------------------------------------------------

    async def parts(self, patience: Patience) -> set[str]:
        """The subjects of all chunks. Raises Unavailable."""
        found: set[str] = set()
        offset = 0
        while True:
            asked = {"subjects_filter": f"$O.{self._names.blobs_bucket}.C.>", "offset": offset}
            answer = await self._api(f"STREAM.INFO.{self._names.blobs_stream}", asked, patience)
            page = (answer or {}).get("state", {}).get("subjects") or {}
            found.update(page)
            offset += len(page)
            if not page or offset >= int((answer or {}).get("total", 0)):
                return found

    async def kept(self, patience: Patience) -> AsyncIterator[Kept]:
        """Every blob, the longest stored first. Raises Unavailable."""
        sequence = 1
        while (meta := await self._look({"seq": sequence, "next_by_subj": self._metas}, patience)) is not None:
            sequence = meta.seq + 1
            try:
                info = _info.decode(meta.data)
            except UNREADABLE:  # not ours
                continue
            whose = info.headers or {}
            yield Kept(
                name=info.name,
                parts=self._parts(info.nuid),
                key=next(iter(whose.get(_KEY, [])), ""),
                origin=next(iter(whose.get(_ORIGIN, [])), ""),
                subject=meta.subject,
                sequence=meta.seq,
                at=meta.time.timestamp(),
            )

    async def last_at(self, parts: str, patience: Patience) -> float | None:
        """When the last of these chunks was stored; None if there are none. Raises Unavailable."""
        last = await self._look({"last_by_subj": parts}, patience)
        return None if last is None else last.time.timestamp()

    async def remove(self, blob: Kept, patience: Patience) -> None:
        """Remove a blob: its chunks first, since what has no name any more is harder to find. Raises Unavailable.

        One that was stored anew under the same name has other chunks, and a later sequence.
        """
        await self.remove_parts(blob.parts, patience)
        await self._purge({"filter": blob.subject, "seq": blob.sequence + 1}, patience)

    async def remove_parts(self, parts: str, patience: Patience) -> None:
        """Remove chunks. Raises Unavailable."""
        await self._purge({"filter": parts}, patience)

    def _patience(self) -> Patience:
        return Patience(self._clock, self._conn.config.patience_seconds)

    @property
    def _metas(self) -> str:
        return f"$O.{self._names.blobs_bucket}.M.>"

    def _subject(self, name: str) -> str:
        return f"$O.{self._names.blobs_bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    def _parts(self, nuid: str) -> str:
        return f"$O.{self._names.blobs_bucket}.C.{nuid}"

    async def _purge(self, what: dict[str, Any], patience: Patience) -> None:
        await self._api(f"STREAM.PURGE.{self._names.blobs_stream}", what, patience)

    async def _look(self, what: dict[str, Any], patience: Patience) -> _Meta | None:
        answer = await self._api(f"STREAM.MSG.GET.{self._names.blobs_stream}", what, patience)
        return None if answer is None else msgspec.convert(answer["message"], _Meta)

    async def _api(self, call: str, what: dict[str, Any], patience: Patience) -> dict[str, Any] | None:
        """Ask, again and again; None: there is no such message. Raises Unavailable."""
        while True:
            try:
                answer = await self._conn.api(call, what)
            except (NotSent, Lost) as error:
                why: object = error
            else:
                if not isinstance(answer, ApiError):
                    return answer
                if answer.err_code == NO_MESSAGE:
                    return None
                why = told_by(answer, self._names.blobs_stream)
            if not await patience.pause():
                msg = f"the blobs cannot be looked at: {why}"
                raise Unavailable(msg)

    async def _open(self) -> ObjectStore:
        if self._store is None:
            self._store = await self._conn.raw.jetstream(timeout=10).object_store(self._names.blobs_bucket)
        return self._store
