"""A run's places under its actor's limits: taken before the claim, given back when the body has ended.

Which limits a run has, its record says; how many bodies each allows is what the code of this worker says, if it has that
limit. Several are taken in the order of their names; who does not get all of them keeps none and parks where one is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from tenure.actors import Actor
from tenure.core.errors import OutcomeUnknown, TenureError, Unavailable
from tenure.core.given import UNREADABLE
from tenure.core.pace import settled_by
from tenure.core.permits import Answer, Bound, Give, Take, name_of
from tenure.core.rates import is_rate
from tenure.core.records import Record, Task
from tenure.nats.patience import Patience
from tenure.nats.runs import Found
from tenure.stores import Stores
from tenure.worker.slots import Slots, pace_of


def is_bounded(task: Task) -> bool:
    """Whether its runs need leave to start: a place under a limit, or a start under a rate."""
    return bool(task.policy.limits) or bool(pace_of(task).rates)


_LONGEST_WAIT_SECONDS = 1.0
"""A run is claimed milliseconds before its place comes free. If it does not, somebody else may have the run."""


class Places:
    """What the workers' code says of limits, and where it is asked for."""

    def __init__(self, stores: Stores, actors: Mapping[str, Actor[..., ..., Any, Any]], deployed: float) -> None:
        self.stores = stores
        self._actors = actors
        self.paces = {name: pace_of(actor.task) for name, actor in actors.items()}
        self.deployed = deployed

    async def limits_of(self, task: Task, patience: Patience) -> dict[str, Bound]:
        """The limits of a task by their entries' names, in the order in which they are taken. Raises Unavailable."""
        if not any(bound.per for bound in task.policy.limits):
            return {name_of(task.actor, bound, b""): bound for bound in task.policy.limits}
        try:
            args = await self.stores.get_args(task, patience)
            found = {name_of(task.actor, bound, args): bound for bound in task.policy.limits}
        except (Unavailable, OutcomeUnknown):
            raise
        except (TenureError, *UNREADABLE):  # its body cannot run without them: it is claimed to fail
            found = {name_of(task.actor, bound, b"{}"): bound for bound in task.policy.limits}
        return dict(sorted(found.items()))

    def said_of(self, actor: str, bound: Bound) -> tuple[int, float]:
        """How many bodies the limit allows, and when the code was deployed that says so."""
        known = self._actors.get(actor)
        for own in known.task.policy.limits if known is not None else ():
            if own.per == bound.per:
                return own.n, self.deployed
        return bound.n, 0.0

    async def hand_over_more(self, patience: Patience) -> None:
        """Where this code allows more than was allowed before, have those start who are parked; no end need come first.

        Raises Unavailable, OutcomeUnknown, UnreadableRecord.
        """
        limited = {name for name, actor in self._actors.items() if actor.task.policy.limits}
        for name in await self.stores.limits.names(patience) if limited else ():
            if name.partition("=")[0] not in limited or is_rate(name):
                continue
            entry = (await self.stores.limits.read(name, patience)).entry
            if entry is None or not entry.parked or entry.deployed >= self.deployed:
                continue
            n = await self._n_of(name, patience)
            if n > entry.n:
                await self.stores.gates.look(name, patience, n=n, deployed=self.deployed)

    async def _n_of(self, name: str, patience: Patience) -> int:
        """What this code says of the limit of an entry: which one that is, a run says that is parked there. 0: nothing."""
        for parked in await self.stores.parking.oldest(name, 1, (), patience):
            record = (await self.stores.runs.read(parked.key, patience)).record
            bound = None if record is None else (await self.limits_of(record.task, patience)).get(name)
            if record is not None and bound is not None:
                n, deployed = self.said_of(record.task.actor, bound)
                return n if deployed else 0
        return 0


