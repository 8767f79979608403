"""The event loop of a simulation: virtual time, and simulated processes that die or freeze between any two steps.

Everything shares this one loop. Which process a callback belongs to is told by its context: what a process starts
inherits that. A process that was killed is never called again, not even for a ``finally``; one that is frozen is called
when it is thawed, later than all it had to do. Nothing here depends on the machine, the time or memory addresses: the same
seed gives the same run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from tenure.loops import forbid_threads
from tenure.testing.virtual import call_in_loop

_here: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


_MOST_STEPS = 3_000_000


class Stalled(Exception):
    """Nothing is left that could ever happen, or there is no end to what does."""


def process_here() -> Process | None:
    """The simulated process that runs now, None outside of all."""
    return _here.get()


def process_of(context: contextvars.Context) -> Process | None:
    """The simulated process that a context belongs to."""
    return context.get(_here)


class Fuses:
    """Harm that is done just before or after some later step of whoever has them, whatever that is in the middle of."""

    def __init__(self) -> None:
        self._lit: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._steps = 0

    def light(self, steps: int, harm: Callable[[], None]) -> None:
        """Do ``harm`` with the so-many-eth next step."""
        heapq.heappush(self._lit, (self._steps + steps, next(self._numbers), harm))

    def put_out(self) -> None:
        """No harm that was still to come is done."""
        self._lit.clear()

    def step(self) -> None:
        """A step is made."""
        self._steps += 1
        while self._lit and self._lit[0][0] <= self._steps:
            heapq.heappop(self._lit)[2]()


class Process:
    """A simulated operating system process. ``fuses``: harm that is done to it just before a step."""

    def __init__(self, loop: SimLoop, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.alive = True
        self.on_death: Callable[[], None] = lambda: None
        self.busy = 0.0
        """Seconds that its current step has blocked its loop for so far."""
        self.fuses = Fuses()
        self._loop = loop
        self._frozen = 0
        self._held: list[asyncio.Handle] = []
        self._context = contextvars.copy_context()
        self._context.run(_here.set, self)

    def __repr__(self) -> str:
        return f"<{self.name} {self.pid}>"

    @property
    def frozen(self) -> bool:
        """Whether it makes no step now."""
        return self._frozen > 0

    def start(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``main`` in it."""
        return self._loop.create_task(main, name=self.name, context=self._context)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Have it call something at its next step."""
        self._loop.call_soon(function, *args, context=self._context)

    def kill(self) -> None:
        """As SIGKILL."""
        if self.alive:
            self.alive = False
            self._loop.bury()
            self._held.clear()
            self.on_death()

    def freeze(self) -> None:
        """As SIGSTOP. Several freezes need as many thaws."""
        self._frozen += 1

    def thaw(self) -> None:
        """As SIGCONT."""
        self._frozen -= 1
        if self.alive and not self._frozen:
            held, self._held = self._held, []
            self._loop.ready.extend(held)

    def block(self, seconds: float) -> None:
        """Its current step takes so long, and nothing else of it goes on meanwhile."""
        self.busy += seconds

    # -- for the loop ------------------------------------------------------------------------------------------------

    def may_step(self, handle: asyncio.Handle) -> bool:
        """Whether it makes this step now; kept for later if it is frozen, forgotten if it is dead."""
        if self.alive and not self._frozen:
            self.fuses.step()
        if self.alive and self._frozen:
            self._held.append(handle)
        return self.alive and not self._frozen

    def stepped(self) -> None:
        """A step that blocked has ended only after that time."""
        if self.busy:
            seconds, self.busy = self.busy, 0.0
            self.freeze()
            self._loop.call_later(seconds, self.thaw, context=contextvars.Context())


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    _numbers = itertools.count()

    def __init__(self, *args: Any, **options: Any) -> None:
        self._number = next(SimTask._numbers)
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number


class SimLoop(asyncio.BaseEventLoop):
    """Run it as any other, with ``run_until_complete``. One in a process (of the machine): tasks are numbered."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self.ready: Any = self._ready  # type: ignore[attr-defined]  # asyncio's own queue
        self._selector = None
        self.steps = 0
        self._graves: list[set[asyncio.Task[Any]]] = []
        self.set_task_factory(_make_task)
        self.run_in_executor = partial(call_in_loop, self)  # type: ignore[assignment,method-assign]  # there are no threads
        forbid_threads(self)

    def time(self) -> float:
        """Seconds of virtual time; a step that blocks is that far in it."""
        process = _here.get()
        return self._now if process is None else self._now + process.busy

    def bury(self) -> None:
        """Tasks of the dead are kept: whoever collects them would run their ``finally``."""
        self._graves.append(asyncio.all_tasks(self))

    def _run_once(self) -> None:
        timers: Any = self._scheduled  # type: ignore[attr-defined]  # asyncio's own heap
        while timers and (timers[0]._cancelled or (timers[0]._when <= self._now)):
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if not timer._cancelled:
                self.ready.append(timer)
        if not self.ready:
            if self._stopping:  # type: ignore[attr-defined]  # asyncio's own flag
                return
            if not timers:
                raise Stalled("nothing is left that could ever happen")
            if self.steps > _MOST_STEPS:
                raise Stalled("there is no end to what happens")
            self._now = timers[0]._when
            return
        for _ in range(len(self.ready)):
            handle = self.ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(_here)
            if process is None:
                handle._run()
            elif process.may_step(handle):
                handle._run()
                process.stepped()
            self.steps += 1

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers leave the heap when their time comes."""

    def _write_to_self(self) -> None:
        """Nobody waits in a selector."""

    def _process_events(self, event_list: Any) -> None:
        """Nothing comes from outside."""


def _make_task(loop: Any, coroutine: Any, **options: Any) -> SimTask:
    return SimTask(coroutine, loop=loop, **options)
