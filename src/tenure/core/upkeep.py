"""What supervisors, effects and a body's end take out of a record; and who has to hear of it before that."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.marks import known_on
from tenure.core.outcomes import Decision, Did, Refused, Why
from tenure.core.parts import Result, decide, superseded
from tenure.core.records import Holder, Phase, Record
from tenure.core.schemas import schema_for


def confirm(record: Record | None, command: c.Confirm, _now: float) -> Result:
    """The body of an older generation has ended."""
    if record is None:
        return Refused(Why.NOTHING)
    left = tuple(entry for entry in record.previous if entry.holder() != command.holder)
    if left == record.previous:
        return Refused(Why.NOTHING)
    gone = [entry for entry in record.previous if entry.holder() == command.holder]
    counts = superseded(gone, record.task.actor, where=command.where)
    return decide(Did.CONFIRMED, replace(record, previous=left, taken=command.tag), counts)


def expire_previous(record: Record | None, command: c.ExpirePrevious, now: float) -> Result:
    """Bodies of closed sessions, and those past their deadline, block nobody."""
    if record is None:
        return Refused(Why.NOTHING)
    over = [e for e in record.previous if e.session in command.closed or (e.deadline is not None and e.deadline <= now)]
    if not over:
        return Refused(Why.NOTHING)
    left = tuple(e for e in record.previous if e not in over)
    counts = superseded(over, record.task.actor)
    return decide(Did.EXPIRED, replace(record, previous=left, taken=command.tag), counts)


def forgotten(before: Record | None, after: Record | None, command: c.Command) -> tuple[Holder, ...]:
    """Older bodies that ``command`` takes out of the record though they may still run: to be told to stop before it is stored.

    Whoever was to tell one may have died before it did, and of what is in no record nobody knows any more.
    """
    if before is None or not before.previous or isinstance(command, c.Confirm):
        return ()
    kept = {entry.holder() for entry in after.previous} if after is not None else set()
    closed = command.closed if isinstance(command, c.Claim | c.ExpirePrevious) else frozenset()
    return tuple(e.holder() for e in before.previous if e.session not in closed and e.holder() not in kept)


def clear_outbox(record: Record | None, command: c.ClearOutbox, _now: float) -> Result:
    """These entries are applied to their targets."""
    left = tuple(entry for entry in record.outbox if entry.id not in command.ids) if record else ()
    if record is None or left == record.outbox:
        return Refused(Why.NOTHING)
    needed = schema_for(record.task, left, record.history)
    return Decision(Did.CLEARED, replace(record, outbox=left, schema=needed))


def forget_seen(record: Record | None, command: c.ForgetSeen, now: float) -> Result:
    """These entries are gone from their origins."""
    left = known_on(record.seen, command.ids, now) if record else ()
    if record is None or left == record.seen:
        return Refused(Why.NOTHING)
    return Decision(Did.FORGOT, replace(record, seen=left))


def take_counts(record: Record | None, command: c.TakeCounts, _now: float) -> Result:
    """Whoever stores this counts what became of older generations."""
    if record is None or not record.uncounted:
        return Refused(Why.NOTHING)
    return Decision(Did.COUNTED, replace(record, uncounted=(), taken=command.tag), counts=record.uncounted)


def purge(record: Record | None, command: c.Purge, _now: float) -> Result:
    """Forget the key, if no body may run and nothing is owed."""
    if record is None:
        return Refused(Why.ABSENT)
    if command.run_id and record.run_id != command.run_id:
        return Refused(Why.SUPERSEDED)
    if record.phase in {Phase.RUNNING, Phase.STOPPING}:
        return Refused(Why.LIVE)
    if record.previous or record.outbox or record.to_forget:
        return Refused(Why.OWED)  # [5]
    return Decision(Did.PURGED, None)
