"""What a sweep looks for, by a record's header alone, and who of several supervisors looks.

A header only ever makes somebody look: the keeper reads the record and decides on that. So being wrong here costs a
read, or a few seconds until the next sweep.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from zlib import crc32

from tenure.core.permits import Permit
from tenure.core.records import TERMINAL, Phase, Record, State

PARTITIONS = 64
SETTLE_SECONDS = 2.0
"""What was written so lately is still in the hands of whoever wrote it."""


def deserves_a_look(
    state: State, *, age: float, now: float, holder_closed: bool, has_wakeup: bool, has_timer: bool
) -> bool:
    """Whether a record may owe something that nobody is about to do. ``age``: seconds since its last write.

    ``has_wakeup``, ``has_timer``: whether one is stored for the record's run. An older generation's does not count: it may
    be in the hands of a process that does not answer, or lie in a queue that nobody works on.
    """
    if state.phase is Phase.RUNNING:
        owing = holder_closed or 0.0 < state.deadline < now
    elif state.phase is Phase.STOPPING:
        owing = holder_closed or state.deadline < now or age > SETTLE_SECONDS
    elif state.phase is Phase.WAITING:
        late = not has_timer or state.due < now - SETTLE_SECONDS
        owing = age > SETTLE_SECONDS and not has_wakeup and late
    else:
        owing = False
    return owing or (bool(state.flags) and age > SETTLE_SECONDS)


def is_orphan(key: str, state: State, modules: AbstractSet[str], kept: Container[str]) -> bool:
    """Whether a schedule that started by itself is gone from the code: its module is there, without it.

    ``modules``, ``kept``: of the code that asks, and the actors in it that start by themselves. What is of other modules, another
    app in the same namespace has.
    """
    ours = state.autostart in modules and key == state.actor
    return ours and key not in kept and state.phase not in TERMINAL


def is_over(permit: Permit, record: Record | None) -> bool:
    """Whether the attempt that holds a place under a limit is over, as far as its record tells: nobody runs under it.

    One that the record does not show yet is about to be claimed; a displaced body runs on until it leaves ``previous``.
    """
    if record is None:
        return True
    held = (permit.session, permit.run_id, permit.attempt)
    holders = [entry.holder() for entry in record.previous] + ([record.holder] if record.holder is not None else [])
    if any((holder.session, holder.run_id, holder.attempt) == held for holder in holders):
        return False
    return record.run_id != permit.run_id or record.phase in TERMINAL or record.attempt >= permit.attempt


def wake_again_after(woken: int, ack_wait: float) -> float | None:
    """Seconds from the ``woken``-th wake-up of a run whose holder is dead to the next one; None: no more.

    A process that is frozen or cut off still has its pulls at the server, its own runs' wake-ups may be handed to it, and
    nobody answers them before ``ack_wait``. So 1, 2, 4 s, until the first would be delivered again anyway.
    """
    pause = 2.0 ** (woken - 1)
    return pause if 2 * pause < ack_wait else None


def partition_of(key: str) -> int:
    """The partition of a key."""
    return crc32(key.encode()) % PARTITIONS


def owners(sessions: Iterable[str]) -> tuple[str, ...]:
    """For each partition the session that looks after it (rendezvous hashing); () where there is none.

    Whoever joins or leaves moves only its own share.
    """
    living = sorted(sessions)
    if not living:
        return ()
    return tuple(max(living, key=lambda session: _weight(session, number)) for number in range(PARTITIONS))


def _weight(session: str, partition: int) -> bytes:
    return blake2b(f"{session} {partition}".encode(), digest_size=8).digest()
