"""The tail check: an outcome is stored by the holder in the record, or not at all.

And the end of those who overstay.
"""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.aftermath import owing
from tenure.core.errors import IllegalTransition
from tenure.core.outcomes import Decision, Did, Refused, Why
from tenure.core.parts import Result, bounded, decide, ended, entry, tell, timed_out
from tenure.core.policy import backoff
from tenure.core.records import Failure, Holder, Last, Phase, Record
from tenure.core.schedule import is_perpetual, next_due
from tenure.core.schemas import schema_for


def not_mine(record: Record | None, holder: Holder) -> Why | None:
    """None if ``holder`` holds the record; else why it does not (``already``: its own outcome is what is stored)."""
    if record is None:
        return Why.ABSENT
    if record.holder == holder:
        return None
    if any(entry.holder() == holder for entry in record.previous):
        return Why.SUPERSEDED if record.run_id != holder.run_id else Why.FENCED
    last = record.last
    if last is not None and (last.run_id, last.attempt, last.session) == (
        holder.run_id,
        holder.attempt,
        holder.session,
    ):
        return Why.ALREADY  # [23]
    if record.run_id != holder.run_id:
        return Why.SUPERSEDED
    if record.phase is Phase.WAITING and record.attempt == holder.attempt and not record.evicted:
        return Why.ALREADY  # its own retry, snooze or hand-back: only an eviction does the same for others, and says so
    return Why.FENCED


def succeed(record: Record | None, command: c.Succeed, now: float) -> Result:
    """The body returned: its outcome, its successor and what it spawned, in one write."""
    if (why := not_mine(record, command.holder)) is not None or record is None:
        return Refused(why or Why.ABSENT)
    if record.phase is Phase.STOPPING:
        return conclude_stop(record, now, by=command.holder.session)
    last = ended(record, Phase.SUCCEEDED, now, result=command.result, blob=command.blob, by=command.holder.session)
    if command.outbox:
        outbox = record.outbox + command.outbox
        record = replace(record, outbox=outbox, schema=schema_for(record.task, outbox, record.history))
    return finish(record, last, now, command.next_run_id, Did.SUCCEEDED, command.successor)


def fail(record: Record | None, command: c.FailAttempt, now: float) -> Result:
    """The attempt failed: a retry with backoff while the budget lasts, else `failed`."""
    if (why := not_mine(record, command.holder)) is not None or record is None:
        return Refused(why or Why.ABSENT)
    if record.phase is Phase.STOPPING:
        return conclude_stop(record, now, by=command.holder.session)
    return _failed_attempt(record, command, command.failure, now, final=command.final, successor=command.successor)


def _failed_attempt(
    record: Record,
    command: c.FailAttempt | c.Evict,
    failure: Failure,
    now: float,
    *,
    final: bool,
    successor: c.Successor | None,
) -> Decision:
    failures = record.failures + 1
    policy = record.task.policy
    record = replace(record, failures=failures)
    if not final and failures < policy.max_attempts:
        due = now + backoff(policy, failures, command.jitter)
        retried = requeued(record, due, now, failure)
        return decide(Did.RETRIED, replace(retried, evicted=isinstance(command, c.Evict)))
    by = command.holder.session if isinstance(command, c.FailAttempt) else ""
    last = ended(record, Phase.FAILED, now, failure=failure, by=by)
    return finish(record, last, now, command.next_run_id, Did.FAILED, successor)


def snooze(record: Record | None, command: c.SnoozeRun, now: float) -> Result:
    """The body asks to run later; no failure is counted."""
    return _hand_on(record, command.holder, command.due, now, Did.SNOOZED)


def hand_back(record: Record | None, command: c.HandBack, now: float) -> Result:
    """The body has ended because its process stops; no failure is counted."""
    return _hand_on(record, command.holder, 0.0, now, Did.HANDED_BACK)


