"""Clocks and randomness.

The only place where the library reads them, so that a simulation can put its own in their stead.
"""

from __future__ import annotations

import os
import random
import time
from typing import Protocol

from ulid import base32


class Clock(Protocol):
    """What services ask of time and chance."""

    def now(self) -> float:
        """Seconds since the epoch (wall clock): for due times, which people set."""
        ...

    def steady(self) -> float:
        """Seconds on a clock that never goes back and that counts suspension: for trust and graces."""
        ...

    def random(self) -> float:
        """A random number in [0, 1): for jitter."""
        ...

    def new_id(self) -> str:
        """A new ULID: for run ids and sessions."""
        ...


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time)
    random = staticmethod(random.random)

    @staticmethod
    def steady() -> float:
        """Seconds since boot, suspension included (CLOCK_BOOTTIME).

        The monotonic clock where the platform has no such.
        """
        return time.clock_gettime(_STEADY) if _STEADY is not None else time.monotonic()

    @staticmethod
    def new_id() -> str:
        """A new ULID: 26 characters, sortable by time to the millisecond.

        Only the text is python-ulid's: its objects, and its order within a millisecond, cost 5 us, a tenth of a submit.
        """
        return base32.encode(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10))


_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", None)
SYSTEM = SystemClock()
