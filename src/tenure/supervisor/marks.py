"""The marks of applied commands, forgotten once their messages are gone: so that records may expire, and stay small.

Some seconds after the ack, and for many at once: what the inbox has removed up to where is one question. What is cut off
here, or finds no room, is found by the sweep, as every record with something in ``seen``.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque

from msgspec import Struct

from tenure.core import commands as c
from tenure.core.errors import TenureError, Unavailable
from tenure.core.marks import Place
from tenure.core.records import Record, Seen
from tenure.metrics import Metrics
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed, Declined, Found
from tenure.stores import Stores
from tenure.telemetry import get_logger
from tenure.together import each

_log = get_logger("tenure.supervisor")
LATER_SECONDS = 2.0
"""By then most runs are over, so that the write is in nobody's way; and a message that a new leader has again has come."""
_AT_ONCE = 64
_MOST_WAITING = 50_000
_SMALL_BYTES = 4_096
"""Records up to this are remembered for the two seconds."""


class _Mark(Struct, frozen=True):
    key: str
    seen: Seen
    place: Place
    at: float
    found: Found | None


class Forgetter:
    """The marks that one supervisor has left."""

    def __init__(self, stores: Stores, metrics: Metrics) -> None:
        self._stores = stores
        self._metrics = metrics
        self._marks: deque[_Mark] = deque()
        self._some = asyncio.Event()
        self._untouched = True

    def later(self, key: str, seen: Seen, place: Place, result: Committed | Declined) -> None:
        """The command has changed the key's record and is acknowledged."""
        if len(self._marks) < _MOST_WAITING:
            small = isinstance(result, Committed) and len(result.data) <= _SMALL_BYTES
            found = Found(result.record, result.revision) if isinstance(result, Committed) and small else None
            self._marks.append(_Mark(key, seen, place, self._stores.clock.steady() + LATER_SECONDS, found))
            self._some.set()

    async def forget(self) -> None:
        """Forget what is due, until cancelled."""
        while True:
            if not self._marks:
                self._some.clear()
                await self._some.wait()
            now = self._stores.clock.steady()
            due: list[_Mark] = []
            while self._marks and self._marks[0].at <= now and len(due) < _MOST_WAITING:
                due.append(self._marks.popleft())
            if due:
                try:
                    await self._forget(due)
                except Unavailable as error:  # the sweep finds them
                    self._metrics.errors["server"] += 1
                    _log.warning("marks.not_forgotten", number=len(due), error=str(error))
            await asyncio.sleep(LATER_SECONDS / 4)

    async def _forget(self, due: list[_Mark]) -> None:
        patience = Patience(self._stores.clock, self._stores.config.patience_seconds)
        ends = await self._stores.inbox.ends(patience)
        of_keys: dict[str, list[_Mark]] = defaultdict(list)
        for mark in due:
            of_keys[mark.key].append(mark)
        await each(of_keys.values(), lambda marks: self._forget_one(marks, *ends), _AT_ONCE)

    async def _forget_one(self, marks: list[_Mark], first: int, last: int) -> None:
        """Those of one key. ``first``, ``last``: as ``Inbox.ends`` says."""
        key = marks[0].key
        patience = Patience(self._stores.clock, self._stores.config.patience_seconds)
        try:
            ids = [
                mark.seen.id
                for mark in marks
                if mark.place.sequence < first
                or not await self._stores.inbox.holds(mark.place, patience, had=mark.place.sequence <= last)
            ]
            if ids:
                await self._write(key, ids, marks[-1].found, patience)
        except TenureError as error:  # this key's trouble; the sweep finds it
            _log.warning("seen.not_forgotten", key=key, error=str(error))

    async def _write(self, key: str, ids: list[str], known: Found | None, patience: Patience) -> None:
        """Take marks out of a record, unread as long as that mostly goes well: where workers have a backlog it is as it was."""
        runs, command = self._stores.runs, c.ForgetSeen(ids=frozenset(ids))
        if known is not None and self._untouched:
            result = await runs.commit(key, command, at=known, patience=patience)
            self._untouched = isinstance(result, Committed) and _looks(result.record) == _looks(known.record)
            return
        found = await runs.read(key, patience)
        self._untouched = known is not None and found.revision == known.revision
        await runs.commit(key, command, at=found, patience=patience)


def _looks(record: Record | None) -> tuple[object, ...]:
    return () if record is None else (record.generation, record.phase, record.attempt)
