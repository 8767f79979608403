"""Nothing happens that nobody asked for: every new run, cancel and purge has an ask of its own, at a time that fits.

An ask explains one effect at most. An answer that names its run explains that run alone, and one that says that nothing
has happened explains nothing; an ask whose end nobody knows explains whatever came into force after it began.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator

from tests.history.check_answers import Placed, placed
from tests.history.evidence import CHIME, AskLine, Revision, Violation, answered
from tests.history.known import Known
from tests.history.past import Past, is_trigger

_STARTED = frozenset({"submit", "replace"})
_UNKNOWN = frozenset({"unknown", "unanswered"})
_TOLD = {
    "submit": _UNKNOWN | {"accepted"},
    "replace": _UNKNOWN | {"accepted"},
    # finished, not_found: its own write may have been applied unseen, and the key have moved on by the time it looked
    "cancel": _UNKNOWN | {"cancelled", "stopping", "finished", "not_found"},
    "trigger": _UNKNOWN | {"accepted", "kept"},  # kept: likewise
    "purge": _UNKNOWN | {"purged"},
}
"""The answers after which an ask may have had its effect."""
Effect = tuple[int, tuple[str, ...], str]
"""The number of the state that a write has made, the runs that the ask for it may name, and what became of the first of them."""


def check_causes(known: Known) -> Iterator[Violation]:
    """Every effect that no ask explains."""
    if not known.evidence.asks_whole:
        return
    asks: dict[str, list[AskLine]] = defaultdict(list)
    for ask in answered(known.evidence.asks):
        asks[ask.key].append(ask)
    # spawned and hooked runs are judged by their origin; a dead letter is owed under the key of its own run, and starts none
    owed = {key for revision in known.evidence.revisions for key in revision.outbox_keys if key != revision.key}
    owed |= {key for line in known.evidence.bodies for key in line.spawned}
    for key, past in known.pasts.items():
        if key not in asks and known.evidence.missing:
            continue
        when = placed(known, key, asks[key])
        for kinds, effects in _effects(past).items():
            if kinds == _STARTED and (key == CHIME or key in owed):
                continue  # the one starts by itself
            pool = [ask for ask in asks[key] if ask.ask in kinds and ask.told in _TOLD[ask.ask]]
            yield from _unexplained(known, key, effects, pool, when)


def _effects(past: Past) -> dict[frozenset[str], list[Effect]]:
    """The writes that only an ask can make, by the asks that may."""
    effects: dict[frozenset[str], list[Effect]] = defaultdict(list)
    for number, before, after in past.steps():
        if after.gone:
            if before is not None and not after.expired:
                effects[frozenset({"purge"})].append((number, (before.run_id,), "purged"))
        elif before is None or before.run_id != after.run_id:
            if past.births[after.run_id] == number and not _succeeds(before, after):
                effects[_STARTED].append((number, (after.run_id,), "started"))
        elif (before.phase, after.phase) in {("waiting", "cancelled"), ("running", "stopping")} and not after.dropped:
            effects[frozenset({"cancel"})].append((number, (after.run_id,), "cancelled"))
        elif told := _told_to_stop(before, after):
            effects[frozenset({"cancel"})].append((number, (after.run_id, *told), "told to stop, or an older one,"))
        elif is_trigger(before, after):
            effects[frozenset({"trigger"})].append((number, (after.run_id,), "triggered"))
    return effects


def _told_to_stop(before: Revision, after: Revision) -> list[str]:
    """The runs of bodies in ``previous`` that have no deadline before a write, and have one after it.

    Who drops a run for want of room ends it as a cancel does.
    """
    if after.dropped and not before.dropped:
        return []
    waited = {(entry.session, entry.run_id, entry.attempt) for entry in before.previous if entry.deadline is None}
    return [
        entry.run_id
        for entry in after.previous
        if entry.deadline is not None and (entry.session, entry.run_id, entry.attempt) in waited
    ]


def _succeeds(before: Revision | None, after: Revision) -> bool:
    """Whether a run follows from the outcome of the one before, stored in the same write."""
    last = after.last
    if before is None or last is None or last == before.last or last.run_id != before.run_id:
        return False
    return last.phase != "cancelled" and (before.every or last.session != "")


def _unexplained(
    known: Known, key: str, effects: list[Effect], pool: list[AskLine], when: Placed
) -> Iterator[Violation]:
    """Give each effect the ask of its run or, of those that name none and fit, the one that ends first."""
    named: dict[str, list[AskLine]] = defaultdict(list)
    for ask in pool:
        named[ask.run_id].append(ask)
    free = sorted(named.pop("", []), key=lambda ask: ask.asked)
    apart = known.evidence.clocks.observers / 2
    begun: list[tuple[float, int]] = []
    at = 0
    for number, run_ids, what in effects:
        while at < len(free) and free[at].asked - apart <= when.most[number]:
            heapq.heappush(begun, (_end(free[at]) + apart, at))
            at += 1
        fits = [
            ask
            for run_id in run_ids
            for ask in named.get(run_id, ())
            if ask.asked - apart <= when.most[number] and when.least[number] <= _end(ask) + apart
        ]
        if fits:
            continue
        while begun and begun[0][0] < when.least[number]:
            heapq.heappop(begun)
        if begun:
            heapq.heappop(begun)
        else:
            state = known.pasts[key].states[number]
            where = f"at revision {state.seq if state else 0}"
            yield Violation("caused", key, f"{run_ids[0]} was {what} {where}, and no ask explains it")


def _end(ask: AskLine) -> float:
    return math.inf if ask.told in _UNKNOWN else ask.wall
