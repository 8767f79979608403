"""Virtual time: in the running event loop, time passes only when nothing else is left to be done, and then at once.

A test that waits for a day takes no longer than what happens in that day. Nothing in the loop may be shared with the
outside: no sockets, no threads, no child processes. What asks for a thread (``asyncio.to_thread``, a plain body) is
called in the loop, and all that it does takes no time.

**Housekeeping.** A worker and a supervisor do something every tenth of a second for as long as they live, and a day of that
takes a while. So what they and the server do to look after each other, and only that, may be *passed over*: when nothing
else is about to happen for a while, the time of day leaps to the next thing that is, as if the machine had slept. The
steady clock does not count that, so nobody is missed and no session is lost.

**Patience.** Where a schedule ticks there is always something to come, and a test that waits for something else would see
days pass for ever. So the moments are counted that pass while it does nothing but wait: with no timer of its own (a
``sleep``, a timeout) that is to come, and without asking its client for anything.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
import selectors
import sys
import time
from collections.abc import Callable, Iterable
from contextvars import Context
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Self

from ulid import base32

from tenure.clock import here
from tenure.core.errors import ConfigError, TenureError
from tenure.loops import allow_threads, forbid_threads

_HOUSEKEEPERS = (
    "tenure.lease",
    "tenure.nats.",
    "tenure.supervisor.",
    "tenure.worker.service",
    "tenure.worker.puller",
    "tenure.worker.remnants",
    "nats.",
)
_BETWEEN = ("asyncio.", "contextlib", "tenure.nats.memory.server", __name__)
"""Modules through which others set their timers."""
_HAPPENS = ("tenure.nats.memory.schedules", "tenure.nats.memory.stream", "tenure.nats.patience")
"""What a test may wait for all the same: schedules fire, what is stored expires, what has failed is tried again."""
_SETTLE_SECONDS = 1.0
"""Housekeeping goes on for so long after whatever has happened before it is passed over."""
_HOPELESS_SECONDS = 120.0
"""For so long it goes on while nothing at all is to come: what a sweep can find is found by then."""


_NOTHING = "nothing will ever happen any more"
_NOTHING_ELSE = "nothing else will happen any more than what happens again and again"
_TICK_SECONDS = 1e-6
"""What the clocks tell apart, and how short a wait can be: one of less would end before its time by any of them."""
_TURNS = 100_000
"""After so many turns of the loop at one moment a tick passes: who turns round until a moment is there sees it come."""
PATIENCE = 100_000
"""Moments, some twenty for each tick of a schedule: a daily one has then ticked for longer than any run may be delayed."""
_OWN_PROTOCOL = "tenure.nats."
"""What sets timers in answer to whoever has sent something: they are nobody's own."""


class Stuck(TenureError):
    """The test waits for what will never happen."""


