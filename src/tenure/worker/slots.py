"""A run's starts under its actor's rates: asked for after its places under limits, before the claim.

A start is good for as long as its mark says. So the last look is right before the body: who is late by then has its mark
moved first, and who cannot have that hands the run back. Which rates a run has, its record says; how much each allows is
what the code of this worker says, if it has that rate.
"""

from __future__ import annotations

from functools import partial

from tenure.core.errors import OutcomeUnknown, TenureError, Unavailable
from tenure.core.given import UNREADABLE
from tenure.core.permits import Answer
from tenure.core.rates import Pace, Rate, Start, rate_name, window_of
from tenure.core.records import Record, Task, encode
from tenure.nats.patience import Patience
from tenure.nats.runs import Found
from tenure.stores import Stores

NO_PACE = Pace()
_IN = (Answer.GRANTED, Answer.FROM_PARKED)


def pace_of(task: Task) -> Pace:
    """What of a task's policy is about time."""
    return task.policy.pace or NO_PACE


def excess_reason(rate: Rate) -> str:
    """What the submitter of a run is told that was dropped."""
    whose = f" for one {rate.per}" if rate.per else ""
    return f"dropped: its rate allows {rate.n} starts in {rate.seconds:g} s{whose}"


class Slots:
    """The starts of one run, from one delivery of it on. ``said``: what the code says of a rate, and since when."""

    __slots__ = ("_again", "_asked", "_marks", "_rates", "_run_id", "_said", "_stores", "_woken", "reason")

    def __init__(self, stores: Stores, said: dict[str, Pace], run_id: str, *, again: bool, woken: bool) -> None:
        self._stores = stores
        self._said = said
        self._run_id = run_id
        self._again = again
        self._woken = woken
        self._asked = False
        self._rates: dict[str, Rate] = {}
        self._marks: dict[str, tuple[int, int]] = {}
        self.reason = ""
        """Why the run was dropped."""

    async def take(self, found: Found, record: Record, deployed: float, patience: Patience) -> Answer:
        """Ask to start the next attempt: granted under all its rates, or what came of the first that did not allow it.

        Raises Unavailable or OutcomeUnknown.
        """
        names = list(await self._known(record.task, patience))
        self._marks, self._asked = {}, True
        # Of several, places are kept until the last one allows it: a mark cannot be taken back.
        for name in names:
            answer = await self._ask(name, found, record, deployed, patience, keep=name != names[-1])
            if answer not in _IN:
                await self._leave([other for other in names if other != name], patience)
                return answer
        for name in names[:-1]:
            answer = await self._ask(name, found, record, deployed, patience, keep=False)
            if answer not in _IN:  # its place was void by then
                return Answer.BUSY if answer is Answer.EXCESS else answer
        self._asked = self._woken = False  # no place is left
        return Answer.GRANTED

    async def _ask(
        self, name: str, found: Found, record: Record, deployed: float, patience: Patience, *, keep: bool
    ) -> Answer:
        rate, since = self._told(record.task.actor, self._rates[name], deployed)
        paces = self._stores.paces
        within = 0 if keep else paces.within(window_of(name))
        start = Start(
            key=record.key,
            run_id=self._run_id,
            within=within,
            n=rate.n,
            deployed=since,
            drop=rate.excess == "drop" and not record.attempt,  # what was begun is finished
        )
        park = partial(self._park, name, found, record, patience)
        answer, mark = await paces.start(name, start, park, patience, reserved=self._woken)
        if answer in _IN:
            if self._again or (answer is Answer.FROM_PARKED and not self._woken):  # else who woke it has removed that
                await paces.unpark(name, record.key, self._run_id, patience)
            if mark:
                self._marks[name] = mark, within
        elif answer is Answer.EXCESS:
            self.reason = excess_reason(rate)
        return answer

    async def _park(self, name: str, found: Found, record: Record, patience: Patience) -> int:
        return await self._stores.parking.park(name, record, encode(record), found.revision, patience)

    async def begin(self, patience: Patience) -> bool:
        """The body is about to start: whether it may. Raises Unavailable or OutcomeUnknown."""
        paces = self._stores.paces
        for name, (mark, within) in self._marks.items():
            paces.took(paces.now() - (mark - within))
            while paces.now() > mark - within // 2:  # the rest is for what is between here and the body's first line
                rate, within = self._rates[name], 2 * within  # noqa: PLW2901  (what it takes this time)
                start = Start(key="", run_id=self._run_id, within=within, n=rate.n, deployed=-1.0, old=mark, drop=True)
                answer, moved = await paces.start(name, start, _nowhere, patience)
                if answer not in _IN:
                    return False
                mark = moved  # noqa: PLW2901  (that which it has now)
        return True

    async def leave(self, task: Task | None, patience: Patience) -> None:
        """Give up what may be kept for this run. Raises as ``take``."""
        if task is not None and (self._woken or self._asked) and pace_of(task).rates:
            await self._leave(list(await self._known(task, patience)), patience)

    async def _leave(self, names: list[str], patience: Patience) -> None:
        """Nobody has a place anywhere but who was woken for one, or asks several rates."""
        if self._woken or (self._asked and len(self._rates) > 1):
            for name in names:
                await self._stores.paces.leave(name, self._run_id, patience)

    def _told(self, actor: str, rate: Rate, deployed: float) -> tuple[Rate, float]:
        """The rate as the code has it, and when the process was started that says so."""
        own = self._said.get(actor, NO_PACE).rates
        known = next((one for one in own if (one.per, one.seconds) == (rate.per, rate.seconds)), None)
        return (rate, 0.0) if known is None else (known, deployed)

    async def _known(self, task: Task, patience: Patience) -> dict[str, Rate]:
        """The rates of a task by their entries' names, in the order in which they are asked."""
        if not self._rates:
            try:
                args = await self._stores.get_args(task, patience)
                found = {rate_name(task.actor, rate, args): rate for rate in pace_of(task).rates}
            except (Unavailable, OutcomeUnknown):
                raise
            except (TenureError, *UNREADABLE):  # its body cannot run without them: it is claimed to fail
                found = {rate_name(task.actor, rate, b"{}"): rate for rate in pace_of(task).rates}
            self._rates = dict(sorted(found.items()))
        return self._rates


async def _nowhere() -> int:
    """A body that is about to start does not park."""
    return 0
