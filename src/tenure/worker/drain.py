"""The end of a worker's bodies: let finish, cancelled, killed where that is possible, given up - each within its bound.

The lease goes on and cancels are obeyed all the while: the session is closed only after this. A body is handed back once it
has ended, never before [27]; what is given up is handed back by the close of its session.

Bounds: ``drain_seconds`` to finish, then the longest grace to end. ``now`` (a second signal) cuts both to ``stop_seconds``.
Without the server, trust ends within ``session_ttl_seconds``: then nothing is let finish, for nothing of it could be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.app import App
from tenure.config import Config
from tenure.context import StopReason
from tenure.telemetry import get_logger
from tenure.worker.table import Table
from tenure.worker.waits import until

_log = get_logger("tenure.worker")
_KILL_SECONDS = 2.5
"""How long a killed child process may take to be gone and its run to be handed back."""
_LAST_WORDS = 3
"""Answers of the server that the end of a worker may wait for one after the other: the last write, its session's end."""


def longest(app: App) -> float:
    """Seconds from the first signal to the end of a worker of ``app``, if its bodies and its server take all the time they may."""
    grace = max((actor.task.policy.grace for actor in app.actors.values()), default=0.0)
    answer = app.config.request_timeout_seconds
    return app.config.drain_seconds + max(grace, answer) + _KILL_SECONDS + _LAST_WORDS * answer


class Drain:
    """Ends the bodies in a table. ``changed`` is set whenever one has left it, or ``now`` was called."""

    def __init__(self, table: Table, changed: asyncio.Event, config: Config) -> None:
        self._table = table
        self._changed = changed
        self._config = config
        self._now = False
        self._ending = False
        self.given_up = 0
        """Bodies that had not ended when the last drain did. What had none any more, or not yet, is none."""

    @property
    def crowded(self) -> str:
        """Over ``stuck_limit`` bodies ignore their stop: why nothing new is run. Each keeps a thread or a task for itself."""
        number, limit = len(self._table.running_on()), self._config.stuck_limit
        return (
            "" if number <= limit else f"{number} bodies ignore their stop (stuck_limit {limit}): restart this worker"
        )

    def now(self) -> None:
        """Let nothing finish any more. On the worker's loop."""
        self._now = True
        self._changed.set()

    def lost(self) -> None:
        """The session is lost. On the worker's loop.

        Bodies that are being ended must know: what they still do may be another's already. Others hear it from ``finish``,
        or from whoever sees to a new session.
        """
        self._changed.set()
        if self._ending:
            self.tell("lease_lost")
            for live in self._table.all():
                if live.remote is not None:
                    live.remote.kill()

    def reset(self) -> None:
        """Another run of the worker begins."""
        self._now = False

    def tell(self, reason: StopReason) -> None:
        """Tell every body why it must stop."""
        for live in self._table.all():
            live.tell(reason)

    async def finish(self, lost: Callable[[], bool]) -> None:
        """Let bodies finish, then end them. ``lost``: the session is not trusted any more, what runs may be another's."""
        await self._empty(self._config.drain_seconds, unless=lambda: self._now or lost())
        if not len(self._table):
            return
        if lost():
            self.tell("lease_lost")
        grace = self._table.longest_grace
        await self.interrupt()
        # A claim that is on its way has no grace yet, but a server that answers: then its run is handed back, and waits for nobody.
        await until(
            lambda: self._now or lost() or all(live.has_body for live in self._table.all()),
            self._changed,
            max(0.0, self._config.request_timeout_seconds - grace),
        )

    async def interrupt(self) -> None:
        """Cancel every body and wait for the end of all: as long as their graces allow, then kill what can be killed."""
        self._ending = True
        try:
            await self._interrupt()
        finally:
            self._ending = False

    async def _interrupt(self) -> None:
        for live in self._table.all():
            live.interrupt()
        await self._empty(self._table.longest_grace, unless=lambda: self._now)
        if self._now:
            await self._empty(min(self._config.stop_seconds, self._table.longest_grace))
        remotes = [live.remote for live in self._table.all() if live.remote is not None]
        if remotes:
            for remote in remotes:
                remote.kill()
            await self._empty(_KILL_SECONDS, unless=lambda: not any(live.remote for live in self._table.all()))

    def give_up_rest(self) -> bool:
        """Bodies that did not end: nothing of them is written from now on; their session must be closed."""
        rest = [*self._table.all(), *self._table.stuck]
        if rest:
            _log.warning("run.abandoned", keys=[live.key for live in rest[:20]], number=len(rest))
        self.given_up = sum(live.has_body for live in {*rest, *self._table.running_on()})
        for live in rest:
            self._table.abandon(live)
        return bool(rest)

    async def _empty(self, seconds: float, *, unless: Callable[[], bool] = lambda: False) -> None:
        await until(lambda: not len(self._table) or unless(), self._changed, seconds)
