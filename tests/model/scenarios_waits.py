"""Configurations about what waits for its time, a switch or a rate, and about letters of the dead."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenure.core.rates import Pace, Rate, Settle
from tenure.core.records import Overlap, Task
from tests.model.bounds import FAULTS, Scenario, Wish
from tests.model.cells import TICK
from tests.model.strangers import ACTOR, PLAIN, Code, scheduled

DEBOUNCED = Pace(debounce=Settle(settle=TICK, max_wait=2 * TICK))
DROPS = Pace(rates=(Rate(n=1, seconds=TICK, excess="drop"),))
COOLS = Pace(cooldown=TICK)
PAUSE, RESUME = (Wish(what=what) for what in ("pause", "resume"))


def paced(pace: Pace | None = None, overlap: Overlap = "stop", *, attempts: int = 3) -> Task:
    return Task(actor=ACTOR, policy=replace(PLAIN, overlap=overlap, max_attempts=attempts, pace=pace))


def submit(run_id: str, what: Task | None = None, *, after: tuple[int, ...] = (), **said: Any) -> Wish:
    return Wish(what="submit", run_id=run_id, task=what or paced(), after=after, **said)


def swap(run_id: str, what: Task | None = None, *, after: tuple[int, ...] = (0,)) -> Wish:
    return Wish(what="replace", run_id=run_id, task=what or paced(), after=after)


def asked(what: str, *after: int) -> Wish:
    return Wish(what=what, after=after)


LOST = submit("A", paced(attempts=1))
"""Its body fails for good."""

WAITS: tuple[Scenario, ...] = (
    Scenario(
        name="trigger",
        shows="a run that is due later is started now, and cancelled, by whom it may; who asks dies",
        wishes=(submit("A", due=1), asked("trigger", 0), asked("cancel", 0)),
        sessions=1,
        ticks=1,
    ),
    Scenario(
        name="trigger, lost answers",
        shows="a trigger of unknown fate, while the key is replaced",
        wishes=(submit("A", due=1), asked("trigger", 0), swap("B")),
        sessions=1,
        looks=0,
        ticks=1,
        kinds=frozenset({"unknown"}),
    ),
    Scenario(
        name="schedule, triggered",
        shows="the fire that was to come comes all the same",
        wishes=(Wish(what="trigger"),),
        releases=(Code(deployed=1.0, task=scheduled()),),
        sessions=1,
        looks=0,
        ticks=2,
    ),
    Scenario(
        name="pause and resume",
        shows="a run waits for a switch while its worker, or who wakes it, dies",
        wishes=(submit("A"), PAUSE, asked("resume", 1)),
        sessions=2,
        looks=0,
    ),
    Scenario(
        name="pause and cancel",
        shows="what waits for a switch is cancelled, and its key is submitted anew",
        wishes=(submit("A"), PAUSE, asked("cancel", 0), submit("B", after=(0, 2)), asked("resume", 1)),
        sessions=1,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="paused again",
        shows="what waits for one switch comes to wait for the next one",
        wishes=(submit("A"), PAUSE, asked("resume", 1), asked("pause", 2), asked("resume", 3)),
        sessions=1,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="dropped by a rate",
        shows="a run finds no room, and is dropped, unless it has begun; its wake-up comes again",
        wishes=(submit("A", paced(DROPS, attempts=2)),),
        bodies=("returned", "failed"),
        rate=("granted", "excess", "parked"),
        sessions=2,
        looks=0,
        kinds=frozenset({"again"}),
    ),
    Scenario(
        name="dropped over an older body",
        shows="a run that waits for an older body is dropped, and that body reports",
        wishes=(submit("A", paced(DROPS)), swap("B", paced(DROPS, "wait"))),
        rate=("granted", "excess"),
        sessions=1,
        slots=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="dropped, lost answers",
        shows="a drop has no known fate, and comes late",
        wishes=(submit("A", paced(DROPS)), swap("B", paced(DROPS))),
        rate=("granted", "excess"),
        sessions=1,
        looks=0,
        kinds=frozenset({"unknown"}),
    ),
    Scenario(
        name="debounced",
        shows="two submits are one run, or two; a submitter or the worker dies",
        wishes=(submit("A", paced(DEBOUNCED)), submit("B", paced(DEBOUNCED))),
        sessions=1,
        looks=0,
        ticks=1,
    ),
    Scenario(
        name="debounced, lost answers",
        shows="a submit that is taken in has no known fate, and its run ends",
        wishes=(submit("A", paced(DEBOUNCED)), submit("B", paced(DEBOUNCED), after=(0,))),
        sessions=1,
        looks=0,
        ticks=1,
        kinds=frozenset({"unknown"}),
    ),
    Scenario(
        name="debounced and replaced",
        shows="what has taken a submit in is replaced, and retried",
        wishes=(
            submit("A", paced(DEBOUNCED, attempts=2)),
            submit("B", paced(DEBOUNCED, attempts=2), after=(0,)),
            swap("C", paced(DEBOUNCED)),
        ),
        bodies=("returned", "failed"),
        sessions=1,
        looks=0,
        ticks=1,
        faults=0,
    ),
    Scenario(
        name="cooldown of a spawn",
        shows="a spawned run that is spawned again while its key cools down joins the one that has ended",
        wishes=(submit("A", paced(COOLS)), swap("B", paced(COOLS))),
        bodies=("spawned",),
        sessions=1,
        looks=0,
        ticks=1,
        faults=0,
    ),
    Scenario(
        name="replayed",
        shows="two people replay one letter of the dead, and the key is purged when one is done",
        wishes=(LOST, asked("replay", 0), asked("replay", 0), asked("purge", 0, 1)),
        bodies=("given up",),
        sessions=1,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="replayed and purged",
        shows="a key is purged while a letter of it is replayed, and it is replayed again",
        wishes=(LOST, asked("replay", 0), asked("purge", 0), asked("replay", 0, 2)),
        bodies=("given up",),
        sessions=1,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="replayed, lost answers",
        shows="a replay has no known fate, and the key is submitted anew",
        wishes=(LOST, asked("replay", 0), submit("B", after=(0, 1))),
        bodies=("given up",),
        sessions=1,
        looks=0,
        kinds=frozenset({"unknown"}),
    ),
)
MORE_WAITS: dict[str, dict[str, Any]] = {
    "trigger": {"looks": 2, "supervisors": 2, "ticks": 2, "kinds": FAULTS},
    "pause and resume": {"looks": 1, "faults": 2, "kinds": FAULTS},
    "pause and cancel": {"sessions": 2, "faults": 1},
    "paused again": {"sessions": 2, "faults": 1, "kinds": FAULTS},
    "dropped by a rate": {"slots": 2, "looks": 1, "kinds": FAULTS},
    "dropped over an older body": {"sessions": 2, "faults": 1, "looks": 1},
    "debounced": {"looks": 1, "ticks": 2, "kinds": FAULTS | {"unknown"}},
    "debounced and replaced": {"sessions": 2, "looks": 1, "faults": 1},
    "cooldown of a spawn": {"sessions": 2, "looks": 1, "faults": 1, "expiries": 1},
    "replayed": {"looks": 1, "faults": 1},
    "replayed and purged": {"looks": 1, "faults": 1},
    "replayed, lost answers": {"looks": 1, "faults": 2, "kinds": frozenset({"unknown", "crash"})},
}
"""With these budgets they are for `make model`."""