def _hand_on(record: Record | None, holder: Holder, due: float, now: float, did: Did) -> Result:
    if (why := not_mine(record, holder)) is not None or record is None:
        return Refused(why or Why.ABSENT)
    if record.phase is Phase.STOPPING:
        return conclude_stop(record, now, by=holder.session)
    return decide(did, requeued(record, due, now, record.failure))


def requeued(record: Record, due: float, now: float, failure: Failure | None) -> Record:
    """The record back at waiting, without a holder."""
    return replace(
        record, phase=Phase.WAITING, holder=None, deadline=None, due=due, queued_at=max(now, due), failure=failure
    )


def finish(  # noqa: PLR0917  (one write: outcome and successor)
    record: Record, last: Last, now: float, next_run_id: str, did: Did, successor: c.Successor | None = None
) -> Decision:
    """Outcome, what it owes, and successor, where there is one, in one write."""
    policy = record.task.policy
    if successor is None and is_perpetual(policy):
        successor = c.Successor(due=next_due(policy, record.tick, now))
    if last.phase is not Phase.SUCCEEDED or policy.hooks is not None:
        record = owing(record, last)
    if successor is None:
        return decide(did, replace(record, phase=last.phase, holder=None, deadline=None, failure=None, last=last))
    task = successor.task or (replace(record.task, trace="") if record.task.trace else record.task)
    told = task.policy.overlap == "stop"
    return decide(
        Did.RESCHEDULED if did is Did.SUCCEEDED else did,
        replace(
            record,
            schema=schema_for(task, record.outbox),
            run_id=next_run_id,
            generation=record.generation + 1,
            phase=Phase.WAITING,
            task=task,
            previous=tell(record.previous, now + task.policy.grace) if told else record.previous,
            due=successor.due,
            tick=successor.due,
            queued_at=max(now, successor.due),
            attempt=0,
            failures=0,
            failure=None,
            holder=None,
            deadline=None,
            last=last,
            history=(),
            settling=None,
        ),
    )


def conclude_stop(record: Record, now: float, did: Did = Did.CANCELLED, *, by: str = "") -> Decision:
    """The one end of a stopping generation."""
    stop = record.stop
    last = ended(record, Phase.CANCELLED, now, reason=stop.reason if stop else "", by=by)
    ended_so = replace(record, phase=Phase.CANCELLED, holder=None, deadline=None, failure=None, last=last)
    return decide(did, owing(ended_so, last))


def evict(record: Record | None, command: c.Evict, now: float) -> Result:
    """End a holder that overstayed; its body may still run, void."""
    result = _evict(record, command, now)
    if isinstance(result, Refused) or result.record is None:
        return result
    return replace(result, record=replace(result.record, taken=command.tag))


def _evict(record: Record | None, command: c.Evict, now: float) -> Result:
    if record is None or record.holder is None or record.holder != command.holder:
        return Refused(Why.FENCED)
    if record.phase is Phase.STOPPING:
        if command.holder.session in command.closed:
            return conclude_stop(record, now)
        due = record.stop.deadline if record.stop is not None else now
        if now < due:
            return Refused(Why.NOT_DUE, due)
        return conclude_stop(_displaced(record, due, now), now, Did.FORCED)
    if record.deadline is None:
        return Refused(Why.NOT_DUE)
    due = record.deadline + record.task.policy.grace
    if now < due:
        return Refused(Why.NOT_DUE, due)
    failure = timed_out(f"the body did not end within {record.task.policy.timeout} s and its grace")
    return _failed_attempt(_displaced(record, due, now), command, failure, now, final=False, successor=None)


def _displaced(record: Record, since: float, now: float) -> Record:
    """The holder may still run, void since ``since``: it blocks nobody, but it is told to stop and has to confirm."""
    if record.holder is None:
        raise IllegalTransition(record.phase, "Evict", "no holder")
    void = entry(record, record.holder, since, counted=True)
    return bounded(replace(record, previous=(*record.previous, void)), now, keep=1)
