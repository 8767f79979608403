"""What lies in the runs bucket, as the part of it that the checker looks at."""

from __future__ import annotations

from collections import Counter

from tenure.core import rates
from tenure.core.expiry import expires_at
from tenure.core.permits import decode_entry
from tenure.core.records import Last, Record
from tenure.core.schedule import is_perpetual
from tenure.core.switches import decode_board
from tests.history.evidence import (
    BoardSeen,
    EntrySeen,
    HolderSeen,
    LastSeen,
    LimitSeen,
    PreviousSeen,
    RateSeen,
    Revision,
    SwitchSeen,
)

_DROPPED = "dropped: "
_LIMIT, _RATE, _BOARD = "limit.", "rate.", "switch.board"
"""What the subjects of entries have in the place of a key, or how that begins."""


def entry_of(token: str, data: bytes, *, seq: int, stored: float, gone: bool) -> EntrySeen | None:
    """The part of an entry that the checker looks at; None: what is stored under this token is a record."""
    if token.startswith(_LIMIT):
        name = token[len(_LIMIT) :]
        if gone:
            return LimitSeen(seq=seq, name=name)
        entry = decode_entry(data)
        return LimitSeen(seq=seq, name=name, n=entry.n, places=len(entry.permits))
    if token.startswith(_RATE):
        name = token[len(_RATE) :]
        if gone:
            return RateSeen(seq=seq, name=name, stored=stored)
        rate = rates.decode_entry(data)
        marks = tuple((mark / rates.SECOND, number) for mark, number in rate.marks)
        return RateSeen(seq=seq, name=name, stored=stored, n=rate.n, marks=marks, places=len(rate.places))
    if token == _BOARD:
        switches = () if gone else decode_board(data).switches
        seen = (SwitchSeen(id=s.id, kind=s.kind, name=s.name, pattern=s.pattern, until=s.until) for s in switches)
        return BoardSeen(seq=seq, stored=stored, switches=tuple(seen))
    return None


def revision_of(record: Record | None, *, key: str, seq: int, before: int, stored: float = 0.0) -> Revision:
    """The part of a record that the checker looks at."""
    if record is None:
        return Revision(seq=seq, before=before, key=key, stored=stored, gone=True)
    holder, last, policy = record.holder, record.last, record.task.policy
    return Revision(
        seq=seq,
        before=before,
        key=key,
        stored=stored,
        until=expires_at(record),
        run_id=record.run_id,
        generation=record.generation,
        phase=record.phase.value,
        actor=record.task.actor,
        overlap=policy.overlap,
        every=is_perpetual(policy),
        due=record.due,
        tick=record.tick,
        since=record.settling.since if record.settling is not None else 0.0,
        attempt=record.attempt,
        failures=record.failures,
        budget=policy.max_attempts,
        evicted=record.evicted,
        stopped=record.stop is not None,
        dropped=last is not None and last.run_id == record.run_id and last.reason.startswith(_DROPPED),
        holder=HolderSeen(holder.session, holder.run_id, holder.attempt) if holder else None,
        previous=tuple(PreviousSeen(p.session, p.run_id, p.attempt, p.deadline) for p in record.previous),
        last=_last(last),
        outbox=tuple(entry.id for entry in record.outbox),
        outbox_keys=tuple(entry.key for entry in record.outbox),
        seen=len(record.to_forget),
        uncounted=dict(_uncounted(record)),
    )


def _last(last: Last | None) -> LastSeen | None:
    if last is None:
        return None
    return LastSeen(last.run_id, last.generation, last.phase.value, last.at, last.attempt, last.session, last.failures)


def _uncounted(record: Record) -> Counter[str]:
    found: Counter[str] = Counter()
    for count in record.uncounted:
        found[f"{count.what} {count.where}"] += count.number
    found["superseded tail"] += sum(not entry.counted for entry in record.previous)
    return +found
