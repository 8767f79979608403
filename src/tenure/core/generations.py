"""Submit, replace, cancel: who may open a generation of a key, and who may end one from outside."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.aftermath import owing
from tenure.core.errors import IllegalTransition
from tenure.core.marks import MAX_MARKS, is_mark, is_marked
from tenure.core.outcomes import Decision, Did, Refused, Why, effects_of
from tenure.core.pace import begun, is_cooling, settle, takes_in, took_in
from tenure.core.parts import LOST, Result, bounded, decide, ended, entry, owed, tell
from tenure.core.records import MAX_PREVIOUS, TERMINAL, Count, Death, Phase, Record, Seen, Stop, Task
from tenure.core.schedule import first_due, is_perpetual
from tenure.core.schemas import schema_for


def submit(record: Record | None, command: c.Submit, now: float) -> Result:
    """Start a run unless one is live."""
    _same_key(record, command)
    if record is None:
        return anew(None, command, now, Did.SUBMITTED)
    if _knows(record, command):
        return Refused(Why.ALREADY)
    if is_cooling(record, command, now):
        return _joined(record, command.seen) or Refused(Why.COOLING)
    if record.phase in TERMINAL or record.phase is Phase.STOPPING:
        return anew(record, command, now, Did.SUBMITTED)
    spent = record.failures + 1 >= record.task.policy.max_attempts
    if record.phase is Phase.RUNNING and spent and command.lost is not None and command.lost == record.holder:
        spent_record = replace(record, holder=None, failures=record.failures + 1)
        lost = ended(spent_record, Phase.FAILED, now, failure=LOST)  # [29]: its takeover could only write `failed`
        return anew(owing(replace(spent_record, last=lost), lost), command, now, Did.SUBMITTED)
    if command.if_live == "reject":
        return Refused(Why.LIVE)
    differs = command.if_differs != "keep" and not is_same_task(record.task, command.task)
    if takes_in(record, command) and not differs:
        return Refused(Why.CROWDED) if _is_full(record, command.seen) else settle(record, command, now)
    joined = _joined(record, command.seen)
    if joined is not None:
        return joined
    if command.if_live == "replace":
        return anew(record, command, now, Did.REPLACED)
    if differs:
        return Refused(Why.DIFFERS) if command.if_differs == "error" else anew(record, command, now, Did.REPLACED)
    return Refused(Why.LIVE)


def _joined(record: Record, seen: Seen | None) -> Decision | None:
    """A spawn joins the run that there is, once: its entry must leave a trace. None: it is no spawn."""
    if seen is None or is_mark(seen):
        return None
    return Decision(Did.JOINED, replace(record, seen=(*record.seen, seen)))


def supersede(record: Record | None, command: c.Replace, now: float) -> Result:
    """Start a new generation whatever the phase."""
    _same_key(record, command)
    if record is not None and _knows(record, command):
        return Refused(Why.ALREADY)
    return anew(record, command, now, Did.REPLACED)


def anew(record: Record | None, command: c.Submit | c.Replace, now: float, did: Did) -> Result:
    """The next generation of the key, or its first."""
    seen = (command.seen,) if command.seen is not None else ()
    history = command.history if isinstance(command, c.Submit) else ()
    if record is None:
        made = _first(command, seen, history, now)
        return Decision(did, made, effects_of(made))
    if _is_full(record, command.seen):
        return Refused(Why.CROWDED)
    policy = command.task.policy
    # the grace that the running body was promised, not its successor's
    told = now + record.task.policy.grace if policy.overlap == "stop" else None
    record = _displaced(record, now)
    if told is not None:
        record = replace(record, previous=tell(record.previous, told))
    record = bounded(record, now)
    if len(record.previous) > MAX_PREVIOUS:
        return Refused(Why.CROWDED)
    due = first_due(command.task.policy, command.due, now)
    made = Record(
        schema=schema_for(command.task, record.outbox, history),
        key=record.key,
        run_id=command.run_id,
        generation=record.generation + 1,
        phase=Phase.WAITING,
        task=command.task,
        queued_at=max(now, due),
        due=due,
        tick=due or now if is_perpetual(command.task.policy) else 0.0,
        previous=record.previous,
        last=record.last,
        outbox=record.outbox,
        seen=record.seen + seen,
        history=history,
        uncounted=record.uncounted,
        taken=record.taken,
        deployed=record.deployed,
    )
    made = begun(made, record, command, now)
    return Decision(did, made, effects_of(made))


def _displaced(record: Record, now: float) -> Record:
    """The record whose generation is over: its body, where there is one, is an entry of ``previous``."""
    actor, holder = record.task.actor, record.holder
    if holder is None:
        waited = record.phase is Phase.WAITING
        return owed(record, Count(what="superseded", where="head", actor=actor)) if waited else record
    stop = record.stop if record.phase is Phase.STOPPING else None
    if stop is None:
        return replace(record, previous=(*record.previous, entry(record, holder, None, counted=False)))
    last = ended(record, Phase.CANCELLED, now, reason=stop.reason)
    previous = (*record.previous, entry(record, holder, stop.deadline, counted=True))
    over = replace(owing(record, last), previous=previous, last=last)
    return owed(over, Count(what="cancelled", where="running", actor=actor))


def _first(command: c.Submit | c.Replace, seen: tuple[Seen, ...], history: tuple[Death, ...], now: float) -> Record:
    due = first_due(command.task.policy, command.due, now)
    made = Record(
        schema=schema_for(command.task, (), history),
        key=command.key,
        run_id=command.run_id,
        generation=1,
        phase=Phase.WAITING,
        task=command.task,
        queued_at=max(now, due),
        due=due,
        tick=due or now if is_perpetual(command.task.policy) else 0.0,
        seen=seen,
        history=history,
    )
    return begun(made, None, command, now)


# -- cancel ----------------------------------------------------------------------------------------------------------


def cancel(record: Record | None, command: c.Cancel, now: float) -> Result:
    """End the run that the command names, and no other; a command of the inbox once."""
    if record is None:
        return Refused(Why.ABSENT)
    if command.seen is None:
        return _cancel(record, command, now)
    if is_marked(record, command.seen):
        return Refused(Why.ALREADY)  # [13]
    result = _cancel(record, command, now)
    if isinstance(result, Refused) or result.record is None:
        return result
    if _is_full(record, command.seen):
        return Refused(Why.CROWDED)
    return replace(result, record=replace(result.record, seen=(*record.seen, command.seen)))


def _cancel(record: Record, command: c.Cancel, now: float) -> Result:
    told = tell(record.previous, now + record.task.policy.grace)
    if command.run_id is not None and command.run_id != record.run_id:
        return _cancel_older(record, command.run_id, now)
    if record.phase is Phase.WAITING:
        last = ended(record, Phase.CANCELLED, now, reason=command.reason)
        over = replace(record, phase=Phase.CANCELLED, previous=told, last=last, failure=None)
        counted = owed(owing(over, last), Count(what="cancelled", where="waiting", actor=record.task.actor))
        return decide(Did.CANCELLED, counted)
    if record.phase is Phase.RUNNING:
        stop = Stop(reason=command.reason, at=now, deadline=now + record.task.policy.grace)
        return decide(Did.STOPPING, replace(record, phase=Phase.STOPPING, stop=stop, previous=told))
    if told != record.previous:
        return decide(Did.STOPPING, replace(record, previous=told))
    return Refused(Why.STOPPING if record.phase is Phase.STOPPING else Why.FINISHED)


def _cancel_older(record: Record, run_id: str, now: float) -> Result:
    """Cancel a superseded run whose body may still be running (overlap wait, parallel): tell that body alone."""
    told = now + record.task.policy.grace
    hit = [entry for entry in record.previous if entry.run_id == run_id]
    if not hit:
        return Refused(Why.FINISHED)
    if all(entry.deadline is not None for entry in hit):
        return Refused(Why.STOPPING)
    previous = tuple(tell((entry,), told)[0] if entry.run_id == run_id else entry for entry in record.previous)
    return decide(Did.STOPPING, replace(record, previous=previous))


def _same_key(record: Record | None, command: c.Submit | c.Replace) -> None:
    if record is not None and record.key != command.key:
        raise IllegalTransition(record.phase, type(command).__name__, f"{command.key!r} is not {record.key!r}")


def _is_full(record: Record, seen: Seen | None) -> bool:
    """Whether a command of the inbox finds no room for its mark: then it has to come again."""
    return seen is not None and is_mark(seen) and len(record.to_forget) >= MAX_MARKS


def _knows(record: Record, command: c.Submit | c.Replace) -> bool:
    """Whether this very command has already been applied to the record."""
    if command.seen is not None and is_marked(record, command.seen):
        return True
    return leaves_trace(record, command.run_id)


def generation_of(record: Record, run_id: str) -> int:
    """The generation that ``run_id`` was or is; 0 where the record does not show it."""
    if record.run_id == run_id:
        return record.generation
    if record.last is not None and record.last.run_id == run_id:
        return record.last.generation
    return next((entry.generation for entry in record.previous if entry.run_id == run_id), 0)


def leaves_trace(record: Record, run_id: str) -> bool:
    """Whether the record shows that ``run_id`` was once its generation."""
    if record.run_id == run_id or (record.last is not None and record.last.run_id == run_id):
        return True
    if took_in(record, run_id):
        return True
    return any(entry.run_id == run_id for entry in record.previous)


def is_same_task(one: Task, other: Task) -> bool:
    """Whether both are of one actor, with the same arguments."""
    if one.actor != other.actor or (one.blob and one.blob.digest) != (other.blob and other.blob.digest):
        return False
    return one.blob is not None or one.args == other.args or bool(_plain(one.args) == _plain(other.args))


def _plain(args: msgspec.Raw) -> Any:
    return msgspec.json.decode(args)
