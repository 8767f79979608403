"""Invariants of bodies against records: DESIGN section 6, numbers 1, 2, 4, 5 and 8."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from tests.history.evidence import TIMED, BodyLine, Revision, Violation
from tests.history.known import Body, Known


def check_bodies(known: Known) -> Iterator[Violation]:
    """Everything that can be seen of the bodies."""
    yield from _started_once(known)
    for body in known.bodies:
        yield from _was_claimed(known, body.start)
    yield from _fences_rise(known)
    yield from _outcomes_have_bodies(known)
    yield from _stopped_for_a_reason(known)
    yield from _no_two_at_once(known)
    yield from _end_with_their_worker(known)


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
        seen_to = max(known.by_seq, default=0)
        if known.whole(start.key) and start.fence <= seen_to:  # a schedule goes on after the last look at the revisions
            yield Violation("claims", start.key, f"{start.run_id} started by a claim at {start.fence} that is nowhere")
        return
    yield from _at_its_place_and_time(known, start, claim)
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


def _at_its_place_and_time(known: Known, start: BodyLine, claim: Revision) -> Iterator[Violation]:
    """The body of the record's own actor, in the process of the session that holds it, and not before it is due."""
    if claim.actor != start.actor:
        yield Violation("claims", start.key, f"{start.run_id} is of {claim.actor}, and a body of {start.actor} ran")
    pid = known.pids.get(start.session, start.pid)
    if pid != start.pid:
        yield Violation("claims", start.key, f"{start.session} is of process {pid}, and its body ran in {start.pid}")
    early = claim.due - start.wall
    if early > known.evidence.clocks.processes:
        yield Violation("not early", start.key, f"{start.run_id} attempt {start.attempt} started {early:.3f} s early")


def _stopped_for_a_reason(known: Known) -> Iterator[Violation]:
    """What tells one run to stop never reaches another: not after a purge, and not the next attempt elsewhere."""
    for line in known.evidence.bodies:
        if line.how not in {"stop cancel", "stop superseded"} or not known.whole(line.key):
            continue
        told = known.told_at.get((line.session, line.run_id, line.attempt))
        if line.run_id in known.stopped_at:
            stopped = known.by_seq[known.stopped_at[line.run_id]].stored
            told = stopped if told is None else min(told, stopped)
        if told is None or told > line.wall + known.evidence.clocks.observers:
            yield Violation(
                "stopped for a reason", line.key, f"attempt {line.attempt} of {line.run_id}: {line.how}, by nobody"
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
        (line.run_id, line.attempt, line.session): line
        for line in known.evidence.bodies
        if line.what == "end" and line.how == "return"
    }
    for last, seq in known.outcomes.values():
        end = returned.get((last.run_id, last.attempt, last.session))
        what = ""
        if last.phase == "succeeded" and end is None:
            what = f"{last.run_id} succeeded by attempt {last.attempt}, whose body did not return"
        elif last.phase == "failed" and end is not None and not (end.actor in TIMED or end.child):
            # one that has a timeout may return after it, and a child process be killed when its body has
            what = f"{last.run_id} failed by attempt {last.attempt}, whose body returned"
        if what:
            yield Violation("no late outcome", known.by_seq[seq].key, what)


def _end_with_their_worker(known: Known) -> Iterator[Violation]:
    """A child process is gone when its worker is: nothing of its body is done after that."""
    died = {death.pid: death.at for death in known.evidence.deaths}
    for line in known.evidence.bodies:
        late = line.at - died.get(line.pid, math.inf)
        if line.child and late > known.evidence.clocks.observers:
            yield Violation(
                "ends with its worker",
                line.key,
                f"attempt {line.attempt} of {line.run_id}: a {line.what} in {line.child}, {late:.3f} s after {line.pid} died",
            )


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
    if claim is None or (claim.overlap == "parallel" and older.run_id != newer.run_id):
        return True
    start = newer.wall + known.evidence.clocks.processes
    closed = known.closed_at.get(older.session, math.inf)
    deadline = known.told.get((older.session, older.run_id, older.attempt), math.inf)
    return min(closed, deadline) <= start or not _all_seen(known, older.fence, newer.fence)


def _all_seen(known: Known, first: int, last: int) -> bool:
    """Whether every revision of the key from one claim to the other was seen: one that was not may hold the excuse."""
    seq = last
    while seq != first:
        revision = known.by_seq.get(seq)
        if revision is None:
            return False
        seq = revision.before
    return True
