"""Configurations about the inbox, and about schedules that start by themselves, beside everything else."""

from __future__ import annotations

from typing import Any

from tenure.core.records import Task
from tests.model.bounds import Scenario, Wish
from tests.model.strangers import ACTOR, PLAIN, Code, Message, scheduled

HERE = Task(actor=ACTOR, policy=PLAIN)


def publish(verb: str, *, after: tuple[int, ...] = (), **said: Any) -> Wish:
    """What a stranger sends."""
    return Wish(what="publish", message=Message(verb=verb, **said), after=after)


def submit(run_id: str, *, after: tuple[int, ...] = ()) -> Wish:
    """What a client asks for beside it."""
    return Wish(what="submit", run_id=run_id, task=HERE, after=after)


def swap(run_id: str, *, after: tuple[int, ...]) -> Wish:
    """The same, whatever there is."""
    return Wish(what="replace", run_id=run_id, task=HERE, after=after)


INBOX: tuple[Scenario, ...] = (
    Scenario(
        name="inbox, a submit",
        shows="two supervisors have one submit in hand, die, are late, and the server forgets acks",
        wishes=(publish("submit"),),
        sessions=1,
        kinds=frozenset({"crash", "again", "stray"}),
    ),
    Scenario(
        name="inbox, without a key",
        shows="each delivery names the same key [15]",
        wishes=(publish("submit", key=None),),
        workers=0,
        looks=0,
        faults=2,
        kinds=frozenset({"crash", "again", "stray"}),
    ),
    Scenario(
        name="inbox, a cancel and a later run",
        shows="a cancel that is delivered again hits no run that was submitted after it was applied [13]",
        wishes=(submit("A"), publish("cancel", after=(0,)), submit("B", after=(0, 1))),
        workers=0,
        kinds=frozenset({"crash", "again", "stray"}),
    ),
    Scenario(
        name="inbox, a cancel of what runs",
        shows="a worker's run, a stranger's cancel, a crash of either",
        wishes=(submit("A"), publish("cancel", after=(0,))),
        sessions=2,
    ),
    Scenario(
        name="inbox, a replace and a later one",
        shows="a replace that is delivered again comes over no later generation",
        wishes=(publish("replace"), swap("B", after=(0,))),
        workers=0,
        looks=0,
        kinds=frozenset({"crash", "again", "stray"}),
    ),
    Scenario(
        name="inbox, lost answers",
        shows="writes of supervisors have no known fate, come late, and their messages come again",
        wishes=(publish("submit"), publish("cancel", after=(0,))),
        workers=0,
        looks=1,
        kinds=frozenset({"unknown"}),
    ),
    Scenario(
        name="inbox, copies",
        shows="the server has forgotten a message id, and stores the command once more after it was forgotten",
        wishes=(publish("replace", msg_id="m"), swap("B", after=(0,))),
        workers=0,
        looks=0,
        hands=1,
        kinds=frozenset({"copy"}),
    ),
    Scenario(
        name="inbox and expiry",
        shows="a run of the inbox ends, its record expires or is purged, and its message comes again",
        wishes=(publish("submit"), Wish(what="purge", after=(0,))),
        sessions=1,
        looks=0,
        expiries=1,
        kinds=frozenset({"again"}),
    ),
    Scenario(
        name="inbox and outbox",
        shows="a run that spawns another is replaced by a stranger",
        wishes=(submit("A"), publish("replace", after=(0,))),
        bodies=("spawned",),
        sessions=1,
        looks=0,
        faults=0,
    ),
)
SCHEDULES: tuple[Scenario, ...] = (
    Scenario(
        name="schedule, two supervisors",
        shows="both keep one chain alive; each tick fires once, whoever dies",
        wishes=(),
        releases=(Code(deployed=1.0, task=scheduled()), Code(deployed=1.0, task=scheduled())),
        sessions=2,
        ticks=2,
        looks=0,
    ),
    Scenario(
        name="schedule, a rolling deploy",
        shows="supervisors of two releases ask in turn; the later one stands, and no body is stopped for it",
        wishes=(),
        releases=(Code(deployed=1.0, task=scheduled()), Code(deployed=2.0, task=scheduled(priority="high"))),
        sessions=1,
        asks=2,
        ticks=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="schedule, deployed over a retry",
        shows="the fire that waits, or has failed once, is run by the later release",
        wishes=(),
        releases=(Code(deployed=1.0, task=scheduled()), Code(deployed=2.0, task=scheduled(priority="high"))),
        bodies=("returned", "failed"),
        sessions=1,
        ticks=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="schedule, gone from the code",
        shows="the later release has it no more; the older one does not bring it back",
        wishes=(),
        releases=(Code(deployed=1.0, task=scheduled()), Code(deployed=2.0)),
        sessions=1,
        asks=2,
        ticks=2,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="schedule, new in the code",
        shows="the older release, which has it no more, does not end what the later one has",
        wishes=(),
        releases=(Code(deployed=1.0), Code(deployed=2.0, task=scheduled())),
        sessions=1,
        ticks=1,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="schedule, a key that is taken",
        shows="somebody's run has the key, and is not ended for it",
        wishes=(Wish(what="submit", run_id="A", task=Task(actor="b", policy=PLAIN)),),
        releases=(Code(deployed=1.0, task=scheduled()),),
        sessions=1,
        asks=2,
        ticks=1,
        looks=0,
        faults=0,
    ),
    Scenario(
        name="schedule, lost answers",
        shows="what supervisors and workers write has no known fate, and comes late",
        wishes=(),
        releases=(Code(deployed=1.0, task=scheduled()), Code(deployed=2.0, task=scheduled(priority="high"))),
        sessions=1,
        ticks=1,
        looks=0,
        kinds=frozenset({"unknown"}),
    ),
    Scenario(
        name="schedule, cancelled by a stranger",
        shows="a stranger's cancel ends the chain once; a supervisor starts another, which it does not hit",
        wishes=(publish("cancel"),),
        releases=(Code(deployed=1.0, task=scheduled()),),
        sessions=1,
        asks=2,
        ticks=1,
        looks=0,
        hands=1,
        kinds=frozenset({"again"}),
    ),
)
DOORS = (*INBOX, *SCHEDULES)
