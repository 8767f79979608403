"""Places under limits that nobody will give back, and parked runs that nobody will wake.

What a crash can leave: the places of a dead session; a place that is reserved for a run whose wake-up was not stored, or
that will not use it; a place of an attempt that is over; room that was not handed over; a parked message of a run that is
over, or one whose flag was never set. Owns nothing: each place is given back, and handed on, by CAS like a worker's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tenure.core import commands as c
from tenure.core.errors import EncryptedRecord, NewerSchema, TenureError, UnreadableRecord
from tenure.core.outcomes import Refused, Why
from tenure.core.permits import Entry, Give, Permit
from tenure.core.rates import SECOND, is_rate
from tenure.core.records import Phase, Record, State
from tenure.core.subjects import decode_key
from tenure.core.sweeps import is_over, wake_again_after
from tenure.core.transitions import transition
from tenure.metrics import Metrics
from tenure.nats.patience import Patience
from tenure.nats.runs import Found
from tenure.stores import Stores
from tenure.supervisor.census import Census
from tenure.switchboard import Switchboard
from tenure.telemetry import get_logger
from tenure.together import all_of, each

K = TypeVar("K")
V = TypeVar("V")
_log = get_logger("tenure.supervisor")
_SETTLE_SECONDS = 2.0
"""What was given so lately is still in the hands of whoever got it."""
_AGAIN_SECONDS = 15.0
"""When to look again at the record of a run that has had its place for long."""
_AT_ONCE = 20
_MOST_WOKEN = 1_000
_MOST_REMOVED = 1_000
_MOST_REMEMBERED = 200_000

ParkedRuns = dict[str, set[tuple[str, str]]]
"""By limit, (key token, run id) of each parked message."""


class LeftParked:
    """Parked messages whose runs a pass over all records has not met: ``met`` each, then ``rest``."""

    def __init__(self, parked: ParkedRuns) -> None:
        self._limits: dict[tuple[str, str], list[str]] = {}
        for limit, runs in parked.items():
            for run in runs:
                self._limits.setdefault(run, []).append(limit)
        self._left = set(self._limits)

    def has(self, token: str, run_id: str) -> bool:
        """Whether that run has a parked message [38]."""
        return (token, run_id) in self._limits

    def met(self, token: str, state: State) -> None:
        """The pass has met this record."""
        if state.phase in {Phase.WAITING, Phase.RUNNING}:
            self._left.discard((token, state.run_id))

    def rest(self) -> list[tuple[str, str, str]]:
        """(limit, key token, run id) of those it has not."""
        return [(limit, *run) for run in self._left for limit in self._limits[run]]


class Places:
    """Looks after the limits of a namespace, for one supervisor."""

    def __init__(self, stores: Stores, census: Census, metrics: Metrics, board: Switchboard) -> None:
        self._stores = stores
        self._census = census
        self._board = board
        self._metrics = metrics
        self._flagless: set[tuple[str, str]] = set()
        self._looked: dict[tuple[str, str, int], float] = {}
        self._woken: dict[str, tuple[int, float]] = {}

    async def look(self, is_mine: Callable[[str], bool], parked: ParkedRuns | None = None) -> int:
        """Look at every entry, and at what is ``parked`` (None: only at entries); how many there are. Raises Unavailable."""
        patience = self._patience()
        names = set(await self._stores.limits.names(patience)) | set(parked or ())
        flagless: set[tuple[str, str]] = set()
        mine = sorted(name for name in names if is_mine(name))
        for found in await each(mine, lambda name: self._one(name, (parked or {}).get(name, set())), _AT_ONCE):
            flagless |= found
        if parked is not None:
            self._flagless = flagless
        return len(names)

    async def remove(self, left: LeftParked) -> None:
        """Remove parked messages whose runs neither wait nor run. Raises Unavailable."""
        patience = self._patience()
        for limit, token, run_id in left.rest()[:_MOST_REMOVED]:
            try:
                key = decode_key(token)
                record = (await self._stores.runs.read(key, patience)).record  # the pass may have missed its last write
            except (NewerSchema, UnreadableRecord, ValueError):
                continue
            if record is None or record.run_id != run_id or record.phase not in {Phase.WAITING, Phase.RUNNING}:
                await self._stores.parking.remove(limit, key, run_id, patience)
                self._repaired("parked", limit, key, run_id)

    # -- one limit ---------------------------------------------------------------------------------------------------

    async def _one(self, name: str, parked: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """What is parked there with no flag set, for the next look."""
        patience = self._patience()
        try:
            if await self._tend(name, parked, patience):
                return set()
            runs = {run_id for _, run_id in parked if (name, run_id) in self._flagless}
            if runs:
                await self._wake(name, runs, patience)
        except TenureError as error:  # this limit's trouble, not the others'; the next look finds it again
            self._metrics.errors["server"] += 1
            _log.warning("limit.not_repaired", limit=name, error=str(error))
        return {(name, run_id) for _, run_id in parked}

    async def _tend(self, name: str, parked: set[tuple[str, str]], patience: Patience) -> bool:
        """Put the entry right; whether it says that somebody is parked."""
        stores = self._stores
        if is_rate(name):
            return await self._tend_rate(name, {run_id for _, run_id in parked}, patience)
        found = await stores.limits.read(name, patience)
        if found.entry is not None:
            await self._give_back(name, found.entry, found.revision, patience)
        return found.entry is not None and found.entry.parked

    async def _tend_rate(self, name: str, parked: set[str], patience: Patience) -> bool:
        """Wake whoever was cut off from its wake-up, and whoever waits. Whatever else is in the entry is over by itself."""
        stores = self._stores
        entry = (await stores.rates.read(name, patience)).entry
        if entry is None:
            return False
        settled = int((stores.clock.now() - _SETTLE_SECONDS) * SECOND)
        late = {place.run_id for place in entry.places if place.at < settled and place.run_id in parked}
        if late:
            await self._wake(name, late, patience)
        if entry.parked:  # nobody may be left who wakes them in time: from now on this process does
            await stores.paces.look(name, patience)
        return entry.parked

    async def _give_back(self, name: str, entry: Entry, revision: int, patience: Patience) -> None:
        gates = self._stores.gates
        lost = [permit for permit in entry.names if await self._is_lost(name, permit, revision, patience)]
        # Together: they are stored by one write, and so is what is handed over.
        await all_of(*(gates.give(name, _give(permit), patience) for permit in lost))
        for permit in lost:
            self._repaired("place", name, permit.key, permit.run_id)
        if entry.parked and not lost and len(entry.permits) < entry.n:
            await gates.look(name, patience)
            _log.info("limit.handed_over", limit=name)

    async def _is_lost(self, name: str, permit: Permit, revision: int, patience: Patience) -> bool:
        """Whether a place, there at this revision, is to be given back; a reserved one that is wanted gets a wake-up instead."""
        if permit.session and await self._is_gone(permit.session):
            return True
        stores = self._stores
        which = (name, permit.run_id, permit.attempt)
        now = stores.clock.now()
        if now - permit.at < _SETTLE_SECONDS or stores.clock.steady() < self._looked.get(which, 0.0):
            return False
        if await self._is_wanted(name, permit, patience):
            return False
        # A leader that was deposed may show what was before the run [49]: who has counted to its place is believed.
        return await stores.runs.last(patience) >= revision and not await self._is_wanted(name, permit, patience)

    async def _is_wanted(self, name: str, permit: Permit, patience: Patience) -> bool:
        """Whether the run's record says that it has or may use this place."""
        stores = self._stores
        try:
            found = await stores.runs.read(permit.key, patience)
        except (NewerSchema, UnreadableRecord):
            return True
        record = found.record
        if permit.session:
            if is_over(permit, record):
                return False
            which = (name, permit.run_id, permit.attempt)
            _keep_newest(self._looked, which, stores.clock.steady() + _AGAIN_SECONDS)
            return True
        if record is None or not await self._could_start(record, permit.run_id, patience):
            return False
        await self._wake_reserved(name, found, record, patience)
        return True

    async def _could_start(self, record: Record, run_id: str, patience: Patience) -> bool:
        """Whether a place is all that the run lacks. In a queue that is paused nobody would see it, until that is resumed."""
        named = {entry.session for entry in record.previous} | ({record.holder.session} if record.holder else set())
        closed = frozenset([session for session in named if await self._is_gone(session)])
        asked = c.Claim(session="", run_id=run_id, next_run_id="", closed=closed)
        result = transition(record, asked, self._stores.clock.now())
        if not isinstance(result, Refused) or result.why is not Why.LIMITED:
            return False
        try:
            return not self._board.known or await self._board.of(record, patience) is None
        except EncryptedRecord:  # of its arguments; a worker that has the key sees whether they are blocked
            return True

    async def _wake_reserved(self, name: str, found: Found, record: Record, patience: Patience) -> None:
        """Its wake-up was not stored; or it was given to a process that is frozen, whose pulls were still at the server [31].

        So there is one more now and then, whatever is stored, until that one would be delivered again anyway.
        """
        stores = self._stores
        now = stores.clock.steady()
        times, again_at = self._woken.get(record.run_id, (0, now))
        if now < again_at and await stores.work.is_awake(record, patience):
            return
        await stores.work.wake(record, stores.codec.encode(record), found.revision, stores.clock.now(), patience)
        pause = wake_again_after(times + 1, stores.config.ack_wait_seconds)
        _keep_newest(self._woken, record.run_id, (times + 1, math.inf if pause is None else now + pause))
        self._repaired("reserved", name, record.key, record.run_id)

    async def _wake(self, name: str, runs: set[str], patience: Patience) -> None:
        """Who was parked without a flag asks again."""
        for parked in await self._stores.parking.oldest(name, _MOST_WOKEN, (), patience):
            if parked.run_id in runs:
                await self._stores.parking.wake(parked, patience)
                self._repaired("parked", name, parked.key, parked.run_id)

    async def _is_gone(self, session: str) -> bool:
        census = self._census
        return census.is_closed(session) or (census.is_gone(session) and await census.bury(session))

    # -- small things ------------------------------------------------------------------------------------------------

    def _patience(self) -> Patience:
        return Patience(self._stores.clock, self._stores.config.patience_seconds)

    def _repaired(self, kind: str, limit: str, key: str, run_id: str) -> None:
        self._metrics.repairs[kind] += 1
        _log.info("limit.repaired", kind=kind, limit=limit, key=key, run_id=run_id)


def _keep_newest(memory: dict[K, V], key: K, value: V) -> None:
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > _MOST_REMEMBERED:
        del memory[next(iter(memory))]


def _give(permit: Permit) -> Give:
    return Give(run_id=permit.run_id, attempt=permit.attempt, session=permit.session)
