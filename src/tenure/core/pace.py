"""What rates, ``Debounce`` and ``Cooldown`` make of a record: each in the very write that it is about.

* *Debounce*: a submit of a key whose run waits moves its due to ``settle`` after now, ``max_wait`` after the first submit at
  the latest, and takes its place in the record: the last arguments win, and one run comes of it. A run that waits for its
  retry takes the arguments alone; one that runs is kept as ever. A new generation over a run that has not started waits from
  the same first submit on, however it came.
* *Cooldown*: from a run's end, by success or failure, until ``window`` later a submit starts nothing and is answered with
  that run. What was cancelled did nothing, so it holds nobody off; a replay and a replace are asked for by people, and do start.
* *Rates* are not decided here, but a run that one of them drops ends here.
"""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.aftermath import owing
from tenure.core.outcomes import Decision, Did, effects_of
from tenure.core.parts import decide, ended, tell
from tenure.core.rates import Settle
from tenure.core.records import Count, Phase, Policy, Record, Settling, Task
from tenure.core.schemas import schema_for


def needs_leave(policy: Policy) -> bool:
    """Whether its runs need a place under a limit or a start under a rate."""
    return bool(policy.limits) or (policy.pace is not None and bool(policy.pace.rates))


def dropped(record: Record, reason: str, now: float) -> Decision:
    """The end of a run that was never started, for want of room under a rate: as if it was cancelled."""
    last = ended(record, Phase.CANCELLED, now, reason=reason)
    told = tell(record.previous, now + record.task.policy.grace)
    over = replace(record, phase=Phase.CANCELLED, previous=told, last=last, failure=None)
    return decide(Did.DROPPED, owing(over, last), (Count(what="cancelled", where="waiting", actor=record.task.actor),))


def is_cooling(record: Record, command: c.Submit, now: float) -> bool:
    """Whether the key's last run has ended so lately that a submit starts none."""
    pace, last = command.task.policy.pace, record.last
    if pace is None or not pace.cooldown or last is None or command.history:
        return False
    if record.phase not in {Phase.SUCCEEDED, Phase.FAILED} or record.task.actor != command.task.actor:
        return False
    return now < last.at + pace.cooldown


def takes_in(record: Record, command: c.Submit) -> bool:
    """Whether the run that waits is to take the place of a submit's, and its arguments."""
    task = command.task
    return (
        _debounce(task) is not None
        and record.phase is Phase.WAITING
        and record.task.actor == task.actor
        and command.if_live == "keep"
        and not command.history
    )


def took_in(record: Record, run_id: str) -> bool:
    """Whether the submit of this run id was the last that the record's run took in."""
    return record.settling is not None and record.settling.by == run_id


def settled_by(record: Record | None) -> str:
    """The submit that the run has last taken in; empty if it is not debounced."""
    return record.settling.by if record is not None and record.settling is not None else ""


def settle(record: Record, command: c.Submit, now: float) -> Decision:
    """The run that waits, with what this submit asks for: later, and with its arguments."""
    since = record.settling.since if record.settling is not None else now
    due, task = _due(command.task, command.due, since, now), command.task
    if record.attempt:  # it waits for its retry, by the policy that it has begun under
        due, task = record.due, replace(record.task, args=task.args, blob=task.blob, trace=task.trace)
    seen = record.seen if command.seen is None else (*record.seen, command.seen)
    told = record.previous
    if task.policy.overlap == "stop":  # the newest policy applies to all [4]
        told = tell(told, now + record.task.policy.grace)
    made = replace(
        record,
        previous=told,
        schema=schema_for(task, record.outbox, record.history),
        task=task,
        due=due,
        queued_at=max(now, due),
        settling=Settling(since=since, by=command.run_id),
        seen=seen,
    )
    # The wake-up that it has comes sooner, and is put off. Nobody else would bring one that is late, or lost.
    moved = (record.task.queue, record.task.priority) != (task.queue, task.priority)
    # One that was due may wait in the parking, under what its old arguments said.
    late = record.due <= now
    wanted = due < record.due or moved or told != record.previous or late
    return Decision(Did.SETTLED, made, effects_of(made) if wanted else ())


def begun(made: Record, before: Record | None, command: c.Submit | c.Replace, now: float) -> Record:
    """A new generation, which waits for more submits first if it is debounced."""
    if _debounce(made.task) is None or (isinstance(command, c.Submit) and command.history):
        return made
    waits = before is not None and before.phase is Phase.WAITING and not before.attempt
    settling = before.settling if before is not None and waits and before.task.actor == made.task.actor else None
    since = settling.since if settling is not None else now
    due = _due(made.task, command.due, since, now)
    return replace(made, due=due, queued_at=max(now, due), settling=Settling(since=since))


def _debounce(task: Task) -> Settle | None:
    return task.policy.pace.debounce if task.policy.pace is not None else None


def _due(task: Task, asked: float, since: float, now: float) -> float:
    """When a debounced run starts; no sooner than its submitter asks."""
    debounce = _debounce(task)
    settled = now if debounce is None else min(now + debounce.settle, since + debounce.max_wait)
    return max(asked, settled)
