"""The small scenarios with more of something: for `make model`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.model.bounds import FAULTS, Scenario
from tests.model.scenarios import BY_NAME
from tests.model.scenarios_waits import MORE_WAITS


def larger(name: str, **budgets: Any) -> Scenario:
    """The same with more of something."""
    return replace(BY_NAME[name], name=f"{name}, large", **budgets)


ALL_KINDS = FAULTS | {"fumble"}
INBOX_FAULTS = frozenset({"again", "stray", "copy"})
LARGE: tuple[Scenario, ...] = (
    larger("cancel and a crash", faults=2, kinds=ALL_KINDS, supervisors=2, looks=2),
    larger("three generations, wait", sessions=2, looks=1),
    larger("three generations, parallel", looks=1, faults=1, kinds=ALL_KINDS),
    larger("cancel over an older body", sessions=2, looks=1),
    larger("purge over an older body", sessions=2, looks=1),
    larger("replace and a crash", sessions=3, kinds=FAULTS),
    larger("retry budget and takeover", faults=2, workers=3, kinds=ALL_KINDS, supervisors=2, looks=2),
    larger("reschedule against replace", sessions=3, looks=1, kinds=ALL_KINDS, most_again=3),
    larger("lost claims of one process", bodies=("returned", "failed"), faults=4, sessions=2),
    larger("given up and superseded", looks=1),
    larger("lost while it was in hand", sessions=2, slots=2, faults=3, kinds=ALL_KINDS | {"unknown"}),
    larger("unknown claim and outcome", slots=2, faults=2, kinds=ALL_KINDS | {"unknown"}),
    larger("unknown replace", workers=1, sessions=1, slots=2, faults=2),
    larger("unknown cancel and a new life", sessions=2, faults=2),
    larger("purge and new life", kinds=ALL_KINDS, slots=2),
    larger("outbox with expiry", sessions=2, supervisors=2, looks=2, faults=1, kinds=ALL_KINDS),
    larger("outbox and replace", sessions=2, looks=1, faults=1),
    larger("hooks of a cancelled run", sessions=2, looks=1, faults=1, bodies=("returned", "given up")),
    larger("timeout and eviction", ticks=3),
    larger("stuck bodies of one process", looks=1),
    larger("unknown eviction", looks=2, supervisors=2),
    larger("grace of a replace", sessions=2, looks=1),
    larger("untold", looks=1, faults=1, kinds=frozenset({"crash", "untold"})),
    larger("drain and snooze", looks=1, faults=1),
    larger("inbox, a submit", sessions=2, faults=2, kinds=FAULTS | INBOX_FAULTS),
    larger("inbox, a cancel and a later run", workers=1, faults=2, kinds=FAULTS | INBOX_FAULTS),
    larger("inbox, a cancel of what runs", faults=2, kinds=ALL_KINDS | INBOX_FAULTS),
    larger("inbox, a replace and a later one", workers=1, looks=1, faults=2, kinds=FAULTS | INBOX_FAULTS),
    larger("inbox, lost answers", workers=1, faults=2, kinds=frozenset({"unknown", "crash", "again", "stray"})),
    larger("inbox, copies", hands=2, looks=1, faults=2, kinds=INBOX_FAULTS | {"crash"}),
    larger("inbox and expiry", looks=1, faults=2, kinds=frozenset({"crash", "again", "stray"})),
    larger("inbox and outbox", sessions=2, looks=1, faults=1, kinds=FAULTS | INBOX_FAULTS),
    larger("schedule, two supervisors", looks=1, ticks=3, asks=2, faults=2, kinds=FAULTS),
    larger("schedule, a rolling deploy", sessions=2, looks=1, faults=1, kinds=FAULTS),
    larger("schedule, gone from the code", sessions=2, looks=1, faults=2, kinds=FAULTS | {"unknown"}),
    larger("schedule, a key that is taken", sessions=2, ticks=2, faults=1, kinds=FAULTS),
    larger("schedule, lost answers", ticks=2, asks=2, faults=2, kinds=frozenset({"unknown", "crash"})),
    larger("schedule, cancelled by a stranger", hands=2, ticks=2, faults=2, kinds=FAULTS | INBOX_FAULTS),
    *(larger(name, **budgets) for name, budgets in MORE_WAITS.items()),
)
