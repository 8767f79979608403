"""Bounded configurations, each about one part of the protocol; together they have every command and every fault."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.records import Hook, Hooks, Overlap, Task
from tests.model.bounds import Scenario, Wish
from tests.model.cells import TICK
from tests.model.scenarios_doors import DOORS
from tests.model.scenarios_waits import WAITS
from tests.model.strangers import PLAIN


def task(overlap: Overlap = "stop", *, attempts: int = 3, hooks: bool = False, timeout: float | None = None) -> Task:
    hook = Hook(task=Task(actor="h", policy=PLAIN))
    policy = replace(
        PLAIN,
        overlap=overlap,
        max_attempts=attempts,
        timeout=timeout,
        hooks=Hooks(success=(hook,), cancel=(hook,)) if hooks else None,
    )
    return Task(actor="a", policy=policy)


def submit(run_id: str, what: Task | None = None, *, after: tuple[int, ...] = ()) -> Wish:
    return Wish(what="submit", run_id=run_id, task=what or task(), after=after)


def swap(run_id: str, overlap: Overlap = "stop", *, after: tuple[int, ...] = (0,)) -> Wish:
    return Wish(what="replace", run_id=run_id, task=task(overlap), after=after)


CANCEL = Wish(what="cancel", after=(0,))
PURGE = Wish(what="purge", after=(0,))

SMALL: tuple[Scenario, ...] = (
    Scenario(
        name="cancel",
        shows="a cancel at any time of a run that may fail",
        wishes=(submit("A", task(attempts=2)), CANCEL),
        bodies=("returned", "failed"),
        sessions=1,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="cancel and a crash",
        shows="two workers, a cancel at any time, one crash, one supervisor",
        wishes=(submit("A"), CANCEL),
    ),
    Scenario(
        name="one process, two deliveries",
        shows="ack_wait is over while a body runs, and the same process is handed the wake-up again",
        wishes=(submit("A"),),
        sessions=1,
        slots=2,
        looks=0,
        kinds=frozenset({"again", "double"}),
    ),
    Scenario(
        name="lost claims of one process",
        shows="a handling ends in the middle, a second delivery finds what the first has left; answers are lost",
        wishes=(submit("A"),),
        sessions=1,
        slots=2,
        looks=0,
        faults=3,
        kinds=frozenset({"fumble", "unknown"}),
    ),
    Scenario(
        name="three generations, stop",
        shows="each replaces the one before, in any order, in one process",
        wishes=(submit("A"), swap("B"), swap("C")),
        sessions=1,
        slots=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="three generations, wait",
        shows="A runs, B waits for its end, and so does C after it",
        wishes=(submit("A"), swap("B", "wait"), swap("C", "wait", after=(0, 1))),
        sessions=1,
        slots=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="three generations, parallel",
        shows="A runs, B waits for its end, C runs beside both",
        wishes=(submit("A"), swap("B", "wait"), swap("C", "parallel", after=(0, 1))),
        sessions=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="given up and superseded",
        shows="a handling ends in the middle, the run is replaced with one that runs beside it, and another process answers for it",
        wishes=(submit("A"), swap("B", "parallel", after=(0,))),
        sessions=2,
        looks=1,
        kinds=frozenset({"fumble", "lose"}),
    ),
    Scenario(
        name="cancel over an older body",
        shows="A runs, B waits for it and is cancelled, and the key is submitted anew",
        wishes=(submit("A"), swap("B", "wait"), Wish(what="cancel", after=(0, 1)), submit("C", after=(0, 1, 2))),
        sessions=1,
        slots=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="cancel beside an older body",
        shows="A and B run beside each other, and a cancel comes when the newer one is over, or before",
        wishes=(submit("A"), swap("B", "parallel"), Wish(what="cancel", after=(0, 1))),
        sessions=1,
        slots=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="purge over an older body",
        shows="A runs, B waits for it, and the key is purged and submitted anew",
        wishes=(submit("A"), swap("B", "wait"), Wish(what="purge", after=(0, 1)), submit("C", after=(0, 1, 2))),
        sessions=1,
        slots=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="replace and a crash",
        shows="the holder, the client or the supervisor dies between any two steps of a replace",
        wishes=(submit("A"), swap("B", "wait")),
        sessions=2,
    ),
    Scenario(
        name="retry budget and takeover",
        shows="failures and crashes use up the budget; whoever froze reports late",
        wishes=(submit("A", task(attempts=2)),),
        bodies=("returned", "failed"),
        kinds=frozenset({"crash", "freeze", "again"}),
    ),
    Scenario(
        name="lost wake-up",
        shows="a wake-up is lost and its holder crashes",
        wishes=(submit("A"),),
        sessions=2,
        looks=0,
        faults=2,
        kinds=frozenset({"crash", "lose", "double"}),
    ),
    Scenario(
        name="lost holder and a submit",
        shows="a submit that meets a run whose holder is lost and whose budget is spent [29]",
        wishes=(submit("A", task(attempts=1)), submit("B", task(attempts=1), after=(0,))),
        sessions=2,
    ),
    Scenario(
        name="reschedule against replace",
        shows="a body's successor and a client's race for the next generation",
        wishes=(submit("A"), swap("B")),
        bodies=("returned", "rescheduled"),
        sessions=2,
        looks=0,
        most_again=2,
    ),
    Scenario(
        name="unknown claim and outcome",
        shows="answers of a worker's and a supervisor's writes are lost, and writes come late",
        wishes=(submit("A", task(attempts=2)),),
        bodies=("returned", "failed"),
        sessions=2,
        kinds=frozenset({"unknown", "freeze"}),
    ),
    Scenario(
        name="unknown claim, lost wake-up",
        shows="a claim has no known fate, and nothing but its process can still bring the run to its end",
        wishes=(submit("A"),),
        sessions=1,
        looks=0,
        faults=2,
        kinds=frozenset({"unknown", "lose"}),
    ),
    Scenario(
        name="unknown replace",
        shows="a client's write has no known fate, and another replaces too",
        wishes=(submit("A"), swap("B"), swap("C")),
        workers=0,
        looks=0,
        kinds=frozenset({"unknown"}),
    ),
    Scenario(
        name="unknown cancel and a new life",
        shows="a cancel of unknown fate, a purge and another submit",
        wishes=(submit("A"), CANCEL, PURGE, submit("B", after=(0, 2))),
        sessions=1,
        looks=0,
        kinds=frozenset({"unknown"}),
    ),
    Scenario(
        name="purge and new life",
        shows="a frozen body of the old life reports in the new one",
        wishes=(submit("A"), PURGE, submit("B", after=(0, 1))),
        sessions=2,
        looks=1,
        kinds=frozenset({"freeze"}),
    ),
    Scenario(
        name="outbox with expiry",
        shows="a spawned run is created once, whoever repeats it, though it ends and expires",
        wishes=(submit("A"),),
        bodies=("spawned",),
        sessions=1,
        looks=1,
        expiries=2,
        faults=0,
    ),
    Scenario(
        name="lost wake-up of a spawn",
        shows="the worker dies between outcome and spawn, and its wake-up is lost",
        wishes=(submit("A"),),
        bodies=("spawned",),
        sessions=1,
        looks=0,
        faults=2,
        kinds=frozenset({"crash", "lose"}),
    ),
    Scenario(
        name="outbox and replace",
        shows="the next generation carries the outbox on",
        wishes=(submit("A"), swap("B")),
        bodies=("spawned",),
        sessions=1,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="hooks of a cancelled run",
        shows="each end owes its hooks, a replaced stop too",
        wishes=(submit("A", task(hooks=True)), CANCEL, swap("B", after=(0, 1))),
        sessions=1,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="timeout and eviction",
        shows="a body overstays its deadline and is evicted; it reports late",
        wishes=(submit("A", task(timeout=TICK, attempts=2)),),
        bodies=("returned", "failed"),
        sessions=1,
        slots=2,
        looks=1,
        ticks=2,
        faults=0,
    ),
    Scenario(
        name="stuck bodies of one process",
        shows="a body that ignores its cancel is forced after its grace; a new generation runs beside it",
        wishes=(submit("A"), CANCEL, submit("B", after=(0, 1))),
        sessions=1,
        slots=2,
        looks=0,
        ticks=1,
        faults=0,
    ),
    Scenario(
        name="unknown eviction",
        shows="a worker and a supervisor force a stop whose grace is over, and an answer is lost",
        wishes=(submit("A"), CANCEL),
        sessions=1,
        looks=1,
        ticks=1,
        kinds=frozenset({"unknown"}),
    ),
    Scenario(
        name="grace of a replace",
        shows="a body that ignores its stop is void after its grace, however often it is told",
        wishes=(submit("A"), swap("B"), swap("C", after=(0, 1))),
        sessions=1,
        slots=2,
        looks=0,
        ticks=1,
        faults=0,
    ),
    Scenario(
        name="untold",
        shows="A runs, B waits for its end; A is cancelled, its caller has not told it yet, and its grace is over",
        wishes=(submit("A"), CANCEL, swap("B", "wait")),
        sessions=1,
        slots=2,
        looks=0,
        ticks=1,
        faults=0,
        kinds=frozenset({"untold"}),
    ),
    Scenario(
        name="drain and snooze",
        shows="bodies are handed back or put off, beside a cancel",
        wishes=(submit("A"), CANCEL),
        bodies=("returned", "snoozed"),
        sessions=2,
        looks=0,
        drains=1,
        faults=0,
    ),
    Scenario(
        name="retry and replace",
        shows="a body fails and is to run again, while another generation is asked for",
        wishes=(submit("A", task(attempts=2)), swap("B")),
        bodies=("returned", "failed"),
        sessions=1,
        slots=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="snooze and replace",
        shows="a body is put off, while another generation is asked for",
        wishes=(submit("A"), swap("B", "wait")),
        bodies=("returned", "snoozed"),
        sessions=1,
        slots=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="drain, faults and replace",
        shows="one worker drains, one dies, and the run is replaced",
        wishes=(submit("A"), swap("B")),
        sessions=2,
        looks=0,
        drains=1,
    ),
    Scenario(
        name="two supervisors look at once",
        shows="both find a dead worker's run, which is cancelled meanwhile",
        wishes=(submit("A"), CANCEL),
        sessions=1,
        supervisors=2,
        looks=2,
    ),
    Scenario(
        name="spawn and cancel",
        shows="a body's outcome spawns a run while its own is cancelled, and the worker dies",
        wishes=(submit("A"), CANCEL),
        bodies=("spawned",),
        sessions=2,
        looks=0,
    ),
    *DOORS,
    *WAITS,
)
BY_NAME = {scenario.name: scenario for scenario in SMALL}
