"""Invariants of bodies against records: DESIGN section 6, numbers 1, 2, 4, 5, 6 and 8."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from msgspec import Struct

from tenure.core.aftermath import derived_id
from tests.history.evidence import HOOKED, BodyLine, Evidence, LastSeen, Revision, Violation


class Body(Struct, frozen=True, kw_only=True):
    """One body, from its start to its end or to the death of its process (for ever, if neither was seen)."""

    start: BodyLine
    end: BodyLine | None
    until: float


def bodies_of(evidence: Evidence) -> list[Body]:
    """Every body that started."""
    ends = {(line.pid, line.run_id, line.attempt): line for line in evidence.bodies if line.what == "end"}
    died = {death.pid: death.at for death in evidence.deaths}
    return [
        Body(start=line, end=end, until=end.at if end else died.get(line.pid, math.inf))
        for line in evidence.bodies
        if line.what == "start"
        for end in [ends.get((line.pid, line.run_id, line.attempt))]
    ]


class Known:
    """The evidence, by what the checks look up."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.bodies = bodies_of(evidence)
        self.by_seq = {revision.seq: revision for revision in evidence.revisions}
        self.runs: dict[str, Revision] = {}
        self.outcomes: dict[str, tuple[LastSeen, int]] = {}
        self.stopped_at: dict[str, int] = {}
        self.told: dict[tuple[str, str, int], float] = {}
        self.run_ids: dict[str, list[str]] = defaultdict(list)
        self._torn: set[str] = set()
        newest: dict[str, int] = {}
        for revision in evidence.revisions:
            if revision.before != newest.get(revision.key, 0):
                self._torn.add(revision.key)
            newest[revision.key] = revision.seq
            self._take(revision)
        self.closed_at = {s.id: s.stored_at for s in evidence.sessions if s.closed is not None}

    def whole(self, key: str) -> bool:
        """Whether every revision of a key was seen, for certain."""
        return not self.evidence.missing or (key not in self._torn and key in self.evidence.records)

    def _take(self, revision: Revision) -> None:
        if revision.gone:
            return
        if revision.run_id not in self.runs:
            self.run_ids[revision.key].append(revision.run_id)
        self.runs.setdefault(revision.run_id, revision)
        if revision.phase in {"stopping", "cancelled"}:
            self.stopped_at.setdefault(revision.run_id, revision.seq)
        if revision.last is not None:
            self.outcomes.setdefault(revision.last.run_id, (revision.last, revision.seq))
        for entry in revision.previous:
            if entry.deadline is not None:
                self.told.setdefault((entry.session, entry.run_id, entry.attempt), entry.deadline)


def check_bodies(known: Known) -> Iterator[Violation]:
    """Everything that can be seen of the bodies."""
    yield from _started_once(known)
    for body in known.bodies:
        yield from _was_claimed(known, body.start)
    yield from _fences_rise(known)
    yield from _outcomes_have_bodies(known)
    yield from _spawned_once(known)
    yield from _hooks_once(known)
    yield from _letters_once(known)
    yield from _no_two_at_once(known)


def _started_once(known: Known) -> Iterator[Violation]:
    seen: dict[tuple[str, int], BodyLine] = {}
    for body in known.bodies:
        start = body.start
        first = seen.setdefault((start.run_id, start.attempt), start)
        if first is not start:
            yield Violation(
                "started once",
                start.key,
                f"attempt {start.attempt} of {start.run_id} started in {first.pid} and in {start.pid},"
                f" {start.at - first.at:.3f} s later",
            )


def _was_claimed(known: Known, start: BodyLine) -> Iterator[Violation]:
    claim = known.by_seq.get(start.fence)
    if claim is None:
        return
    holder = claim.holder
    if (
        claim.key != start.key
        or holder is None
        or (holder.session, holder.run_id, holder.attempt) != (start.session, start.run_id, start.attempt)
        or claim.generation != start.generation
    ):
        yield Violation(
            "claims", start.key, f"attempt {start.attempt} of {start.run_id} ran without the claim at {start.fence}"
        )
    stopped = known.stopped_at.get(start.run_id)
    if stopped is not None and start.fence > stopped and claim.phase != "stopping":
        yield Violation(
            "cancelled stays",
            start.key,
            f"attempt {start.attempt} of {start.run_id} was claimed at {start.fence}, after its cancel at {stopped}",
        )


