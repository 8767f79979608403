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


def check_causes(known: Known) -> Iterator[Violation]:
    """Every effect that no ask explains."""
    if not known.evidence.asks_whole:
        return
    asks: dict[str, list[AskLine]] = defaultdict(list)
    for ask in answered(known.evidence.asks):
        asks[ask.key].append(ask)
    owed = {key for revision in known.evidence.revisions for key in revision.outbox_keys}
    for key, past in known.pasts.items():
        if key in owed or (key not in asks and known.evidence.missing):
            continue  # spawned and hooked runs are judged by their origin
        when = placed(known, key, asks[key])
        for kinds, effects in _effects(past).items():
            if key == CHIME and kinds == _STARTED:
                continue  # it starts by itself
            pool = [ask for ask in asks[key] if ask.ask in kinds and ask.told in _TOLD[ask.ask]]
            yield from _unexplained(known, key, effects, pool, when)


def _effects(past: Past) -> dict[frozenset[str], list[tuple[int, Revision, str]]]:
    """The writes that only an ask can make, by the asks that may."""
    effects: dict[frozenset[str], list[tuple[int, Revision, str]]] = defaultdict(list)
    for number, before, after in past.steps():
        if after.gone:
            if before is not None and not after.expired:
                effects[frozenset({"purge"})].append((number, before, "purged"))
        elif before is None or before.run_id != after.run_id:
            if past.births[after.run_id] == number and not _succeeds(before, after):
                effects[_STARTED].append((number, after, "started"))
        elif (before.phase, after.phase) in {("waiting", "cancelled"), ("running", "stopping")} and not after.dropped:
            effects[frozenset({"cancel"})].append((number, after, "cancelled"))
        elif is_trigger(before, after):
            effects[frozenset({"trigger"})].append((number, after, "triggered"))
    return effects


def _succeeds(before: Revision | None, after: Revision) -> bool:
    """Whether a run follows from the outcome of the one before, stored in the same write."""
    last = after.last
    if before is None or last is None or last == before.last or last.run_id != before.run_id:
        return False
    return last.phase != "cancelled" and (before.every or last.session != "")


def _unexplained(
    known: Known, key: str, effects: list[tuple[int, Revision, str]], pool: list[AskLine], when: Placed
) -> Iterator[Violation]:
    """Give each effect the ask of its run or, of those that name none and fit, the one that ends first."""
    named: dict[str, list[AskLine]] = defaultdict(list)
    for ask in pool:
        named[ask.run_id].append(ask)
    free = sorted(named.pop("", []), key=lambda ask: ask.asked)
    apart = known.evidence.clocks.observers / 2
    begun: list[tuple[float, int]] = []
    at = 0
    for number, state, what in effects:
        while at < len(free) and free[at].asked - apart <= when.most[number]:
            heapq.heappush(begun, (_end(free[at]) + apart, at))
            at += 1
        fits = [
            ask
            for ask in named.get(state.run_id, ())
            if ask.asked - apart <= when.most[number] and when.least[number] <= _end(ask) + apart
        ]
        if fits:
            continue
        while begun and begun[0][0] < when.least[number]:
            heapq.heappop(begun)
        if begun:
            heapq.heappop(begun)
        else:
            seq = known.pasts[key].states[number]
            yield Violation(
                "caused", key, f"{state.run_id} was {what} at revision {seq.seq if seq else 0}, and no ask explains it"
            )


def _end(ask: AskLine) -> float:
    return math.inf if ask.told in _UNKNOWN else ask.wall
