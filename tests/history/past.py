"""The states that one key went through, in order, and where each thing that a client may be told of was true.

State 0 is the key without a record, before anything was written; each revision makes the next. Where revisions were seen
by nobody there is one state for all of them, of which anything may have been true.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from tenure.core.records import MAX_PREVIOUS
from tests.history.evidence import Revision

OVER = frozenset({"succeeded", "failed", "cancelled"})
LIVE = frozenset({"waiting", "running"})

Fact = tuple[str | int, ...]
NONE: Fact = ("none",)
GONE: Fact = ("gone",)
RECORD: Fact = ("record",)
BUSY: Fact = ("busy",)
CROWDED: Fact = ("crowded",)


def is_trigger(before: Revision | None, after: Revision) -> bool:
    """Whether a write has done nothing but start a run before its time."""
    if (
        before is None
        or after.gone
        or (before.run_id, before.phase, after.phase) != (after.run_id, "waiting", "waiting")
    ):
        return False
    return after.due == 0.0 < before.due


class Past:
    """The states of one key."""

    def __init__(self, revisions: list[Revision], *, holes: bool, open_end: bool) -> None:
        """``holes``: revisions may be missing; ``open_end``: also after the last one."""
        self.states: list[Revision | None] = [None]
        self.births: dict[str, int] = {}
        self.numbers: dict[int, int] = {}
        self.holes: list[int] = []
        self._lapsed: dict[int, float] = {}
        self._expired: dict[int, float] = {}
        self._facts: dict[Fact, list[int]] = defaultdict(list, {NONE: [0]})
        self._ends: dict[str, int] = {}
        self._last_ends: dict[str, int] = {}
        before = 0
        for revision in revisions:
            if holes and revision.before != before:
                self._hole()
            before = revision.seq
            self._take(revision)
        if holes and open_end:
            self._hole()

    def __len__(self) -> int:
        return len(self.states)

    def steps(self) -> Iterator[tuple[int, Revision | None, Revision]]:
        """Each write that was seen together with what it replaced (None: nothing), and the number of its state."""
        for number in range(1, len(self.states)):
            after = self.states[number]
            if after is not None and number - 1 not in self.holes:
                before = self.states[number - 1]
                yield number, None if before is None or before.gone else before, after

    def first(self, facts: tuple[Fact, ...], at: int) -> int | None:
        """The first state from ``at`` on in which one of the facts was true or may have been."""
        found = [self._next(self._facts.get(fact, ()), at) for fact in facts]
        found.append(self._next(self.holes, at))
        return min((number for number in found if number is not None), default=None)

    def first_absent(self, by: float, at: int) -> int | None:
        """The first state from ``at`` on in which there was no record, or none any more ``by`` then: it had expired under a write."""
        lapsed = [number for number in self._lapsed if number >= at and self._lapsed[number] <= by]
        return min((number for number in (self.first((NONE,), at), *lapsed) if number is not None), default=None)

    def first_expired(self, since: float, at: int) -> int | None:
        """The first state from ``at`` on that is a record's expiry, ``since`` then at the earliest."""
        return min((number for number, when in self._expired.items() if number >= at and when >= since), default=None)

    def first_after(self, run_id: str, fact: Fact, at: int) -> int | None:
        """The first state from ``at`` on in which the fact was true and the key had left the run."""
        end = self._ends.get(run_id)
        return self.first((), at) if end is None else self._first_of(fact, at, end + 1)

    def first_without(self, run_id: str, at: int) -> int | None:
        """The first state from ``at`` on in which the key had left the run and its outcome was not there any more."""
        end = self._ends.get(run_id)
        if end is None:
            return self.first((), at)
        start = max(at, end + 1, self._last_ends.get(run_id, 0) + 1)
        return self._first_of(None, at, start)

    def _first_of(self, fact: Fact | None, at: int, start: int) -> int | None:
        start = max(at, start)
        ever = start if start < len(self.states) else None
        found = ever if fact is None else self._next(self._facts.get(fact, ()), start)
        return min((number for number in (found, self._next(self.holes, at)) if number is not None), default=None)

    @staticmethod
    def _next(numbers: list[int] | tuple[()], at: int) -> int | None:
        place = bisect_left(numbers, at)
        return numbers[place] if place < len(numbers) else None

    def _hole(self) -> None:
        self.holes.append(len(self.states))
        self.states.append(None)

    def _take(self, revision: Revision) -> None:
        number = len(self.states)
        self.states.append(revision)
        self.numbers[revision.seq] = number
        if revision.lapsed:
            self._lapsed[number] = revision.lapsed
        if revision.expired:
            self._expired[number] = revision.stored
        for fact in _facts(revision):
            self._facts[fact].append(number)
        if not revision.gone:
            self.births.setdefault(revision.run_id, number)
            self._ends[revision.run_id] = number
            if revision.last is not None:
                self._last_ends[revision.last.run_id] = number


def _facts(state: Revision) -> set[Fact]:
    """What is true of a state."""
    if state.gone:
        return {NONE} if state.expired else {NONE, GONE}
    run_id, phase = state.run_id, state.phase
    facts: set[Fact] = {RECORD, ("run", run_id), ("phase", run_id, phase)}
    facts.add(("status", run_id, state.generation, state.attempt, phase))
    if phase in LIVE:
        facts |= {("live",), ("live", run_id)}
    if phase in OVER:
        facts.add(("over", run_id))
    if phase in {"running", "stopping"} or state.previous or state.outbox or state.seen:
        facts.add(BUSY)
    if len(state.previous) >= MAX_PREVIOUS:
        facts.add(CROWDED)
    if state.last is not None:
        facts.add(("last", state.last.run_id, state.last.phase))
    facts.update(("told", entry.run_id) for entry in state.previous if entry.deadline is not None)
    return facts
