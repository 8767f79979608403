"""What ``tenure demo`` does to two of its workers: one is killed with -9, one frozen, both in the middle of their runs.

The supervisor closes their sessions, other workers take their runs over, and the frozen one, when it wakes up, finds
that everything it holds is another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from tenure.cli.demo_story import Document
from tenure.client import Client
from tenure.core.errors import Unavailable
from tenure.core.records import Phase, Record

_LOOK_SECONDS = 0.02
_START_SECONDS = 15.0
_TAKEOVER_SECONDS = 30.0
PROMISED_SECONDS = 8.0
"""By then, with the default settings, whatever a dead or frozen worker ran has started elsewhere."""


class CrashStory:
    """``killed`` and ``frozen``: process ids of the two workers. ``took``: seconds from the signal to each run's next start."""

    def __init__(self, client: Client, documents: list[Document], killed: int, frozen: int) -> None:
        self._client = client
        self._documents = documents
        self._pids = (killed, frozen)
        self._victims: dict[str, str] = {}
        self._struck_at = 0.0
        self.cut_down = 0
        self.took: dict[str, list[float]] = {"killed": [], "frozen": []}

    @property
    def in_time(self) -> bool:
        """Whether no run that was taken over took longer than is promised."""
        return max((max(times, default=0.0) for times in self.took.values()), default=0.0) <= PROMISED_SECONDS

    async def strike(self) -> None:
        """Kill and freeze, as soon as every one of the documents is being read by one of the two. Raises Unavailable."""
        await self._until(lambda record: record.phase is Phase.RUNNING, _START_SECONDS, "start")
        self._victims = await self._held_by()
        self.cut_down = sum(victim == "killed" for victim in self._victims.values())
        killed, frozen = self._pids
        self._struck_at = asyncio.get_running_loop().time()
        os.kill(killed, signal.SIGKILL)
        os.kill(frozen, signal.SIGSTOP)

    def let_go(self) -> None:
        """Wake the frozen worker up."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pids[1], signal.SIGCONT)

    async def play(self) -> None:
        """Note when each run starts elsewhere; then let the frozen worker go. Raises Unavailable."""
        loop = asyncio.get_running_loop()

        def taken_over(record: Record) -> bool:
            if record.attempt < 2:  # noqa: PLR2004  (the second attempt is the takeover)
                return False
            self.took[self._victims[record.key]].append(loop.time() - self._struck_at)
            return True

        await self._until(taken_over, _TAKEOVER_SECONDS, "be taken over")
        self.let_go()

    async def _held_by(self) -> dict[str, str]:
        """Which of the two each document is read by."""
        names: dict[str, str] = {}
        for document in self._documents:
            record = (await self._client.stores.runs.read(document.key)).record
            holder = record.holder if record is not None else None
            seen = await self._client.stores.sessions.read(holder.session) if holder is not None else None
            names[document.key] = "killed" if seen is not None and seen.session.pid == self._pids[0] else "frozen"
        return names

    async def _until(self, done: Callable[[Record], bool], seconds: float, what: str) -> None:
        left = [document.key for document in self._documents]
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while left:
            for key in left.copy():
                record = (await self._client.stores.runs.read(key)).record
                if record is not None and done(record):
                    left.remove(key)
            if left and loop.time() > until:
                raise Unavailable(f"the demonstration did not go on: {len(left)} runs did not {what}, e.g. {left[0]!r}")
            await asyncio.sleep(_LOOK_SECONDS)
