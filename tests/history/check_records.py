"""Invariants that every revision of every record shows by itself: DESIGN section 6, numbers 1, 2, 3, 5 and 6."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.history.evidence import Evidence, LastSeen, Revision, Violation
from tests.history.past import OVER


def check_records(evidence: Evidence) -> Iterator[Violation]:
    """Everything that can be seen in the revisions of each key."""
    for key, revisions in evidence.by_key().items():
        for life in lives(revisions):
            yield from _never_back(key, life)
        for before, after in pairwise([None, *revisions]):
            if after is None:
                continue
            begins = after.before == 0 if before is None else before.gone and after.before == before.seq
            if begins and not after.gone:
                yield from _begins(key, after)
            if before is None:
                continue
            if not evidence.missing and not after.gone and after.before not in {before.seq, -1}:
                yield Violation(
                    "one write", key, f"revision {after.seq} was written over {after.before}, not over {before.seq}"
                )
            if after.before == before.seq and not before.gone:
                yield from (
                    Violation(name, key, f"{what} at revision {after.seq}") for name, what in step(before, after)
                )
        yield from _one_outcome(key, revisions)
        yield from _no_run_returns(key, revisions)


def lives(revisions: list[Revision]) -> Iterator[list[Revision]]:
    """The revisions of one key, life by life; the marks between them are left out."""
    life: list[Revision] = []
    for revision in revisions:
        # Its purge, and maybe its first generations, were seen by nobody: then it does not follow what was seen last.
        anew = bool(life) and revision.generation <= life[-1].generation and revision.run_id != life[-1].run_id
        unseen = anew and revision.before != life[-1].seq
        if (revision.gone or unseen) and life:
            yield life
            life = []
        if not revision.gone:
            life.append(revision)
    if life:
        yield life


def _never_back(key: str, life: list[Revision]) -> Iterator[Violation]:
    for before, after in pairwise(life):
        if (after.generation, after.attempt) < (before.generation, before.attempt):
            yield Violation(
                "never back",
                key,
                f"generation {before.generation} attempt {before.attempt} became {after.generation}, {after.attempt}"
                f" at revision {after.seq}",
            )


def _begins(key: str, first: Revision) -> Iterator[Violation]:
    """A life begins with a run that waits, and with nothing of another one."""
    old = first.previous or first.outbox or first.last
    if (first.generation, first.phase, first.attempt, first.holder) != (1, "waiting", 0, None) or old:
        what = f"a life began as generation {first.generation}, {first.phase} at attempt {first.attempt}"
        yield Violation("never back", key, f"{what}{', with what was left of another' if old else ''}, at {first.seq}")


def step(a: Revision, b: Revision) -> Iterator[tuple[str, str]]:
    """What is wrong with one write: ``b`` replaced ``a``."""
    if b.gone:
        yield from _forgotten(a, b)
        return
    yield from _deadlines_stay(a, b)
    yield from _previous_are_known(a, b)
    yield from _same_run(a, b) if a.run_id == b.run_id else _next_run(a, b)
    if b.last != a.last:
        yield from _new_outcome(a, b)


def _forgotten(a: Revision, b: Revision) -> Iterator[tuple[str, str]]:
    what = "expired" if b.expired else "was purged"
    if a.phase in {"running", "stopping"} or (b.expired and a.phase not in OVER):
        yield "nothing lost", f"{a.run_id} {what} while it was {a.phase}"
    if a.previous or a.outbox or a.seen:
        yield "nothing lost", f"{a.run_id} {what} while it owed something"


def _deadlines_stay(a: Revision, b: Revision) -> Iterator[tuple[str, str]]:
    told = {(p.session, p.run_id, p.attempt): p.deadline for p in a.previous if p.deadline is not None}
    for p in b.previous:
        deadline = told.get((p.session, p.run_id, p.attempt))
        if deadline is not None and p.deadline != deadline:
            yield (
                "deadlines stay",
                f"attempt {p.attempt} of {p.run_id} had until {deadline}, and has until {p.deadline}",
            )


def _previous_are_known(a: Revision, b: Revision) -> Iterator[tuple[str, str]]:
    """Whoever comes into ``previous`` held the record right before; and a claim leaves nobody there, but for ``parallel``."""
    for session, run_id, attempt in b.entries() - a.entries() - {a.held()}:
        yield "previous", f"attempt {attempt} of {run_id} under {session} is in it, which did not hold the record"
    if a.phase == "waiting" and b.phase == "running" and b.previous and b.overlap != "parallel":
        yield "previous", f"{b.run_id} was claimed over {len(b.previous)} bodies that are still to be waited for"


def _same_run(a: Revision, b: Revision) -> Iterator[tuple[str, str]]:
    if b.generation != a.generation:
        yield "never back", f"run {a.run_id} changed its generation from {a.generation} to {b.generation}"
    if (b.actor, b.overlap, b.every) != (a.actor, a.overlap, a.every):
        yield (
            "one run",
            f"{a.run_id} is of {b.actor}, {b.overlap}, {b.every}; it was of {a.actor}, {a.overlap}, {a.every}",
        )
    if a.phase in OVER and b.phase != a.phase:
        yield ("cancelled stays" if a.phase == "cancelled" else "one outcome"), f"{a.phase} became {b.phase}"
    if a.phase == "stopping" and b.phase not in {"stopping", "cancelled"}:
        yield "cancelled stays", f"an accepted cancel of {a.run_id} became {b.phase}"
    if b.attempt == a.attempt + 1:
        if b.phase != "running" or b.holder is None or b.holder.attempt != b.attempt:
            yield "claims", f"attempt {b.attempt} of {b.run_id} was counted without a claim"
    elif b.attempt != a.attempt:
        yield "claims", f"attempt {a.attempt} of {a.run_id} became {b.attempt}"
    elif b.holder is not None and b.holder != a.holder:
        yield "claims", f"attempt {b.attempt} of {b.run_id} changed hands"
    if b.phase in OVER and a.phase not in OVER and (b.last is None or b.last.run_id != b.run_id):
        yield "one outcome", f"{b.run_id} is {b.phase} without an outcome"


def _next_run(a: Revision, b: Revision) -> Iterator[tuple[str, str]]:
    if b.generation != a.generation + 1:
        yield "never back", f"generation {a.generation} was followed by {b.generation}"
    if (b.phase, b.attempt, b.holder) != ("waiting", 0, None):
        yield "claims", f"generation {b.generation} began {b.phase} at attempt {b.attempt}"
    ended = b.last is not None and b.last.run_id == a.run_id
    if a.phase == "stopping" and not (ended and b.last is not None and b.last.phase == "cancelled"):
        yield "cancelled stays", f"an accepted cancel of {a.run_id} was forgotten by generation {b.generation}"
    if a.holder is not None and b.last == a.last and a.held() not in b.entries():
        yield "no two bodies", f"generation {b.generation} has forgotten the body of generation {a.generation}"
    if set(a.outbox) - set(b.outbox):
        yield "spawned once", f"generation {b.generation} has dropped what generation {a.generation} owed"


def _new_outcome(a: Revision, b: Revision) -> Iterator[tuple[str, str]]:
    last = b.last
    if last is None:
        yield "one outcome", "the outcome of the key was dropped"
        return
    if last.run_id != a.run_id or a.phase in OVER:
        yield (
            "no late outcome",
            f"{last.phase} of {last.run_id} attempt {last.attempt} over {a.run_id}, which was {a.phase}",
        )
        return
    if last.session and (last.session, last.run_id, last.attempt) != a.held():
        yield (
            "no late outcome",
            f"{last.phase} by attempt {last.attempt} under {last.session}, which does not hold the run",
        )
    if last.phase == "succeeded" and not last.session:
        yield "no late outcome", f"{last.run_id} succeeded by nobody"
    if last.phase == "cancelled" and (a.phase == "running" or (a.phase == "waiting" and b.run_id != a.run_id)):
        yield "no late outcome", f"{last.run_id} was cancelled, and no cancel was accepted"
    if last.phase == "failed" and a.phase == "waiting":
        yield "no late outcome", f"{last.run_id} failed while it waited"
    if a.phase == "stopping" and last.phase != "cancelled":
        yield "cancelled stays", f"an accepted cancel of {a.run_id} ended {last.phase}"
    if a.every and last.phase != "cancelled" and b.run_id == a.run_id:
        yield "successor once", f"perpetual run {a.run_id} ended {last.phase} without a successor"


def _one_outcome(key: str, revisions: list[Revision]) -> Iterator[Violation]:
    outcomes: dict[str, set[LastSeen]] = defaultdict(set)
    for revision in revisions:
        if revision.last is not None:
            outcomes[revision.last.run_id].add(revision.last)
    for run_id, found in outcomes.items():
        if len(found) > 1:
            told = " and ".join(sorted(f"{last.phase} by attempt {last.attempt}" for last in found))
            yield Violation("one outcome", key, f"run {run_id} has ended {told}")


def _no_run_returns(key: str, revisions: list[Revision]) -> Iterator[Violation]:
    left: set[str] = set()
    generations: dict[str, int] = {}
    for before, after in pairwise(revisions):
        if before.run_id != after.run_id and before.run_id:
            left.add(before.run_id)
        if after.run_id in left:
            yield Violation("never back", key, f"run {after.run_id} is back at revision {after.seq}")
    for revision in revisions:
        if not revision.gone and generations.setdefault(revision.run_id, revision.generation) != revision.generation:
            yield Violation("never back", key, f"run {revision.run_id} has two generations")
