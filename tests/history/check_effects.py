"""What follows from an outcome, exactly once and only if it was stored: DESIGN section 6, number 6."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tenure.core.aftermath import derived_id
from tests.history.evidence import HOOKED, Violation
from tests.history.known import Known

_ENDS = ("succeeded", "failed", "cancelled")


def check_effects(known: Known) -> Iterator[Violation]:
    """Spawned runs, successors, hooks and dead letters."""
    yield from _spawned_once(known)
    yield from _owed_by_somebody(known)
    yield from _succeeded_once(known)
    yield from _hooks_once(known)
    yield from _no_hooks_without_an_outcome(known)
    yield from _letters_once(known)


def _succeeded_once(known: Known) -> Iterator[Violation]:
    """A successor that a body has asked for is in the write of its outcome; and none is that nobody has asked for.

    One that fails has asked for none, and one that others end cannot have: then whoever starts the next is asked for it.
    """
    asked = {
        (line.run_id, line.attempt, line.session)
        for line in known.evidence.bodies
        if line.how == "return" and line.rescheduled
    }
    for past in known.pasts.values():
        for _, before, after in past.steps():
            last = after.last
            if before is None or last is None or last == before.last or last.run_id != before.run_id:
                continue
            wanted = before.every or (last.run_id, last.attempt, last.session) in asked
            own = last.phase == "succeeded" or (last.phase == "failed" and last.session != "")
            if own and wanted != (after.run_id != last.run_id):
                what = "has no successor" if wanted else f"is followed by {after.run_id}, for which nobody asked"
                yield Violation("successor once", after.key, f"{last.run_id} {what}, at revision {after.seq}")


def _spawned_once(known: Known) -> Iterator[Violation]:
    for line in known.evidence.bodies:
        if not line.spawned:
            continue
        outcome = known.outcomes.get(line.run_id)
        own = outcome is not None and outcome[0].phase == "succeeded" and outcome[0].attempt == line.attempt
        won = own and line.how == "return"
        if outcome is None and not known.whole(line.key):
            continue  # it may be among what nobody has seen
        for child in line.spawned:
            runs = known.run_ids.get(child, [])
            yield from _came_first(known, "spawned once", line.run_id, runs)
            if len(runs) != int(won):
                yield Violation(
                    "spawned once",
                    line.key,
                    f"{child} has {len(runs)} runs, and the attempt that spawned it {'won' if won else 'did not win'}",
                )


def _came_first(known: Known, invariant: str, origin: str, runs: list[str]) -> Iterator[Violation]:
    """What follows from an outcome is stored after it."""
    outcome = known.outcomes.get(origin)
    for run in (known.runs[run_id] for run_id in runs):
        if outcome is not None and run.seq < outcome[1] and known.whole(known.by_seq[outcome[1]].key):
            what = f"{run.run_id} is of revision {run.seq}; the outcome of {origin}, which owes it, is of {outcome[1]}"
            yield Violation(invariant, run.key, what)


def _owed_by_somebody(known: Known) -> Iterator[Violation]:
    """No record owes a run that is neither spawned by a body that returned nor a hook of a run that has ended so."""
    spawned = {key for line in known.evidence.bodies if line.how == "return" for key in line.spawned}
    hooks = {derived_id(run_id, f"{last.phase}.0") for run_id, (last, _) in known.outcomes.items()}
    told: set[str] = set()
    for revision in known.evidence.revisions:
        for key in {*revision.outbox_keys} - {revision.key} - spawned - hooks - told:
            told.add(key)
            yield Violation(
                "spawned once", revision.key, f"revision {revision.seq} owes {key}, which nobody has spawned"
            )


def _hooks_once(known: Known) -> Iterator[Violation]:
    """A hook's key is derived from the run: there is one run of it if the outcome is the hook's, and none otherwise."""
    for run_id, (last, _) in known.outcomes.items():
        run = known.runs.get(run_id)
        if run is None or run.actor != HOOKED:
            continue
        for phase in _ENDS:
            key = derived_id(run_id, f"{phase}.0")
            runs = known.run_ids.get(key, [])
            number, wanted = len(runs), int(phase == last.phase)
            yield from _came_first(known, "hooked once", run_id, runs)
            if number != wanted:
                yield Violation(
                    "hooked once", run.key, f"{run_id} ended {last.phase}: {number} runs of its {phase} hook"
                )


def _no_hooks_without_an_outcome(known: Known) -> Iterator[Violation]:
    for run_id, run in known.runs.items():
        if run.actor == HOOKED and run_id not in known.outcomes and known.whole(run.key):
            for phase in _ENDS:
                number = len(known.run_ids.get(derived_id(run_id, f"{phase}.0"), []))
                if number:
                    yield Violation("hooked once", run.key, f"{run_id} has no outcome, and {number} {phase} hooks")


def _letters_once(known: Known) -> Iterator[Violation]:
    kept = Counter(known.evidence.letters)
    failed = {run_id for run_id, (last, _) in known.outcomes.items() if last.phase == "failed"}
    for run_id in failed | kept.keys():
        if kept[run_id] != int(run_id in failed) and not (run_id not in known.outcomes and known.evidence.missing):
            what = "failed for good" if run_id in failed else "did not fail"
            yield Violation("letters once", "", f"{run_id} {what}: {kept[run_id]} dead letters")
