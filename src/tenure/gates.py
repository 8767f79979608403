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


class _Request:
    """One thing asked, who waits for its answer, and how its run's message is stored."""

    __slots__ = ("answer", "asked", "park", "patience")

    def __init__(self, asked: Asked, patience: Patience, park: Callable[[], Awaitable[None]] | None) -> None:
        self.asked = asked
        self.patience = patience
        self.park = park
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def run_id(self) -> str:
        return self.asked.run_id if isinstance(self.asked, Take) else ""


class Gates:
    """The limits that one process deals with."""

    def __init__(self, limits: Limits, parking: Parking, clock: Clock) -> None:
        self._limits = limits
        self._parking = parking
        self._clock = clock
        self._known: dict[str, FoundEntry] = {}
        self._waiting: dict[str, list[_Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(
        self, name: str, take: Take, park: Callable[[], Awaitable[None]], patience: Patience, *, reserved: bool = False
    ) -> Answer:
        """Ask for a place. ``park`` stores the run's message; ``reserved``: the run was woken for a place that is reserved.

        Granted (``FROM_PARKED``: call ``unpark`` before it is given back), parked, or busy. Raises Unavailable or
        OutcomeUnknown.
        """
        known = self._known.get(name)
        if reserved and known is not None and not any(held.run_id == take.run_id for held in _permits(known)):
            del self._known[name]  # somebody else wrote that
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
        waiting = self._waiting.get(name)
        if waiting is None:  # nobody sees to this one now
            self._waiting[name] = [request]
            task = asyncio.create_task(self._serve(name))  # its own: whoever asked may be cancelled
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            waiting.append(request)
        return await request.answer

    async def _serve(self, name: str) -> None:
        """Answer all that is asked of a limit, a batch at a time."""
        while batch := self._waiting[name]:
            self._waiting[name] = []
            try:
                await self._settle(name, batch)
            except Exception as error:  # noqa: BLE001  (each of those who asked raises it)
                self._known.pop(name, None)
                for request in batch:
                    if not request.answer.done():
                        request.answer.set_exception(error)
                        request.answer.exception()  # whoever asked may be gone
        del self._waiting[name]

    async def _settle(self, name: str, batch: list[_Request]) -> None:
        patience = batch[0].patience
        published: set[str] = set()
        handed: dict[str, Parked] = {}
        remembered = self._known.get(name)
        found = remembered or await self._limits.read(name, patience)
        while True:
            decided, parked = await self._decide(name, batch, found, published, patience)
            handed |= parked
            if not decided.write:
                if found is not remembered:
                    break
                found = await self._limits.read(name, patience)  # no CAS will tell that it has changed
                continue
            revision, _ = await self._limits.write(name, decided.entry, found.revision, patience)
            if revision:
                found = FoundEntry(decided.entry, revision)
                break
            found = await self._limits.read(name, patience)
        self._remember(name, found)
        for request, answer in zip(batch, decided.answers, strict=True):
            if isinstance(request.asked, Take) and not request.answer.done():
                request.answer.set_result(answer)
        # Also those of a write whose answer was lost: they are reserved, and nobody else will wake them soon.
        reserved = {permit.run_id for permit in _permits(found) if not permit.session}
        await _all(*(self._parking.wake(one, patience) for run_id, one in handed.items() if run_id in reserved))
        for request in batch:
            if not request.answer.done():
                request.answer.set_result(Answer.DONE)

    async def _decide(
        self, name: str, batch: list[_Request], found: FoundEntry, published: set[str], patience: Patience
    ) -> tuple[Decided, dict[str, Parked]]:
        """Read, then search [36], then decide; whoever finds no room stores its message before that is written."""
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
        if late:
            await _all(*(request.park() for request in late if request.park is not None))
            published |= {request.run_id for request in late}
            decided = decide(found.entry, asked, parked, published, self._clock.now())
        reserved = set(decided.reserved)
        return decided, {one.run_id: one for one in oldest if one.run_id in reserved}

    def _remember(self, name: str, found: FoundEntry) -> None:
        self._known.pop(name, None)
        if found.entry is not None:
            self._known[name] = found
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]


def _permits(found: FoundEntry) -> tuple[Permit, ...]:
    return () if found.entry is None else found.entry.permits


async def _all(*work: Awaitable[None]) -> None:
    """Wait for the end of all, then raise the first error."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
