"""The runs of one session under one limit, as its process has them in hand: who runs, and who is next in line.

No more of them run than the session has places, whichever of them the entry names as holders (``core.permits``, rule 7).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tenure.core.permits import Answer, Asked, Give, Permit, Take
from tenure.nats.limits import FoundEntry
from tenure.nats.patience import Patience

_SOON_SECONDS = 1.0
"""A run waits in its worker's slot for a place that this process gives back so soon, instead of parking."""
_LONGEST_WAIT_SECONDS = 2.0
_FIRST_WAIT_SECONDS = 0.3
_JUDGED_SECONDS = 0.2
"""How long it waits at most; the second while it is not known how fast places come back: after the third, from the first one."""
_FORGET_SECONDS = 1.0
_FADE = 0.8
_AHEAD_SECONDS = 0.1
_MOST_AHEAD = 64
"""Who gets a place so soon is claimed already: as long as a run is in hand anyway where there is no limit."""
_BURST_SECONDS = 0.002
"""Bodies that began together end together: that says nothing of how soon the next ones do."""
_MOST_NAMED = 250
"""Runs of a process in one line: each name is a hundred bytes of an entry, which must fit into one message."""


class Request:
    """One thing asked, who waits for its answer, and how its run's message is stored."""

    __slots__ = ("answer", "asked", "came_at", "early", "granted", "park", "patience", "stored")

    def __init__(
        self, asked: Asked, patience: Patience, now: float, park: Callable[[], Awaitable[int]] | None = None
    ) -> None:
        self.asked = asked
        self.patience = patience
        self.came_at = now
        self.early = True
        """Whether its run may be claimed before there is a place: not where a crash meanwhile would use its last attempt up."""
        self.park = park
        self.stored = 0
        self.granted = Answer.GRANTED
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def run_id(self) -> str:
        """Whose; empty for what no run asks."""
        return self.asked.run_id if isinstance(self.asked, Take) else ""

    @property
    def session(self) -> str:
        """Under which session; empty for what no run asks."""
        return self.asked.session if isinstance(self.asked, Take) else ""

    async def store(self) -> None:
        """Store the run's message."""
        if self.park is not None:
            self.stored = await self.park() or self.stored

    def tell(self, answer: Answer) -> bool:
        """Answer, unless whoever asked is gone."""
        if self.answer.done():
            return False
        self.answer.set_result(answer)
        return True

    def fail(self, error: Exception) -> None:
        """Whoever asked raises this, if it is still there."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()


class Crew:
    """All of them are named in the entry, as holders or in line. Those who are ``told`` may be claimed; a body waits for its place.

    So the next ones are claimed, and ready, when a place comes free: else it would lie idle on the way to the server and back.
    """

    __slots__ = ("_inside", "_ready", "_told", "line", "places")

    def __init__(self) -> None:
        self.places = 0
        self.line: deque[Request] = deque()
        self._told: dict[str, int] = {}
        self._ready: deque[tuple[str, int, asyncio.Future[bool]]] = deque()
        self._inside: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._inside or self._told or self.line)

    @property
    def low(self) -> bool:
        """Whether there may be nobody left to run before the next write is there."""
        return len(self._told) + len(self.line) < 2 * self.places + 8

    @property
    def enough(self) -> bool:
        """Whether others of them use every place."""
        return len(self._inside) + len(self._told) + len(self.line) >= self.places

    def asks(self, take: Take) -> None:
        """One delivery of a run is in hand at a time: whatever attempt of it had a place, there will be no body of that."""
        self._inside.pop(take.run_id, None)
        self._told.pop(take.run_id, None)

    def join(self, request: Request, answer: Answer) -> None:
        """One more was named."""
        request.granted = Answer.GRANTED if answer is Answer.NEXT else answer
        self.line.append(request)

    def leave(self, give: Give) -> bool:
        """Its body has ended, or there will be none. False: it is none of them."""
        for runs in (self._inside, self._told):
            if runs.get(give.run_id) == give.attempt:
                del runs[give.run_id]
                return True
        return False

    def start(self, ahead: int) -> list[Give]:
        """Tell as many as there are places for, and ``ahead``; give the places to who is ready.

        Returns those whose process has gone on without them: they are not needed.
        """
        gone: list[Give] = []
        while self.line and len(self._inside) + len(self._told) < self.places + (ahead if self.line[0].early else 0):
            request = self.line.popleft()
            if isinstance(request.asked, Take):
                if request.tell(request.granted):
                    self._told[request.asked.run_id] = request.asked.attempt
                else:
                    gone.append(_give(request.asked))
        while self._ready and len(self._inside) < self.places:
            run_id, attempt, place = self._ready.popleft()
            if not place.done() and self._told.get(run_id) == attempt:
                self._enter(run_id, attempt)
                place.set_result(True)
        return gone

    def place(self, run_id: str, attempt: int) -> asyncio.Future[bool]:
        """A place for a body: at once, or when it is its turn. False for what is none of them."""
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._told.get(run_id) != attempt:
            place.set_result(self._inside.get(run_id) == attempt)
        elif len(self._inside) < self.places:
            self._enter(run_id, attempt)
            place.set_result(True)
        else:
            self._ready.append((run_id, attempt, place))
        return place

    def _enter(self, run_id: str, attempt: int) -> None:
        del self._told[run_id]
        self._inside[run_id] = attempt

    def give_way(self) -> tuple[list[Request], list[Give]]:
        """Everybody in line asks again: none of them starts meanwhile. And those whose process has gone on without them."""
        line, self.line = self.line, deque()
        gone = [_give(one.asked) for one in line if one.answer.done() and isinstance(one.asked, Take)]
        return [one for one in line if not one.answer.done()], gone


def _give(take: Take) -> Give:
    return Give(run_id=take.run_id, attempt=take.attempt, session=take.session)


class Pace:
    """How fast places under a limit are given back here, lately."""

    __slots__ = ("_burst_at", "_first_at", "_number", "_seconds")

    def __init__(self) -> None:
        self._first_at = 0.0
        self._burst_at = 0.0
        self._seconds = 0.0
        self._number = 0.0

    def given(self, now: float) -> None:
        """A place was given back."""
        since = now - self._burst_at
        if since < _BURST_SECONDS:
            self._number += 1
            return
        self._burst_at = now
        if since > _FORGET_SECONDS:
            self._seconds = self._number = 0.0
            self._first_at = now
        else:
            self._seconds = _FADE * self._seconds + since
            self._number = _FADE * self._number + 1

    @property
    def _interval(self) -> float | None:
        """Seconds from one to the next; None: not known."""
        known = self._burst_at - self._first_at >= _JUDGED_SECONDS
        return self._seconds / self._number if known else None

    def soon(self, number: int) -> bool:
        """Whether so many places are given back within milliseconds."""
        interval = self._interval
        return interval is None or interval * number <= _SOON_SECONDS

    @property
    def ahead(self) -> int:
        """How many runs to claim before there is a place for them."""
        interval = self._interval
        return 0 if interval is None else min(_MOST_AHEAD, int(_AHEAD_SECONDS / interval))

    @property
    def longest_wait(self) -> float:
        """How long to wait for one at most."""
        return _FIRST_WAIT_SECONDS if self._interval is None else _LONGEST_WAIT_SECONDS


class Gate:
    """One limit: its entry as last written here, what is asked, who waits and who runs here, by session."""

    __slots__ = ("asked", "crews", "found", "held", "keep", "pace", "seen", "serving", "timer", "void", "written_at")

    def __init__(self) -> None:
        self.found: FoundEntry | None = None
        self.seen = 0
        """The revision last seen: nothing older is believed."""
        self.asked: list[Request] = []
        self.held: list[Request] = []
        """Who waits for a place of this process and is not even named yet: the line is long enough."""
        self.crews: dict[str, Crew] = {}
        self.void: list[Give] = []
        """Attempts that have passed their places on, and are still named."""
        self.pace = Pace()
        self.serving = False
        self.timer: asyncio.TimerHandle | None = None
        self.keep: asyncio.TimerHandle | None = None
        self.written_at = 0.0

    @property
    def idle(self) -> bool:
        """Whether nobody deals with it."""
        return not (self.serving or self.asked or self.held or self.crews or self.keep)

    @property
    def waiting(self) -> int:
        """How many wait here for a place."""
        number = len(self.held)
        for crew in self.crews.values():
            number += len(crew.line)
        return number

    @property
    def since(self) -> float | None:
        """When the one came who has waited here for longest."""
        since = self.held[0].came_at if self.held else None
        for crew in self.crews.values():
            if crew.line and (since is None or crew.line[0].came_at < since):
                since = crew.line[0].came_at
        return since

    @property
    def until(self) -> float | None:
        """When whoever waits here has waited for too long, and parks."""
        since = self.since
        return None if since is None else since + self.pace.longest_wait

    def may_wait(self, more: int, now: float) -> bool:
        """Whether so many more may wait here: the turn of the last one comes within milliseconds."""
        until = self.until
        return self.pace.soon(self.waiting + more) and (until is None or now < until)

    @property
    def is_parked(self) -> bool:
        """Whether others are known to wait for a place."""
        return self.found is not None and self.found.entry is not None and self.found.entry.parked

    def can_hold(self, session: str, now: float) -> bool:
        """Whether one more run may wait without being named: enough others are, and nobody is known to be parked."""
        crew = self.crews.get(session)
        if crew is None or (crew.low and self._room) or self.found is None or self.asked:
            return False
        return self.found.entry is not None and not self.found.entry.parked and self.may_wait(1, now)

    @property
    def short(self) -> bool:
        """Whether a line runs low while there are runs that could be named."""
        crew = self.crews.get(self.held[0].session) if self.held else None
        return bool(self.held) and self._room > 0 and (crew is None or crew.low)

    @property
    def _room(self) -> int:
        """How many more may be named in line."""
        return max(0, _MOST_NAMED - sum(len(crew.line) for crew in self.crews.values()))

    def due(self, now: float) -> bool:
        """Whether anything is to be decided."""
        until = self.until
        return bool(self.asked) or self.short or (until is not None and until <= now)

    def batch(self, now: float) -> tuple[list[Request], bool]:
        """What is to be decided by the next write; whether who finds no room may wait."""
        until = self.until
        if until is not None and until <= now:  # all give way together, and park in the order in which they came
            batch = []
            for crew in self.crews.values():
                named, gone = crew.give_way()
                batch += named
                self.void += gone
            batch += [request for request in (*self.held, *self.asked) if not request.answer.done()]
            self.held, self.asked = [], []
            return batch, False
        may_wait = self.may_wait(sum(isinstance(request.asked, Take) for request in self.asked), now)
        most = self._room
        batch = [request for request in (*self.held[:most], *self.asked) if not request.answer.done()]
        self.held, self.asked = self.held[most:], []
        return batch, may_wait

    def count(self) -> None:
        """Tell each crew how many places it has by what was stored."""
        inside = [permit.session for permit in permits_of(self.found)]
        for session, crew in list(self.crews.items()):
            crew.places = inside.count(session)
            self.void += crew.start(self.pace.ahead)
            if not crew:
                del self.crews[session]


def permits_of(found: FoundEntry | None) -> tuple[Permit, ...]:
    """Who holds a place by what was found."""
    return () if found is None or found.entry is None else found.entry.permits
