"""What users are told about a key: its status, the outcome of a cancel, the events of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from tenure.core.generations import generation_of
from tenure.core.moments import moment_of
from tenure.core.records import TERMINAL, Last, Phase, Record
from tenure.core.sessions import Progress

CancelOutcome = Literal["cancelled", "stopping", "finished", "not_found"]
StatusPhase = Literal["scheduled", "queued", "running", "stopping", "succeeded", "failed", "cancelled"]


class Status(Struct, frozen=True, kw_only=True):
    """One look at a run.

    ``due``: when a run that waits starts, aware (UTC); None for at once, and once it has started. ``holder``: the session
    that runs it; ``error``: its last failure.
    """

    key: str
    phase: StatusPhase
    generation: int
    run_id: str
    attempt: int
    failures: int
    actor: str
    queue: str
    holder: str | None = None
    due: datetime | None = None
    error: str | None = None
    reason: str | None = None
    progress: Progress | None = None
    ended_at: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has its outcome."""
        return self.phase in {"succeeded", "failed", "cancelled"}


class Cancelled(Struct, frozen=True, kw_only=True):
    """What a cancel found and did.

    ``cancelled``: it was waiting and will never run. ``stopping``: its body is told to stop and it will end
    ``cancelled``. ``finished``: the run had ended or was superseded, or the key never had a run of that id.
    ``not_found``: there is no such key; nothing was stored. ``generation``: that of the run ``run_id``, 0 where the key
    does not show it any more.
    """

    outcome: CancelOutcome
    key: str
    generation: int = 0
    run_id: str = ""


class Event(Struct, frozen=True, kw_only=True):
    """One step in a run's life.

    A new ``status``, or its ``progress``; ``superseded`` ends the stream of an older generation.
    """

    kind: Literal["status", "progress", "superseded"]
    key: str
    generation: int
    run_id: str
    status: Status | None = None
    progress: Progress | None = None

    def __str__(self) -> str:
        """In words, as `tenure watch` prints it: ``doc-1  generation 2  running  attempt 1``."""
        said = [self.key, f"generation {self.generation}"]
        if self.status is not None:
            said.append(self.status.phase)
            said.append(f"attempt {self.status.attempt}" if self.status.attempt else "")
            said.append(self.status.error or self.status.reason or "")
        elif self.progress is not None:
            said += [self.kind, far(self.progress), self.progress.note]
        else:
            said.append(self.kind)
        return "  ".join(filter(None, said))


def far(progress: Progress) -> str:
    """How far a body is, in words."""
    return f"{progress.done:.15g}" + (f" of {progress.total:.15g}" if progress.total is not None else "")


def cancelled_of(record: Record, run_id: str, outcome: CancelOutcome | None = None) -> Cancelled:
    """What a cancel of ``run_id`` tells that found ``record``; without ``outcome``, one that stored it.

    What that one stored may be only that bodies of other generations are told to stop: the run itself is over.
    """
    if outcome is None:
        ends: dict[Phase, CancelOutcome] = {Phase.CANCELLED: "cancelled", Phase.STOPPING: "stopping"}
        outcome = ends.get(record.phase, "finished") if record.run_id == run_id else "stopping"
    return Cancelled(outcome=outcome, key=record.key, generation=generation_of(record, run_id), run_id=run_id)


def status_of(record: Record, now: float) -> Status:
    """The status of the generation that a record is at."""
    last = record.last if record.phase in TERMINAL and record.last and record.last.run_id == record.run_id else None
    failure = (last.failure if last else None) or record.failure
    phase: StatusPhase
    if record.phase is Phase.WAITING:  # noqa: SIM108  (two questions, two lines)
        phase = "scheduled" if record.due > now else "queued"
    else:
        phase = record.phase.value  # type: ignore[assignment]  # every other phase has the same name for users
    return Status(
        key=record.key,
        phase=phase,
        generation=record.generation,
        run_id=record.run_id,
        attempt=record.attempt,
        failures=record.failures,
        actor=record.task.actor,
        queue=record.task.queue,
        holder=record.holder.session if record.holder else None,
        due=_moment(record.due) if record.phase is Phase.WAITING else None,
        error=f"{failure.type}: {failure.message}" if failure else None,
        reason=(last.reason or None)
        if last
        else record.stop.reason
        if record.stop and record.phase is Phase.STOPPING
        else None,
        ended_at=_moment(last.at) if last else None,
    )


def status_of_last(record: Record, last: Last) -> Status:
    """The final status of an older run whose outcome the record still keeps."""
    return Status(
        key=record.key,
        phase=last.phase.value,  # type: ignore[arg-type]  # only terminal phases are stored in `last`
        generation=last.generation,
        run_id=last.run_id,
        attempt=last.attempt,
        failures=last.failures,
        actor=record.task.actor,
        queue=record.task.queue,
        error=f"{last.failure.type}: {last.failure.message}" if last.failure else None,
        reason=last.reason or None,
        ended_at=_moment(last.at),
    )


def _moment(seconds: float) -> datetime | None:
    return moment_of(seconds) if seconds else None
