"""Small parts of the transitions, shared by the modules that own them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Raw
from msgspec.structs import replace

from tenure.core.outcomes import Decision, Did, Refused, effects_of
from tenure.core.records import MAX_PREVIOUS, NULL, Blob, Count, Failure, Holder, Last, Phase, Previous, Record

Result = Decision | Refused

LOST = Failure(
    type="WorkerLost",
    message=(
        "the worker that ran the last allowed attempt is gone, or was cut off from the server for longer than its session"
        " lives"
    ),
)


def timed_out(message: str) -> Failure:
    """The failure of an attempt that took too long, under a name that no body's own error has."""
    return Failure(type="AttemptTimeout", message=message)


def decide(did: Did, record: Record, counts: tuple[Count, ...] = ()) -> Decision:
    """A decision whose effects are derived from what it stores."""
    return Decision(did, record, effects_of(record), counts)


def entry(record: Record, holder: Holder, deadline: float | None, *, counted: bool) -> Previous:
    """The entry of ``previous`` for a holder that is displaced."""
    return Previous(
        session=holder.session,
        run_id=holder.run_id,
        attempt=holder.attempt,
        generation=record.generation,
        deadline=deadline,
        actor=record.task.actor,
        counted=counted,
    )


def superseded(gone: Iterable[Previous], actor: str, where: str = "tail") -> tuple[Count, ...]:
    """What is to be counted for entries that leave ``previous``; ``actor``: of those that name none."""
    return tuple(Count(what="superseded", where=where, actor=e.actor or actor) for e in gone if not e.counted)


def owed(record: Record, *more: Count) -> Record:
    """The record with ``more`` that somebody has to count."""
    counts = {(count.what, count.where, count.actor): count for count in record.uncounted}
    for count in more:
        what = (count.what, count.where, count.actor)
        known = counts.get(what)
        counts[what] = count if known is None else replace(count, number=count.number + known.number)
    return replace(record, uncounted=tuple(counts.values())) if more else record


def tell(previous: tuple[Previous, ...], deadline: float) -> tuple[Previous, ...]:
    """Give every entry that was not told to stop yet this deadline; deadlines are never extended."""
    return tuple(replace(entry, deadline=deadline) if entry.deadline is None else entry for entry in previous)


def bounded(record: Record, now: float, keep: int = 0) -> Record:
    """Drop the void (past their deadline) of ``previous`` where there are too many; the last ``keep`` stay."""
    previous = record.previous
    if len(previous) <= MAX_PREVIOUS:
        return record
    cut = len(previous) - keep
    void = [e for i, e in enumerate(previous) if i < cut and e.deadline is not None and e.deadline <= now]
    left = tuple(e for e in previous if e not in void)
    return owed(replace(record, previous=left), *superseded(void, record.task.actor))


def ended(
    record: Record,
    phase: Phase,
    now: float,
    *,
    result: Raw | None = None,
    blob: Blob | None = None,
    failure: Failure | None = None,
    reason: str = "",
    by: str = "",
) -> Last:
    """``by``.

    The session of the holder if the holder itself writes this; a foreign end must not look like its own outcome.
    """
    return Last(
        run_id=record.run_id,
        generation=record.generation,
        phase=phase,
        at=now,
        attempt=record.attempt,
        session=by,
        result=NULL if result is None else result,
        blob=blob,
        failure=failure,
        reason=reason,
        failures=record.failures,
    )
