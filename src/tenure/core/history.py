"""What happened to a key, told from the revisions of its record one after the other, and from refusals.

For people: nothing is decided by it. Revisions are told apart by comparing each with the one before it, so what a write did
need not be stored with it; a revision that was not kept leaves a hole, not an error. Who was refused wrote nothing: workers
and supervisors say so in small messages of their own (``Refusal``), at most once.

Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from tenure.core.expiry import expires_at, is_over
from tenure.core.moments import moment_of
from tenure.core.parts import LOST
from tenure.core.records import TERMINAL, Last, Phase, Previous, Record
from tenure.core.schedule import is_perpetual

What = Literal[
    "submitted", "replaced", "followed", "moved", "claimed", "taken_over", "retried", "snoozed", "handed_back", "stopping",
    "succeeded", "failed", "cancelled", "ended", "refused", "expired", "purged", "kept_from",
]  # fmt: skip
Where = Literal["head", "tail", "inbox"]
MAX_WHY = 300


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a key, ``at`` the server's time.

    ``what``: ``submitted``, ``replaced`` (over a run that was live) or ``followed`` (as the successor of a perpetual or
    rescheduled run) begin a generation; ``moved`` gives a waiting run another time. ``claimed`` and ``taken_over`` begin an
    attempt by ``who`` (a session); ``retried``, ``snoozed`` and ``handed_back`` end one and the run waits again. ``stopping``:
    a cancel was accepted. ``succeeded``, ``failed`` and ``cancelled`` are outcomes. ``ended``: a body of an older generation is
    gone. ``refused``: ``who`` was, and wrote nothing. ``expired`` and ``purged`` end the key's life. ``kept_from``: what was
    before is not kept any more. ``revision``: of the record's write; 0 where nothing was written (``refused``, ``expired``).
    """

    at: datetime
    what: What
    revision: int = 0
    generation: int = 0
    run_id: str = ""
    attempt: int = 0
    who: str = ""
    why: str = ""


