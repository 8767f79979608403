"""Chains of perpetual keys that supervisors keep alive, end or start before their time."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.generations import anew, cancel, is_same_task
from tenure.core.outcomes import Decision, Did, Refused, Why
from tenure.core.parts import Result, decide
from tenure.core.records import TERMINAL, Phase, Record
from tenure.core.schedule import before, first_due, is_perpetual

_RETIRED = "its schedule is not in the code any more"


def keep_alive(record: Record | None, command: c.KeepAlive, now: float) -> Result:
    """Start the chain of a schedule where there is none; give it the schedule of newer code while it waits."""
    if record is None or record.phase in TERMINAL:
        if record is not None and record.deployed > command.deployed:
            return Refused(Why.OUTDATED)
        return _scheduled(record, command, 0.0, now)
    if record.task.actor != command.task.actor:
        return Refused(Why.DIFFERS)  # somebody's run has the key: it is not for a schedule to end it
    if record.phase is not Phase.WAITING:
        return Refused(Why.LIVE)  # nobody is stopped for it: its successor waits soon
    if _is_same(record, command):
        return Refused(Why.LIVE)
    if record.deployed >= command.deployed:
        return Refused(Why.OUTDATED)
    if record.attempt or record.due <= now:
        return _goes_on(record, command, now)
    every, due = command.task.policy.every, 0.0
    if every is not None and record.tick:  # no later than it would have been, and no sooner than the interval asks
        due = max(now, min(record.tick, now + every))
    return _scheduled(record, command, due, now)


def retire(record: Record | None, command: c.Retire, now: float) -> Result:
    """End the chain of a schedule that the newest code has no more."""
    if record is None or record.phase in TERMINAL or not record.task.policy.autostart:
        return Refused(Why.NOTHING)
    if record.phase is not Phase.WAITING:
        return Refused(Why.LIVE)
    if record.deployed >= command.deployed:
        return Refused(Why.OUTDATED)
    over = cancel(record, c.Cancel(run_id=record.run_id, reason=_RETIRED), now)
    if isinstance(over, Refused) or over.record is None:
        return over
    return decide(Did.RETIRED, replace(over.record, deployed=command.deployed))


def trigger(record: Record | None, command: c.Trigger, now: float) -> Result:
    """Start the waiting run now."""
    if record is None:
        return Refused(Why.ABSENT)
    # Its own write may have started the run that it is about: the next one waits on [10].
    if command.run_id not in {None, record.run_id}:
        return Refused(Why.FINISHED)
    if record.phase is not Phase.WAITING:
        return Refused(Why.FINISHED if record.phase in TERMINAL else Why.LIVE)
    if record.due <= now:
        return Refused(Why.ALREADY)
    # What waits for its retry has started: at its tick, or by a trigger that has taken it back already.
    early = is_perpetual(record.task.policy) and not record.attempt
    tick = before(record.task.policy, record.tick, now) if early else record.tick
    return decide(Did.TRIGGERED, replace(record, due=0.0, tick=tick, queued_at=now))


def _scheduled(record: Record | None, command: c.KeepAlive, due: float, now: float) -> Result:
    due = first_due(command.task.policy, due, now)
    submit = c.Replace(key=command.key, run_id=command.run_id, task=command.task, due=due)
    result = anew(record, submit, now, Did.SCHEDULED)
    if isinstance(result, Refused) or result.record is None:
        return result
    return Decision(Did.SCHEDULED, replace(result.record, deployed=command.deployed), result.effects)


def _goes_on(record: Record, command: c.KeepAlive, now: float) -> Result:
    """Newer code has the fire that waits for a worker, for what is paused or for its retry, or was triggered.

    It is not lost because code was deployed meanwhile, and comes no sooner; those after it go by the newer schedule.
    """
    result = _scheduled(record, command, 0.0, now)
    if isinstance(result, Refused) or result.record is None:
        return result
    old, new = record.task.policy, command.task.policy
    is_same = (old.every, old.cron, old.tz) == (new.every, new.cron, new.tz)
    # One that was triggered goes before its tick: another schedule may name one that is sooner.
    tick = record.tick if is_same else min(record.tick, now)
    made = replace(result.record, due=record.due, tick=tick, queued_at=max(now, record.due))
    return decide(Did.SCHEDULED, made)


def _is_same(record: Record, command: c.KeepAlive) -> bool:
    mine, task = record.task, command.task
    if (mine.queue, mine.priority, mine.policy) != (task.queue, task.priority, task.policy):
        return False
    return is_same_task(mine, task)