class Ticket:
    """The places of one run, from one delivery of it on. ``woken``: because a place is reserved for it."""

    __slots__ = (
        "_again",
        "_held",
        "_limits",
        "_places",
        "_settled",
        "_task",
        "_unparking",
        "_woken",
        "run_id",
        "session",
        "slots",
    )

    def __init__(self, places: Places, run_id: str, session: str, *, again: bool, woken: bool) -> None:
        self._places = places
        self.run_id = run_id
        self.session = session
        self._again = again
        self._woken = woken
        self._task: Task | None = None
        self._limits: dict[str, Bound] = {}
        self._held: dict[str, int] = {}
        self._unparking: list[asyncio.Task[None]] = []
        self._settled = ""
        self.slots = Slots(places.stores, places.paces, run_id, again=again, woken=woken)

    def met(self, record: Record | None) -> None:
        """A record that was found: it may tell which limits the run has."""
        if record is None or record.run_id != self.run_id or not is_bounded(record.task):
            return
        if self._task is None:
            self._settled = settled_by(record)
        if self._settled == settled_by(record):  # else what it may have is that of the arguments before
            self._task = record.task

    async def take(self, found: Found, record: Record, patience: Patience) -> Answer:
        """Ask for all places of the next attempt: granted, or what came of the first that was not.

        Raises Unavailable or OutcomeUnknown.
        """
        gates = self._places.stores.gates
        attempt = record.attempt + 1
        if self._settled != settled_by(record):  # other arguments: what was asked for the old ones is nothing to it
            await self.give_back(patience)
            self._limits, self._woken, self._settled = {}, False, settled_by(record)
            self.slots.forget()
        self._task = record.task
        for name, bound in (self._limits or await self._known(patience)).items():
            n, deployed = self._places.said_of(record.task.actor, bound)
            take = Take(
                key=record.key, run_id=self.run_id, attempt=attempt, session=self.session, n=n, deployed=deployed
            )
            park = partial(self._park, name, record, found.revision, patience)
            early = record.failures + 1 < record.task.policy.max_attempts
            answer = await gates.take(name, take, park, patience, reserved=self._woken, early=early)
            if answer not in {Answer.GRANTED, Answer.FROM_PARKED}:
                await self._give(patience, keep=name)
                await self.slots.leave(record.task, patience)
                return answer
            self._held[name] = attempt
            if self._again or (answer is Answer.FROM_PARKED and not self._woken):  # else who woke it has removed that
                # While it is in the entry, nobody hands a place to what it has parked.
                removal = asyncio.create_task(gates.unpark(name, take, patience))
                removal.add_done_callback(_heed)
                self._unparking.append(removal)
        if not pace_of(record.task).rates:
            return Answer.GRANTED
        answer = await self.slots.take(found, record, self._places.deployed, patience)
        if answer is not Answer.GRANTED:
            await self._give(patience)
        return answer

    async def place(self) -> bool:
        """Wait until the body may start. False: it is not its turn for so long that it had better be handed back.

        An attempt's deadline counts from its claim: this takes a tenth of its time at most.
        """
        timeout = self._task.policy.timeout if self._task is not None else None
        longest = _LONGEST_WAIT_SECONDS if timeout is None else min(_LONGEST_WAIT_SECONDS, timeout / 10)
        for name, attempt in self._held.items():
            give = Give(run_id=self.run_id, attempt=attempt, session=self.session)
            if not await self._places.stores.gates.place(name, give, longest):
                return False
        return True

    @property
    def is_used(self) -> bool:
        """Whether it may have something that is to be given back."""
        return bool(self._held or self._unparking or self._woken or self.slots.marked)

    def pass_on(self, patience: Patience) -> bool:
        """Pass its places on to others of this process that are next in line; False: some are left to be given back."""
        if self.slots.marked:  # it did not start: its starts go back as well
            return False
        if self._unparking:  # its message is to be removed while it is named [34]
            return False
        for name in list(self._held):
            give = Give(run_id=self.run_id, attempt=self._held[name], session=self.session)
            if self._places.stores.gates.pass_on(name, give, patience):
                del self._held[name], self._limits[name]
        return not self._held

    def leave(self) -> None:
        """No body of it will run, and nobody can be asked now: others of this process may have its places."""
        for name, attempt in self._held.items():
            give = Give(run_id=self.run_id, attempt=attempt, session=self.session)
            self._places.stores.gates.leave(name, give)

    async def give_back(self, patience: Patience) -> None:
        """Give back whatever this run has. Raises as ``take``."""
        if self._task is not None:
            await self._known(patience)
            await self._give(patience)
            await self.slots.leave(self._task, patience)

    async def _give(self, patience: Patience, keep: str = "") -> None:
        """Everywhere but at ``keep``: an attempt's place, and one that was reserved for the run."""
        unparking, self._unparking = self._unparking, []
        failed = [error for error in await asyncio.gather(*unparking, return_exceptions=True) if error is not None]
        held, self._held = self._held, {}
        gives = [
            (name, Give(run_id=self.run_id, attempt=held[name], session=self.session))
            if name in held
            else (name, Give(run_id=self.run_id))
            for name in self._limits
            if name in held or name != keep
        ]
        for name, give in gives:
            try:
                await self._places.stores.gates.give(name, give, patience)
            except TenureError as error:
                failed.append(error)
        if failed:  # now that its process knows, for all of them, that no body of it has a place
            raise failed[0]

    async def _park(self, name: str, record: Record, revision: int, patience: Patience) -> int:
        stores = self._places.stores
        return await stores.parking.park(name, record, stores.codec.encode(record), revision, patience)

    async def _known(self, patience: Patience) -> dict[str, Bound]:
        if not self._limits and self._task is not None:
            self._limits = await self._places.limits_of(self._task, patience)
        return self._limits


def _heed(removal: asyncio.Task[None]) -> None:
    """Nobody asks how it ended where the session is given up: what is left to remove, a supervisor finds."""
    if not removal.cancelled():
        removal.exception()