def _fences_rise(known: Known) -> Iterator[Violation]:
    newest: dict[str, BodyLine] = {}
    for start in sorted((body.start for body in known.bodies), key=lambda line: (line.key, line.fence)):
        before = newest.get(start.run_id)
        if before is not None and before.attempt >= start.attempt and before is not start:
            yield Violation(
                "fence rises",
                start.key,
                f"attempt {start.attempt} of {start.run_id} has fence {start.fence},"
                f" attempt {before.attempt} had {before.fence}",
            )
        newest[start.run_id] = start


def _outcomes_have_bodies(known: Known) -> Iterator[Violation]:
    returned = {
        (line.run_id, line.attempt, line.session)
        for line in known.evidence.bodies
        if line.what == "end" and line.how == "return"
    }
    for last, seq in known.outcomes.values():
        if last.phase == "succeeded" and (last.run_id, last.attempt, last.session) not in returned:
            key = known.by_seq[seq].key
            yield Violation(
                "no late outcome", key, f"{last.run_id} succeeded by attempt {last.attempt}, whose body did not return"
            )


def _spawned_once(known: Known) -> Iterator[Violation]:
    for line in known.evidence.bodies:
        if not line.spawned or line.how != "return":
            continue
        outcome = known.outcomes.get(line.run_id)
        won = outcome is not None and outcome[0].phase == "succeeded" and outcome[0].attempt == line.attempt
        if outcome is None and not known.whole(line.key):
            continue  # it may be among what nobody has seen
        for child in line.spawned:
            runs = known.run_ids.get(child, [])
            if len(runs) != int(won):
                yield Violation(
                    "spawned once",
                    line.key,
                    f"{child} has {len(runs)} runs, and the attempt that spawned it {'won' if won else 'did not win'}",
                )


def _hooks_once(known: Known) -> Iterator[Violation]:
    """A hook's key is derived from the run: there is one run of it if the outcome is the hook's, and none otherwise."""
    for run_id, (last, _) in known.outcomes.items():
        run = known.runs.get(run_id)
        if run is None or run.actor != HOOKED:
            continue
        for phase in ("succeeded", "failed", "cancelled"):
            key = derived_id(run_id, f"{phase}.0")
            number, wanted = len(known.run_ids.get(key, [])), int(phase == last.phase)
            if number != wanted:
                yield Violation(
                    "hooked once", run.key, f"{run_id} ended {last.phase}: {number} runs of its {phase} hook"
                )


def _letters_once(known: Known) -> Iterator[Violation]:
    kept = Counter(known.evidence.letters)
    failed = {run_id for run_id, (last, _) in known.outcomes.items() if last.phase == "failed"}
    for run_id in failed | kept.keys():
        if kept[run_id] != int(run_id in failed) and not (run_id not in known.outcomes and known.evidence.missing):
            what = "failed for good" if run_id in failed else "did not fail"
            yield Violation("letters once", "", f"{run_id} {what}: {kept[run_id]} dead letters")


# -- two at once -----------------------------------------------------------------------------------------------------


def _no_two_at_once(known: Known) -> Iterator[Violation]:
    by_key: dict[str, list[Body]] = defaultdict(list)
    for body in known.bodies:
        by_key[body.start.key].append(body)
    for key, bodies in by_key.items():
        running: list[Body] = []
        for body in sorted(bodies, key=lambda one: one.start.at):
            running = [other for other in running if other.until > body.start.at]
            for other in running:
                older, newer = sorted((other, body), key=lambda one: one.start.fence)
                if not _excused(known, older.start, newer.start):
                    yield Violation(
                        "no two bodies",
                        key,
                        f"generation {newer.start.generation} attempt {newer.start.attempt} (fence {newer.start.fence})"
                        f" ran beside generation {older.start.generation} attempt {older.start.attempt}"
                        f" (fence {older.start.fence}, {older.start.session}) from {body.start.wall:.3f} on",
                    )
            running.append(body)


def _excused(known: Known, older: BodyLine, newer: BodyLine) -> bool:
    """Whether the newer one was allowed to start: beside it, or because the older one's session or grace was over."""
    claim = known.by_seq.get(newer.fence)
    if claim is None or claim.overlap == "parallel":
        return True
    start = newer.wall + known.evidence.clocks.processes
    closed = known.closed_at.get(older.session, math.inf)
    deadline = known.told.get((older.session, older.run_id, older.attempt), math.inf)
    return min(closed, deadline) <= start or not _all_seen(known, older.fence, newer.fence)


def _all_seen(known: Known, first: int, last: int) -> bool:
    """Whether every revision of the key from one claim to the other was seen: one that was not may hold the excuse."""
    seq = last
    while seq > first:
        revision = known.by_seq.get(seq)
        if revision is None:
            return False
        seq = revision.before
    return seq == first
