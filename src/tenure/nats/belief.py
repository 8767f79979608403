"""Reads that something is told on, and nothing stored: a leader that was deposed and does not know it yet may have answered.

What a write was decided on is checked by its CAS. What is told without one is either stored once more, as it was found, or read
of a leader that has counted as far as this process has seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING

from tenure.clock import Clock
from tenure.core.commands import Command
from tenure.core.outcomes import Refused
from tenure.core.records import Record
from tenure.core.sealing import Codec
from tenure.core.subjects import Names
from tenure.core.transitions import transition
from tenure.nats.asking import Counted, counted, last_of, no_older
from tenure.nats.connection import Connection
from tenure.nats.patience import Patience
from tenure.nats.swaps import Swapped

if TYPE_CHECKING:
    from tenure.nats.runs import Found

_SURE_SECONDS = 10.0


class Belief(ABC):
    """What ``Runs`` has for those who decide or tell something on a read."""

    _newest: int
    _conn: Connection
    _names: Names
    clock: Clock
    codec: Codec

    @abstractmethod
    async def read(self, key: str, patience: Patience, *, blind: bool = False, since: int = 0) -> Found:
        """Read a record from whoever is, or was, the leader."""

    @abstractmethod
    async def _store(self, key: str, record: Record | None, data: bytes, revision: int, patience: Patience) -> Swapped:
        """One CAS."""

    async def read_on(self, key: str, since: int, patience: Patience, *, blind: bool = False) -> Found:
        """Read what is decided on: nothing older than ``since``. Raises as ``read``, and as ``no_older``."""
        read = partial(self.read, key, patience, blind=blind)
        if not since:
            return await read()
        return await no_older(read, since, partial(self._look, key, patience), patience, f"the record of {key!r}")

    async def _look(self, key: str, patience: Patience) -> Counted:
        return await counted(self._conn, self._names.runs_stream, self._names.record(key), patience)

    async def last(self, patience: Patience) -> int:
        """The highest revision that the leader has given. Raises Unavailable."""
        return await last_of(self._conn, self._names.runs_stream, patience)

    async def read_for(
        self, key: str, command: Command, patience: Patience, *, blind: bool = False, since: int = 0
    ) -> Found:
        """Read what ``command`` is decided on.

        In a cluster, if it is to be refused on that, it is read once more of a leader that has counted as far as this process has
        seen. Who never does is believed in the end: the bucket was made anew. Raises as ``read``.
        """
        found = await self.read(key, patience, blind=blind, since=since)
        decided = transition(found.record, command, self.clock.now())
        if not self._conn.is_clustered or found.revision >= self._newest or not isinstance(decided, Refused):
            return found
        known, sure = self._newest, patience.at_most(_SURE_SECONDS)
        while True:
            leader = await self._look(key, patience)
            found = await self.read(key, patience, blind=blind, since=since)
            if leader.last >= known and leader.there == bool(found.revision):
                return found
            if not await sure.pause():
                if self._newest == known:  # not waited for a second time
                    self._newest = leader.last
                return found

    async def restore(self, key: str, found: Found, patience: Patience) -> Swapped:
        """Store what was found once more, as it is: refused unless that was the latest. Raises Unavailable, OutcomeUnknown."""
        record = found.record
        data = b"" if record is None else self.codec.encode_to_store(record, proven=True, box=found.box)
        return await self._store(key, record, data, found.revision, patience)
