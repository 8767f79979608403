"""Guards taken out, to show that the simulation would notice. Each is patched into a world's own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tenure import gates, pacing
from tenure.core import claims, endings, generations, pace, parts, permits, rates, schedule
from tenure.core.outcomes import Did, Refused, Why
from tenure.core.permits import Answer
from tenure.core.rates import Decided
from tenure.core.records import Holder, Record
from tenure.core.switches import Rules
from tenure.nats.runs import Runs
from tenure.worker.head import Head
from tenure.worker.slots import Slots, excess_reason
from tenure.worker.table import Table
from tests.history.evidence import GRACE_SECONDS


def no_tail_check() -> None:
    """Whoever stores an outcome is taken for the holder."""

    def anybody(record: Record | None, holder: Holder) -> Why | None:
        del holder
        return Why.ABSENT if record is None else None

    endings.not_mine = anybody


def blind_writes() -> None:
    """Writes do not expect the revision that was read, but whatever there is."""
    store = Runs._store

    async def blind(self: Runs, key: str, record: Any, data: bytes, _revision: int, patience: Any) -> Any:
        return await store(self, key, record, data, (await self.read(key, patience)).revision, patience)

    Runs._store = blind  # type: ignore[assignment,method-assign]  # that is the mutant


def everybody_is_dead() -> None:
    """A claim takes over whoever holds the run, open session or not."""

    async def knowing(self: Head, command: Any, found: Any, _patience: Any) -> Any:
        record = found.record
        if record is None or record.holder is None or command.closed:
            return None
        closed = frozenset({record.holder.session})
        return replace(command, closed=closed, next_run_id=self._stores.clock.new_id())

    Head._knowing_more = knowing  # type: ignore[assignment,method-assign]  # that is the mutant


def no_table() -> None:
    """A process does not know which runs it has in hand."""
    Table.enter = lambda _self, _live: True  # type: ignore[assignment,method-assign]  # that is the mutant
    Table.get = lambda _self, _run_id: None  # type: ignore[assignment,method-assign]  # that is the mutant


def no_switches() -> None:
    """What is paused and blocked is read, and keeps nothing back."""
    Rules.queue = lambda *_args: None  # type: ignore[method-assign]  # that is the mutant
    Rules.run = lambda *_args: None  # type: ignore[method-assign]  # that is the mutant


def half_a_window() -> None:
    """Starts are forgotten after half the window of their rate."""

    def too_soon(entry: Any, asked: Any, parked: Any, published: Any, window: int, now: int, searched: int) -> Decided:
        return rates.decide(entry, asked, parked, published, window // 2, now, searched)

    pacing.decide = too_soon  # type: ignore[attr-defined]  # that is the mutant


def no_marks() -> None:
    """A rate is looked at, and what starts is written down nowhere."""
    rates._Ground.let_in = lambda self, take: self._now + take.within  # type: ignore[method-assign]  # that is the mutant


def no_settling() -> None:
    """A debounced run is due at once."""
    pace._due = lambda task, asked, since, now: asked  # noqa: ARG005  (called with all of them)


def no_cooldown() -> None:
    """Nothing cools down."""
    generations.is_cooling = lambda *_args: False  # type: ignore[attr-defined]  # that is the mutant


def drops_all() -> None:
    """Runs that may be dropped are, whatever room there is."""
    ask = Slots._ask

    async def full(self: Slots, name: str, found: Any, record: Record, *args: Any) -> Answer:
        rate = self._rates[name]
        if rate.excess != "drop" or record.attempt:
            return await ask(self, name, found, record, *args)
        self.reason = excess_reason(rate)
        return Answer.EXCESS

    Slots._ask = full  # type: ignore[assignment,method-assign]  # that is the mutant


def no_places() -> None:
    """Whoever asks for a place under a limit has one, however many there are."""

    def room_for_all(entry: Any, asked: Any, *args: Any, **options: Any) -> permits.Decided:
        more = [replace(one, n=10_000) if isinstance(one, permits.Take) else one for one in asked]
        return permits.decide(entry, more, *args, **options)

    gates.decide = room_for_all  # type: ignore[attr-defined]  # that is the mutant


def no_inbox_marks() -> None:
    """Whether a command of the inbox was applied before is not known."""
    generations.is_marked = lambda *_args: False  # type: ignore[attr-defined]  # that is the mutant


def no_grace() -> None:
    """Whoever is told to stop has no time for it."""
    generations.tell = lambda previous, deadline: parts.tell(previous, deadline - GRACE_SECONDS)  # type: ignore[attr-defined]  # that is the mutant


def no_waiting() -> None:
    """A claim waits for none of the older bodies, whatever the overlap policy says, and leaves them where they are."""

    def at_once(record: Record, command: Any, now: float) -> Any:
        if record.due > now:
            return Refused(Why.NOT_DUE, record.due)
        return claims.start(record, command, now, Did.WON, record.failures)

    claims._claim_waiting = at_once


def no_retries() -> None:
    """A failure is for good, however many more are allowed."""
    failed = endings._failed_attempt

    def for_good(*args: Any, **options: Any) -> Any:
        return failed(*args, **(options | {"final": True}))

    endings._failed_attempt = for_good


def ticks_from_now() -> None:
    """The next tick is counted from the end of the run before it: what was missed is left out."""
    endings.next_due = lambda policy, tick, now: schedule.next_due(policy, max(tick, now), now)  # type: ignore[attr-defined]  # that is the mutant


MUTANTS: dict[str, Callable[[], None]] = {
    "no-tail-check": no_tail_check,
    "blind-writes": blind_writes,
    "everybody-is-dead": everybody_is_dead,
    "no-table": no_table,
    "no-switches": no_switches,
    "half-a-window": half_a_window,
    "no-marks": no_marks,
    "no-settling": no_settling,
    "no-cooldown": no_cooldown,
    "drops-all": drops_all,
    "no-places": no_places,
    "no-inbox-marks": no_inbox_marks,
    "ticks-from-now": ticks_from_now,
    "no-grace": no_grace,
    "no-waiting": no_waiting,
    "no-retries": no_retries,
}
