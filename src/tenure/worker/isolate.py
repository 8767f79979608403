"""Bodies in child processes: children are started when one is needed, kept warm, and run one body at a time each.

A run's child is ready - started, its actor imported - *before* the run is claimed, so the actor's ``timeout`` and
``ctx.deadline`` count the body alone, however cold the start. The worker's slots bound their number: a run has one child.
Only a few start at once, for those that start share the cores; who waits takes a child that is given back meanwhile. A start
that fails costs no attempt and is made again; after the last one, or if the module cannot be imported, the attempt fails.

A body that is told to stop is told in its child. If it is still there after its grace - at once when the lease is lost -
the child is killed: then it has ended, and the outcome is what the protocol says of a body that obeyed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable

from tenure.actors import Actor
from tenure.clock import AlignedClock
from tenure.config import Config
from tenure.context import Context, StopReason
from tenure.core.records import Failure
from tenure.isolation import Home
from tenure.telemetry import get_logger
from tenure.worker.body import Ended, Halted, Raised
from tenure.worker.pipe import Broken, Done, Note, Prepare, Ready, Start, Tell, ToWorker, grant
from tenure.worker.process import Child
from tenure.worker.table import Live

_log = get_logger("tenure.child")

OnNote = Callable[[Context, float, float | None, str], Awaitable[None]]
_STARTS_AT_ONCE = max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
"""Children of one actor that start, or import it, at the same time: more would only make all of them slow. Of all actors one
more: an actor whose import hangs must not hold up the others."""
_PAUSES = 0.5, 2.0
"""Seconds after a start that failed. One more than there are of these, and the attempt has failed."""


class Children:
    """The child processes of one worker."""

    def __init__(self, config: Config, clock: AlignedClock) -> None:
        self.config = config
        self.clock = clock
        self._all: set[Child] = set()
        self._idle: dict[Child, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._starting: Counter[Home] = Counter()
        self._freed = asyncio.Event()
        """Set when a child may start, or one is idle."""

    async def take(self, home: Home) -> Child:
        """A child that has the actor at hand, once there is one; or one that may start: say ``started`` when that is over.

        Raises OSError.
        """
        while True:
            for child in [child for child in self._idle if child.exited.is_set()]:
                self._retire(child)
            warm = [child for child in self._idle if child.home == home]
            if not warm and self._may_start(home):
                warm = list(self._idle) or [self._new()]
                self._starting[home] += 1
            if warm:
                child = warm[-1]  # the one used last: what is too many then grows old
                if child in self._idle:
                    self._idle.pop(child).cancel()
                return child
            self._freed.clear()
            await self._freed.wait()

    def _new(self) -> Child:
        child = Child()
        self._all.add(child)
        return child

    def _may_start(self, home: Home) -> bool:
        return self._starting.total() <= _STARTS_AT_ONCE and self._starting[home] < _STARTS_AT_ONCE

    def started(self, home: Home) -> None:
        """Another child may start."""
        self._starting[home] -= 1
        self._freed.set()

    async def give_back(self, child: Child, *, reusable: bool) -> None:
        """Keep a child for the next run, or have it gone before this returns."""
        timer = asyncio.get_running_loop().call_later(self.config.child_idle_seconds, self._retire, child)
        self._idle[child] = timer
        if not reusable or child.killed or child.exited.is_set():
            await asyncio.shield(self._retire(child))
        else:
            self._freed.set()

    def _retire(self, child: Child) -> asyncio.Task[None]:
        self._idle.pop(child).cancel()
        self._all.discard(child)
        task = asyncio.create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def close(self) -> None:
        """End them all: no body of this worker's is left in them, or one that was given up."""
        for timer in self._idle.values():
            timer.cancel()
        self._idle.clear()
        children, self._all = self._all, set()
        await asyncio.gather(*self._ending, *(child.end() for child in children))


