"""The lease.

This process's session, kept alive from a thread with its own loop and connection, so that no body can starve it (what a
thread is where there is none: ``loops.Companion``).

Owns the session entry (created before the first claim, renewed by CAS every ttl/5, closed at the end or, if that failed,
by the process's next session; never created again), the watch for stop signals, and the in-progress acks of every wake-up
in hand. Trust runs from the *send* of the last confirmed renewal [17]. A refused renewal is read: only ``closed`` or missing
ends the session [18], and nothing that a leader shows which was deposed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from tenure.clock import Clock
from tenure.config import Config
from tenure.core.errors import TenureError, Unavailable
from tenure.core.policy import trusted_until
from tenure.core.sealing import Codec
from tenure.core.sessions import Kind, Session, StopSignal
from tenure.core.subjects import Names
from tenure.loops import Companion
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.sessions import SeenSession, Sessions
from tenure.nats.urls import in_this_loop
from tenure.telemetry import get_logger

_log = get_logger("tenure.lease")
_RETRY_SECONDS = 0.2
_COMPLAIN_SECONDS = 5.0
"""How often an outage is logged, per session."""
_RENEWALS_A_TTL = 5
"""What is left of the trust when the bucket's leader dies is 4/5 of the ttl at least: more than an election (`Config`)."""


