"""Small parts of the transitions, shared by the modules that own them."""

from __future__ import annotations

from msgspec import Raw
from msgspec.structs import replace

from tenure.core.outcomes import Decision, Did, Refused, effects_of
from tenure.core.records import MAX_PREVIOUS, NULL, Blob, Failure, Holder, Last, Phase, Previous, Record

Result = Decision | Refused

LOST = Failure(type="WorkerLost", message="the worker that ran the last allowed attempt is gone")


def decide(did: Did, record: Record) -> Decision:
    """A decision whose effects are derived from what it stores."""
    return Decision(did, record, effects_of(record))


def entry(holder: Holder, generation: int, deadline: float | None) -> Previous:
    """The entry of ``previous`` for a holder that is displaced."""
    return Previous(
        session=holder.session,
        run_id=holder.run_id,
        attempt=holder.attempt,
        generation=generation,
        deadline=deadline,
    )


def tell(previous: tuple[Previous, ...], deadline: float) -> tuple[Previous, ...]:
    """Give every entry that was not told to stop yet this deadline; deadlines are never extended."""
    return tuple(replace(entry, deadline=deadline) if entry.deadline is None else entry for entry in previous)


def bounded(previous: tuple[Previous, ...], now: float, keep: int = 0) -> tuple[Previous, ...]:
    """Drop the void (past their deadline) where there are too many; the last ``keep`` stay."""
    if len(previous) <= MAX_PREVIOUS:
        return previous
    cut = len(previous) - keep
    return tuple(e for i, e in enumerate(previous) if i >= cut or e.deadline is None or e.deadline > now)


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
    )
