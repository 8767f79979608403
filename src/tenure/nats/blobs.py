"""The object store for arguments and results over the inline limit. The only module that reads or writes it.

A blob is named by the run that made it and never changes, so a stale writer cannot touch another run's payload; its
SHA-256 digest is in the record and is checked on every read.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import nats.errors
import nats.js.errors
from nats.js.object_store import ObjectStore

from tenure.core.errors import InvalidCall, TenureError, Unavailable
from tenure.core.records import Blob
from tenure.core.subjects import Names
from tenure.nats.connection import Connection

_TRANSFER_SECONDS = 60.0


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

    def __init__(self, conn: Connection, names: Names) -> None:
        self._conn = conn
        self._names = names
        self._store: ObjectStore | None = None

    async def put(self, name: str, data: bytes) -> Blob:
        """Store ``data`` under ``name`` and return where it lies.

        Raises InvalidCall if it is over ``blob_limit_bytes``, Unavailable if it cannot be stored now.
        """
        limit = self._conn.config.blob_limit_bytes
        if len(data) > limit:
            msg = f"{len(data)} bytes are over the limit of {limit} for one payload (blob_limit_bytes): pass a reference instead"
            raise InvalidCall(msg)
        try:
            async with asyncio.timeout(_TRANSFER_SECONDS):
                await (await self._open()).put(name, data)
        except (nats.errors.Error, TimeoutError) as error:
            msg = f"cannot store the blob {name}: {error!r}"
            raise Unavailable(msg) from error
        return Blob(name=name, size=len(data), digest=hashlib.sha256(data).hexdigest())

    async def get(self, blob: Blob) -> bytes:
        """Read a blob. Raises Unavailable, or TenureError if it is gone or not what was stored."""
        try:
            async with asyncio.timeout(_TRANSFER_SECONDS):
                data = (await (await self._open()).get(blob.name)).data or b""
        except nats.js.errors.NotFoundError as error:
            msg = f"blob {blob.name} ({blob.size} bytes) is gone from {self._names.blobs_bucket}"
            raise TenureError(msg) from error
        except (nats.errors.Error, TimeoutError) as error:
            msg = f"cannot read the blob {blob.name}: {error!r}"
            raise Unavailable(msg) from error
        if hashlib.sha256(data).hexdigest() != blob.digest:
            msg = f"blob {blob.name} is damaged: its digest is not {blob.digest}"
            raise TenureError(msg)
        return data

    async def _open(self) -> ObjectStore:
        if self._store is None:
            self._store = await self._conn.raw.jetstream(timeout=10).object_store(self._names.blobs_bucket)
        return self._store