class Lease:
    """One session of this process. ``on_stop`` and ``on_lost`` are called in the lease's thread and must not block."""

    def __init__(
        self,
        *,
        url: str,
        names: Names,
        config: Config,
        clock: Clock,
        kind: Kind,
        ttl: float,
        options: dict[str, Any],
        on_stop: Callable[[StopSignal], None],
        on_lost: Callable[[str], None],
        unclosed: list[Session] | None = None,
        queues: Iterable[str] = (),
        modules: tuple[str, ...] | None = None,
    ) -> None:
        """``queues``: which a worker works on; ``modules``: of a supervisor's code (``Session``).

        ``unclosed``: sessions of this process that could not be closed, as they are to be; changed here.
        """
        self._url = url
        self._names = names
        self._config = config
        self._clock = clock
        self._options = options
        self._on_stop = on_stop
        self._on_lost = on_lost
        self._session = Session(
            id=clock.new_id(),
            kind=kind,
            host=socket.gethostname().encode("utf-8", "replace").decode(),  # the system gives any bytes
            pid=os.getpid(),
            ttl=ttl,
            started_at=clock.now(),
            queues=tuple(queues),
            modules=modules,
        )
        self._unclosed = [] if unclosed is None else unclosed
        self._revision = 0
        self._trusted_until = 0.0
        self._lost: str | None = None
        self._reason: str | None = None
        self.left_open = True
        """Whether its entry may still be open: nobody could close it, or nobody has tried to."""
        self._unheard_since: float | None = None
        self._complained_at = 0.0
        self._closing: asyncio.Event | None = None
        self._main_task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._thread = Companion(
            self._main, name=f"tenure-lease-{self._session.id}", ended=self._ended, shared=in_this_loop(url)
        )
        self.in_hand: dict[str, float] = {}
        """Ack subjects of the wake-ups that this process works on, and since when (steady clock)."""

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    @property
    def trusted(self) -> bool:
        """Whether this session can still be believed to be open.

        No new body, and no write without bound, without it.
        """
        return self._lost is None and self._reason is None and self._clock.steady() < self._trusted_until

    @property
    def confirmed_at(self) -> float:
        """When the last confirmed renewal was sent (steady clock)."""
        return self._trusted_until - self._session.ttl

    @property
    def trusted_until_epoch(self) -> float:
        """End of trust as seconds since the epoch, for people."""
        return self._clock.now() + self._trusted_until - self._clock.steady()

    async def open(self) -> None:
        """Start the thread and create the session. Raises Unavailable or ConfigError. Cancelled, it leaves no thread."""
        try:
            await self._thread.start()
        except BaseException:
            await self.close("given up while it was being opened")
            raise
        if self._error is not None:
            raise self._error

    async def close(self, reason: str) -> None:
        """Close the session with ``reason`` (``drain``: every body has ended) and end the thread."""
        self._reason = reason
        self._thread.call(self._asked_to_close)  # while it has no loop yet it finds the reason when it comes to it
        await self._thread.join()
        if self.left_open and self._revision and all(left.id != self.id for left in self._unclosed):
            self._unclosed.append(replace(self._session, closed=reason))
            _log.warning("lease.left_open", session=self.id)

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._error = error
            if self._thread.is_ready:
                self._lose(f"the lease's thread failed: {error!r}")

    def _asked_to_close(self) -> None:
        if self._closing is not None and self._main_task is not None:
            self._closing.set()
            if not self._thread.is_ready:  # the server may be silent for a long time: nobody waits for it any more
                self._main_task.cancel()

    async def _main(self) -> None:
        self._closing = asyncio.Event()
        self._main_task = asyncio.current_task()
        if self._reason is not None:
            return
        conn = await Connection.open(self._url, self._config, name=f"tenure-lease-{self.id}", **self._options)
        try:
            sessions = Sessions(conn, self._names, Codec(self._names.namespace))
            sent = self._clock.steady()
            self._revision = await sessions.create(self._session, Patience(self._clock, self._config.patience_seconds))
            self._trusted_until = trusted_until(sent, self._session.ttl)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(sessions.watch_stops(self.id, self._on_stop).run()),
                    group.create_task(self._renew(sessions)),
                    group.create_task(self._in_progress(conn)),
                    group.create_task(self._close_unclosed(sessions)),
                ]
                self._thread.ready()
                await self._closing.wait()
                for task in tasks:
                    task.cancel()
            await self._close(sessions)
        finally:
            await conn.close()

    async def _renew(self, sessions: Sessions) -> None:
        every = pause = self._session.ttl / _RENEWALS_A_TTL
        # One lost answer must leave time for a second try within the ttl.
        patience = min(self._config.request_timeout_seconds, self._session.ttl / 3)
        while True:
            await asyncio.sleep(pause)
            pause = every
            if self._lost is not None:
                continue
            sent = self._clock.steady()
            if sent >= self._trusted_until:
                self._lose("no renewal was confirmed in time")
                continue
            beat = replace(self._session, beat=self._session.beat + 1)
            try:
                revision = await sessions.write(beat, self._revision, timeout=patience)
                if revision:
                    self._session, self._revision = beat, revision
                    self._trusted_until = trusted_until(sent, self._session.ttl)
                    self._heard()
                else:
                    pause = await self._refused(sessions)
            except (NotSent, Lost, Unavailable) as error:
                self._not_heard(error)
                pause = _RETRY_SECONDS

    def _not_heard(self, error: Exception) -> None:
        """Log the first failure of an outage, and then now and again."""
        now = self._clock.steady()
        if self._unheard_since is None:
            self._unheard_since = now
        elif now < self._complained_at + _COMPLAIN_SECONDS:
            return
        self._complained_at = now
        _log.warning("lease.not_renewed", session=self.id, error=str(error))

    def _heard(self) -> None:
        if self._unheard_since is not None:
            seconds = round(self._clock.steady() - self._unheard_since, 1)
            self._unheard_since = None
            _log.info("lease.renewed", session=self.id, after_seconds=seconds)

    async def _refused(self, sessions: Sessions) -> float:
        """The entry has another revision: mine by a renewal whose answer was lost, or somebody closed it. Seconds to pause.

        Raises Unavailable where nothing is shown, unless by a leader that has counted as far as I have seen: one that has not may
        have been deposed, and so may one that shows what is older, which is refused after the pause.
        """
        found = await sessions.find(self.id)
        if not found.revision and not await sessions.is_gone(self.id, self._revision, Patience(self._clock, 0.0)):
            raise Unavailable("its entry cannot be seen: it is older than it was")
        seen = found if isinstance(found, SeenSession) else None
        if seen is None or seen.session.closed is not None:
            self._lose(f"closed: {seen.session.closed}" if seen else "its entry is gone")
            return self._session.ttl
        pause = 0.0 if seen.revision > self._revision else _RETRY_SECONDS  # the next one may be refused as this one was
        self._session, self._revision = seen.session, seen.revision
        return pause

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = why
            _log.error("lease.lost", session=self.id, reason=why)
            self._on_lost(why)

    async def _in_progress(self, conn: Connection) -> None:
        """Tell the server that what is in hand is worked on, before ``ack_wait`` is over."""
        every = self._config.ack_wait_seconds / 6
        while True:
            await asyncio.sleep(every)
            old = self._clock.steady() - 2 * every
            for reply, since in self.in_hand.copy().items():
                if since <= old:
                    await conn.publish(reply, b"+WPI")

    async def _close_unclosed(self, sessions: Sessions) -> None:
        """Nobody else may do it: without a supervisor what such a session holds would be held for good."""
        while self._unclosed:
            left = self._unclosed[0]
            with contextlib.suppress(NotSent, Lost, TenureError):
                if await _close_entry(sessions, left):
                    self._unclosed.remove(left)
                    continue
            await asyncio.sleep(_RETRY_SECONDS)

    async def _close(self, sessions: Sessions) -> None:
        """Close the entry, so that nobody has to wait for the ttl.

        Best effort: the next session of this process, or a supervisor, closes what is left open.
        """
        patience = Patience(self._clock, self._config.request_timeout_seconds * 2)
        closed = replace(self._session, closed=self._reason)
        while True:
            with contextlib.suppress(NotSent, Lost, TenureError):
                if await sessions.write(closed, self._revision) or await _close_entry(sessions, closed):
                    self.left_open = False
                    return
            if not await patience.pause():
                return


async def _close_entry(sessions: Sessions, closed: Session) -> bool:
    """Close a session at the revision that it has now; False if that moved meanwhile. One that is closed stays as it is."""
    seen = await sessions.read(closed.id)
    if seen is None or seen.session.closed is not None:
        return True
    return bool(await sessions.write(replace(seen.session, closed=closed.closed), seen.revision))
