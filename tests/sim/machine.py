"""What the processes of a simulation take for their machine: its time, their process ids, their logs.

Patched into the interpreter for good: only a process that does nothing else may call ``pretend``.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

from ulid import base32

from tests.chaos.journal import Journal
from tests.sim.loop import SimLoop, process_here

EPOCH = 1_900_000_000.0
"""The time of day when a simulation begins."""


class SimClock:
    """The clocks of one simulated process. ``ahead``: its time of day is wrong by so much; changed when it jumps."""

    def __init__(
        self, loop: SimLoop, chance: random.Random, *, ahead: float = 0.0, counts_suspension: bool = True
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._offset = 1_000.0 * chance.random()
        self.ahead = ahead
        self.counts_suspension = counts_suspension

    def now(self) -> float:
        """Seconds since the epoch, as this process has it."""
        return EPOCH + self._loop.time() + self.ahead

    def steady(self) -> float:
        """Seconds since this machine was started."""
        return self._loop.time() + self._offset

    def random(self) -> float:
        """A random number in [0, 1)."""
        return self._chance.random()

    def new_id(self) -> str:
        """A new ULID."""
        return base32.encode(int(self.now() * 1000).to_bytes(6, "big") + self._chance.randbytes(10))


def pretend(loop: SimLoop, write: Any) -> None:
    """From now on time, process ids and journals are those of the simulation."""
    real_pid = os.getpid()

    def pid() -> int:
        process = process_here()
        return real_pid if process is None else process.pid

    def sleep(seconds: Any) -> None:
        process = process_here()
        if process is not None:
            process.block(seconds)

    time.time = lambda: EPOCH + loop.time()
    time.monotonic = loop.time
    time.sleep = sleep
    time.clock_gettime = lambda _clock: loop.time()
    os.getpid = pid
    os.environ["CHAOS_FOLDER"] = "nowhere"

    def nothing(_self: Journal, _folder: Path, _name: str) -> None:
        """No file is opened."""

    Journal.__init__ = nothing  # type: ignore[assignment,method-assign]  # there are no files here
    Journal.write = lambda _self, line: write(line)  # type: ignore[assignment,method-assign]  # there are no files here
    asyncio.set_event_loop(loop)