class Remote:
    """The child of one run: a ``Live`` passes on to it what the body is told."""

    def __init__(self, children: Children, live: Live, actor: Actor[..., ..., object, object], home: Home) -> None:
        self._children = children
        self._live = live
        self._actor = actor
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._child: Child | None = None
        self._failure: Failure | None = None
        self._running = False
        self._starting: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the body has begun, and neither it nor its child has ended."""
        return self._running and self._child is not None and not self._child.exited.is_set()

    async def make_ready(self) -> bool:
        """Have a child with the actor at hand; False if the worker drains meanwhile.

        What keeps the actor from being imported is a failure of the attempt, told by ``run``. Raises OSError where the
        system starts no process.
        """
        self._starting = asyncio.create_task(self._start())
        try:
            if self._live.told is None:
                await asyncio.wait([self._starting])
        finally:
            self._starting.cancel()
            await asyncio.wait([self._starting])  # to await it itself would hide a cancellation of ours in its own
        if self._starting.cancelled():
            return False
        self._starting.result()
        return True

    async def _start(self) -> None:
        children = self._children
        for pause in (*_PAUSES, None):
            self._child = child = await children.take(self._home)
            if child.home == self._home:
                return
            try:
                failure = await self._prepare(child)
            finally:
                children.started(self._home)
            if failure is None:
                return
            _log.warning("child.not_ready", key=self._live.key, run_id=self._live.run_id, how=failure.message)
            if pause is None:
                self._failure = failure
                return
            self._child = None
            await children.give_back(child, reusable=False)
            await asyncio.sleep(pause)

    async def _prepare(self, child: Child) -> Failure | None:
        """Why the child is not ready, if another might be."""
        seconds = self._children.config.child_start_seconds
        try:
            async with asyncio.timeout(seconds):
                answer = await self._ask(child)
        except TimeoutError:
            text = (
                f"the child process (pid {child.pid}) was not ready within {seconds} s: it imports {self._home.module}"
            )
            return Failure(type="ProcessDied", message=text)
        match answer:
            case Ready():
                child.home = self._home
            case Broken(kind, message, traceback):
                self._failure = Failure(type=kind, message=message, traceback=traceback)
            case _:
                return await child.obituary()
        return None

    async def _ask(self, child: Child) -> ToWorker | None:
        if child.home is None:
            with contextlib.suppress(OSError):  # it has ended already: the obituary says how
                await child.connect()
        home, child.home = self._home, None
        level = logging.getLogger("tenure").getEffectiveLevel()
        child.send(Prepare(home.module, home.path, self._actor.name, home.app.namespace, level))
        return await child.receive()

    async def run(self, context: Context, args: bytes, on_note: OnNote, traceback_limit: int) -> Ended:
        """Run the body to its end, or to its child's."""
        child = self._child
        if self._failure is not None or child is None:
            return Halted() if context.stop_reason is not None else Raised(self._failure or _NO_CHILD, final=False)
        if context.stop_reason is not None:  # no body starts after it was told to stop
            return Halted()
        self._running = True
        child.send(_start(context, args, self._children, traceback_limit))
        while True:
            match await child.receive():
                case Note(done, total, note):
                    await on_note(context, done, total, note)
                case Done() as done:
                    self._running = False
                    grant(done, context)
                    return done.ended
                case _:
                    return await self._died(child, context)

    async def _died(self, child: Child, context: Context) -> Ended:
        if child.killed and context.stop_reason is not None:
            await child.end()
            return Halted()
        failure = await child.obituary()
        if self._live.interrupted and context.stop_reason in {"drain", "lease_lost"}:
            return Halted()  # as for every body: what it makes of its interruption is not a failure of its own
        _log.warning("child.died", key=context.key, run_id=context.run_id, attempt=context.attempt, how=failure.message)
        return Raised(failure, final=False)

    async def release(self) -> None:
        """The run is done with its child."""
        child, self._child = self._child, None
        if child is not None:
            await self._children.give_back(child, reusable=child.home is not None and not self._running)

    # -- what the body is told ---------------------------------------------------------------------------------------

    def told(self, reason: StopReason) -> None:
        """Safe from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: so is the child
            self._loop.call_soon_threadsafe(self._tell, reason, False)

    def _tell(self, reason: StopReason, interrupt: bool) -> None:  # noqa: FBT001  (a field of the message)
        if self._running and self._child is not None:
            self._child.send(Tell(reason, interrupt))
        elif self._starting is not None:
            self._starting.cancel()  # nothing is claimed yet: another worker may have it at once

    def interrupt(self, reason: StopReason, grace: float) -> None:
        """Have the body end: kill it if it is there after its grace. On the worker's loop."""
        self._tell(reason, interrupt=True)
        child = self._child
        if self._running and child is not None:
            self._live.timers.append(
                self._loop.call_later(0.0 if reason == "lease_lost" else grace, self._overstayed, child)
            )

    def _overstayed(self, child: Child) -> None:
        if self._running and child is self._child:
            _log.warning(
                "child.killed", key=self._live.key, run_id=self._live.run_id, told=self._live.told, pid=child.pid
            )
            child.kill()

    def kill(self) -> None:
        """End the body now."""
        if self._child is not None:
            self._child.kill()


_NO_CHILD = Failure(type="ProcessDied", message="the child process was gone before the body started")


def _start(context: Context, args: bytes, children: Children, traceback_limit: int) -> Start:
    return Start(
        args=args,
        key=context.key,
        run_id=context.run_id,
        generation=context.generation,
        attempt=context.attempt,
        failures=context.failures,
        fence=context.fence,
        session=context.session,
        deadline=context.deadline_at,
        told=context.stop_reason,
        traceback_limit=traceback_limit,
        result_limit=children.config.blob_limit_bytes,
        trace=context.trace,
        clock_offset=children.clock.offset,
    )
