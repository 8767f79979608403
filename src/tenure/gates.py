"""Gates: how a process asks for places under limits and gives them back (rules: ``core.permits``).

What is asked of one limit while a write is on its way is decided together and stored by one compare-and-swap, so that a
busy limit costs a worker a write for many runs. An entry that is its own last write is not read again: the CAS says if it
has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tenure.clock import Clock
from tenure.core.permits import Answer, Asked, Decided, Give, Look, Permit, Take, decide, room_to_hand_over
from tenure.nats.limits import FoundEntry, Limits
from tenure.nats.parking import Parked, Parking
from tenure.nats.patience import Patience

_MOST_KNOWN = 10_000
"""Limits whose entry is remembered."""
_SOON_SECONDS = 0.2
"""A run waits in its worker's slot for a place that this process gives back so soon, instead of parking."""
_LONGEST_HOLD_SECONDS = 0.5
_FIRST_HOLD_SECONDS = 0.02
"""How long it waits at most; the second while it is not known how long bodies under that limit take."""
_FORGET_SECONDS = 1.0
_FADE = 0.8


Park = Callable[[], Awaitable[int]]
"""Stores the message of a run; the sequence of what it has stored, or 0."""


class _Request:
    """One thing asked, who waits for its answer, and how its run's message is stored."""

    __slots__ = ("answer", "asked", "held_at", "park", "patience", "stored")

    def __init__(self, asked: Asked, patience: Patience, park: Park | None) -> None:
        self.asked = asked
        self.patience = patience
        self.park = park
        self.held_at: float | None = None
        self.stored = 0
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def run_id(self) -> str:
        return self.asked.run_id if isinstance(self.asked, Take) else ""

    async def store(self) -> None:
        """Store the run's message."""
        if self.park is not None:
            self.stored = await self.park() or self.stored


class _Gate:
    """One limit: its entry as last written here, what is asked, who is held, how fast places are given back here."""

    __slots__ = ("asked", "found", "given_at", "held", "number", "seconds", "serving", "timer")

    def __init__(self) -> None:
        self.found: FoundEntry | None = None
        self.asked: list[_Request] = []
        self.held: list[_Request] = []
        self.serving = False
        self.timer: asyncio.TimerHandle | None = None
        self.given_at = 0.0
        self.seconds = 0.0
        self.number = 0.0

    @property
    def idle(self) -> bool:
        return not (self.serving or self.asked or self.held)

    def given(self, number: int, now: float) -> None:
        """So many places were given back."""
        since, self.given_at = now - self.given_at, now
        if since > _FORGET_SECONDS:
            self.seconds = self.number = 0.0
        else:
            self.seconds = _FADE * self.seconds + since
            self.number = _FADE * self.number + number

    @property
    def interval(self) -> float | None:
        """Seconds from one place that is given back here to the next, lately; None: not known."""
        return self.seconds / self.number if self.number else None

    def hold(self, requests: list[_Request], now: float) -> bool:
        """Whether these, in the order in which they came, may wait here: the turn of the last one comes within milliseconds."""
        for request in requests:
            request.held_at = request.held_at or now
        soon = self.interval is None or self.interval * len(requests) <= _SOON_SECONDS
        return soon and now < self.hold_until(requests)

    def hold_until(self, requests: list[_Request]) -> float:
        """When the first of these has waited for too long."""
        return (requests[0].held_at or 0.0) + (_FIRST_HOLD_SECONDS if self.interval is None else _LONGEST_HOLD_SECONDS)


