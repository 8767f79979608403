"""What rates, debounces, cooldowns and switches promise, as far as those who look on can tell.

*A rate* promises that a start is written down before it happens, and that what is written down never says more than ``n`` to
a window. When a body's first line comes is not all in its hands: a process may be frozen right before it. So it is checked that
no entry ever says too much, and that every body has a mark of its own, of a write from before its start, that was not taken
out again before its time, and that has not passed unless something held its process up.

A run that its rate *drops* instead is one that has not started yet, and there was no room for it at some moment since it came.

*A switch* promises that who is connected starts nothing a moment after it is stored, and that whoever hears nothing more
notices that within seconds. Claims are no matter: one that comes too late is handed back before its body.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase

from msgspec import Struct

from tenure.core.rates import SECOND, Rate, rate_name, window_of
from tests.history.evidence import (
    COOLDOWN_SECONDS,
    COOLED,
    CURBED,
    CURBED_SECONDS,
    CURBED_STARTS,
    MAX_WAIT_SECONDS,
    SETTLE_SECONDS,
    SETTLED,
    AskLine,
    BodyLine,
    RateSeen,
    SwitchSeen,
    Violation,
    answered,
    held_up,
)
from tests.history.known import Known
from tests.history.past import is_trigger

_LATE_SECONDS = 1.0
"""By so much a body may miss its mark with nothing but other bodies, which block its loop, and a busy machine to blame."""
_FROZEN_SECONDS = 12.0
"""By so much with its process frozen."""
_SILENT_SECONDS = 5.0
"""After so long a worker knows of a switch, or starts nothing since it knows that it hears nothing."""


def check_paced(known: Known) -> Iterator[Violation]:
    """Everything that can be seen of them."""
    yield from _rates_hold(known)
    yield from _switches_hold(known)
    yield from _debounced(known)
    yield from _cooled_down(known)
    yield from _dropped_for_want_of_room(known)


# -- rates -----------------------------------------------------------------------------------------------------------


def _rates_hold(known: Known) -> Iterator[Violation]:
    seen_of: dict[str, list[RateSeen]] = defaultdict(list)
    for seen in known.evidence.rates:
        starts = sum(number for _, number in seen.marks)
        if starts + seen.places > seen.n:
            what = f"{starts} starts and {seen.places} places of {seen.n} at revision {seen.seq}"
            yield Violation("rates hold", seen.name, what)
        seen_of[seen.name].append(seen)
    if known.evidence.missing:
        return
    starts_of: dict[str, list[BodyLine]] = defaultdict(list)
    for body in known.bodies:
        if body.start.rate:
            starts_of[body.start.rate].append(body.start)
    for name, lines in starts_of.items():
        marks = _marks(seen_of[name], window_of(name) / SECOND, known.evidence.clocks.processes)
        for line in _unmarked(known, sorted(lines, key=lambda one: one.wall), marks):
            what = f"attempt {line.attempt} of {line.run_id} started at {line.wall:.3f} without a mark of its own"
            yield Violation("rates hold", line.key, what)


def _marks(writes: list[RateSeen], window: float, apart: float) -> list[tuple[float, float]]:
    """(when it was written, its moment) of every mark that may have stood for its whole window, by when it was written.

    A write that was heard of later says nothing about when: it may have let go of marks that had passed.
    """
    made: list[tuple[float, float]] = []
    standing: Counter[float] = Counter()
    for seen in writes:
        now = Counter(dict(seen.marks))
        for moment in (standing - now).elements():
            if seen.stored and moment + window > seen.stored + apart:  # taken out, or moved: no body has started by it
                made.remove(next(mark for mark in reversed(made) if mark[1] == moment))
        made.extend((seen.stored, moment) for moment in (now - standing).elements())
        standing = now
    return sorted(made)


def _unmarked(known: Known, starts: list[BodyLine], marks: list[tuple[float, float]]) -> Iterator[BodyLine]:
    """Give each start the mark that passes first of those that fit; one that was held up takes what others cannot use."""
    clocks = known.evidence.clocks
    late = _LATE_SECONDS + clocks.processes
    fresh: list[float] = []
    stale: list[float] = []
    at = 0
    for line in starts:
        while at < len(marks) and marks[at][0] <= line.wall + clocks.observers:
            heapq.heappush(fresh, marks[at][1])
            at += 1
        while fresh and fresh[0] + late < line.wall:
            heapq.heappush(stale, heapq.heappop(fresh))
        while stale and stale[0] + _FROZEN_SECONDS < line.wall:
            heapq.heappop(stale)
        if stale and held_up(known.evidence, line):
            heapq.heappop(stale)
        elif fresh:
            heapq.heappop(fresh)
        else:
            yield line


# -- switches --------------------------------------------------------------------------------------------------------


class _Off(Struct, kw_only=True):
    """A switch, and from when until when it was on the board for certain."""

    switch: SwitchSeen
    since: float
    until: float = math.inf


def _switches_hold(known: Known) -> Iterator[Violation]:
    clocks = known.evidence.clocks
    offs = list(_offs(known))
    bound = _SILENT_SECONDS + clocks.reads_behind + clocks.processes
    for body in known.bodies:
        line = body.start
        for off in offs:
            known_to_all = off.since + bound
            if (
                known_to_all < line.wall < off.until
                and is_about(off.switch, line)
                and not held_up(known.evidence, line)
            ):
                what = f"{line.run_id} started at {line.wall:.3f}; {off.switch} was stored at {off.since:.3f}"
                yield Violation("switches hold", line.key, what)


def _offs(known: Known) -> Iterator[_Off]:
    """An id is never used again, so what happened between two boards that have it does not matter."""
    on: dict[str, _Off] = {}
    last = 0.0
    for board in known.evidence.boards:
        if not board.stored:  # nobody knows when: at the time of the last one at the earliest
            for switch_id in on.keys() - {switch.id for switch in board.switches}:
                yield _over(on.pop(switch_id), last, known)
            continue
        last = board.stored
        for switch in board.switches:
            off = on.setdefault(switch.id, _Off(switch=switch, since=board.stored))
            if switch != off.switch:  # its time was changed
                yield _over(off, board.stored, known)
                on[switch.id] = _Off(switch=switch, since=board.stored)
        for switch_id in on.keys() - {switch.id for switch in board.switches}:
            yield _over(on.pop(switch_id), board.stored, known)
    yield from (_over(off, math.inf, known) for off in on.values())


def _over(off: _Off, until: float, known: Known) -> _Off:
    ends = off.switch.until - known.evidence.clocks.processes if off.switch.until else math.inf
    return _Off(switch=off.switch, since=off.since, until=min(until - known.evidence.clocks.observers, ends))


def is_about(switch: SwitchSeen, line: BodyLine) -> bool:
    match switch.kind:
        case "queue":
            return switch.name == line.queue
        case "actor":
            return switch.name == line.actor
        case "keys":
            return fnmatchcase(line.key, switch.pattern)
        case _:
            return False  # arguments: nobody here blocks by them


# -- debounced and cooled down ---------------------------------------------------------------------------------------


def _debounced(known: Known) -> Iterator[Violation]:
    """A run is not claimed before the last ask that it took in has settled, and then with the argument of that one.

    One that was triggered starts sooner, with the argument that it then has; so may one of which revisions are missing have been.
    """
    asks: dict[str, list[AskLine]] = defaultdict(list)
    by_id = {}
    for ask in answered(known.evidence.asks):
        by_id[ask.id] = ask
        if ask.ask == "submit" and ask.mode == "keep" and ask.told in {"accepted", "kept"}:
            asks[ask.run_id].append(ask)
    apart = known.evidence.clocks.processes
    steps = (step for past in known.pasts.values() for step in past.steps())
    triggered = {after.run_id for _, before, after in steps if is_trigger(before, after)}
    for body in known.bodies:
        line, claim = body.start, known.by_seq.get(body.start.fence)
        if line.actor != SETTLED or line.attempt > 1 or claim is None or not claim.stored:
            continue
        taken = [ask for ask in asks[line.run_id] if ask.wall + known.evidence.clocks.observers < claim.stored]
        since = min(max((ask.asked for ask in taken if ask.told == "accepted"), default=0.0), claim.since + apart)
        waits = line.run_id not in triggered and known.whole(line.key)
        for ask in taken:
            due = min(ask.asked + SETTLE_SECONDS, max(claim.since, since) + MAX_WAIT_SECONDS)
            if waits and claim.stored < due - apart:
                what = f"{line.run_id} was claimed at {claim.stored:.3f}; an ask of {ask.asked:.3f} lets it wait until {due:.3f}"
                yield Violation("settles", line.key, what)
        said = by_id.get(line.said)
        if said is not None and any(said.wall < ask.asked for ask in taken):
            yield Violation("settles", line.key, f"{line.run_id} runs with an argument that a later ask has replaced")


def _cooled_down(known: Known) -> Iterator[Violation]:
    """No submit starts a run in a cooldown, and none is held off by one that is over."""
    apart = known.evidence.clocks.processes
    kept: dict[str, list[AskLine]] = defaultdict(list)
    submitted = set()
    for ask in answered(known.evidence.asks):
        if ask.ask == "submit" and ask.told == "accepted":
            submitted.add(ask.run_id)
        elif ask.ask == "submit" and ask.told == "kept":
            kept[ask.run_id].append(ask)
    for key, past in known.pasts.items():
        for number, before, after in past.steps():
            if before is None or after.gone or (before.actor, after.actor) != (COOLED, COOLED):
                continue
            if past.births[after.run_id] != number or before.phase not in {"succeeded", "failed"}:
                continue
            warm = before.last.at + COOLDOWN_SECONDS - apart if before.last is not None else 0.0
            if after.stored and after.stored < warm and after.run_id in submitted:
                what = f"{after.run_id} was submitted before {warm:.3f}, when {before.run_id} had cooled down"
                yield Violation("cools down", key, what)
    for run_id, asks in kept.items():
        run, (last, seq) = known.runs.get(run_id), known.outcomes.get(run_id, (None, 0))
        if run is None or run.actor != COOLED or last is None:
            continue
        over = max(last.at + COOLDOWN_SECONDS, known.by_seq[seq].stored)  # it is live until its outcome is stored
        for ask in asks:
            if ask.asked > over + apart + known.evidence.clocks.reads_behind:
                what = f"a submit of {ask.asked:.3f} was answered with {run_id}, which had ended at {last.at:.3f}"
                yield Violation("cools down", run.key, what)


# -- dropped ---------------------------------------------------------------------------------------------------------


def _dropped_for_want_of_room(known: Known) -> Iterator[Violation]:
    """Only runs that were never started are dropped, and only of the actor that says so, and when its rate was full."""
    rate = rate_name(CURBED, Rate(n=CURBED_STARTS, seconds=CURBED_SECONDS), b"{}")
    full = list(_full(known, rate))
    for key, past in known.pasts.items():
        for _, before, after in past.steps():
            if before is None or not after.dropped or before.phase != "waiting" or not after.stored:
                continue
            birth = past.states[past.births[after.run_id]]
            since = birth.stored if birth is not None else 0.0
            if (after.actor, after.attempt) != (CURBED, 0):
                yield Violation(
                    "drops", key, f"{after.run_id} of {after.actor} was dropped after {after.attempt} attempts"
                )
            elif not known.evidence.missing and not any(a <= after.stored and since <= b for a, b in full):
                what = f"{after.run_id} was dropped at {after.stored:.3f}; since {since:.3f} there was room"
                yield Violation("drops", key, what)


def _full(known: Known, rate: str) -> Iterator[tuple[float, float]]:
    """From when until when, at least and at most, no run could be started under a rate."""
    clocks = known.evidence.clocks
    writes = [seen for seen in known.evidence.rates if seen.name == rate]
    for at, seen in enumerate(writes):
        ends = sorted(mark + CURBED_SECONDS for mark, number in seen.marks for _ in range(number))
        ends += [math.inf] * seen.places
        if len(ends) >= seen.n > 0:
            until = next((later.stored for later in writes[at + 1 :] if later.stored), math.inf)
            yield seen.stored - clocks.observers, min(until + clocks.reads_behind, ends[-seen.n] + known.unsure)
