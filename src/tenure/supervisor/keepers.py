"""Keepers: whatever one key owes and nobody is about to do, done by reading its record and nothing else.

A keeper is activated when a sweep finds a key suspicious, and works on one key at a time; any number of keepers, in any
number of supervisors, may work on the same one: each step is a CAS or may be repeated. It never claims a run: what has
lost its holder gets a wake-up, and a worker takes it over.
"""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TypeVar

from msgspec import Struct

from tenure.core import commands as c
from tenure.core.dead import replayed
from tenure.core.errors import NewerSchema, StillOwed, TenureError, Unavailable, UnreadableRecord
from tenure.core.marks import place_of
from tenure.core.outcomes import Apply, Did, Effect, Signal, Wake
from tenure.core.records import Holder, Phase, Record, Seen
from tenure.core.sweeps import wake_again_after
from tenure.crashes import Crashes
from tenure.metrics import Metrics
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed, Found
from tenure.stores import Stores
from tenure.supervisor.census import Census
from tenure.telemetry import get_logger

T = TypeVar("T")
_log = get_logger("tenure.supervisor")
_AGAIN_SECONDS = 30.0
"""When to look again at a record that has not changed and that a sweep still finds suspicious."""
_SLACK_SECONDS = 1.0
"""The worker of a body that overstays ends it itself; only if it does not is it ours to end."""
_TIMER_SECONDS = 0.05
"""A loop's timer may be early by what the loop did since it last looked at its clock."""
_MOST_WAITING = 10_000
_MOST_REMEMBERED = 200_000


class _Looked(Struct):
    revision: int
    again_at: float


class _Woken(Struct):
    """How often a run was woken since this attempt's process does not answer, and when again."""

    run_id: str
    attempt: int
    times: int
    again_at: float


