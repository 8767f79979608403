"""Counters against what is stored: never more than there was, and not fewer either where nothing went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.history.evidence import Violation
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