class VirtualClock:
    """The clocks and the chance of one simulated machine. Ids and chance depend on ``seed`` alone."""

    counts_suspension = False

    def __init__(self, elapsed: Callable[[], float], *, start: float, seed: int) -> None:
        """``elapsed``: seconds of virtual time so far. ``start``: the time of day at 0 (seconds since the epoch)."""
        self._elapsed = elapsed
        self._start = start
        self._chance = random.Random(seed)
        self.slept = 0.0
        """What the steady clock has not counted."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._start + self._elapsed()

    def steady(self) -> float:
        """Seconds on a clock that never goes back."""
        return self._elapsed() - self.slept

    def random(self) -> float:
        """A random number in [0, 1)."""
        return self._chance.random()

    def new_id(self) -> str:
        """A new ULID."""
        return base32.encode(int(self.now() * 1000).to_bytes(6, "big") + self._chance.randbytes(10))


class VirtualTime:
    """Virtual time for the running loop, while it is entered. One at a time.

    ``start``: its time of day at the beginning, seconds since the epoch; default the real one. ``seed``: of its chance.
    ``patience``: how many moments may pass while the test only waits.

    Raises ConfigError in a loop whose time cannot be virtual (uvloop). The task that enters it and then waits for what
    never comes is cancelled, and the end of the block raises Stuck; if that task has ended, the loop itself does.
    """

    def __init__(self, *, start: float | None = None, seed: int = 0, patience: int = PATIENCE) -> None:
        self._now = 0.0
        self._from = 0.0
        self._last_event = 0.0
        self._stuck = ""
        self.clock = VirtualClock(self._elapsed, start=time.time() if start is None else start, seed=seed)
        self.may_pass_over: Callable[[], bool] = lambda: False
        """Whether the housekeepers have nothing in hand."""
        self.goes_on: Callable[[], list[str]] = list
        """What is not over, in words."""
        self._patience = patience
        self._moments = 0
        self._turns = 0

    def stirs(self) -> None:
        """The test does something: it is not only waiting."""
        self._moments = 0
        self.happens()

    def happens(self) -> None:
        """This is a moment in which something happens that no housekeeping is."""
        self._last_event = self._now

    def __enter__(self) -> Self:
        self._loop = _running_loop()
        self._owner = asyncio.current_task()
        self._selector = _selector_of(self._loop)
        if isinstance(self._selector, _Jumps):
            raise ConfigError("the time of this event loop is virtual already")
        own = isinstance(self._loop, asyncio.BaseEventLoop) and self._selector is not None
        if not own:
            kind = f"{type(self._loop).__module__}.{type(self._loop).__qualname__}"
            raise ConfigError(f"virtual time needs one of asyncio's own event loops, this one is {kind}")
        self._real = self._loop.time if isinstance(self._loop.time, _Ahead) else _Ahead(self._loop.time)
        self._resolution: float = self._loop._clock_resolution  # noqa: SLF001  (a loop has no other place for it)
        self._from = self._last_event = self._real()
        self._go_to(self._from)
        self._loop.time = lambda: self._now
        self._loop.call_at, self._loop.call_later = self._call_at, self._call_later
        self._loop.run_in_executor = partial(call_in_loop, self._loop)
        self._loop._selector = _Jumps(self._selector, self)  # noqa: SLF001  (a loop has no other place for it)
        forbid_threads(self._loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        """The loop's real time again, which goes on from where virtual time has come to."""
        self._real.seconds += max(0.0, self._now - self._real())
        self._loop.time = self._real
        self._loop._clock_resolution = self._resolution  # noqa: SLF001  (a loop has no other place for it)
        self._loop._selector = self._selector  # noqa: SLF001  (a loop has no other place for it)
        del self._loop.call_at, self._loop.call_later, self._loop.run_in_executor
        allow_threads(self._loop)
        if self._stuck and kind is not None and issubclass(kind, asyncio.CancelledError) and self._owner is not None:
            self._owner.uncancel()
            raise Stuck(self._stuck) from error

    def _elapsed(self) -> float:
        """To the microsecond: what the loop's time began with, another one each time, must leave no trace."""
        return round(self._now - self._from, 6)

    # -- in place of the loop's own ----------------------------------------------------------------------------------

    def _call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call_at(
            self._now + (max(delay, _TICK_SECONDS) if delay > 0 else delay), callback, *args, context=context
        )

    def _call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = self._kind(_asker())(when, callback, args, self._loop, context)
        if isinstance(timer, _Event):
            timer.virtual = self
        heapq.heappush(self._loop._scheduled, timer)  # noqa: SLF001  (as the loop's own does)
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001  (as the loop's own does)
        return timer

    def _kind(self, asker: str) -> type[asyncio.TimerHandle]:
        if asker.startswith(_HOUSEKEEPERS) and not asker.startswith(_HAPPENS):
            return _Housekeeping
        own = here() is not self.clock and not asker.startswith(_OWN_PROTOCOL)
        return _Own if own else _Event

    # -- jumps -------------------------------------------------------------------------------------------------------

    def pass_on(self) -> None:
        """Nothing is left to be done at this moment: the next one in which something is."""
        timers: list[asyncio.TimerHandle] = self._loop._scheduled  # noqa: SLF001  (the loop's own heap)
        soonest = timers[0] if timers else None
        if soonest is None:
            self._give_up(_NOTHING)
            return
        self._moments += 1
        if self._moments > self._patience or isinstance(soonest, _Own):
            waits = not any(isinstance(timer, _Own) and not timer.cancelled() for timer in timers)
            self._moments = 0
            if waits:
                self._give_up(_NOTHING_ELSE, self.goes_on())
                return
        if not isinstance(soonest, _Housekeeping) or not self.may_pass_over():
            self._go_to(soonest.when())
            self.happens()
            return
        awake = soonest.when() - self._last_event
        if awake > _SETTLE_SECONDS:
            coming = [
                timer.when() for timer in timers if not isinstance(timer, _Housekeeping) and not timer.cancelled()
            ]
            if coming:
                self._leap(min(coming) - soonest.when(), timers)
            elif awake > _HOPELESS_SECONDS:
                self._give_up(_NOTHING)
                return
        self._go_to(timers[0].when())

    def turn(self) -> None:
        """Something is left to be done at this moment."""
        self._turns += 1
        if self._turns > _TURNS:
            self._go_to(self._now + _TICK_SECONDS)

    def _go_to(self, when: float) -> None:
        """It is ``when``, unless that is over.

        The loop calls what is due before its time and its resolution together. A real loop's is a nanosecond; from the
        194th day on (2^24 s) two floats are farther apart than that, the sum is the time itself, and what is due at this
        very moment would never be called.
        """
        self._now, self._turns = max(self._now, when), 0
        self._loop._clock_resolution = max(self._resolution, math.ulp(self._now))  # noqa: SLF001  (a loop has no other place for it)

    def _leap(self, seconds: float, timers: list[asyncio.TimerHandle]) -> None:
        """Let so much time pass that housekeepers do not notice."""
        if seconds <= 0:
            return
        for timer in timers:
            if isinstance(timer, _Housekeeping):
                timer._when += seconds  # type: ignore[attr-defined]  # noqa: SLF001  (it has no other way)
        heapq.heapify(timers)
        self._now += seconds
        self._last_event += seconds
        self.clock.slept += seconds

    def _give_up(self, why: str, goes_on: Iterable[str] = ()) -> None:
        waiting = sorted(filter(None, map(_where, asyncio.all_tasks(self._loop))))
        text = "\n  ".join([f"{why}, and these wait:", *waiting])
        if goes_on:
            text = "\n  ".join([f"{text}\nThese keys live (to wait for longer: memory(patience=)):", *goes_on])
        if self._owner is None or self._owner.done() or self._stuck:
            raise Stuck(text)
        self._stuck = text
        self._owner.cancel(why)


class _Housekeeping(asyncio.TimerHandle):
    """A timer that may be passed over."""

    __slots__ = ()


class _Event(asyncio.TimerHandle):
    """Any other timer: also where housekeeping is due at the same moment, something happens in it."""

    __slots__ = ("virtual",)
    virtual: VirtualTime

    def _run(self) -> None:
        self.virtual.happens()
        super()._run()


class _Own(_Event):
    """A timer of the test, not of what runs for it."""

    __slots__ = ()


class _Ahead:
    """A loop's real time, so many seconds ahead: time that was virtual never goes back."""

    def __init__(self, real: Callable[[], float]) -> None:
        self._real = real
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._real() + self.seconds


class _Jumps:
    """A loop's selector that does not wait."""

    def __init__(self, selector: selectors.BaseSelector, passing: VirtualTime) -> None:
        self._selector = selector
        self._passing = passing

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What has come in from outside; if nothing has, and all is done, time jumps."""
        events = self._selector.select(0)
        if not events and (timeout is None or timeout > 0):
            self._passing.pass_on()
        else:
            self._passing.turn()
        return events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


def call_in_loop(
    loop: asyncio.AbstractEventLoop, _executor: object, function: Callable[..., Any], *args: Any
) -> asyncio.Future[Any]:
    """What ``run_in_executor`` is where there are no threads: a call at the loop's next turn."""
    ended: asyncio.Future[Any] = loop.create_future()

    def call() -> None:
        if ended.cancelled():
            return
        try:
            ended.set_result(function(*args))
        except StopIteration as error:  # no future can carry one
            ended.set_exception(RuntimeError(f"{function!r} raised {error!r}"))
        except BaseException as error:  # noqa: BLE001  (as an executor does: it is for whoever waits)
            ended.set_exception(error)

    loop.call_soon(call)
    return ended


def _asker() -> str:
    """The module that sets the timer that is being made."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  (the interpreter's documented way)
    while frame is not None:  # up to who called asyncio
        module: str = frame.f_globals.get("__name__", "")
        if not module.startswith(_BETWEEN):
            return module
        frame = frame.f_back
    return ""


def _running_loop() -> Any:
    """Any: what is changed of it is not meant to be."""
    return asyncio.get_running_loop()


def _selector_of(loop: Any) -> Any:
    return getattr(loop, "_selector", None)


def _where(task: asyncio.Task[Any]) -> str:
    """Where a task of the test or of a body waits: its last line that is not the library's. Empty for the library's own."""
    place, step = "", _coroutine(task)
    while (frame := getattr(step, "cr_frame", None)) is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("asyncio.", "contextlib", "tenure.", "nats.")):
            place = f"{frame.f_code.co_qualname} ({module}, line {frame.f_lineno})"
        step = getattr(step, "cr_await", None)
    return place


def _coroutine(task: asyncio.Task[Any]) -> Any:
    return task.get_coro()
