"""Counters against what is stored: never more than there was, and not fewer either where nothing went wrong.

What a process had counted after it was scraped last and before it was killed with -9, nobody knows; but the records tell the writes
of that time, and no others can be missing.

Of fenced outcomes nothing is stored, for nothing was written. So each process is held to two others' words: the records say whose
run was another attempt's by the end of its own, and nobody else can have been fenced; and the history was told of each that was
fenced (unless that message got lost), which whoever told it has counted before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise, takewhile

from msgspec import Struct

from tests.history.evidence import CHIME, Counts, Evidence, HolderSeen, Revision, Unread, Violation
from tests.history.known import Known
from tests.history.past import LIVE

_IN_HAND_SECONDS = 1.0
"""So long before it was counted a write may have been stored: its answer was on its way, and a body blocked the loop."""
_WHERE = {
    "superseded head": ("head",),
    "superseded tail": ("tail", "retry", "reschedule"),
    "cancelled waiting": ("waiting",),
    "cancelled running": ("running", "forced"),
    "succeeded": ("succeeded", "rescheduled"),
    "failed": ("failed",),
}
"""What may become of a run, as far as the records tell, and the labels under which that is counted."""


class Sum(Struct, frozen=True, kw_only=True):
    """Of what became of runs: as ``counted``, as ``stored``; of these ``excused``, which nobody has to count.

    ``unread``: how many at most were counted by those who were killed before anybody read it.
    """

    counted: int
    stored: int
    excused: int = 0
    unread: int = 0

    @property
    def least(self) -> int:
        """So many must have been counted, where nothing else went wrong."""
        return self.stored - self.excused - self.unread


def check_counts(known: Known) -> Iterator[Violation]:
    """Each run is counted once, over all processes: by the write that ended it, or that took note of its end."""
    missing = known.evidence.missing
    exact = known.evidence.counted_exactly and not missing
    for what, of in sums(known).items():
        if of.counted > of.stored + missing or (exact and of.counted < of.least):
            text = f"{of.counted} runs counted as {what} ({known.evidence.counts}), {of.stored} were: {of}"
            yield Violation("counted once", "", text)
    yield from _fenced(known)


def _fenced(known: Known) -> Iterator[Violation]:
    evidence = known.evidence
    pids = {body.start.session: body.start.pid for body in known.bodies} | known.pids
    lost: Counter[int] = Counter()
    for (key, mine), fence in _attempts(known).items():
        if not known.whole(key) or _lost_its_run(known, key, mine, fence):
            lost[pids.get(mine.session, 0)] += 1
    told = Counter(known.pids[holder.session] for holder in set(evidence.fenced) if holder.session in known.pids)
    for pid in sorted({*evidence.counts.fenced, *told}):
        counted = evidence.counts.fenced.get(pid, 0)
        if counted > lost[pid] + evidence.missing:  # each of these may be the claim of one that never came to its body
            yield Violation("counted once", "", f"process {pid} counted {counted} fenced, {lost[pid]} can have been")
        if pid in evidence.scraped and (counted < told[pid] or (evidence.told_exactly and counted > told[pid])):
            yield Violation("counted once", "", f"process {pid} counted {counted} fenced, and told of {told[pid]}")


def fenced(evidence: Evidence) -> tuple[int, int, int]:
    """(as counted, as told to the history, how many of these by processes whose last counts nobody has read)."""
    pids = {session.id: session.pid for session in evidence.sessions}
    told = Counter(pids.get(holder.session, 0) for holder in set(evidence.fenced))
    unknown = sum(number for pid, number in told.items() if pid not in evidence.scraped)
    return sum(evidence.counts.fenced.values()), told.total(), unknown


def _attempts(known: Known) -> dict[tuple[str, HolderSeen], int]:
    """The revision of each attempt's claim, of those too that never came to a body: their process froze right then."""
    found = {
        (start.key, HolderSeen(start.session, start.run_id, start.attempt)): start.fence
        for start in (body.start for body in known.bodies)
    }
    for key, revisions in known.of_key.items():
        for revision in revisions:
            if revision.holder is not None:
                found.setdefault((key, revision.holder), revision.seq)
    return found


