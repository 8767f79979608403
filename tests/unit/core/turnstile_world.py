"""What there is in the world of ``turnstile``: runs, wake-ups, one limit's entry, what is parked, and who does what."""

from __future__ import annotations

from typing import Any, NamedTuple

from tenure.core.permits import Answer, Asked, Entry, Give, Permit

SUPERVISOR = "supervisor"
NOBODY = -1
READ = {"search", "cas", "publish"}
ASKING = READ | {"hand"}
"""Between its read and its answer: a process has one of these at a time for a limit."""
NEXT = {"line", "claim", "ready"}
"""Those who are named and have no place yet."""
WAITING, RUNNING, DONE = "waiting", "running", "done"


class Run(NamedTuple):
    """The record of a run, as far as it matters here."""

    phase: str = WAITING
    attempt: int = 0
    session: str = ""


class Wake(NamedTuple):
    """A stored wake-up: which run, its attempt when it was made, whether a place was reserved for it."""

    run: int
    attempt: int
    woken: bool = False


class Hand(NamedTuple):
    """A delivery in a worker's hands."""

    session: str
    wake: Wake
    at: str
    asked: Asked | None = None
    then: str = ""
    entry: Entry | None = None
    stale: bool = False
    """The entry was written since it was read: a CAS will be refused."""
    oldest: tuple[int, ...] | None = None
    published: bool = False
    stored: int = -1
    handed: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    attempts: tuple[int, ...] = ()
    answer: Answer | None = None
    unpark: bool = False
    inside: bool = False
    """It has one of the places of its process."""
    may_wait: bool = True
    """Its process gives places back soon."""
    void: tuple[Give, ...] = ()
    maybe: tuple[int, ...] = ()
    """Runs for which its earlier writes, whose fate it does not know, would have reserved a place."""


class Crew(NamedTuple):
    """What a process knows of its own: how many places it has, who has passed its place on and is still named."""

    places: int = 0
    void: tuple[Give, ...] = ()


class World(NamedTuple):
    """Everything there is."""

    n: int
    runs: tuple[Run, ...]
    wakes: tuple[Wake, ...]
    entry: Entry | None = None
    parked: tuple[tuple[int, int, int], ...] = ()
    """Number, run and its attempt then of each parked message."""
    hands: tuple[Hand, ...] = ()
    sequence: int = 0
    sessions: tuple[str, ...] = ("s1", "s2")
    doubles: int = 0
    crashes: int = 0
    cancels: int = 0
    retries: int = 0
    looks: int = 0
    """How often a supervisor may find the place of an attempt that is over, under a session that lives."""
    lines: bool = False
    """Whether runs may stand in line for the places of their session."""
    crews: tuple[tuple[str, Crew], ...] = ()
    redeploys: tuple[tuple[str, int], ...] = ()
    """Sessions whose code is replaced, in this order, and the n that the new code says."""
    said: tuple[tuple[str, int, float], ...] = ()
    """By session that was replaced: its n, and when that was deployed."""
    lost: int = 0
    """How many answers to writes may be lost."""
    over: str = ""
    """A write that gave a place where there was none."""
    without: int = 0

    # -- small changes -----------------------------------------------------------------------------------------------

    def put(self, old: Hand | None, new: Hand | None) -> World:
        hands = list(self.hands)
        if old is not None:
            hands.remove(old)
        if new is not None:
            hands.append(new)
        return self._replace(hands=tuple(sorted(hands, key=lambda one: (one.session, one.wake.run))))

    def wake(self, *wakes: Wake) -> World:
        return self._replace(wakes=tuple(sorted((*self.wakes, *wakes))))

    def record(self, run: int, **changes: Any) -> World:
        runs = list(self.runs)
        runs[run] = runs[run]._replace(**changes)
        return self._replace(runs=tuple(runs))

    def unpark(self, run: int) -> World:
        return self._replace(parked=tuple(one for one in self.parked if one[1] != run))

    def crew(self, session: str) -> Crew:
        return dict(self.crews).get(session, Crew())

    def with_crew(self, session: str, crew: Crew) -> World:
        others = {**dict(self.crews), session: crew}
        return self._replace(crews=tuple(sorted((name, one) for name, one in others.items() if one != Crew())))

    def free(self, session: str) -> int:
        """Places of a process that none of its runs uses."""
        return self.crew(session).places - sum(hand.session == session and hand.inside for hand in self.hands)

    def others(self, hand: Hand) -> int:
        """The other runs of its process that are named."""
        own = [one for one in self.hands if one is not hand and one.session == hand.session]
        return sum(one.inside or one.at in NEXT for one in own)

    def says(self, session: str) -> tuple[int, float]:
        """The n of its code, and when that was deployed."""
        return next(((n, deployed) for name, n, deployed in self.said if name == session), (self.n, 0.0))

    @property
    def most(self) -> int:
        """The largest n that anybody has said."""
        return max([self.n, *(n for _, n, _ in self.said)])

    @property
    def bodies(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.at == "body"]


def permits(entry: Entry | None) -> tuple[Permit, ...]:
    return () if entry is None else entry.permits


def names(entry: Entry | None) -> tuple[Permit, ...]:
    return () if entry is None else entry.names


def start(n: int, runs: int, workers: int = 2, **faults: Any) -> World:
    sessions = tuple(f"s{number}" for number in range(1, workers + 1))
    return World(n, (Run(),) * runs, tuple(Wake(run, 0) for run in range(runs)), sessions=sessions, **faults)
