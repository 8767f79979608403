"""The head check: a claim is the only door to a body."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.endings import conclude_stop, finish
from tenure.core.errors import IllegalTransition
from tenure.core.outcomes import Did, Refused, Why
from tenure.core.pace import dropped, needs_leave, settled_by
from tenure.core.parts import LOST, Result, decide, ended, owed, superseded
from tenure.core.records import Holder, Phase, Previous, Record


def claim(record: Record | None, command: c.Claim, now: float) -> Result:
    """May this session start the run that a wake-up names? The won claim is the only door to a body."""
    if record is None:
        return Refused(Why.ABSENT)
    if record.run_id != command.run_id:
        return Refused(Why.SUPERSEDED)
    phase = record.phase
    if phase is Phase.WAITING:
        return _claim_waiting(record, command, now)
    if phase is Phase.RUNNING:
        return _claim_running(record, command, now)
    if phase is Phase.STOPPING:
        return _claim_stopping(record, command, now)
    return Refused(Why.CANCELLED if phase is Phase.CANCELLED else Why.FINISHED)


def _claim_waiting(record: Record, command: c.Claim, now: float) -> Result:
    if record.due > now:
        return Refused(Why.NOT_DUE, record.due)
    if not record.previous:
        return start(record, command, now, Did.WON, record.failures)
    open_ones = tuple(entry for entry in record.previous if entry.session not in command.closed)
    if record.task.policy.overlap == "parallel":
        return _start_over(record, open_ones, command, now)
    blocking = [entry.deadline for entry in open_ones if entry.deadline is None or entry.deadline > now]
    if not blocking:
        return _start_over(record, (), command, now)
    return Refused(Why.BUSY, None if None in blocking else max(d for d in blocking if d is not None))


def _start_over(record: Record, left: tuple[Previous, ...], command: c.Claim, now: float) -> Result:
    """Start, with no more than ``left`` of the older bodies still to be waited for."""
    gone = [entry for entry in record.previous if entry not in left]
    counts = superseded(gone, record.task.actor)
    return start(owed(replace(record, previous=left), *counts), command, now, Did.WON, record.failures)


def _claim_running(record: Record, command: c.Claim, now: float) -> Result:
    holder = record.holder
    if holder is None:
        raise IllegalTransition(record.phase, "Claim", "a running record without a holder")
    if holder.session == command.session:
        if command.own_lost != holder:
            return Refused(Why.BUSY)
        return start(record, command, now, Did.RECLAIMED, record.failures)  # [3]
    if holder.session not in command.closed:
        return Refused(Why.BUSY)
    if holder.session in command.drained:
        return start(record, command, now, Did.TAKEOVER, record.failures)
    if record.failures + 1 >= record.task.policy.max_attempts:  # [22]
        spent = replace(record, failures=record.failures + 1)
        last = ended(spent, Phase.FAILED, now, failure=LOST)
        return finish(spent, last, now, command.next_run_id, Did.EXHAUSTED)
    return start(record, command, now, Did.TAKEOVER, record.failures + 1)


def _claim_stopping(record: Record, command: c.Claim, now: float) -> Result:
    holder = record.holder
    own = holder is not None and holder.session == command.session
    gone = holder is None or (command.own_lost == holder if own else holder.session in command.closed)
    return conclude_stop(record, now) if gone else Refused(Why.BUSY)  # [1]


def start(record: Record, command: c.Claim, now: float, did: Did, failures: int) -> Result:
    """One more attempt, held by the claiming session: counted in the very write that starts it.

    Not where a switch holds it back: only a body that would start is held, never an end. Under limits and rates only with leave
    for this very attempt: that of another one may be given back, or taken over.
    """
    if command.held:
        return Refused(Why.HELD)
    attempt = record.attempt + 1
    policy = record.task.policy
    if needs_leave(policy) and (command.permit != attempt or command.settled != settled_by(record)):
        return Refused(Why.LIMITED)
    if command.excess:  # what was begun is finished
        return Refused(Why.LIMITED) if record.attempt else dropped(record, command.excess, now)
    timeout = policy.timeout
    return decide(
        did,
        replace(
            record,
            phase=Phase.RUNNING,
            attempt=attempt,
            failures=failures,
            holder=Holder(session=command.session, run_id=record.run_id, attempt=attempt),
            deadline=None if timeout is None else now + timeout,
            evicted=False,
            uncounted=(),
        ),
        record.uncounted,
    )