def _lost_its_run(known: Known, key: str, mine: HolderSeen, fence: int) -> bool:
    """Whether an attempt's run was taken from it by another one, or ended by others: not by itself, nor by a newer generation.

    Or, where answers may get lost, after it had given it back (retry, snooze): who looks too late for that cannot tell.
    """
    revisions = known.of_key[key]
    later = islice(revisions, bisect_right(revisions, fence, key=lambda revision: revision.seq), None)
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


def sums(known: Known) -> dict[str, Sum]:
    """By what became of runs, and where.

    One whose record is purged before its wake-up tells a worker that it was superseded or cancelled is none.
    """
    counted, stored = _counted(known.evidence.counts), _stored(known)
    excused, unread = _excused(known), _unread(known)
    return {
        what: Sum(counted=counted[what], stored=stored[what], excused=excused[what], unread=unread[what])
        for what in _WHERE
    }


def _counted(counts: Counts) -> dict[str, int]:
    families = {"superseded": counts.superseded, "cancelled": counts.cancelled}
    return {
        what: sum(families.get(what.partition(" ")[0], counts.outcomes).get(label, 0) for label in labels)
        for what, labels in _WHERE.items()
    }


def _stored(known: Known) -> Counter[str]:
    found: Counter[str] = Counter()
    for key, run_ids in _counted_keys(known):
        lived = {revision.run_id: revision.phase for revision in known.of_key[key] if revision.phase in LIVE}
        for run_id in run_ids:
            outcome = known.outcomes.get(run_id)
            if outcome is not None:
                found[_end(outcome[0].phase, lived.get(run_id))] += 1
            elif run_id != run_ids[-1]:
                found[_refused(lived.get(run_id))] += 1
    return found


def _counted_keys(known: Known) -> Iterator[tuple[str, list[str]]]:
    """Every key but that of the schedule, which goes on while the others are looked at."""
    return ((key, run_ids) for key, run_ids in known.run_ids.items() if key != CHIME)


def _end(phase: str, lived: str | None) -> str:
    if phase != "cancelled":
        return phase
    return "cancelled waiting" if lived == "waiting" else "cancelled running"


def _refused(lived: str | None) -> str:
    return "superseded head" if lived == "waiting" else "superseded tail"


def _excused(known: Known) -> Counter[str]:
    """Runs of which a purge or an expiry left nothing before anybody had counted them."""
    found: Counter[str] = Counter()
    for key, run_ids in _counted_keys(known):
        followed = {run_id for run_id in run_ids[:-1] if run_id not in known.outcomes}
        for revision, after in pairwise(known.of_key[key]):
            if after.gone and not revision.gone:
                found.update(revision.uncounted)
                found.update([_refused(revision.phase)] if revision.run_id in followed else [])
    return found


def _unread(known: Known) -> Counter[str]:
    """What those may have counted whom nobody has read: the writes of that time which nobody else has made."""
    found: Counter[str] = Counter()
    for key, _ in _counted_keys(known) if known.evidence.unread else ():
        for _, before, after in known.pasts[key].steps():
            if before is not None and any(_may_be_of(known, before, after, one) for one in known.evidence.unread):
                found.update(_told_by(before, after))
    return found


def _may_be_of(known: Known, before: Revision, after: Revision, unread: Unread) -> bool:
    in_time = not after.stored or unread.since - _IN_HAND_SECONDS <= after.stored <= unread.until
    writer = ""
    if after.last is not None and after.last != before.last:
        writer = after.last.session
    elif after.holder is not None and after.holder != before.holder:
        writer = after.holder.session
    return in_time and known.pids.get(writer, unread.pid) == unread.pid


def _told_by(before: Revision, after: Revision) -> Counter[str]:
    """What the writer of a revision has to count."""
    if after.gone:
        return Counter()
    owed = Counter(before.uncounted)
    owed.subtract(after.uncounted)
    found = +owed
    if after.last is not None and after.last != before.last:
        end = _end(after.last.phase, before.phase)
        found[end] += owed[end] >= 0  # else it leaves that to others
    return found
