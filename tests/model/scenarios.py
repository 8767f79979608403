"""Bounded configurations, each about one part of the protocol; together they have every command and every fault."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.records import Hook, Hooks, Overlap, Policy, Task
from tests.model.cells import TICK
from tests.model.moves import Scenario, Wish

PLAIN = Policy(max_attempts=3, initial=0.0, grace=TICK)


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


SMALL: tuple[Scenario, ...] = (
    Scenario(
        name="cancel and a crash",
        shows="two workers, a cancel at any time, one crash, one supervisor",
        wishes=(submit("A"), Wish(what="cancel", after=(0,))),
    ),
)
