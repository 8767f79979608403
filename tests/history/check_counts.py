"""Counters against what is stored: never more than there was, and not fewer either where nothing went wrong.

Of fenced outcomes nothing is stored, for nothing was written. So each process is held to two others' words: the records say whose
run was another attempt's by the end of its body, and nobody else can have been fenced; and the history was told of each that was
fenced (unless that message got lost), which whoever told it has counted before. What a process counted last before it was killed,
or ended, nobody knows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise, takewhile

from tests.history.evidence import BodyLine, Evidence, HolderSeen, Revision, Violation
from tests.history.known import Known

_ENDS = {"succeeded": ("succeeded", "rescheduled"), "failed": ("failed",), "cancelled": ("cancelled",)}
"""Labels under which each end is counted."""


def check_counts(known: Known) -> Iterator[Violation]:
    """Each run is counted once, over all processes: by the write that ended it, or that took note of its end."""
    missing = known.evidence.missing
    exact = known.evidence.counted_exactly and not missing
    for what, (told, were, excused) in sums(known).items():
        if told > were + missing or (exact and told < were - excused):
            text = f"{told} runs counted as {what} ({known.evidence.counts}), {were} were"
            yield Violation("counted once", "", text)
    yield from _fenced(known)


def _fenced(known: Known) -> Iterator[Violation]:
    evidence = known.evidence
    lost: Counter[int] = Counter()
    for body in known.bodies:
        if not known.whole(body.start.key) or _lost_its_run(known, body.start):
            lost[known.pids.get(body.start.session, body.start.pid)] += 1
    told = Counter(known.pids[holder.session] for holder in set(evidence.fenced) if holder.session in known.pids)
    for pid in sorted({*evidence.counts.fenced, *told}):
        counted = evidence.counts.fenced.get(pid, 0)
        if counted > lost[pid]:
            yield Violation("counted once", "", f"process {pid} counted {counted} fenced, {lost[pid]} can have been")
        if pid in evidence.scraped and (counted < told[pid] or (evidence.told_exactly and counted > told[pid])):
            yield Violation("counted once", "", f"process {pid} counted {counted} fenced, and told of {told[pid]}")


def fenced(evidence: Evidence) -> tuple[int, int, int]:
    """(as counted, as told to the history, how many of these by processes whose last counts nobody knows)."""
    pids = {session.id: session.pid for session in evidence.sessions}
    told = Counter(pids.get(holder.session, 0) for holder in set(evidence.fenced))
    unknown = sum(number for pid, number in told.items() if pid not in evidence.scraped)
    return sum(evidence.counts.fenced.values()), told.total(), unknown


def _lost_its_run(known: Known, start: BodyLine) -> bool:
    """Whether a body's run was taken from it by another attempt, or ended by others: not by itself, nor by a newer generation.

    Or, where answers may get lost, after the body had given it back (retry, snooze): who looks too late for that cannot tell.
    """
    mine = HolderSeen(start.session, start.run_id, start.attempt)
    revisions = known.of_key[start.key]
    later = islice(revisions, bisect_right(revisions, start.fence, key=lambda revision: revision.seq), None)
    same = takewhile(lambda revision: revision.run_id == mine.run_id, later)
    left = (revision for revision in same if revision.holder != mine)
    return any(_is_anothers(revision, mine) for revision in islice(left, 1 if known.evidence.answers_known else None))


def _is_anothers(revision: Revision, mine: HolderSeen) -> bool:
    """As ``endings.not_mine`` says ``fenced``."""
    if revision.gone or revision.run_id != mine.run_id:
        return False
    if any(
        (entry.session, entry.run_id, entry.attempt) == (mine.session, mine.run_id, mine.attempt)
        for entry in revision.previous
    ):
        return True
    last = revision.last
    if last is not None and (last.session, last.run_id, last.attempt) == (mine.session, mine.run_id, mine.attempt):
        return False
    return revision.phase != "waiting" or revision.attempt != mine.attempt or revision.evicted


def sums(known: Known) -> dict[str, tuple[int, int, int]]:
    """(as counted, as stored, how many of these nobody has to count) by what became of runs.

    One whose record is purged before its wake-up tells a worker that it was superseded or cancelled is none.
    """
    counts = known.evidence.counts
    ended = Counter(last.phase for last, _ in known.outcomes.values())
    followed = {run_id for run_ids in known.run_ids.values() for run_id in run_ids[:-1] if run_id not in known.outcomes}
    purged, lost = _purged(known)
    found = {
        "superseded": (sum(counts.superseded.values()), len(followed), len(followed & purged) + lost["superseded"]),
        "cancelled, by where": (sum(counts.cancelled.values()), ended["cancelled"], lost["cancelled"]),
    }
    for phase, labels in _ENDS.items():
        uncounted = (
            ended[phase] if phase == "cancelled" else 0
        )  # those that were cancelled while they waited had no outcome
        found[phase] = sum(counts.outcomes.get(label, 0) for label in labels), ended[phase], uncounted
    return found


def _purged(known: Known) -> tuple[set[str], Counter[str]]:
    """Runs of which a purge left nothing, and how many others it took away before anybody had counted them."""
    runs, lost = set[str](), Counter[str]()
    for revisions in known.evidence.by_key().values():
        for revision, after in pairwise(revisions):
            if after.gone and not revision.gone:
                runs.add(revision.run_id)
                lost.update(revision.uncounted)
    return runs, lost
