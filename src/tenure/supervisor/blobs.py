"""Blobs go once nothing names them any more: arguments that were replaced or never used, results and letters that expired.

A blob is stored before what names it, so one is left alone until it is as old as ``blob_grace_seconds``: by then its write
has long been made, or never will be. From then on it is named by something stored, or goes. References only move between the
record of its key, the record of the key that spawned it, and dead letters of its key: outbox entry → record, record → letter,
letter → record (a replay). To see all of them at one moment the letters are read after the records, and a blob goes only if
the next pass finds the records where they were: then they stood still while the letters were read. Nor is a read of the past enough.

| crash or race | left | closed by |
| --- | --- | --- |
| blob stored, record not | a blob that nothing names | its grace is over |
| half of a blob stored | chunks without a name | the same, for chunks |
| chunks removed, name not | a name | the next pass |
| a replay moves the reference while it is looked for | | the record's revision has moved: looked at again |
| the same blob stored again meanwhile | | other chunks, a later sequence |

What is stored once more is left as it is while it is younger than half of the grace (`nats/blobs`): so the write that names it
has that half at least. A client that stands still for longer between the two writes of a submit finds its blob gone: the run
fails for good and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.core.errors import InvalidCall, NewerSchema, Unavailable, UnreadableRecord
from tenure.core.payloads import named_by, named_by_letter
from tenure.metrics import Metrics
from tenure.nats.blobs import Kept
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tenure.telemetry import get_logger

_log = get_logger("tenure.supervisor")
_PASSES = 4
"""So many times in the grace is looked for what may go."""
Revisions = tuple[int, ...]


class Leftovers:
    """Removes blobs that nothing names, for one supervisor."""

    def __init__(self, stores: Stores, metrics: Metrics, is_mine: Callable[[], Callable[[str], bool]]) -> None:
        self._stores = stores
        self._metrics = metrics
        self._is_mine = is_mine
        self._doomed: dict[int, Revisions] = {}
        self._nameless: set[str] = set()

    async def look(self) -> None:
        """Look every now and then, until cancelled."""
        while True:
            await asyncio.sleep(self._stores.config.blob_grace_seconds / _PASSES)
            try:
                await self.remove()
            except Unavailable as error:
                _log.warning("blobs.not_looked_at", error=str(error))

    async def remove(self) -> int:
        """One pass; how many were removed. Raises Unavailable."""
        stores = self._stores
        is_mine = self._is_mine()
        before = stores.clock.now() - stores.config.blob_grace_seconds
        parts = await stores.blobs.parts(self._patience())  # before the names: those come last
        doomed: dict[int, Revisions] = {}
        removed = 0
        async for blob in stores.blobs.kept(self._patience()):
            parts.discard(blob.parts)
            if blob.at >= before or not blob.key or not is_mine(blob.key):
                continue
            unnamed = await self._unnamed(blob)
            if unnamed is None:
                continue
            if self._doomed.get(blob.sequence) == unnamed:
                await stores.blobs.remove(blob, self._patience())
                removed += 1
                _log.info("blob.removed", key=blob.key, blob=blob.name)
            else:
                doomed[blob.sequence] = unnamed
        self._doomed = doomed
        removed += await self._remove_nameless({one for one in parts if is_mine(one)}, before)
        self._metrics.repairs["blob"] += removed
        return removed

    async def _unnamed(self, blob: Kept) -> Revisions | None:
        """Revisions of the records that might name it and did not, before no letter did; None if something did."""
        records = await self._records(blob)
        return None if records is None or await self._is_in_letters(blob) else records

    async def _records(self, blob: Kept) -> Revisions | None:
        revisions = []
        for key in dict.fromkeys((blob.origin or blob.key, blob.key)):
            try:
                found = await self._stores.runs.read(key, self._patience())
            except (NewerSchema, UnreadableRecord):  # nobody here knows what it names
                return None
            except InvalidCall:  # it says that it is of what can be no key
                return None
            if found.record is not None and blob.name in named_by(found.record):
                return None
            revisions.append(found.revision)
        return tuple(revisions)

    async def _is_in_letters(self, blob: Kept) -> bool:
        try:
            async for kept in self._stores.dead.find(self._patience(), key=blob.key, strict=True):
                if kept.sealed or blob.name in named_by_letter(kept.letter):  # its hooks are in the box
                    return True
        except UnreadableRecord:  # nobody here knows what it names
            return True
        return False

    async def _remove_nameless(self, parts: set[str], before: float) -> int:
        """Chunks whose blob was never finished: whoever stored them is gone."""
        stores = self._stores
        nameless, self._nameless = self._nameless & parts, parts
        removed = 0
        for one in nameless:
            last = await stores.blobs.last_at(one, self._patience())
            if last is not None and last < before:
                await stores.blobs.remove_parts(one, self._patience())
                removed += 1
        return removed

    def _patience(self) -> Patience:
        return Patience(self._stores.clock, self._stores.config.patience_seconds)
