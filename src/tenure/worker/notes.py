"""Progress that bodies report: published at most every ``progress_interval_seconds``; what comes sooner waits, the newest wins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tenure.context import Context
from tenure.core.sessions import Progress
from tenure.stores import Stores
from tenure.worker.table import Live

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Notes:
    """Those of one worker. ``spawn``: what starts a task that the service looks after; None while it does not run."""

    def __init__(self, stores: Stores, spawn: Callable[[], Spawn | None]) -> None:
        self._stores = stores
        self._spawn = spawn

    async def note(self, live: Live, context: Context, done: float, total: float | None, note: str) -> None:
        """A body is so far."""
        now = self._stores.clock.steady()
        live.note = Progress(
            run_id=live.run_id,
            attempt=context.attempt,
            done=float(done),
            total=None if total is None else float(total),
            note=str(note)[:1_000],
            at=self._stores.clock.now(),
        )
        due = live.last_note + self._stores.config.progress_interval_seconds
        if now >= due:
            await self._send(live)
        elif not live.note_waits and self._spawn() is not None:
            live.note_waits = True
            live.timers.append(asyncio.get_running_loop().call_later(due - now, self._send_later, live))

    def _send_later(self, live: Live) -> None:
        live.note_waits = False
        spawn = self._spawn()
        if spawn is not None:
            spawn(self._send(live))

    async def _send(self, live: Live) -> None:
        note, live.note = live.note, None
        if note is not None:
            live.last_note = self._stores.clock.steady()
            await self._stores.sessions.note(live.key, note)
