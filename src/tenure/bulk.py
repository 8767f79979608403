"""``client.submit_many`` and ``cancel_many``: each run by a submit or a cancel of its own. Nothing is all-or-nothing."""

from __future__ import annotations

import fnmatch
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import replace

from tenure.actors import Call
from tenure.checks import check_choice, check_items, check_reason
from tenure.clock import Clock
from tenure.core.commands import IfDiffers, IfLive
from tenure.core.errors import InvalidCall, OutcomeUnknown, TenureError, Unavailable
from tenure.core.records import TERMINAL, Phase, State, read_state
from tenure.core.subjects import check_name
from tenure.core.switches import pattern_fault
from tenure.nats.scan import Header
from tenure.run import Run
from tenure.status import Cancelled
from tenure.stores import Stores
from tenure.together import each

LivePhase = Literal["scheduled", "queued", "running", "stopping"]
Res = TypeVar("Res")
T = TypeVar("T")
OnProgress = Callable[[int, int], None]
_AT_ONCE = 128
_MOST_SHOWN = 100


class CancelledMany(Struct, frozen=True, kw_only=True):
    """What became of the runs that fitted: how many each way.

    ``matched`` runs were live when they were looked at, ``phases`` says in which phase. ``cancelled``, ``stopping``,
    ``finished`` (it ended meanwhile, or another run took its place), ``not_found``: as in ``Cancelled``. ``failed``: could
    not be cancelled, or it is not known (``problems``: the first of them, in words); repeat the call. ``untried``: so many of
    those were not even tried, for the server had stopped answering. ``dry_run``: nothing was cancelled, and ``keys`` are the first
    that would be.
    """

    matched: int
    phases: dict[str, int]
    cancelled: int = 0
    stopping: int = 0
    finished: int = 0
    not_found: int = 0
    failed: int = 0
    untried: int = 0
    problems: tuple[str, ...] = ()
    dry_run: bool = False
    keys: tuple[str, ...] = ()


class Wanted(Struct, frozen=True):
    """Which runs are meant: all that fit in everything that is given."""

    pattern: str | None = None
    actor: str | None = None
    queue: str | None = None
    phase: LivePhase | None = None

    def check(self) -> Wanted:
        """Itself. Raises InvalidCall or ConfigError that names what is wrong."""
        given: object = self.pattern
        fault = "" if given is None else pattern_fault(given)
        if fault:
            raise InvalidCall(f"pattern {fault}", field="pattern")
        if self.actor is not None:
            check_name("actor", self.actor)
        if self.queue is not None:
            check_name("queue", self.queue)
        if self.phase is not None:
            check_choice("phase", self.phase, get_args(LivePhase))
        if self == Wanted():
            raise InvalidCall("pattern is missing: say which runs by pattern, actor, queue or phase", field="pattern")
        return self

    def finder(self) -> Callable[[str, State, float], str]:
        """A function that tells the phase of a live run that is meant; empty: it is over, or not meant."""
        fits = None if self.pattern is None else re.compile(fnmatch.translate(self.pattern)).match

        def find(key: str, state: State, now: float) -> str:
            phase = state.phase.value
            if state.phase is Phase.WAITING:
                phase = "scheduled" if state.due > now else "queued"
            meant = (
                state.phase not in TERMINAL
                and self.actor in {None, state.actor}
                and self.queue in {None, state.queue}
                and self.phase in {None, phase}
                and (fits is None or fits(key) is not None)
            )
            return phase if meant else ""

        return find


class _Pulse:
    """Whether the server still answers somebody: else each of thousands would wait for it in turn."""

    def __init__(self, clock: Clock, patience_seconds: float) -> None:
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._heard = clock.steady()
        self.is_gone = False

    async def of(self, work: Awaitable[T]) -> T:
        """What comes of one call. The server is gone if that ran out of patience, and no other has got an answer since it began."""
        began = self._clock.steady()
        try:
            result = await work
        except (Unavailable, OutcomeUnknown):
            if self._heard <= began <= self._clock.steady() - self._patience_seconds:
                self.is_gone = True
            raise
        except InvalidCall:  # refused before anybody was asked
            raise
        except TenureError:  # a refusal is an answer
            self._heard = self._clock.steady()
            raise
        self._heard = self._clock.steady()
        return result


