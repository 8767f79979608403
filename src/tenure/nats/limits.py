"""Entries of limits, in the runs bucket under a system prefix. The only module that reads or writes them.

As with records every write is a compare-and-swap, and one of unknown fate is repeated until the entry's revision has
moved. An entry of which nothing is left is removed by a marker that vanishes by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from tenure.core.errors import UnreadableRecord
from tenure.core.given import UNREADABLE
from tenure.core.permits import Entry, decode_entry, encode_entry
from tenure.core.subjects import Names
from tenure.nats.asking import ask, counted, no_older, subjects_of
from tenure.nats.connection import Connection
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.nats.swaps import EXPECT, Swapped, swap

MARKER_TTL_SECONDS = 30
"""How long a marker stays. What could still arrive after that is a second copy that nats-py sends around a reconnect: it would
be a place of a session that goes on, which the sweep gives back since its record shows no such attempt."""


class FoundEntry(Struct, frozen=True):
    """What is stored under a limit's name (None: nothing, or a marker) and its revision."""

    entry: Entry | None
    revision: int


class Limits:
    """The entries of one namespace."""

    def __init__(self, conn: Connection, names: Names) -> None:
        self._conn = conn
        self._names = names
        self.conflicts: Callable[[str], None] = lambda _operation: None

    async def read(self, name: str, patience: Patience, since: int = 0) -> FoundEntry:
        """Read an entry, no older than ``since``. Raises Unavailable, UnreadableRecord for what is none of ours."""
        if not since:
            return await self._read(name, patience)
        look = partial(counted, self._conn, self._names.runs_stream, self._names.limit(name), patience)
        return await no_older(partial(self._read, name, patience), since, look, patience, f"limit {name}")

    async def _read(self, name: str, patience: Patience) -> FoundEntry:
        answer = await self._api("STREAM.MSG.GET", {"last_by_subj": self._names.limit(name)}, patience)
        if answer is None:
            return FoundEntry(None, 0)
        message = answer["message"]
        headers = msgspec.convert(message.get("hdrs", ""), bytes)
        if b"KV-Operation:" in headers:
            return FoundEntry(None, int(message["seq"]))
        data = msgspec.convert(message.get("data", ""), bytes)
        try:
            return FoundEntry(decode_entry(data), int(message["seq"]))
        except UNREADABLE as error:
            msg = f"limit {name} has an entry that is none of Tenure ({error}), {len(data)} bytes"
            raise UnreadableRecord(msg) from error

    async def write(self, name: str, entry: Entry | None, revision: int, patience: Patience) -> Swapped:
        """One CAS, repeated until its fate is known.

        Raises Unavailable, and OutcomeUnknown where the fate of the write stays unknown.
        """
        data, headers = b"", {EXPECT: str(revision)}
        if entry is None:
            headers |= {"KV-Operation": "PURGE", "Nats-Rollup": "sub", "Nats-TTL": f"{MARKER_TTL_SECONDS}s"}
        else:
            data = encode_entry(entry)
        subject, what = self._names.limit(name), f"the entry of limit {name}"
        stream = self._names.runs_stream
        swapped = await swap(self._conn, subject, data, headers, patience, stream=stream, what=what, key=name)
        if not swapped.revision:
            self.conflicts("limit")
        return swapped

    async def names(self, patience: Patience) -> list[str]:
        """Every limit that has an entry, or lately had one. Raises Unavailable."""
        prefix, what = self._names.limit_prefix, f"read the limits of {self._names.namespace}"
        subjects = await subjects_of(self._conn, self._names.runs_stream, prefix + "*", patience, what=what)
        return [subject[len(prefix) :] for subject in subjects]

    async def _api(self, call: str, body: dict[str, Any], patience: Patience) -> dict[str, Any] | None:
        call, what = f"{call}.{self._names.runs_stream}", f"read the limits of {self._names.namespace}"
        return await ask(self._conn, call, body, patience, what=what, absent=(NO_MESSAGE,))
