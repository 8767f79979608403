"""What a sweep would have looked at, for people: it reads what a sweep reads, judges by the same rule, and does nothing.

A suspect is not a fault: what was written a moment ago, or what a supervisor is about to repair, is among them. One whose
record has not changed for long is one that nobody repairs.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.records import Phase, State, read_state
from tenure.core.subjects import encode_key
from tenure.core.sweeps import deserves_a_look
from tenure.nats.scan import Header
from tenure.nats.stored import Stored
from tenure.stores import Stores
from tenure.supervisor.places import LeftParked


class Suspect(Struct, frozen=True, kw_only=True):
    """A key that may owe something. ``unchanged_seconds``: since its record was last written."""

    key: str
    phase: str
    actor: str
    queue: str
    why: str
    unchanged_seconds: float


async def suspects(
    stores: Stores, is_gone: Callable[[str], bool], stored: Stored, *, bodies: bool = True
) -> list[Suspect]:
    """Every key that a sweep would have looked at now, the longest unchanged first. Raises Unavailable.

    ``stored``: what the work stream held a moment ago: before the headers are read, as in a sweep. Without ``bodies`` those are
    left out that only wait for a body to end which may still run: in its grace, or of an older generation that nobody told to stop.
    """
    parked = LeftParked(stored.parked)
    found: dict[str, Suspect] = {}

    def on_header(header: Header) -> None:
        state = read_state(header.state)
        found.pop(header.key, None)  # a key that changes meanwhile is met again
        if state is None or state.is_over(stores.clock.now()):
            return
        token, closed = encode_key(header.key), bool(state.session) and is_gone(state.session)
        age, now = stored.at - header.stored_at, stores.clock.now()
        if not bodies:
            state = replace(state, flags=state.flags.replace("p", ""))
            if state.phase is Phase.STOPPING and not closed and now < state.deadline:
                return
        suspicious = deserves_a_look(
            state,
            age=age,
            now=now,
            holder_closed=closed,
            has_wakeup=stored.wakeups.has(f"{state.queue}.{token}", state.run_id) or parked.has(token, state.run_id),
            has_timer=stored.timers.has(token, state.run_id),
        )
        if suspicious:
            found[header.key] = Suspect(
                key=header.key, phase=state.phase.value, actor=state.actor, queue=state.queue,
                why=_why(state, closed=closed), unchanged_seconds=round(max(0.0, age), 1),
            )  # fmt: skip

    await stores.runs.scan(on_header)
    return sorted(found.values(), key=lambda one: -one.unchanged_seconds)


def _why(state: State, *, closed: bool) -> str:
    if closed:
        return "the process that holds it is gone"
    if state.phase is Phase.RUNNING and not state.flags:
        return "its time is over, and nobody has ended it"
    if state.phase is Phase.STOPPING and not state.flags:
        return "it was told to stop and has not ended"
    if state.phase is Phase.WAITING and not state.flags:
        return "it waits, and no wake-up of it is stored"
    owed = {"p": "older bodies", "o": "runs or letters that are owed to others", "s": "marks", "c": "counts"}
    return f"it has {', '.join(owed.get(flag, flag) for flag in state.flags)} to be settled"
