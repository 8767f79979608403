"""The checker: from what a run left behind to every invariant that did not hold. Pure; it sees evidence and nothing else.

``check`` finds nothing in a run that kept DESIGN section 6; ``test_checker`` shows that it finds each violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.history.check_added import check_added
from tests.history.check_answers import check_answers
from tests.history.check_bodies import check_bodies
from tests.history.check_budget import check_budget
from tests.history.check_causes import check_causes
from tests.history.check_counts import check_counts
from tests.history.check_effects import check_effects
from tests.history.check_holds import check_holds
from tests.history.check_paced import check_paced
from tests.history.check_records import check_records
from tests.history.evidence import CHIME, AskLine, Evidence, Violation, answered
from tests.history.known import Known
from tests.history.past import LIVE, OVER


def check(evidence: Evidence) -> list[Violation]:
    """Every violation, sorted."""
    known = Known(evidence)
    found = [
        *check_records(evidence),
        *check_bodies(known),
        *check_holds(known),
        *check_budget(known),
        *check_effects(known),
        *check_answers(known),
        *check_causes(known),
        *check_added(known),
        *check_paced(known),
        *_check_asks(known),
        *_check_end(known),
        *check_counts(known),
    ]
    return sorted(found)


# -- what producers were told ----------------------------------------------------------------------------------------


def _check_asks(known: Known) -> Iterator[Violation]:
    accepted = Counter(ask.run_id for ask in known.evidence.asks if ask.told == "accepted" and ask.ask != "trigger")
    for run_id, number in accepted.items():
        if number > 1:
            yield Violation("told", "", f"{number} asks were told that {run_id} is the run that they started")
    for ask in answered(known.evidence.asks):
        run = known.runs.get(ask.run_id)
        if run is not None and ask.generation and (run.key, run.generation) != (ask.key, ask.generation):
            what = f"{ask.run_id} as generation {ask.generation} of {ask.key}; it is {run.generation} of {run.key}"
            yield Violation("told", ask.key, f"{ask.ask} was told of {what}")
        if ask.told.startswith(("error", "the value")):
            yield Violation("told", ask.key, f"{ask.ask}: {ask.told}")
        elif ask.ask in {"submit", "replace"} and ask.told in {"accepted", "kept"}:
            yield from _accepted(known, ask)
        elif ask.ask == "cancel" and ask.told in {"cancelled", "stopping"}:
            yield from _cancelled(known, ask)
        elif ask.ask == "trigger" and ask.told == "accepted":
            yield from _triggered(known, ask)
        elif ask.ask == "result" and ask.told in OVER:
            yield from _result(known, ask)


def _accepted(known: Known, ask: AskLine) -> Iterator[Violation]:
    if ask.run_id not in known.runs:
        if ask.run_id not in known.outcomes and known.whole(ask.key):
            yield Violation("nothing lost", ask.key, f"{ask.told} run {ask.run_id} is in no revision of the record")
    elif ask.told == "accepted":
        yield from _opened(known, ask)


def _opened(known: Known, ask: AskLine) -> Iterator[Violation]:
    """A submit that keeps or rejects opens no generation over a live one, unless that is found to be lost [29]."""
    found = known.opened.get(ask.run_id)
    if found is None:
        return
    before, after = found
    if ask.ask == "replace" and ask.mode not in {"", after.overlap}:
        yield Violation("told", ask.key, f"{ask.run_id} replaces by {after.overlap}, it was asked for {ask.mode}")
    if ask.ask == "submit" and ask.mode in {"keep", "reject"} and before is not None and before.phase in LIVE:
        lost = before.phase == "running" and after.last is not None and after.last.run_id == before.run_id
        if not lost:
            yield Violation(
                "one live run",
                ask.key,
                f"{ask.run_id} was submitted ({ask.mode}) over {before.run_id}, which was {before.phase}",
            )


def _cancelled(known: Known, ask: AskLine) -> Iterator[Violation]:
    """``at`` of an outcome is taken before its write: one that is later than the answer was stored after the cancel."""
    outcome = known.outcomes.get(ask.run_id)
    if outcome is None or outcome[0].phase == "cancelled":
        return
    last = outcome[0]
    if last.at > ask.wall + known.evidence.clocks.processes or (
        ask.told == "cancelled" and last.at > ask.asked + known.evidence.clocks.processes
    ):
        yield Violation(
            "cancelled stays",
            ask.key,
            f"{ask.run_id} was {ask.told} at {ask.wall:.3f} and {last.phase} at {last.at:.3f} by attempt {last.attempt}",
        )


def _triggered(known: Known, ask: AskLine) -> Iterator[Violation]:
    """Who is told that a run is to start now has a revision by then in which it is due by then."""
    if not known.whole(ask.key):
        return
    by = ask.wall + known.evidence.clocks.processes
    if not any(r.run_id == ask.run_id and r.stored <= by and r.due <= by for r in known.of_key[ask.key] if not r.gone):
        yield Violation("told", ask.key, f"{ask.run_id} was triggered by {ask.wall:.3f}, and is not due by then")


def _result(known: Known, ask: AskLine) -> Iterator[Violation]:
    outcome = known.outcomes.get(ask.run_id)
    if outcome is not None and outcome[0].phase != ask.told:
        yield Violation("told", ask.key, f"the result of {ask.run_id} was told as {ask.told}, it is {outcome[0].phase}")


# -- the end ---------------------------------------------------------------------------------------------------------


def _check_end(known: Known) -> Iterator[Violation]:
    evidence = known.evidence
    for key, record in evidence.records.items():
        if key == CHIME:
            continue  # it goes on
        if record.phase not in OVER:
            yield Violation("every run ends", key, f"{record.run_id} is still {record.phase}, attempt {record.attempt}")
        elif record.previous or record.outbox or record.seen:
            yield Violation("every run ends", key, f"{record.run_id} is {record.phase} but still owes something")
    for key, revisions in evidence.by_key().items():
        newest = revisions[-1]
        if key not in evidence.records and not newest.gone and not (newest.phase in OVER or evidence.missing):
            yield Violation("nothing lost", key, f"the record is gone; it was {newest.phase} at revision {newest.seq}")
    yield from _check_kept(known)
    for subject in evidence.work_left:
        yield Violation("no work left", subject, "still stored in the work stream")
    for session in evidence.sessions:
        if session.closed is None and session.pid not in evidence.alive:
            yield Violation("sessions close", session.id, f"still open, and process {session.pid} is dead")


def _check_kept(known: Known) -> Iterator[Violation]:
    """What was stored before somebody looked is there when they look, or what came over it; but for what has expired."""
    evidence, clocks = known.evidence, known.evidence.clocks
    for key, revisions in known.of_key.items():
        newest = next((revision for revision in reversed(revisions) if not revision.expired), None)
        if (
            newest is None
            or not newest.stored
            or newest.stored + clocks.observers + clocks.reads_behind > evidence.looked_at
        ):
            continue
        record = evidence.records.get(key)
        if record is not None and record.seq < newest.seq:
            yield Violation("nothing lost", key, f"revision {newest.seq} was stored, and {record.seq} is what is there")
        expired = 0.0 < newest.until <= evidence.looked_at + clocks.processes
        if record is None and newest.phase in OVER and not expired and not evidence.missing:
            yield Violation("nothing lost", key, f"the record is gone, with {newest.run_id}, which was {newest.phase}")
