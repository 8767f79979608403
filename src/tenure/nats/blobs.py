"""The object store for arguments and results over the inline limit. The only module that reads or writes it.

A blob is named by the run that made it and never changes, so a stale writer cannot touch another run's payload; its
SHA-256 digest is in the record and is checked on every read (of what is encrypted the tag tells). It says itself for which
key it was stored, and by the run of which other key (of what was spawned): only their records and dead letters can name it,
so supervisors know where to look before they remove it (`supervisor/blobs`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import ObjectMeta, ObjectMetaOptions
from nats.js.object_store import OBJ_DEFAULT_CHUNK_SIZE, ObjectStore

from tenure.core.errors import InvalidCall, TenureError, Unavailable
from tenure.core.given import UNREADABLE
from tenure.core.records import Blob
from tenure.core.sealing import Codec
from tenure.core.subjects import Names
from tenure.nats.asking import gone, is_gone
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE

_TRANSFER_SECONDS = 60.0
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


class _Meta(msgspec.Struct):
    subject: str
    seq: int
    time: datetime
    data: bytes = b""


_info = msgspec.json.Decoder(_Info)


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

    def __init__(self, conn: Connection, names: Names, codec: Codec) -> None:
        self._conn = conn
        self._codec = codec
        self._names = names
        self._store: ObjectStore | None = None

    async def put(self, name: str, data: bytes, *, key: str = "", origin: str = "") -> Blob:
        """Store ``data`` under ``name`` and return where it lies.

        ``key``: whose record will name it; ``origin``: whose will before that.

        Raises InvalidCall if it is over ``blob_limit_bytes``, Unavailable if it cannot be stored now.
        """
        limit = self._conn.config.blob_limit_bytes
        if len(data) > limit:
            msg = f"{len(data)} bytes are over the limit of {limit} for one payload (blob_limit_bytes): pass a reference instead"
            raise InvalidCall(msg)
        try:
            async with asyncio.timeout(_TRANSFER_SECONDS):
                whose = {_KEY: [key], _ORIGIN: [origin]} if key else None
                meta = ObjectMeta(headers=whose, options=ObjectMetaOptions(max_chunk_size=OBJ_DEFAULT_CHUNK_SIZE))
                await (await self._open()).put(name, self._codec.seal_blob(data, name), meta)
        except (nats.errors.Error, TimeoutError) as error:
            stream = self._names.blobs_stream
            lost = isinstance(error, nats.js.errors.Error) and await is_gone(self._conn, stream)
            msg = f"cannot store the blob {name}: {gone(stream) if lost else repr(error)}"
            raise Unavailable(msg) from error
        # Of what was given: sealed anew by a repeat, or by who does not seal, it is the same.
        return Blob(name=name, size=len(data), digest=hashlib.sha256(data).hexdigest())

    async def get(self, blob: Blob) -> bytes:
        """Read a blob. Raises Unavailable, EncryptedRecord, or TenureError if it is gone or not what was stored."""
        try:
            async with asyncio.timeout(_TRANSFER_SECONDS):
                data = (await (await self._open()).get(blob.name)).data or b""
        except nats.js.errors.NotFoundError as error:
            msg = f"blob {blob.name} ({blob.size} bytes) is gone from {self._names.blobs_bucket}"
            raise TenureError(msg) from error
        except (nats.errors.Error, TimeoutError) as error:
            msg = f"cannot read the blob {blob.name}: {error!r}"
            raise Unavailable(msg) from error
        data = self._codec.open_blob(data, blob.name)
        if hashlib.sha256(data).hexdigest() != blob.digest:
            msg = f"blob {blob.name} is damaged: its digest is not {blob.digest}"
            raise TenureError(msg)
        return data

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
                parts=f"$O.{self._names.blobs_bucket}.C.{info.nuid}",
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

    @property
    def _metas(self) -> str:
        return f"$O.{self._names.blobs_bucket}.M.>"

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
                why = answer.description
            if not await patience.pause():
                msg = f"the blobs cannot be looked at: {why}"
                raise Unavailable(msg)

    async def _open(self) -> ObjectStore:
        if self._store is None:
            self._store = await self._conn.raw.jetstream(timeout=10).object_store(self._names.blobs_bucket)
        return self._store
