"""Histories by name, from which every cell of the transition table is reached."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.marks import MAX_MARKS, Place, mark
from tenure.core.permits import Bound
from tenure.core.records import MAX_PREVIOUS
from tests.unit.core.histories import (
    CANCEL,
    MARK,
    NOW,
    PACE,
    RUN,
    S1,
    S2,
    SEEN,
    Step,
    claim,
    evict,
    expire,
    fail,
    holder,
    keep,
    spawned,
    submit,
    succeed,
    supersede,
)

DROP = frozenset({"o1"})

PAR = (*RUN, supersede(overlap="parallel"))  # s1 may still run r1, untold, beside r2
TOLD = (*PAR, CANCEL)
NEWER = holder("s2", "r2")
CHAIN = (*RUN, succeed(S1, then=c.Successor(due=0.0)))  # s1 ended r1; r1+ follows
NEXT_RUN = holder("s2", "r1+")
TAKEN = (*RUN, claim("s2", closed="s1"))  # s1 runs on, fenced by attempt 2
EVICTED = (submit(timeout=5.0), claim(), 15.0, evict(S1))
OUTBOX = (*RUN, succeed(S1, outbox=(spawned(),), then=c.Successor(due=0.0)))
FED = (submit(seen=SEEN),)
CROWD = tuple(
    step for n in range(MAX_PREVIOUS) for step in (supersede(f"p{n}", overlap="parallel"), claim("s1", f"p{n}"))
)


# As many older bodies as a record may hold; one more by eviction, which is not yet void for a clock that is behind.
FULL = (*CROWD, supersede("last", overlap="parallel", timeout=5.0), claim("s1", "last"))
OVERFULL = (*FULL, 15.0, evict(holder("s1", "last")))
UNCOUNTED = (
    *CROWD,
    supersede("last", overlap="parallel", timeout=5.0, max_attempts=1),
    claim("s1", "last"),
    c.Cancel(run_id="p0"),
    15.0,
    evict(holder("s1", "last")),
)
LATER = (*OVERFULL, 10.0, claim("s2", "last"))
LAST = holder("s2", "last", 2)

RATED = replace(PACE, debounce=None)
STARTED = (submit(pace=RATED), replace(claim(), permit=1))
ONCE = supersede()  # over a kept key, by hand: a run that has no successor

HISTORIES: dict[str, tuple[Step, ...]] = {
    "nothing": (),
    "waiting": (submit(),),
    "to count: waiting": (submit(), supersede()),
    "to count: failed": UNCOUNTED,
    "to count: cancelled": (submit(), CANCEL),
    "scheduled": (submit(due=NOW + 60),),
    "running": RUN,
    "limited": (submit(limits=(Bound(n=1),)),),
    "limited, running": (submit(limits=(Bound(n=1),)), replace(claim(), permit=1)),
    "debounced": (submit(pace=PACE),),
    "paced: waiting": (submit(pace=RATED),),
    "paced: running": STARTED,
    "paced: succeeded": (*STARTED, succeed(S1)),
    "paced: failed": (*STARTED, fail(S1, final=True)),
    "paced: cancelled": (*STARTED, CANCEL, succeed(S1)),
    "running, one attempt": (submit(max_attempts=1), claim()),
    "running, perpetual, one attempt": (submit(max_attempts=1, every=60.0), claim()),
    "running with a timeout": (submit(timeout=5.0), claim()),
    "running beyond its timeout": (submit(timeout=5.0), claim(), 15.0),
    "running beyond its timeout, one attempt": (submit(timeout=5.0, max_attempts=1), claim(), 15.0),
    "stopping": (*RUN, CANCEL),
    "stopping beyond its grace": (*RUN, CANCEL, 10.0),
    "succeeded": (*RUN, succeed(S1)),
    "failed": (*RUN, fail(S1, final=True)),
    "failed, its letter kept": (*RUN, fail(S1, final=True), c.ClearOutbox(ids=frozenset({"r1.dead"}))),
    "cancelled": (*RUN, CANCEL, succeed(S1)),
    "cancelled by others": (*RUN, CANCEL, 10.0, evict(S1)),
    "failed by others": (submit(timeout=5.0, max_attempts=1), claim(), 15.0, evict(S1)),
    "retried": (*RUN, fail(S1)),
    "evicted": EVICTED,
    "evicted, entry expired": (*EVICTED, expire()),
    "replaced, stop": (*RUN, supersede()),
    "told: waiting": TOLD,
    "told: running": (*TOLD, claim("s2", "r2")),
    "told: stopping": (*TOLD, claim("s2", "r2"), c.Cancel(run_id="r2")),
    "told: succeeded": (*TOLD, claim("s2", "r2"), succeed(NEWER)),
    "told: failed": (*TOLD, claim("s2", "r2"), fail(NEWER, final=True)),
    "told: cancelled": (*TOLD, c.Cancel(run_id="r2")),
    "parallel: waiting": PAR,
    "parallel: running": (*PAR, claim("s2", "r2")),
    "parallel: stopping": (*PAR, claim("s2", "r2"), c.Cancel(run_id="r2")),
    "parallel: succeeded": (*PAR, claim("s2", "r2"), succeed(NEWER)),
    "parallel: failed": (*PAR, claim("s2", "r2"), fail(NEWER, final=True)),
    "parallel: cancelled": (*PAR, c.Cancel(run_id="r2")),
    "chain: waiting": CHAIN,
    "chain: running": (*CHAIN, claim("s2", "r1+")),
    "chain: stopping": (*CHAIN, claim("s2", "r1+"), c.Cancel(run_id="r1+")),
    "taken over: waiting": (*TAKEN, fail(S2)),
    "taken over: running": TAKEN,
    "taken over: stopping": (*TAKEN, CANCEL),
    "taken over: succeeded": (*TAKEN, succeed(S2)),
    "taken over: failed": (*TAKEN, fail(S2, final=True)),
    "taken over: cancelled": (*TAKEN, CANCEL, succeed(S2)),
    "outbox: waiting": OUTBOX,
    "outbox: running": (*OUTBOX, claim("s2", "r1+")),
    "outbox: stopping": (*OUTBOX, claim("s2", "r1+"), c.Cancel(run_id="r1+")),
    "outbox: succeeded": (*OUTBOX, claim("s2", "r1+"), succeed(NEXT_RUN)),
    "outbox: failed": (*OUTBOX, claim("s2", "r1+"), fail(NEXT_RUN, final=True)),
    "outbox: cancelled": (*OUTBOX, c.Cancel(run_id="r1+")),
    "fed: waiting": FED,
    "fed: running": (*FED, claim()),
    "fed: stopping": (*FED, claim(), CANCEL),
    "fed: succeeded": (*FED, claim(), succeed(S1)),
    "fed: failed": (*FED, claim(), fail(S1, final=True)),
    "fed: cancelled": (*FED, CANCEL),
    "full: waiting": (*OVERFULL, -1.0),
    "full: running": FULL,
    "full: stopping": (*FULL, c.Cancel(run_id="last")),
    "full: succeeded": (*LATER, succeed(LAST), -11.0),
    "full: failed": (*LATER, fail(LAST, final=True), -11.0),
    "full: cancelled": (*OVERFULL, c.Cancel(run_id="last"), -1.0),
    "kept: waiting": (keep(),),
    "kept: running": (keep(), claim()),
    "kept: stopping": (keep(), claim(), CANCEL),
    "kept by others: cancelled": (keep(deployed=5.0), CANCEL),
    "kept by others: succeeded": (keep(deployed=5.0), ONCE, claim("s2", "r2"), succeed(NEWER)),
    "kept by others: failed": (keep(deployed=5.0), ONCE, claim("s2", "r2"), fail(NEWER, final=True)),
}
# As many marks as a record may hold, none of them of a run that it still shows; and one of each phase, by one more command.
MARKED = (*(supersede(f"m{n}", seen=mark(Place(n, n), f"m{n}")) for n in range(MAX_MARKS)), supersede("r0"))
TOP = holder("s1", "r0")
HISTORIES |= {
    "commanded: waiting": (supersede("r1", seen=MARK),),
    "commanded: running": (supersede("r1", seen=MARK), claim()),
    "commanded: stopping": (*RUN, c.Cancel(seen=MARK)),
    "commanded: succeeded": (supersede("r1", seen=MARK), claim(), succeed(S1)),
    "commanded: failed": (supersede("r1", seen=MARK), claim(), fail(S1, final=True)),
    "commanded: cancelled": (submit(), c.Cancel(seen=MARK)),
    "marked: waiting": MARKED,
    "marked: running": (*MARKED, claim("s1", "r0")),
    "marked: stopping": (*MARKED, claim("s1", "r0"), c.Cancel()),
    "marked: succeeded": (*MARKED, claim("s1", "r0"), succeed(TOP)),
    "marked: failed": (*MARKED, claim("s1", "r0"), fail(TOP, final=True)),
    "marked: cancelled": (*MARKED, c.Cancel()),
    "marked, parallel: succeeded": (
        *MARKED,
        claim("s1", "r0"),
        supersede("r9", overlap="parallel"),
        claim("s2", "r9"),
        succeed(holder("s2", "r9")),
    ),
    "marked, parallel: failed": (
        *MARKED,
        claim("s1", "r0"),
        supersede("r9", overlap="parallel"),
        claim("s2", "r9"),
        fail(holder("s2", "r9"), final=True),
    ),
}
ENDS = ("succeeded", "failed", "cancelled")
PHASES = ("waiting", "running", "stopping", *ENDS)