class Keepers:
    """The keepers of one supervisor."""

    def __init__(self, stores: Stores, census: Census, metrics: Metrics) -> None:
        self._stores = stores
        self._census = census
        self._metrics = metrics
        self._asked: dict[str, int] = {}
        self._busy: set[str] = set()
        self._once_more: dict[str, int] = {}
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._looked: dict[str, _Looked] = {}
        self._woken: dict[str, _Woken] = {}
        self._crashes = Crashes(stores.clock)

    def ask(self, key: str, revision: int, *, news: bool = False) -> bool:
        """A sweep finds this key suspicious, at this revision. False: there is no room, the next sweep finds it again.

        ``news``: because a session was closed, which the record does not show. That it was looked at before, or is being
        looked at, proves nothing then, and there is always room: whoever has much of it waits for ``room`` in between.
        """
        looked = self._looked.get(key)
        known = looked is not None and looked.revision == revision and self._stores.clock.steady() < looked.again_at
        if known and not news:
            return True
        if key in self._busy:
            if news:
                self._once_more[key] = revision
        elif news or len(self._asked) < _MOST_WAITING:
            self._asked[key] = revision
            self._news.set()
        else:
            return key in self._asked
        return True

    async def room(self) -> None:
        """Wait until fewer keys wait than may."""
        while len(self._asked) >= _MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    @property
    def waiting(self) -> int:
        """Keys that wait for a keeper or have one."""
        return len(self._asked) + len(self._busy)

    async def keep(self) -> None:
        """Look after one key after the other, until cancelled. Raises TenureError after too many unexpected errors."""
        while True:
            while not self._asked:
                self._news.clear()
                await self._news.wait()
            key = next(iter(self._asked))
            revision = self._asked.pop(key)
            self._room.set()
            self._busy.add(key)
            try:
                await self._look_after(key)
            except (NewerSchema, UnreadableRecord) as error:  # for a newer Tenure, or for people
                self._remember(key, revision, _AGAIN_SECONDS)
                _log.warning("record.passed_over", key=key, error=str(error))
            except TenureError as error:  # the server: the next sweep finds it again
                self._metrics.errors["server"] += 1
                _log.warning("key.not_repaired", key=key, error=str(error))
            except Exception:  # noqa: BLE001  (a defect of ours ends this key's repair, not the supervisor)
                self._remember(key, revision, _AGAIN_SECONDS)
                self._unexpected(key)
            finally:
                self._busy.discard(key)
                if key in self._once_more:
                    self._asked[key] = self._once_more.pop(key)

    def _unexpected(self, key: str) -> None:
        self._metrics.errors["keeper"] += 1
        _log.exception("keeper.crashed", key=key)
        failure = self._crashes.one_more()
        if failure is not None:
            raise failure

    def _remember(self, key: str, revision: int, seconds: float) -> None:
        looked = _Looked(revision, self._stores.clock.steady() + min(seconds, _AGAIN_SECONDS))
        _keep_newest(self._looked, key, looked)

    # -- one key -----------------------------------------------------------------------------------------------------

    async def _look_after(self, key: str) -> None:
        stores = self._stores
        patience = Patience(stores.clock, stores.config.patience_seconds)
        found = await stores.runs.read(key, patience)
        record = found.record
        if record is None:
            return
        gone = await self._gone(record)
        again = _AGAIN_SECONDS
        holder = record.holder
        if holder is not None and record.phase is Phase.RUNNING and holder.session in gone:
            await self._take_over(found, record, patience)
        elif holder is not None:
            found, again = await self._end_overdue(found, holder, gone, patience)
        elif record.phase is Phase.WAITING:
            await self._wake_who_was_let_in(found, record, patience)
        found = await self._expire_previous(found, gone, patience)
        found = await self._take_counts(found, patience)
        try:
            self._count(await stores.complete(found, patience))
        except StillOwed as error:
            _log.warning("outbox.unpaid", key=key, error=str(error))
        found = await self._forget_seen(found, patience)  # last: it asks others' records
        self._remember(key, found.revision, again)

    async def _gone(self, record: Record) -> frozenset[str]:
        """Which of the sessions that the record names are closed."""
        named = {entry.session for entry in record.previous} | ({record.holder.session} if record.holder else set())
        return frozenset(
            [
                name
                for name in named
                if self._census.is_closed(name) or (self._census.is_gone(name) and await self._census.bury(name))
            ]
        )

    async def _take_over(self, found: Found, record: Record, patience: Patience) -> None:
        """A run whose holder is dead: its wake-up may be in that process's hands for a whole ack_wait yet [31].

        So one more is stored, whatever is there, and some again a little later; after those only if none is.
        """
        woken = self._woken_for(record)
        early = woken is not None and self._stores.clock.steady() < woken.again_at
        if early and await self._stores.work.is_stored(record, patience):
            return
        times = woken.times if woken is not None else 0
        await self._wake(found, record, times, patience)
        if not times:
            self._repaired("takeover", record)

    async def _wake_who_was_let_in(self, found: Found, record: Record, patience: Patience) -> None:
        """A run that was woken when an attempt was ended for its process: it still waits, so it may be in that one's hands."""
        woken = self._woken_for(record)
        if woken is not None and self._stores.clock.steady() >= woken.again_at:
            await self._wake(found, record, woken.times, patience)

    async def _wake(self, found: Found, record: Record, times: int, patience: Patience) -> None:
        stores = self._stores
        await stores.work.wake(record, stores.codec.encode(record), found.revision, stores.clock.now(), patience)
        self._wake_later(record, found.revision, times + 1)

    def _wake_later(self, record: Record, revision: int, times: int) -> None:
        """A run was woken ``times`` times, and a process that does not answer may have got every one of them [31]."""
        stores = self._stores
        pause = wake_again_after(times, stores.config.ack_wait_seconds)
        wait = math.inf if pause is None else pause + max(0.0, record.due - stores.clock.now())
        woken = _Woken(record.run_id, record.attempt, times, stores.clock.steady() + wait)
        _keep_newest(self._woken, record.key, woken)
        if pause is not None:
            asyncio.get_running_loop().call_later(
                wait + _TIMER_SECONDS, partial(self.ask, record.key, revision, news=True)
            )

    def _woken_for(self, record: Record) -> _Woken | None:
        woken = self._woken.get(record.key)
        same = woken is not None and (woken.run_id, woken.attempt) == (record.run_id, record.attempt)
        return woken if same else None

    async def _end_overdue(
        self, found: Found, holder: Holder, gone: frozenset[str], patience: Patience
    ) -> tuple[Found, float]:
        """End a stop whose holder is dead or whose grace is over, and a body past its deadline and grace [30]."""
        stores = self._stores
        command = c.Evict(
            holder=holder,
            next_run_id=stores.clock.new_id(),
            jitter=stores.clock.random(),
            closed=gone & {holder.session},
            tag=stores.clock.new_id(),
        )
        now = stores.clock.now()
        due = _overdue_at(found.record)
        if not command.closed and (due is None or now < due + _SLACK_SECONDS):
            return found, _AGAIN_SECONDS if due is None else max(0.0, due + _SLACK_SECONDS - now)

        result = await stores.runs.take(found.record.key, command, patience, at=found)  # type: ignore[union-attr]  # it has a holder
        if not isinstance(result, Committed):
            retry_at = result.refused.retry_at
            return result.found, _AGAIN_SECONDS if retry_at is None else max(0.0, retry_at - now)
        self._count_ended(result)
        await self._carry_out(result, patience)
        return Found(result.record, result.revision), _AGAIN_SECONDS

    async def _expire_previous(self, found: Found, gone: frozenset[str], patience: Patience) -> Found:
        if found.record is None or not found.record.previous:
            return found
        command = c.ExpirePrevious(closed=gone, tag=self._stores.clock.new_id())
        result = await self._stores.runs.take(found.record.key, command, patience, at=found)
        if not isinstance(result, Committed):
            return result.found
        self._count(tuple(Signal(holder, "superseded") for holder in result.told))
        self._repaired("previous", result.record)
        await self._carry_out(result, patience)
        return Found(result.record, result.revision)

    async def _take_counts(self, found: Found, patience: Patience) -> Found:
        if found.record is None or not found.record.uncounted:
            return found
        command = c.TakeCounts(tag=self._stores.clock.new_id())
        result = await self._stores.runs.take(found.record.key, command, patience, at=found)
        if not isinstance(result, Committed):
            return result.found
        return Found(result.record, result.revision)

    async def _forget_seen(self, found: Found, patience: Patience) -> Found:
        """Entries that their origins hold no longer need not be known here: nobody can apply them again [7]."""
        if found.record is None or not found.record.to_forget:
            return found
        forget: set[str] = set()
        for seen in found.record.to_forget:
            try:
                if await self._is_settled(seen, found, patience):
                    forget.add(seen.id)
            except TenureError as error:  # this origin's trouble, not the others'
                self._metrics.errors["server"] += isinstance(error, Unavailable)
                _log.warning("seen.not_forgotten", key=found.record.key, origin=seen.origin, error=str(error))
        if not forget:
            return found
        command = c.ForgetSeen(ids=frozenset(forget))
        result = await self._stores.runs.commit(found.record.key, command, at=found, patience=patience)
        if not isinstance(result, Committed):
            return result.found
        self._repaired("seen", result.record)
        return Found(result.record, result.revision)

    async def _is_settled(self, seen: Seen, found: Found, patience: Patience) -> bool:
        """Whether the origin of what ``found`` has applied holds the entry no longer.

        That is believed of a leader that has had ``found``: one that was deposed shows the origin from before it owed that.

        A replay that was cut down before it removed the dead letter is finished here.
        """
        place = place_of(seen)
        if place is not None:
            return not await self._stores.inbox.holds(place, patience)
        run_id = replayed(seen)
        if run_id is not None:
            await self._stores.dead.remove_of(found.record.key, run_id, patience)  # type: ignore[union-attr]  # it has a record
            return True
        if await self._owes(seen, patience):
            return False
        if await self._stores.runs.last(patience) < found.revision:  # the next sweep asks again
            return False
        return not await self._owes(seen, patience)  # this one is asked: another may have become the leader in between

    async def _owes(self, seen: Seen, patience: Patience) -> bool:
        origin = (await self._stores.runs.read(seen.origin, patience)).record
        return origin is not None and any(entry.id == seen.id for entry in origin.outbox)

    async def _carry_out(self, committed: Committed, patience: Patience) -> None:
        try:
            await self._stores.carry_out(committed, patience)
        except StillOwed as error:
            _log.warning("outbox.unpaid", key=committed.record.key, error=str(error))
        record, stores = committed.record, self._stores
        soon = (
            stores.clock.now() + stores.config.pull_expires_seconds
        )  # by then a process that stands still has no pulls left
        if record.phase is Phase.WAITING and record.due < soon:
            self._wake_later(record, committed.revision, 1)

    # -- counting ----------------------------------------------------------------------------------------------------

    def _repaired(self, kind: str, record: Record) -> None:
        self._metrics.repairs[kind] += 1
        _log.info("key.repaired", kind=kind, key=record.key, generation=record.generation, run_id=record.run_id)

    def _count(self, done: tuple[Effect, ...]) -> None:
        for effect in done:
            match effect:
                case Wake():
                    self._metrics.repairs["wakeup"] += 1
                case Signal():
                    self._metrics.repairs["signal"] += 1
                case Apply():
                    self._metrics.repairs["outbox"] += 1

    def _count_ended(self, committed: Committed) -> None:
        record, did, metrics = committed.record, committed.decision.did, self._metrics
        actor = record.task.actor
        self._repaired({Did.CANCELLED: "stop", Did.FORCED: "forced"}.get(did, "evicted"), record)
        if did in {Did.CANCELLED, Did.FORCED}:
            metrics.cancelled[actor, "forced" if did is Did.FORCED else "running"] += 1
            metrics.outcomes[actor, Did.CANCELLED.value] += 1
        else:
            metrics.outcomes[actor, did.value] += 1


def _keep_newest(memory: dict[str, T], key: str, value: T) -> None:
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > _MOST_REMEMBERED:
        del memory[next(iter(memory))]


def _overdue_at(record: Record | None) -> float | None:
    """When the holder's time is over for good (epoch seconds), None for never."""
    if record is None:
        return None
    if record.phase is Phase.STOPPING:
        return record.stop.deadline if record.stop is not None else 0.0
    return None if record.deadline is None else record.deadline + record.task.policy.grace
