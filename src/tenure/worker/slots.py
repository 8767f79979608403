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
from tenure.core.records import Record, Task
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
    return f"dropped: its rate allows {rate.n} starts in {rate.seconds:.15g} s{whose}"


class Slots:
    """The starts of one run, from one delivery of it on. ``said``: what the code says of a rate, and since when."""

    __slots__ = ("_again", "_marks", "_rates", "_run_id", "_said", "_stores", "_woken", "reason")

    def __init__(self, stores: Stores, said: dict[str, Pace], run_id: str, *, again: bool, woken: bool) -> None:
        self._stores = stores
        self._said = said
        self._run_id = run_id
        self._again = again
        self._woken = woken
        self._rates: dict[str, Rate] = {}
        self._marks: dict[str, tuple[int, int]] = {}
        self.reason = ""
        """Why the run was dropped."""

    async def take(self, found: Found, record: Record, deployed: float, patience: Patience) -> Answer:
        """Ask to start the next attempt: granted under all its rates, or what came of the first that did not allow it.

        Raises Unavailable or OutcomeUnknown.
        """
        names = list(await self._known(record.task, patience))
        self._marks = {}
        for name in names:
            answer = await self._ask(name, found, record, deployed, patience)
            if answer not in _IN:
                await self._leave(patience, but=name)
                return answer
        self._woken = False  # no place is left, only marks
        return Answer.GRANTED

    async def _ask(self, name: str, found: Found, record: Record, deployed: float, patience: Patience) -> Answer:
        rate, since = self._told(record.task.actor, self._rates[name], deployed)
        paces = self._stores.paces
        within = paces.within(window_of(name))
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
            self._marks[name] = mark, within
        elif answer is Answer.EXCESS:
            self.reason = excess_reason(rate)
        return answer

    async def _park(self, name: str, found: Found, record: Record, patience: Patience) -> int:
        data = self._stores.codec.encode(record)
        return await self._stores.parking.park(name, record, data, found.revision, patience)

    async def begin(self, patience: Patience) -> bool:
        """The body is about to start: whether it may. Raises Unavailable or OutcomeUnknown.

        A mark that is moved takes its time, and those of other rates pass meanwhile: all are looked at again after it.
        """
        paces = self._stores.paces
        for mark, within in self._marks.values():
            paces.took(paces.now() - (mark - within))
        while (name := self._late()) is not None:
            mark, within = self._marks.pop(name)  # one that is being moved must not be taken out as well
            rate, within = self._rates[name], 2 * within
            start = Start(key="", run_id=self._run_id, within=within, n=rate.n, deployed=-1.0, old=mark, drop=True)
            answer, mark = await paces.start(name, start, _nowhere, patience)
            if answer not in _IN:
                return False
            self._marks[name] = mark, within
        self._marks = {}
        return True

    def _late(self) -> str | None:
        """A rate whose mark is too near: half of its time is for what is between this look and the body's first line."""
        now = self._stores.paces.now()
        return next((name for name, (mark, within) in self._marks.items() if now > mark - within // 2), None)

    @property
    def marked(self) -> bool:
        """Whether it has starts that it did not make use of."""
        return bool(self._marks)

    def forget(self) -> None:
        """The run has other arguments now, and so other rates."""
        self._rates, self._woken = {}, False

    async def leave(self, task: Task | None, patience: Patience) -> None:
        """The run does not start: give up what it may have. Raises as ``take``."""
        if task is not None and pace_of(task).rates and (self._woken or self._marks):
            await self._known(task, patience)
            await self._leave(patience)

    async def _leave(self, patience: Patience, but: str = "") -> None:
        """Everywhere but where it has parked. Only who was woken for a place may have one."""
        marks, self._marks = self._marks, {}
        for name in self._rates:
            if name in marks:
                await self._stores.paces.leave(name, self._run_id, patience, marks[name][0])
            elif self._woken and name != but:
                await self._stores.paces.leave(name, self._run_id, patience)

    def _told(self, actor: str, rate: Rate, deployed: float) -> tuple[Rate, float]:
        """The rate as the code has it, and when that was deployed."""
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
