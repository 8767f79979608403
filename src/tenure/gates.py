"""Gates: how a process asks for places under limits and gives them back (rules: ``core.permits``).

What is asked of one limit while a write is on its way is decided together and stored by one compare-and-swap. An entry
that is its own last write is not read again: the CAS says if it has changed. Who is in line gets its place from another
body of this process with no write at all; the next write names whom that has let go, and who comes after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tenure.clock import Clock
from tenure.core.errors import InvalidCall, TenureError
from tenure.core.permits import Answer, Asked, Decided, Give, Look, Take, decide, room_to_hand_over
from tenure.crew import Crew, Gate, Request, permits_of
from tenure.nats.limits import FoundEntry, Limits
from tenure.nats.parking import Parked, Parking
from tenure.nats.patience import Patience
from tenure.telemetry import get_logger
from tenure.together import all_of

_log = get_logger("tenure.limits")
_MOST_KNOWN = 10_000
"""Limits whose entry is remembered."""
_KEEP_SECONDS = 0.005
"""How long a place that is not needed any more is kept, where others come and go quickly."""
_FORGET_SECONDS = 1.0
"""How long a limit is remembered of which nothing is left: how fast its places came back, and where its entry was."""
_UNSEEN_SECONDS = 0.05
"""How long places are passed on at most without a look at what others wrote."""

Park = Callable[[], Awaitable[int]]
"""Stores the message of a run; the sequence of what it has stored, or 0."""


class LimitFull(TenureError):
    """Everybody who holds or waits for a place is named in one message, and one more name does not fit: try again later."""


class Gates:
    """The limits that one process deals with."""

    def __init__(self, limits: Limits, parking: Parking, clock: Clock) -> None:
        self._limits = limits
        self._parking = parking
        self._clock = clock
        self._gates: dict[str, Gate] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def known(self) -> int:
        """How many limits it remembers something of."""
        return len(self._gates)

    @property
    def holding(self) -> int:
        """How many runs wait here for a place that is about to be given back."""
        return sum(gate.waiting for gate in self._gates.values())

    async def take(
        self, name: str, take: Take, park: Park, patience: Patience, *, reserved: bool = False, early: bool = True
    ) -> Answer:
        """Ask for a place, to be awaited by ``place`` before the body starts.

        ``park`` stores the run's message; ``reserved``: the run was woken for a place that is reserved; ``early``: see ``Request``.

        Granted (``FROM_PARKED``: call ``unpark`` before it is given back), parked, or busy. Raises Unavailable or
        OutcomeUnknown.
        """
        gate = self._gates.get(name)
        now = self._clock.steady()
        request = Request(take, patience, now, park)
        request.early = early
        crew = None if gate is None else gate.crews.get(take.session)
        if crew is not None:
            crew.asks(take)
        if gate is None:
            pass
        elif reserved and not any(held.run_id == take.run_id for held in permits_of(gate.found)):
            gate.found = None  # somebody else has written since
        elif not reserved and gate.can_hold(take.session, now):
            gate.held.append(request)
            return await request.answer
        return await self._ask(name, request)

    async def unpark(self, name: str, take: Take, patience: Patience) -> None:
        """Remove what the run has parked: found once it has given its place back, it would be woken for nothing [34]."""
        await self._parking.remove(name, take.key, take.run_id, patience)

    async def place(self, name: str, take: Give, seconds: float) -> bool:
        """Wait for the place of a run that was granted, before its body starts. False: it does not come."""
        gate = self._gates.get(name)
        crew = None if gate is None else gate.crews.get(take.session)
        if crew is None:
            return False
        place = crew.place(take.run_id, take.attempt)
        if not place.done():
            timer = asyncio.get_running_loop().call_later(seconds, _refuse, place)
            try:
                return await place
            finally:
                timer.cancel()
        return place.result()

    def leave(self, name: str, give: Give) -> None:
        """Of whose place nothing can be written now: its process has others start, and says so with its next write."""
        gate = self._gates.get(name)
        crew = None if gate is None else gate.crews.get(give.session)
        if gate is not None and crew is not None and crew.leave(give):
            gate.void += (*crew.start(gate.pace.ahead), give)
            if not crew:
                del gate.crews[give.session]
            if not gate.serving:
                self._wait_on(name, gate)

    def pass_on(self, name: str, give: Give, patience: Patience) -> bool:
        """Pass a place on to the next in line of the same session, if there is one: no write that anybody waits for."""
        gate = self._gates.get(name)
        crew = None if gate is None else gate.crews.get(give.session)
        if gate is None or crew is None or not crew.leave(give):
            return False
        now = self._clock.steady()
        gate.pace.given(now)
        gate.void += crew.start(gate.pace.ahead)
        if not crew.enough:
            if not (gate.pace.ahead and (crew or not gate.is_parked)):
                return False
            if gate.keep is None:  # whoever asks in the next moment needs it
                gate.keep = asyncio.get_running_loop().call_later(_KEEP_SECONDS, self._let_go, name, gate, patience)
        gate.void.append(give)
        if now - gate.written_at > _UNSEEN_SECONDS and not gate.serving:
            gate.asked.append(Request(Look(), patience, now))
        if gate.asked or gate.short:
            self._begin(name, gate)
        return True

    def _let_go(self, name: str, gate: Gate, patience: Patience) -> None:
        gate.keep = None
        gate.asked.append(Request(Look(), patience, self._clock.steady()))
        self._begin(name, gate)

    async def give(self, name: str, give: Give, patience: Patience) -> None:
        """Give a place back. Raises as ``take``."""
        if not self.pass_on(name, give, patience):
            await self._ask(name, Request(give, patience, self._clock.steady()))

    async def rest(self, seconds: float) -> None:
        """Give back what is kept for whoever asks in the next moment: nobody will. Returns when that is written, or after so long."""
        patience = Patience(self._clock, seconds)
        for name, gate in list(self._gates.items()):
            if gate.keep is not None:
                gate.keep.cancel()
                self._let_go(name, gate, patience)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)  # others' may try for as long as the session lives

    async def look(self, name: str, patience: Patience, *, n: int = 0, deployed: float = 0.0) -> None:
        """Hand over what is free, by what this process says of ``n`` if it says anything. Raises as ``take``."""
        await self._ask(name, Request(Look(n=n, deployed=deployed), patience, self._clock.steady()))

    # -- one limit ---------------------------------------------------------------------------------------------------

    async def _ask(self, name: str, request: Request) -> Answer:
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = Gate()
        gate.asked.append(request)
        self._begin(name, gate)
        return await request.answer

    def _begin(self, name: str, gate: Gate) -> None:
        if not gate.serving:
            gate.serving = True
            task = asyncio.create_task(self._serve(name, gate))  # its own: whoever asked may be cancelled
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, name: str, gate: Gate) -> None:
        """Answer all that is asked of a limit, a batch at a time."""
        while gate.due(self._clock.steady()):
            batch, may_wait = gate.batch(self._clock.steady())
            if not batch:
                continue
            gate.written_at = self._clock.steady()
            if gate.keep is not None:
                gate.keep.cancel()
                gate.keep = None
            try:
                await self._settle(name, gate, batch, may_wait=may_wait)
            except InvalidCall:
                await self._settle_each(name, gate, batch)
            except Exception as error:  # noqa: BLE001  (each of those who asked raises it)
                gate.found = None
                for request in batch:
                    request.fail(error)
        gate.serving = False
        self._wait_on(name, gate)

    async def _settle_each(self, name: str, gate: Gate, batch: list[Request]) -> None:
        """What all of them ask for does not fit an entry: those whose own name is too much are told so, and no others."""
        for request in batch:
            gate.found = None
            try:
                await self._settle(name, gate, [request], may_wait=False)
            except InvalidCall as error:
                msg = f"limit {name} names as many runs as fit one message ({error}); shorter keys or a lower n help"
                request.fail(LimitFull(msg))
            except Exception as error:  # noqa: BLE001  (whoever asked raises it)
                request.fail(error)

    def _wait_on(self, name: str, gate: Gate) -> None:
        """Who waits parks when that has taken too long. What nobody deals with is forgotten."""
        if gate.timer is not None:
            gate.timer.cancel()
            gate.timer = None
        until = gate.until
        if until is not None:
            left = max(0.0, until - self._clock.steady())
            gate.timer = asyncio.get_running_loop().call_later(left, self._begin, name, gate)
        elif gate.idle and not permits_of(gate.found):
            gate.timer = asyncio.get_running_loop().call_later(_FORGET_SECONDS, self._forget, name, gate)
        elif len(self._gates) > _MOST_KNOWN:
            oldest = next((one for one, known in self._gates.items() if known.idle), None)
            if oldest is not None:
                del self._gates[oldest]

    def _forget(self, name: str, gate: Gate) -> None:
        if gate.idle and self._gates.get(name) is gate:
            del self._gates[name]

    async def _settle(self, name: str, gate: Gate, batch: list[Request], *, may_wait: bool) -> None:
        patience = batch[0].patience
        published = {request.run_id for request in batch if request.stored}
        handed: dict[str, Parked] = {}
        remembered = gate.found
        found, met = remembered or await self._limits.read(name, patience, gate.seen), 0
        while True:
            void = gate.void[:]
            decided, parked = await self._decide(
                name, batch, found, void, may_wait=may_wait, published=published, patience=patience
            )
            handed |= parked
            if decided.write:
                revision, _, met = await self._limits.write(name, decided.entry, found.revision, patience)
                if revision:
                    if found.entry is not None and decided.entry is not None and found.entry.n != decided.entry.n:
                        _log.info("limit.changed", limit=name, before=found.entry.n, n=decided.entry.n)
                    found = FoundEntry(decided.entry, revision)
                    break
            elif found is not remembered:
                break
            # Refused; or no CAS has told whether it has changed.
            found = await self._limits.read(name, patience, max(gate.seen, found.revision, met))
        gate.found, gate.seen = found, found.revision
        del gate.void[: len(void)]
        answers = decided.answers[len(void) :]
        for request, answer in zip(batch, answers, strict=True):
            if isinstance(request.asked, Take):
                if answer in {Answer.GRANTED, Answer.FROM_PARKED, Answer.NEXT}:
                    request.came_at = self._clock.steady()  # else it would give way again at once, and ask for ever
                    gate.crews.setdefault(request.session, Crew()).join(request, answer)
                else:
                    request.tell(answer)
        gate.count()
        # Also those of a write whose answer was lost: they are reserved, and nobody else will wake them soon.
        reserved = {permit.run_id for permit in permits_of(found) if not permit.session}
        # Who stored a message and then found room, or another delivery of its run inside, is not parked [34].
        inside = [one for one, answer in zip(batch, answers, strict=True) if answer is not Answer.PARKED and one.stored]
        if handed or inside:
            await all_of(
                *(
                    self._parking.wake(one, patience, ahead=True)
                    for run_id, one in handed.items()
                    if run_id in reserved
                ),
                *(self._parking.drop(one.stored, patience) for one in inside),
            )
        for request in batch:
            if not isinstance(request.asked, Take):
                request.tell(Answer.DONE)

    async def _decide(
        self,
        name: str,
        batch: list[Request],
        found: FoundEntry,
        void: list[Give],
        *,
        may_wait: bool,
        published: set[str],
        patience: Patience,
    ) -> tuple[Decided, dict[str, Parked]]:
        """Read, then search [36], then decide; whoever finds no room stores its message before that is written."""
        asked: list[Asked] = [*void, *(request.asked for request in batch)]
        room = room_to_hand_over(found.entry, asked, may_wait=may_wait)
        oldest: list[Parked] = []
        if room and found.entry is not None:
            inside = {permit.run_id for permit in found.entry.names}  # [35]
            oldest = await self._parking.oldest(name, room, inside, patience)
        parked = [(one.key, one.run_id) for one in oldest]
        now = self._clock.now()
        decided = decide(found.entry, asked, parked, published, now, may_wait=may_wait)
        late = [
            request
            for request, answer in zip(batch, decided.answers[len(void) :], strict=True)
            if answer is Answer.PARK and request.park
        ]
        if late:
            await all_of(*(request.store() for request in late))
            published |= {request.run_id for request in late}
            decided = decide(found.entry, asked, parked, published, now, may_wait=may_wait)
        reserved = set(decided.reserved)
        return decided, {one.run_id: one for one in oldest if one.run_id in reserved}


def _refuse(place: asyncio.Future[bool]) -> None:
    if not place.done():
        place.set_result(False)