class Gates:
    """The limits that one process deals with."""

    def __init__(self, limits: Limits, parking: Parking, clock: Clock) -> None:
        self._limits = limits
        self._parking = parking
        self._clock = clock
        self._gates: dict[str, _Gate] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def known(self) -> int:
        """How many limits it remembers something of."""
        return len(self._gates)

    @property
    def holding(self) -> int:
        """How many runs wait here for a place that is about to be given back."""
        return sum(len(gate.held) for gate in self._gates.values())

    async def take(self, name: str, take: Take, park: Park, patience: Patience, *, reserved: bool = False) -> Answer:
        """Ask for a place. ``park`` stores the run's message; ``reserved``: the run was woken for a place that is reserved.

        Granted (``FROM_PARKED``: call ``unpark`` before it is given back), parked, or busy. Raises Unavailable or
        OutcomeUnknown.
        """
        gate = self._gates.get(name)
        if reserved and gate is not None and not any(held.run_id == take.run_id for held in _permits(gate.found)):
            gate.found = None  # somebody else has written since
        return await self._ask(name, _Request(take, patience, park))

    async def unpark(self, name: str, take: Take, patience: Patience) -> None:
        """Remove what the run has parked: found once it has given its place back, it would be woken for nothing [34]."""
        await self._parking.remove(name, take.key, take.run_id, patience)

    async def give(self, name: str, give: Give, patience: Patience) -> None:
        """Give a place back. Raises as ``take``."""
        await self._ask(name, _Request(give, patience, None))

    async def look(self, name: str, patience: Patience) -> None:
        """Hand over what is free. Raises as ``take``."""
        await self._ask(name, _Request(Look(), patience, None))

    # -- one limit ---------------------------------------------------------------------------------------------------

    async def _ask(self, name: str, request: _Request) -> Answer:
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = _Gate()
        gate.asked.append(request)
        self._begin(name, gate)
        return await request.answer

    def _begin(self, name: str, gate: _Gate) -> None:
        if not gate.serving:
            gate.serving = True
            task = asyncio.create_task(self._serve(name, gate))  # its own: whoever asked may be cancelled
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, name: str, gate: _Gate) -> None:
        """Answer all that is asked of a limit, a batch at a time."""
        while gate.asked or self._is_time(gate):
            batch, gate.held, gate.asked = [*gate.held, *gate.asked], [], []
            try:
                await self._settle(name, gate, batch)
            except Exception as error:  # noqa: BLE001  (each of those who asked raises it)
                gate.found = None
                for request in batch:
                    if not request.answer.done():
                        request.answer.set_exception(error)
                        request.answer.exception()  # whoever asked may be gone
        gate.serving = False
        self._wait_on(name, gate)

    def _is_time(self, gate: _Gate) -> bool:
        return bool(gate.held) and gate.hold_until(gate.held) <= self._clock.steady()

    def _wait_on(self, name: str, gate: _Gate) -> None:
        """Who is held parks when that has taken too long. What nobody deals with is forgotten."""
        if gate.timer is not None:
            gate.timer.cancel()
            gate.timer = None
        if gate.held:
            left = gate.hold_until(gate.held) - self._clock.steady()
            gate.timer = asyncio.get_running_loop().call_later(max(0.0, left), self._begin, name, gate)
        elif gate.found is None:
            del self._gates[name]
        elif len(self._gates) > _MOST_KNOWN:
            oldest = next(iter(self._gates))
            if self._gates[oldest].idle:
                del self._gates[oldest]

    async def _settle(self, name: str, gate: _Gate, batch: list[_Request]) -> None:
        patience = batch[0].patience
        gives = sum(isinstance(request.asked, Give) for request in batch)
        if gives:
            gate.given(gives, self._clock.steady())
        published: set[str] = set()
        handed: dict[str, Parked] = {}
        remembered = gate.found
        found = remembered or await self._limits.read(name, patience)
        while True:
            decided, parked = await self._decide(name, gate, batch, found, published=published, patience=patience)
            handed |= parked
            if decided.write:
                revision, _ = await self._limits.write(name, decided.entry, found.revision, patience)
                if revision:
                    found = FoundEntry(decided.entry, revision)
                    break
            elif found is not remembered or not batch:
                break
            found = await self._limits.read(name, patience)  # refused; or no CAS has told whether it has changed
        gate.found = found if found.entry is not None else None
        for request, answer in zip(batch, decided.answers, strict=True):
            if isinstance(request.asked, Take) and not request.answer.done():
                request.answer.set_result(answer)
        # Also those of a write whose answer was lost: they are reserved, and nobody else will wake them soon.
        reserved = {permit.run_id for permit in _permits(found) if not permit.session}
        # Who stored a message and then found room, or another delivery of its run inside, is not parked [34].
        inside = [one for one, answer in zip(batch, decided.answers, strict=True) if answer is not Answer.PARKED]
        await _all(
            *(self._parking.wake(one, patience) for run_id, one in handed.items() if run_id in reserved),
            *(self._parking.drop(one.stored, patience) for one in inside if one.stored),
        )
        for request in batch:
            if not request.answer.done():
                request.answer.set_result(Answer.DONE)

    async def _decide(
        self,
        name: str,
        gate: _Gate,
        batch: list[_Request],
        found: FoundEntry,
        *,
        published: set[str],
        patience: Patience,
    ) -> tuple[Decided, dict[str, Parked]]:
        """Read, then search [36], then decide; whoever finds no room stores its message before that is written.

        Or is held and leaves ``batch``, if nobody else is parked and this process will give places back soon.
        """
        asked = [request.asked for request in batch]
        room = room_to_hand_over(found.entry, asked)
        oldest: list[Parked] = []
        if room:
            inside = {permit.run_id for permit in _permits(found)}  # [35]
            oldest = await self._parking.oldest(name, room, inside, patience)
        parked = [(one.key, one.run_id) for one in oldest]
        decided = decide(found.entry, asked, parked, published, self._clock.now())
        late = [
            request
            for request, answer in zip(batch, decided.answers, strict=True)
            if answer is Answer.PARK and request.park
        ]
        if late and decided.entry is not None and not decided.entry.parked:
            sessions = {permit.session for permit in decided.entry.permits}
            ours = all(isinstance(request.asked, Take) and request.asked.session in sessions for request in late)
            if ours and gate.hold(late, self._clock.steady()):
                gate.held += late
                batch[:] = [request for request in batch if request not in late]
                decided = decide(found.entry, [r.asked for r in batch], parked, published, self._clock.now())
                late = []
        if late:
            await _all(*(request.store() for request in late))
            published |= {request.run_id for request in late}
            decided = decide(found.entry, asked, parked, published, self._clock.now())
        reserved = set(decided.reserved)
        return decided, {one.run_id: one for one in oldest if one.run_id in reserved}


def _permits(found: FoundEntry | None) -> tuple[Permit, ...]:
    return () if found is None or found.entry is None else found.entry.permits


async def _all(*work: Awaitable[None]) -> None:
    """Wait for the end of all, then raise the first error."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
