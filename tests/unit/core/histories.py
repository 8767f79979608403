"""Short words for histories of one key: a history is a tuple of commands and of seconds (int or float) that pass.

``play`` runs one through the real transitions, so that no test starts from a record that could not exist.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Raw

from tenure.core import commands as c
from tenure.core.marks import Place, mark
from tenure.core.outcomes import Decision, Refused, Why
from tenure.core.parts import Result
from tenure.core.rates import Pace, Rate, Settle
from tenure.core.records import Entry, Failure, Holder, Phase, Policy, Record, Seen, Task
from tenure.core.transitions import NEXT, transition

NOW = 1_000.0
GRACE = 10.0
KEY = "k"
PACE = Pace(rates=(Rate(n=1, seconds=1.0),), debounce=Settle(settle=2.0, max_wait=5.0), cooldown=3.0)
BOOM = Failure(type="ValueError", message="boom")
Step = c.Command | float


class At(NamedTuple):
    """Where a history has led: a record (or none) and the time."""

    record: Record | None
    now: float

    @property
    def found(self) -> Record:
        assert self.record is not None, "the history has left no record"
        return self.record


def shown(result: Result) -> Phase | Why | None:
    """A result in the words of NEXT."""
    if isinstance(result, Refused):
        return result.why
    return result.record.phase if result.record is not None else None


def exact(shown: Phase | Why | None) -> tuple[type, str]:
    """To be compared: ``Phase.STOPPING == Why.STOPPING``, since both are strings."""
    return type(shown), str(shown)


def ask(at: At, command: c.Command) -> Result:
    """Put a command; what comes out must be declared in NEXT."""
    result = transition(at.record, command, at.now)
    phase = at.record.phase if at.record is not None else None
    declared = {exact(leads_to) for leads_to in NEXT[type(command)][phase]}
    assert exact(shown(result)) in declared, (command, at, result)
    return result


def step(at: At, command: c.Command) -> At:
    result = ask(at, command)
    assert isinstance(result, Decision), f"refused ({result.why}): {command} on {at.record}"
    return At(result.record, at.now)


def play(*steps: Step, start: At | None = None) -> At:
    """Run a history in which every command is accepted."""
    at = start or At(None, NOW)
    for what in steps:
        at = At(at.record, at.now + what) if isinstance(what, int | float) else step(at, what)
    return at


def refused(at: At, command: c.Command) -> Why:
    result = ask(at, command)
    assert isinstance(result, Refused), f"accepted: {command} led to {result.record}"
    return result.why


def decided(at: At, command: c.Command) -> Decision:
    result = ask(at, command)
    assert isinstance(result, Decision), f"refused ({result.why}): {command} on {at.record}"
    return result


def paid(at: At) -> At:
    """Whatever the record owed to others is done and cleared."""
    owed = frozenset(entry.id for entry in at.found.outbox)
    return play(c.ClearOutbox(ids=owed), start=at) if owed else at


# -- words -----------------------------------------------------------------------------------------------------------


def task(actor: str = "actor", args: bytes = b"{}", **policy: Any) -> Task:
    return Task(actor=actor, args=Raw(args), policy=Policy(**{"grace": GRACE, **policy}))


def submit(
    run: str = "r1", *, due: float = 0.0, seen: Seen | None = None, lost: Holder | None = None, **policy: Any
) -> c.Submit:
    return c.Submit(key=KEY, run_id=run, task=task(**policy), due=due, seen=seen, lost=lost)


def supersede(run: str = "r2", *, due: float = 0.0, seen: Seen | None = None, **policy: Any) -> c.Replace:
    return c.Replace(key=KEY, run_id=run, task=task(**policy), due=due, seen=seen)


def keep(run: str = "r1", *, deployed: float = 2.0, every: float = 60.0) -> c.KeepAlive:
    """A supervisor, started at ``deployed``, wants its schedule to run."""
    return c.KeepAlive(key=KEY, run_id=run, task=task(every=every, autostart="jobs"), deployed=deployed)


def holder(session: str = "s1", run: str = "r1", attempt: int = 1) -> Holder:
    return Holder(session=session, run_id=run, attempt=attempt)


def claim(
    session: str = "s1", run: str = "r1", *, own_lost: Holder | None = None, closed: str = "", drained: str = ""
) -> c.Claim:
    """``closed`` and ``drained`` name sessions, separated by blanks; a drained one is closed."""
    return c.Claim(
        session=session,
        run_id=run,
        next_run_id=f"{run}+",
        own_lost=own_lost,
        closed=frozenset(f"{closed} {drained}".split()),
        drained=frozenset(drained.split()),
    )


def succeed(by: Holder, *, outbox: tuple[Entry, ...] = (), then: c.Successor | None = None) -> c.Succeed:
    return c.Succeed(holder=by, next_run_id=f"{by.run_id}+", result=Raw(b"42"), outbox=outbox, successor=then)


def fail(by: Holder, *, final: bool = False, then: c.Successor | None = None) -> c.FailAttempt:
    return c.FailAttempt(holder=by, next_run_id=f"{by.run_id}+", failure=BOOM, jitter=0.5, final=final, successor=then)


def snooze(by: Holder, due: float = NOW) -> c.SnoozeRun:
    return c.SnoozeRun(holder=by, due=due)


def evict(by: Holder, closed: str = "") -> c.Evict:
    return c.Evict(holder=by, next_run_id=f"{by.run_id}+", jitter=0.5, closed=frozenset(closed.split()))


def expire(closed: str = "") -> c.ExpirePrevious:
    return c.ExpirePrevious(closed=frozenset(closed.split()))


def spawned(name: str = "o1") -> Entry:
    return Entry(id=name, key="child", run_id=f"{name}-run", task=task())


SEEN = Seen(id="o9", origin="parent")
MARK = mark(Place(7, 1_000_000_000), "c1")
"""Of a command of the inbox."""
COPY = mark(Place(8, 1_000_000_500), "c1")
"""Of the same command, sent once more and stored elsewhere."""
CANCEL = c.Cancel(run_id="r1", reason="no longer needed")
S1, S2 = holder("s1"), holder("s2", attempt=2)
RUN = (submit(), claim())
STOPPING = (*RUN, CANCEL)
ON_B = holder("s2", "r2")
