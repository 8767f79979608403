"""Entries of rates, in the runs bucket under a system prefix. The only module that reads or writes them.

As with limits every write is a compare-and-swap, and one of unknown fate is repeated until the entry's revision has moved.
Each is written with the time for which it counts, so an idle rate vanishes by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from tenure.core.errors import UnreadableRecord
from tenure.core.given import UNREADABLE
from tenure.core.rates import Entry, decode_entry, encode_entry
from tenure.core.subjects import Names
from tenure.nats.asking import ask, counted, no_older, subjects_of
from tenure.nats.connection import Connection
from tenure.nats.patience import Patience
from tenure.nats.runs import NO_MESSAGE
from tenure.nats.swaps import EXPECT, Swapped, swap


class FoundRate(Struct, frozen=True):
    """What is stored under a rate's name (None: nothing, or a marker) and its revision."""

    entry: Entry | None
    revision: int


class Rates:
    """The entries of one namespace."""

    def __init__(self, conn: Connection, names: Names) -> None:
        self._conn = conn
        self._names = names
        self.conflicts: Callable[[str], None] = lambda _operation: None

    async def read(self, name: str, patience: Patience, since: int = 0) -> FoundRate:
        """Read an entry, no older than ``since``. Raises Unavailable, UnreadableRecord for what is none of ours."""
        if not since:
            return await self._read(name, patience)
        look = partial(counted, self._conn, self._names.runs_stream, self._names.rate(name), patience)
        return await no_older(partial(self._read, name, patience), since, look, patience, f"rate {name}")

    async def _read(self, name: str, patience: Patience) -> FoundRate:
        call, asked = f"STREAM.MSG.GET.{self._names.runs_stream}", {"last_by_subj": self._names.rate(name)}
        answer = await ask(self._conn, call, asked, patience, what=f"read the rate {name}", absent=(NO_MESSAGE,))
        if answer is None:
            return FoundRate(None, 0)
        message: dict[str, Any] = answer["message"]
        headers = msgspec.convert(message.get("hdrs", ""), bytes)
        if b"KV-Operation:" in headers:
            return FoundRate(None, int(message["seq"]))
        data = msgspec.convert(message.get("data", ""), bytes)
        try:
            return FoundRate(decode_entry(data), int(message["seq"]))
        except UNREADABLE as error:
            msg = f"rate {name} has an entry that is none of Tenure ({error}), {len(data)} bytes"
            raise UnreadableRecord(msg) from error

    async def names(self, patience: Patience) -> list[str]:
        """Every rate that has an entry. Raises Unavailable."""
        prefix, what = self._names.rate_prefix, f"read the rates of {self._names.namespace}"
        subjects = await subjects_of(self._conn, self._names.runs_stream, prefix + "*", patience, what=what)
        return [subject[len(prefix) :] for subject in subjects]

    async def write(self, name: str, entry: Entry, revision: int, ttl_seconds: int, patience: Patience) -> Swapped:
        """One CAS, repeated until its fate is known.

        Raises Unavailable, and OutcomeUnknown where the fate of the write stays unknown.
        """
        data, headers = encode_entry(entry), {EXPECT: str(revision), "Nats-TTL": f"{ttl_seconds}s"}
        subject, what = self._names.rate(name), f"the entry of rate {name}"
        stream = self._names.runs_stream
        swapped = await swap(self._conn, subject, data, headers, patience, stream=stream, what=what, key=name)
        if not swapped.revision:
            self.conflicts("rate")
        return swapped
