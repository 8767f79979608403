"""What a body sees of its run: who it is, why it should stop, and what it asks to happen with its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from tenure.checks import check_progress
from tenure.core.errors import InvalidCall, Stopped, TenureError
from tenure.core.moments import moment_of
from tenure.core.records import Record
from tenure.core.subjects import check_key
from tenure.telemetry import get_logger
from tenure.times import due_time

if TYPE_CHECKING:
    from tenure.actors import Call
    from tenure.app import App

StopReason = Literal["cancel", "superseded", "timeout", "drain", "lease_lost"]
ProgressSink = Callable[["Context", float, float | None, str], Awaitable[None]]

_current: ContextVar[Context] = ContextVar("tenure.context")
_reports: set[asyncio.Future[None]] = set()
"""Those under way: the loop itself keeps no task alive."""


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # made by hand, outside a loop
        return None


def current() -> Context:
    """The context of the run whose body is running here. Raises TenureError outside a body."""
    try:
        return _current.get()
    except LookupError:
        msg = "tenure.current() was called outside a running body"
        raise TenureError(msg) from None


@dataclass(slots=True)
class Spawned:
    """A run asked for with ``ctx.spawn``; ``due``: seconds since the epoch, 0.0 for at once."""

    call: Call[Any]
    key: str | None
    due: float


@dataclass(slots=True)
class Rescheduled:
    """A successor asked for with ``ctx.reschedule``; ``call``: None for the same, ``due``: seconds since the epoch."""

    call: Call[Any] | None
    due: float


class Context:
    """Given to a body. Safe to read from any thread; ``progress`` is awaited on the body's loop, ``report`` is for threads.

    ``fence`` rises with every claim of the key, purged and submitted anew or not, for as long as the namespace's bucket is not
    deleted: give it to the outside world so that it can refuse older writers.
    ``deadline`` is when the attempt times out (aware, UTC), or None. ``trace``: the W3C traceparent to give to others, empty
    where nobody traces.
    """

    __slots__ = (
        "_event",
        "_interrupted",
        "_log",
        "_loop",
        "_now",
        "_progress",
        "_reported",
        "_saying",
        "_stop_lock",
        "app",
        "attempt",
        "deadline_at",
        "failures",
        "fence",
        "generation",
        "key",
        "rescheduled",
        "run_id",
        "session",
        "spawned",
        "stop_reason",
        "trace",
    )

    def __init__(
        self,
        *,
        app: App,
        record: Record,
        fence: int,
        session: str,
        now: Callable[[], float],
        progress: ProgressSink | None = None,
    ) -> None:
        self.app = app
        self.key = record.key
        self.run_id = record.run_id
        self.generation = record.generation
        self.attempt = record.attempt
        self.failures = record.failures
        self.fence = fence
        self.session = session
        self.deadline_at = record.deadline
        self.trace = record.task.trace
        self.stop_reason: StopReason | None = None
        self.spawned: list[Spawned] = []
        self.rescheduled: Rescheduled | None = None
        self._now = now
        self._progress = progress
        self._event: asyncio.Event | None = None
        self._interrupted = False
        self._loop = _loop_here()
        self._log: Any = None
        self._stop_lock = threading.Lock()
        self._reported: tuple[float, float | None, str] | None = None
        self._saying: asyncio.Future[None] | None = None

    @property
    def deadline(self) -> datetime | None:
        """When this attempt times out (aware, UTC), or None."""
        return None if self.deadline_at is None else moment_of(self.deadline_at)

    @property
    def log(self) -> Any:
        """A structlog logger bound to key, generation and attempt."""
        if self._log is None:
            self._log = get_logger("tenure.body").bind(
                key=self.key, generation=self.generation, attempt=self.attempt, run_id=self.run_id
            )
        return self._log

    @property
    def stopping(self) -> asyncio.Event:
        """Set once the run must stop; ``stop_reason`` says why. To be awaited on the body's loop."""
        with self._stop_lock:
            if self._event is None:
                self._event = asyncio.Event()
                if self.stop_reason is not None:
                    self._event.set()
            return self._event

    def check(self) -> None:
        """Raise Stopped if the run must stop: for plain ``def`` bodies, between two pieces of work.

        Of a drain only once ``drain_seconds`` are over, when async bodies are cancelled too; ``stop_reason`` tells it at once.
        """
        if self.stop_reason is not None and (self._interrupted or self.stop_reason != "drain"):
            raise Stopped(self.stop_reason)

    async def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the run is: ``done`` of ``total``.

        For people; published at most every 0.1 s, the newest value wins. ``note``: what is over 1000 characters is cut.
        Raises InvalidCall.
        """
        done, total, note = check_progress(done, total, note)
        if self._progress is not None:
            await self._progress(self, done, total, note)

    def report(self, done: float, total: float | None = None, note: str = "") -> None:
        """As ``progress``, for plain ``def`` bodies. Safe from any thread; waits for nothing. Raises InvalidCall."""
        said = check_progress(done, total, note)
        with self._stop_lock:
            waits, self._reported = self._reported is not None, said
            loop = self._loop
        if not waits and loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody hears it any more
                loop.call_soon_threadsafe(self._send_report)

    def _send_report(self) -> None:
        """On the loop: what was reported last; a body that reports faster than the loop turns costs it one task."""
        with self._stop_lock:
            said, self._reported = self._reported, None
        if said is not None and self._progress is not None:
            self._saying = task = asyncio.ensure_future(self._progress(self, *said))
            _reports.add(task)
            task.add_done_callback(_reports.discard)

    async def say_reported(self) -> None:
        """On the loop, once a plain body has ended: what it reported last is said before its outcome."""
        self._send_report()
        if self._saying is not None:
            await asyncio.wait([self._saying])

    def spawn(
        self,
        call: Call[Any],
        *,
        key: str | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
    ) -> None:
        """Have another key run ``call`` if this run succeeds: stored with the outcome, exactly once, all or nothing.

        Nothing happens if the run fails, is cancelled, superseded or retried. A key with a live run keeps that run.
        Raises InvalidCall.
        """
        self._check(call)
        if key is not None:
            key = check_key(key)
            if key == self.key:
                msg = "spawn needs another key than the run's own; use reschedule for a successor"
                raise InvalidCall(msg, field="key")
        self.spawned.append(Spawned(call, key, due_time(delay, at, self._now())))

    def reschedule(
        self, *, delay: float | timedelta | None = None, at: datetime | None = None, call: Call[Any] | None = None
    ) -> None:
        """Have this key run again: the successor is stored in the same write as the outcome, success or final failure.

        The same call unless ``call`` is given; the last ``reschedule`` of a body counts. Raises InvalidCall.
        """
        if call is not None:
            self._check(call)
        now = self._now()
        self.rescheduled = Rescheduled(call, due_time(delay, at, now) or now)

    def tell(self, reason: StopReason) -> bool:
        """Ask the body to stop; False if it has been told before. ``drain`` only asks: any other reason comes over it.

        Safe from any thread.
        """
        with self._stop_lock:
            if self.stop_reason is not None and (self.stop_reason != "drain" or reason == "drain"):
                return False
            self.stop_reason = reason
            event, loop = self._event, self._loop
        if event is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(event.set)
        elif event is not None:
            event.set()
        return True

    def interrupt(self) -> None:
        """The time to finish is over: from now on ``check`` raises for a drain too. Safe from any thread."""
        self._interrupted = True

    def enter(self) -> None:
        """Make this the current context of the calling task or thread."""
        _current.set(self)

    def _check(self, call: Call[Any]) -> None:
        from tenure.actors import check_call  # that module imports this one

        check_call(call, self.app.namespace)