class Bulk(ABC):
    """The part of a client that acts on many keys."""

    @property
    @abstractmethod
    def stores(self) -> Stores:
        """The stores behind this client."""

    @abstractmethod
    async def submit(
        self,
        call: Call[Res],
        *,
        key: str | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        if_live: IfLive = "keep",
        if_differs: IfDiffers = "keep",
    ) -> Run[Res]:
        """Start one run."""

    @abstractmethod
    async def cancel(
        self, key: str, *, run_id: str | None = None, reason: str = "", encrypted: bool = False
    ) -> Cancelled:
        """Cancel one run."""

    async def submit_many(
        self,
        items: Iterable[tuple[Call[Res], str | None]],
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        if_live: IfLive = "keep",
        if_differs: IfDiffers = "keep",
    ) -> list[Run[Res] | TenureError]:
        """Submit many ``(call, key)``; one outcome per item, in order.

        Its Run, or the error that ``submit`` would have raised.

        Items are independent: a bad one stops nothing else, and there is no all-or-nothing. Two items with one key: the
        second meets the first. Once the server answers none of 128 for as long as a call keeps trying, the rest is
        Unavailable untried.
        """
        work: Sequence[tuple[Call[Res], str | None]] = check_items(items)
        pulse = _Pulse(self.stores.clock, self.stores.config.patience_seconds)

        async def one(index: int) -> Run[Res] | TenureError:
            try:
                call, key = work[index]
                if pulse.is_gone:
                    return Unavailable("not submitted: the server had stopped answering").about(key=key)
                return await pulse.of(
                    self.submit(call, key=key, delay=delay, at=at, if_live=if_live, if_differs=if_differs)
                )
            except TenureError as error:
                return error
            except (TypeError, ValueError) as error:
                what = f"item {index}: give (call, key), got {type(work[index]).__name__}: {error}"
                return InvalidCall(what, field=None)

        return await each(range(len(work)), one, _AT_ONCE)

    async def cancel_many(
        self,
        pattern: str | None = None,
        *,
        actor: str | None = None,
        queue: str | None = None,
        phase: LivePhase | None = None,
        reason: str = "",
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> CancelledMany:
        """Cancel every live run whose key fits ``pattern`` (``*``, ``?``, ``[...]``), of an ``actor``, a ``queue``, in a ``phase``.

        What is given must all fit. Each run is cancelled as by ``cancel``, 128 at a time; one that was submitted after the
        look is left alone. ``dry_run``: only count. ``on_progress(done, of)`` is called after each. Raises InvalidCall,
        ConfigError, Unavailable (before the first); what befalls a single key is counted as ``failed``. Once the server
        answers none of 128 for as long as a call keeps trying, the rest is ``untried``: call again for it.
        """
        wanted, reason = Wanted(pattern, actor, queue, phase).check(), check_reason(reason)
        found = await self._find(wanted)
        phases = dict(Counter(phase for _, phase in found.values()))
        if dry_run:
            return CancelledMany(matched=len(found), phases=phases, dry_run=True, keys=tuple(found)[:_MOST_SHOWN])
        outcomes: Counter[str] = Counter()
        problems: list[str] = []
        pulse = _Pulse(self.stores.clock, self.stores.config.patience_seconds)

        async def one(key: str) -> None:
            if pulse.is_gone:
                return
            try:  # never a run that came later
                done = await pulse.of(self.cancel(key, run_id=found[key][0] or None, reason=reason))
                outcomes[done.outcome] += 1
            except TenureError as error:  # this key's trouble, not the others'
                outcomes["failed"] += 1
                problems.append(str(error))
            if on_progress is not None:
                on_progress(outcomes.total(), len(found))

        await each(found, one, _AT_ONCE)
        untried = len(found) - outcomes.total()
        if untried:
            problems.insert(0, f"the server stopped answering: {untried} runs were not tried; do it again for the rest")
            outcomes["failed"] += untried
        made = CancelledMany(matched=len(found), phases=phases, untried=untried, problems=tuple(problems[:_MOST_SHOWN]))
        return replace(made, **outcomes)

    async def _find(self, wanted: Wanted) -> dict[str, tuple[str, str]]:
        """Run id and phase of each key that is meant."""
        find, now = wanted.finder(), self.stores.clock.now()
        found: dict[str, tuple[str, str]] = {}

        def on_header(header: Header) -> None:
            state = read_state(header.state)
            phase = "" if state is None else find(header.key, state, now)
            if state is not None and phase:
                found[header.key] = (state.run_id, phase)  # a key that changes meanwhile is met again
            else:
                found.pop(header.key, None)

        await self.stores.runs.scan(on_header)
        return found
