"""Pacing: how a process asks for starts under rates (rules: ``core.rates``), and who wakes those that wait.

What is asked of one rate while a write is on its way is decided together and stored by one compare-and-swap. Who is parked
is woken when the window has room again, at a time that the entry tells: by the process that wrote it last, half a second
later by any other that has dealt with it, and by supervisors after their next sweep. Each is a CAS; doing it twice is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from tenure.clock import Clock
from tenure.core.errors import Unavailable
from tenure.core.permits import Answer
from tenure.core.rates import (
    SECOND,
    Asked,
    Decided,
    Entry,
    Leave,
    Look,
    Place,
    Start,
    decide,
    next_room,
    room_to_hand_over,
    ttl_of,
    window_of,
)
from tenure.nats.parking import Parked, Parking
from tenure.nats.patience import Patience
from tenure.nats.rates import FoundRate, Rates
from tenure.telemetry import get_logger
from tenure.together import all_of

_log = get_logger("tenure.limits")
_MOST_KNOWN = 10_000
"""Rates whose entry is remembered."""
_OTHERS_SECONDS = 0.5
"""So much later those look who did not write the entry last: as a rule there is nothing left to do."""
_SHORTEST_PAUSE_SECONDS = 0.002
_AFTER_TROUBLE_SECONDS = 1.0
_SHORTEST_US, _LONGEST_US = 5_000, 100_000
"""From the write of a mark to the mark: what is longer costs a rate a little of what it allows, what is shorter a second write."""
_PART = 50
_FADE = 0.9

Park = Callable[[], Awaitable[int]]
"""Stores the message of a run; the sequence of what it has stored, or 0."""
Told = tuple[Answer, int]


class _Request:
    """One thing asked, who waits for its answer, and how its run's message is stored."""

    __slots__ = ("answer", "asked", "park", "patience", "stored")

    def __init__(self, asked: Asked, patience: Patience, park: Park | None = None) -> None:
        self.asked = asked
        self.patience = patience
        self.park = park
        self.stored = 0
        self.answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()

    async def store(self) -> None:
        """Store the run's message."""
        if self.park is not None:
            self.stored = await self.park() or self.stored


class _Pace:
    """One rate: its entry as last seen here, the last write of one's own, and what is asked."""

    __slots__ = ("asked", "found", "own_revision", "parked", "seen", "serving", "timer")

    def __init__(self) -> None:
        self.found: FoundRate | None = None
        self.seen = 0
        """The revision last seen: nothing older is believed."""
        self.own_revision = 0
        self.asked: list[_Request] = []
        self.serving = False
        self.timer: asyncio.TimerHandle | None = None
        self.parked = False

    @property
    def idle(self) -> bool:
        return not (self.serving or self.asked or self.timer)


