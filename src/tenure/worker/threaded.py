"""A plain body's call in a thread: once or not at all, and its attempt is not over before its thread is.

A pool that can start no thread says so and keeps the call in its line: a thread that comes free would run it some time, beside
the next attempt. And who cancels a task that waits for a thread ends the waiting, not the thread. So the call is not left to
the pool: whoever takes its ``turn`` - a thread, or its attempt - decides whether it runs, and what runs is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tenure.loops import has_threads
from tenure.worker.table import Live


class Threaded:
    """One call. Not a future of the pool: what tells the loop is here, so it costs no more than that would."""

    __slots__ = ("_beside", "_call", "_ended", "_loop", "_outcome", "_turn")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._beside = has_threads(self._loop)  # else it is called in the loop, at its next turn
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._outcome: list[tuple[Any, BaseException | None]] = []
        self._turn = [True]

    def start(self, pool: ThreadPoolExecutor) -> None:
        """Raises RuntimeError where no thread can be started: the call is not made then, whatever the pool does later."""
        scope = contextvars.copy_context()
        if not self._beside:
            self._loop.call_soon(scope.run, self._run)
            return
        try:
            pool.submit(scope.run, self._run)
        except RuntimeError:
            if self.drop():  # else a thread that came free in this very moment has it
                raise

    def drop(self) -> bool:
        """Have it not made. False: it was made, or is being made. Safe from any thread."""
        try:
            return self._turn.pop()
        except IndexError:
            return False

    def _run(self) -> None:
        if not self.drop():
            return
        try:
            how: tuple[Any, BaseException | None] = self._call(), None
        except (StopIteration, GeneratorExit) as error:  # no coroutine can raise one: the run would hang
            failure = RuntimeError(f"the body raised {type(error).__name__}({error})")
            failure.__cause__ = error
            how = None, failure
            del failure
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is raised where it is waited for)
            how = None, error
        if self._beside:
            with contextlib.suppress(RuntimeError):  # the loop is closed: its body was given up
                self._loop.call_soon_threadsafe(self._tell, how)
        else:
            self._tell(how)
        del how  # a traceback has this frame, which would keep it alive

    def _tell(self, how: tuple[Any, BaseException | None]) -> None:
        self._outcome.append(how)
        if not self._ended.done():
            self._ended.set_result(None)

    async def outcome(self, live: Live) -> Any:
        """What the call returns or raises. Cancelled before that only if it is given up, or was not begun."""
        while not self._outcome:
            try:
                await self._ended
            except asyncio.CancelledError:
                if live.abandoned or live.torn_down or live.task is None or self.drop():
                    raise
                while live.task.cancelling():  # a stranger's, of whatever task it found
                    live.task.uncancel()
                self._ended = self._loop.create_future()
        value, error = self._outcome.pop()
        if error is None:
            return value
        try:
            raise error
        finally:
            del error