class Refusal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who was refused, and why: ``who`` is a session, ``where`` its head check, its tail check, or the inbox.

    ``generation`` and ``run_id`` are those that it wanted to act for, as far as it knew; ``seen``: the record's revision that it met.
    """

    run_id: str
    where: Where
    why: str
    who: str = ""
    generation: int = 0
    attempt: int = 0
    seen: int = 0


class Written(Struct, frozen=True):
    """A revision: ``record`` as it was stored ``at`` (seconds since the epoch); None: the mark of a purge."""

    revision: int
    at: float
    record: Record | None


class Told(Struct, frozen=True):
    """A refusal, and when the server got it (seconds since the epoch)."""

    at: float
    refusal: Refusal


encode_refusal = msgspec.json.Encoder().encode
decode_refusal = msgspec.json.Decoder(Refusal).decode


def steps(revisions: Iterable[Written], refusals: Iterable[Told] = (), now: float = 0.0) -> list[Step]:
    """Everything that happened until ``now``, in order.

    Revisions are in the order of their numbers, whatever their times say (a new leader's clock may be behind). A refusal
    comes after the revision that was met, and else by its time.
    """
    out: list[tuple[tuple[float, int], Step]] = []
    latest, before = 0.0, None
    reached: list[tuple[int, float]] = []
    for number, written in enumerate(sorted(revisions, key=lambda one: one.revision)):
        latest = max(latest, written.at)
        reached.append((written.revision, latest))
        found = _begun(written) if number == 0 or before is None else []
        out += [((latest, 0), step) for step in (*found, *_between(before, written))]
        before = written.record
    if before is not None and is_over(before, now):
        out.append(((max(latest, expires_at(before)), 0), _expired(before)))
    for told in refusals:
        met = max((at for revision, at in reached if revision <= told.refusal.seen), default=0.0)
        out.append(((max(told.at, met), 1), _refused(told)))
    return [step for _, step in sorted(out, key=lambda one: one[0])]


def _begun(written: Written) -> list[Step]:
    """The first revision that is kept, if something must have been before it."""
    record = written.record
    if record is None or (record.generation == 1 and record.attempt == 0 and record.phase is Phase.WAITING):
        return []
    return [_step(written, record, "kept_from", why=f"{record.phase.value}; what was before is not kept")]


def _between(before: Record | None, written: Written) -> list[Step]:
    """What the write of this revision did to the one before it."""
    record = written.record
    if record is None and before is not None and is_over(before, written.at):  # no more than its mark
        return [_expired(before)]
    if record is None:
        return [] if before is None else [_step(written, before, "purged")]
    if before is None:
        fresh = record.generation == 1 and record.attempt == 0 and record.phase is Phase.WAITING
        return [_step(written, record, "submitted", why=_plan(record))] if fresh else []
    if record.run_id != before.run_id and record.generation <= before.generation:  # a new life
        ended = [_expired(before)] if expires_at(before) else []  # or was purged, and that is not kept
        return [*ended, _step(written, record, "submitted", why=_plan(record))]
    out = []
    last = record.last
    if last is not None and last != before.last:
        out.append(_outcome(written, last))
    if record.run_id != before.run_id:
        out.append(_generation(written, before, record))
    elif record.phase not in TERMINAL:
        out += _same_run(written, before, record)
    out += [_gone(written, entry) for entry in before.previous if not _is_in(entry, record.previous)]
    return out


def _outcome(written: Written, last: Last) -> Step:
    failure = f"{last.failure.type}: {last.failure.message}" if last.failure is not None else ""
    return Step(
        at=_moment(written.at),
        what=last.phase.value,  # type: ignore[arg-type]  # only terminal phases are stored in `last`
        revision=written.revision,
        generation=last.generation,
        run_id=last.run_id,
        attempt=last.attempt,
        who=last.session,
        why=_short(failure or last.reason),
    )


def _generation(written: Written, before: Record, record: Record) -> Step:
    what: What = "submitted"
    last = record.last
    if before.phase not in TERMINAL:
        ended_now = last is not None and last.run_id == before.run_id
        if not ended_now:
            what = "replaced"
        elif last is not None and _is_chain(before, last):
            what = "followed"
    return _step(written, record, what, why=_plan(record))


def _is_chain(before: Record, last: Last) -> bool:
    """Whether the outcome and the next generation were one write of its own, and not a submit over what was over."""
    if last.phase is Phase.CANCELLED or (last.failure == LOST and not is_perpetual(before.task.policy)):
        return False
    return before.phase is Phase.RUNNING


def _same_run(written: Written, before: Record, record: Record) -> list[Step]:
    holder = record.holder
    if holder is not None and holder != before.holder:
        old = before.holder
        if old is None:
            return [_step(written, record, "claimed", who=holder.session)]
        return [_step(written, record, "taken_over", who=holder.session, why=f"from {old.session}")]
    if before.phase is not Phase.STOPPING and record.phase is Phase.STOPPING:
        return [_step(written, record, "stopping", why=record.stop.reason if record.stop is not None else "")]
    if record.phase is Phase.WAITING and before.holder is not None:
        who = before.holder.session
        if record.failures > before.failures:
            failure = record.failure
            why = f"{failure.type}: {failure.message}" if failure is not None else ""
            return [_step(written, record, "retried", who=who, why=why)]
        return [_step(written, record, "snoozed" if record.due else "handed_back", who=who)]
    if record.phase is Phase.WAITING and record.due != before.due:
        return [_step(written, record, "moved", why=_plan(record))]
    return []


def _gone(written: Written, entry: Previous) -> Step:
    return Step(
        at=_moment(written.at),
        what="ended",
        revision=written.revision,
        generation=entry.generation,
        run_id=entry.run_id,
        attempt=entry.attempt,
        who=entry.session,
        why="body of a superseded attempt",
    )


def _refused(told: Told) -> Step:
    refusal = told.refusal
    return Step(
        at=_moment(told.at),
        what="refused",
        generation=refusal.generation,
        run_id=refusal.run_id,
        attempt=refusal.attempt,
        who=refusal.who,
        why=f"{refusal.where}: {refusal.why}",
    )


def _step(written: Written, record: Record, what: What, *, who: str = "", why: str = "") -> Step:
    return Step(
        at=_moment(written.at),
        what=what,
        revision=written.revision,
        generation=record.generation,
        run_id=record.run_id,
        attempt=record.attempt,
        who=who,
        why=_short(why),
    )


def _expired(record: Record) -> Step:
    return _step(Written(0, expires_at(record), record), record, "expired")


def _is_in(entry: Previous, entries: tuple[Previous, ...]) -> bool:
    return any(other.holder() == entry.holder() for other in entries)


def _plan(record: Record) -> str:
    due = f", due {_moment(record.due).isoformat(timespec='seconds')}" if record.due else ""
    return f"{record.task.actor}{due}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_WHY else text[: MAX_WHY - 1] + "…"


def _moment(seconds: float) -> datetime:
    return moment_of(seconds)