class Paces:
    """The rates that one process deals with. ``patience_seconds``: for what nobody waits for."""

    def __init__(self, rates: Rates, parking: Parking, clock: Clock, patience_seconds: float) -> None:
        self._rates = rates
        self._parking = parking
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._paces: dict[str, _Pace] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slow_us = 0.0
        self._closed = False

    @property
    def known(self) -> int:
        """How many rates it remembers something of."""
        return len(self._paces)

    def now(self) -> int:
        """Microseconds since the epoch."""
        return int(self._clock.now() * SECOND)

    def within(self, window: int) -> int:
        """How long a start may take from the write of its mark on: as long as starts have taken here lately, twice over."""
        usual = min(max(window // _PART, _SHORTEST_US), _LONGEST_US)
        return min(max(usual, int(2 * self._slow_us)), max(usual, window // 10))

    def took(self, us: int) -> None:
        """A start took so long from when it was asked for."""
        self._slow_us = max(float(us), _FADE * self._slow_us)

    async def start(self, name: str, start: Start, park: Park, patience: Patience, *, reserved: bool = False) -> Told:
        """Ask to start a run. ``park`` stores its message; ``reserved``: it was woken for a place that is kept for it.

        Granted (``FROM_PARKED``: it may have a parked message) with its mark, parked, excess or busy. Raises Unavailable or
        OutcomeUnknown.
        """
        pace = self._paces.get(name)
        if reserved and pace is not None and not any(place.run_id == start.run_id for place in _places(pace.found)):
            pace.found = None  # somebody else has written since
        return await self._ask(name, _Request(start, patience, park))

    async def leave(self, name: str, run_id: str, patience: Patience, mark: int = 0) -> None:
        """A run does not start: neither the place that may be kept for it nor its mark is wanted. Raises as ``start``."""
        await self._ask(name, _Request(Leave(run_id=run_id, mark=mark), patience))

    async def look(self, name: str, patience: Patience) -> None:
        """Hand over what is free, and go on with that while somebody is parked. Raises as ``start``."""
        await self._ask(name, _Request(Look(), patience))

    async def unpark(self, name: str, key: str, run_id: str, patience: Patience) -> None:
        """Remove what the run has parked."""
        await self._parking.remove(name, key, run_id, patience)

    async def close(self) -> None:
        """Wake nobody any more."""
        self._closed = True
        for pace in self._paces.values():
            if pace.timer is not None:
                pace.timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- one rate ----------------------------------------------------------------------------------------------------

    async def _ask(self, name: str, request: _Request) -> Told:
        pace = self._paces.get(name)
        if pace is None:
            pace = self._paces[name] = _Pace()
        pace.asked.append(request)
        self._begin(name, pace)
        return await request.answer

    def _begin(self, name: str, pace: _Pace) -> None:
        if not pace.serving:
            pace.serving = True
            task = asyncio.create_task(self._serve(name, pace))  # its own: whoever asked may be cancelled
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _on_time(self, name: str, pace: _Pace) -> None:
        pace.timer = None
        pace.asked.append(_Request(Look(), Patience(self._clock, self._patience_seconds)))
        self._begin(name, pace)

    async def _serve(self, name: str, pace: _Pace) -> None:
        """Answer all that is asked of a rate, a batch at a time."""
        while pace.asked:
            batch, pace.asked = pace.asked, []
            try:
                await self._settle(name, pace, batch)
            except asyncio.CancelledError:  # the connection is being closed
                _tell(batch, Unavailable("the connection is closed"))
                raise
            except Exception as error:  # noqa: BLE001  (each of those who asked raises it)
                pace.found = None
                _tell(batch, error)
        pace.serving = False
        self._wait_on(name, pace)

    def _wait_on(self, name: str, pace: _Pace) -> None:
        """Look again when there is room for who is parked. What nobody deals with is forgotten."""
        if pace.timer is not None:
            pace.timer.cancel()
            pace.timer = None
        if self._closed:
            return
        entry = pace.found.entry if pace.found is not None else None
        if entry is not None and entry.parked:
            now = self.now()
            wait = max(_SHORTEST_PAUSE_SECONDS, (next_room(entry, window_of(name), now) - now) / SECOND)
            own = pace.found is not None and pace.found.revision == pace.own_revision
            wait += 0.0 if own else _OTHERS_SECONDS * (1.0 + self._clock.random())
            pace.timer = asyncio.get_running_loop().call_later(wait, self._on_time, name, pace)
        elif pace.found is None and pace.parked:
            pace.timer = asyncio.get_running_loop().call_later(_AFTER_TROUBLE_SECONDS, self._on_time, name, pace)
        elif pace.found is None:
            del self._paces[name]
        elif len(self._paces) > _MOST_KNOWN:
            oldest = next((one for one, known in self._paces.items() if known.idle), None)
            if oldest is not None:
                del self._paces[oldest]

    async def _settle(self, name: str, pace: _Pace, batch: list[_Request]) -> None:
        patience = batch[0].patience
        published: set[str] = set()
        handed: dict[str, Parked] = {}
        remembered = pace.found
        found, met = remembered or await self._rates.read(name, patience, pace.seen), 0
        while True:
            decided, parked = await self._decide(name, batch, found, published=published, patience=patience)
            if decided.write or (not pace.seen and _drops(decided)):  # on a first read alone nothing is dropped [49]
                stored, unsure, met = await self._store(name, decided.entry, found.revision, patience)
                if stored is not None:
                    if found.entry is not None and found.entry.n != decided.entry.n:
                        _log.info("limit.changed", limit=name, before=found.entry.n, n=decided.entry.n)
                    found, pace.own_revision, handed = stored, stored.revision, handed | parked
                    break
                if unsure:  # it may be stored, and another have come over it
                    handed |= parked
                    _take_out_marks(batch)
            elif found is not remembered:
                break
            # Refused; or no CAS has told whether it has changed.
            found = await self._rates.read(name, patience, max(pace.seen, found.revision, met))
        pace.seen = found.revision
        pace.found, pace.parked = found, found.entry is not None and found.entry.parked
        reserved = {place.run_id for place in _places(found)}
        for request, answer in zip(batch, decided.answers, strict=True):
            if isinstance(request.asked, Start) and not request.answer.done():
                request.answer.set_result(answer)
        # Who stored a message and then found room is not parked [34].
        inside = [one for one, answer in zip(batch, decided.answers, strict=True) if answer[0] is not Answer.PARKED]
        await all_of(
            *(self._parking.wake(one, patience, ahead=True) for run_id, one in handed.items() if run_id in reserved),
            *(self._parking.drop(one.stored, patience) for one in inside if one.stored),
        )
        for request in batch:
            if not request.answer.done():
                request.answer.set_result((Answer.DONE, 0))

    async def _store(
        self, name: str, entry: Entry, revision: int, patience: Patience
    ) -> tuple[FoundRate | None, bool, int]:
        """One CAS: what is stored by it, None if it was refused; whether it could have happened unseen; and by what it was refused.

        One whose answer was lost is known by its tag, unless another has come over it.
        """
        tag = self._clock.new_id()[-10:]
        made = replace(entry, tag=tag)
        written, unsure, met = await self._rates.write(
            name, made, revision, ttl_of(made, window_of(name), self.now()), patience
        )
        if written:
            return FoundRate(made, written), False, 0
        if unsure:
            seen = await self._rates.read(name, patience, met)
            if seen.entry is not None and seen.entry.tag == tag:
                return seen, False, 0
        return None, unsure, met

    async def _decide(
        self, name: str, batch: list[_Request], found: FoundRate, *, published: set[str], patience: Patience
    ) -> tuple[Decided, dict[str, Parked]]:
        """Read, then search [36], then decide; whoever finds no room stores its message before that is written."""
        asked, window = [request.asked for request in batch], window_of(name)
        room = room_to_hand_over(found.entry, asked, window, self.now())
        oldest: list[Parked] = []
        if room:
            inside = {place.run_id for place in _places(found)}  # [35]
            oldest = await self._parking.oldest(name, room, inside, patience)
        parked = [(one.key, one.run_id) for one in oldest]
        now = self.now()
        decided = decide(found.entry, asked, parked, published, window, now, room)
        late = [one for one, answer in zip(batch, decided.answers, strict=True) if answer[0] is Answer.PARK]
        if late:
            await all_of(*(request.store() for request in late))
            published |= {request.asked.run_id for request in late if isinstance(request.asked, Start)}
            decided = decide(found.entry, asked, parked, published, window, now, room)
        reserved = set(decided.reserved)
        return decided, {one.run_id: one for one in oldest if one.run_id in reserved}


def _take_out_marks(batch: list[_Request]) -> None:
    """A second time it might be another's mark: a start is wasted instead."""
    for request in batch:
        if isinstance(request.asked, Leave) and request.asked.mark:
            request.asked = replace(request.asked, mark=0)


def _drops(decided: Decided) -> bool:
    return any(answer is Answer.EXCESS for answer, _ in decided.answers)


def _tell(batch: list[_Request], error: Exception) -> None:
    for request in batch:
        if not request.answer.done():
            request.answer.set_exception(error)
            request.answer.exception()  # whoever asked may be gone


def _places(found: FoundRate | None) -> tuple[Place, ...]:
    return () if found is None or found.entry is None else found.entry.places
