"""What a pause or a block is about: the live runs that fit it, counted by phase. Reads only."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

from msgspec.structs import replace

from tenure.core.errors import NewerSchema, OutcomeUnknown, TenureError, Unavailable, UnreadableRecord
from tenure.core.records import TERMINAL, Phase, Record, State, read_state
from tenure.core.switches import Board, Rules, Switch
from tenure.nats.patience import Patience
from tenure.nats.scan import Header
from tenure.stores import Stores
from tenure.together import each

_AT_ONCE = 128
_BLOBS_AT_ONCE = 2
"""Of arguments that are too large for a record: each takes as much memory as it has bytes."""


async def reach(stores: Stores, switch: Switch) -> dict[str, int]:
    """Live runs that fit, by phase (``scheduled``, ``queued``, ``running``, ``stopping``).

    A pass over all headers, and of a switch by arguments a read of each live run of its actor. Raises Unavailable.
    """
    now = stores.clock.now()
    rules = Rules(Board(switches=(replace(switch, until=0.0),)))
    found: dict[str, str] = {}

    def on_header(header: Header) -> None:
        state = read_state(header.state)
        if state is not None and state.phase not in TERMINAL and _may_fit(rules, switch, header.key, state, now):
            found[header.key] = _phase(state.phase, state.due, now)
        else:
            found.pop(header.key, None)  # a key that changes meanwhile is met again

    await stores.runs.scan(on_header)
    if switch.kind != "arguments":
        return dict(Counter(found.values()))
    blobs = asyncio.Semaphore(_BLOBS_AT_ONCE)

    async def look(key: str) -> str:
        try:
            record = (await stores.runs.read(key)).record
        except (NewerSchema, UnreadableRecord):  # of that one nobody here can say what it is given
            return ""
        if record is None or record.phase in TERMINAL or record.task.actor != switch.name:
            return ""
        async with contextlib.nullcontext() if record.task.blob is None else blobs:
            fits = rules.run(key, switch.name, await arguments_of(stores, record, stores.runs.patience()), now)
        return "" if fits is None else _phase(record.phase, record.due, now)

    return dict(Counter(phase for phase in await each(found, look, _AT_ONCE) if phase))


def _may_fit(rules: Rules, switch: Switch, key: str, state: State, now: float) -> bool:
    if switch.kind == "arguments":
        return state.actor == switch.name
    return rules.queue(state.queue, now) is not None or rules.run(key, state.actor, b"", now) is not None


def _phase(phase: Phase, due: float, now: float) -> str:
    return phase.value if phase is not Phase.WAITING else "scheduled" if due > now else "queued"


async def arguments_of(stores: Stores, record: Record, patience: Patience) -> bytes:
    """What a run is given; empty if it is gone or nobody here can read it. Raises Unavailable, OutcomeUnknown."""
    try:
        return await stores.get_args(record.task, patience)
    except (Unavailable, OutcomeUnknown):
        raise
    except TenureError:  # such a run fits nothing
        return b""
