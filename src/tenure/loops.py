"""Event loops: uvloop where it exists, asyncio's own elsewhere; what runs beside one, and how to wait in one for what blocks.

What a thread is to Tenure is said here, and nowhere else: something that goes on while the loop of the bodies is blocked.
Where everything shares one loop - its time is virtual, or the server itself lives in it - there are no threads: what would
run beside the loop is a task of it, and what would block is done at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

try:
    from uvloop import new_event_loop as _fast_loop
except ImportError:  # not on this platform
    _factory: Callable[[], asyncio.AbstractEventLoop] | None = None
else:
    _factory = _fast_loop

T = TypeVar("T")
_threadless: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``, on the fastest loop there is."""
    with asyncio.Runner(loop_factory=_factory) as runner:
        return runner.run(main)


def serve_loop(main: Coroutine[Any, Any, T], told: Callable[[SystemExit], object]) -> T:
    """``run_loop`` for a process in whose loop bodies run: what one of their tasks or callbacks exits with is only ``told``.

    asyncio hands a SystemExit to whoever awaits the task that raised it, and then lets it end the loop, with all that runs in it.
    One that ``main`` raises itself does end it.
    """
    with asyncio.Runner(loop_factory=_factory) as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        while True:
            try:
                return loop.run_until_complete(task)
            except SystemExit as error:
                if task.done():
                    raise
                told(error)


def forbid_threads(loop: asyncio.AbstractEventLoop) -> None:
    """From now on whatever would run beside this loop runs in it: a thread would go by another time."""
    _threadless.add(loop)


def allow_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Take ``forbid_threads`` back."""
    _threadless.discard(loop)


def has_threads(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether something may run beside it."""
    return loop not in _threadless


async def in_own_thread(wait: Callable[[], object]) -> None:
    """Call what blocks in a thread made for it, and wait for its end; it must not raise.

    Bodies may hold every helper thread of the loop, and a drain must end all the same.
    """
    loop = asyncio.get_running_loop()
    if loop in _threadless:
        wait()
        return
    ended = asyncio.Event()

    def run() -> None:
        wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name="tenure-waiting", daemon=True).start()
    await ended.wait()


class Companion:
    """A coroutine that goes on whatever a body does to the loop it is started from: in a thread with a loop of its own.

    As a task of that loop if ``shared``, or if threads are forbidden there. ``ended`` is told in that thread or task what
    ended it, None if it returned.
    """

    def __init__(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        *,
        name: str,
        ended: Callable[[BaseException | None], None],
        shared: bool = False,
    ) -> None:
        self._main = main
        self._name = name
        self._ended = ended
        self._shared = shared
        self._ready = threading.Event()
        self._waiter: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Start it, and wait until it says ``ready`` or has ended."""
        if self._shared or asyncio.get_running_loop() in _threadless:
            self._waiter = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name=self._name)
            await self._waiter.wait()
        else:
            self._thread = threading.Thread(target=self._run_thread, name=self._name, daemon=True)
            self._thread.start()
            await in_own_thread(self._ready.wait)

    def ready(self) -> None:
        """It has begun. From within."""
        self._ready.set()
        if self._waiter is not None:
            self._waiter.set()

    @property
    def is_ready(self) -> bool:
        """Whether it has begun, or has ended. Safe from any thread."""
        return self._ready.is_set()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in its loop, if it has one by now and still has. Safe from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(function, *args)

    async def join(self) -> None:
        """Wait for its end."""
        if self._task is not None:
            await asyncio.wait([self._task])
        elif self._thread is not None:
            await in_own_thread(self._thread.join)

    def _run_thread(self) -> None:
        try:
            run_loop(self._run())
        except BaseException as error:  # noqa: BLE001  (what its loop could not end properly; ``ended`` has been told)
            self._ended(error)

    async def _run(self) -> None:
        error: BaseException | None = None
        self._loop = asyncio.get_running_loop()  # from here on it can be called
        try:
            await self._main()
        except BaseException as raised:  # noqa: BLE001  (handed to whoever owns it)
            error = raised
        finally:
            self._ended(error)
            self.ready()


def settle_collector() -> None:
    """For a process that only runs a worker: have the cyclic collector look less often, and never at what is there already.

    A run leaves no cycles behind, so it mostly looks in vain: a sixth of the worker's CPU per task (187 against 160 us, medians of
    six pairs). Call it once everything is imported.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that this thread runs now."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
