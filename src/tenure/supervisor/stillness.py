"""Whether anything has happened in a namespace: what keeps idle supervisors from passing over all records again and again.

A pass that found every record over, or due later, need not be repeated while nothing is written, delivered or removed: two
questions tell, however many records there are. Never for longer than a quarter of an hour.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from tenure.nats.asking import ask
from tenure.nats.patience import Patience
from tenure.stores import Stores

LONGEST_SECONDS = 900.0
_SETTLED_SECONDS = 5.0
"""Longer than what was written lately is left to its writer (``core.sweeps``): a pass has judged every record."""
_EPOCH = datetime.fromtimestamp(0, UTC)


class _State(Struct, frozen=True):
    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_ts: datetime = _EPOCH


class _Info(Struct):
    ts: datetime = _EPOCH
    state: _State = _State()


class Seen(Struct, frozen=True):
    """What both streams were like. ``settled``: nothing had been stored for some seconds."""

    streams: tuple[_State, ...]
    settled: bool

    def is_as(self, before: Seen) -> bool:
        """Whether nothing has happened since."""
        return before.settled and self.streams == before.streams


async def look(stores: Stores, patience: Patience) -> Seen:
    """Look at the runs bucket and the work stream. Raises Unavailable."""
    states: list[_State] = []
    settled = True
    for stream in (stores.names.runs_stream, stores.names.work_stream):
        call, body = f"STREAM.INFO.{stream}", dict[str, Any]()
        answer = await ask(stores.conn, call, body, patience, what="see whether anything has happened", absent=())
        info = msgspec.convert(answer or {}, _Info)
        states.append(info.state)
        settled = settled and (info.ts - info.state.last_ts).total_seconds() > _SETTLED_SECONDS
    return Seen(tuple(states), settled)
