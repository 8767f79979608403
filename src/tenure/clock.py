"""Clocks and randomness.

The only place where the library reads them. Services and clients take those of where they run (``here``), so that a
simulation can put its own in their stead, another one for each process that it pretends.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from ulid import base32

from tenure.telemetry import get_logger

_log = get_logger("tenure.clock")
SAME_SECONDS = 0.25
"""Clocks that differ by less are the same: machines that keep time at all are closer, and correcting would only add noise."""


class Clock(Protocol):
    """What services ask of time and chance."""

    counts_suspension: bool
    """Whether ``steady`` goes on while the machine sleeps."""

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

    counts_suspension = hasattr(time, "CLOCK_BOOTTIME")
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


class AlignedClock:
    """The machine's clocks, its time of day corrected to the server's.

    Due times, deadlines and graces are in records that many machines read. One whose time of day is wrong would start
    early, keep due runs from all others, or end a body that is within its time; what all have in common is the server.
    Where the steady clock counts suspension the time of day follows that: then no setting of the machine's clock moves it.
    """

    def __init__(self, base: Clock) -> None:
        self._base = base
        self._follow = base.steady if base.counts_suspension else base.now
        self._ahead = base.now() - self._follow()
        self.aligned = False
        """Whether it was compared with the server's at all."""
        self.unsure = math.inf
        """Seconds by which it may be wrong for all that the best answer so far has told."""
        self.counts_suspension = base.counts_suspension
        self.steady = base.steady
        self.random = base.random
        self.new_id = base.new_id

    def now(self) -> float:
        """Seconds since the epoch, as the server has it."""
        return self._follow() + self._ahead

    @property
    def offset(self) -> float:
        """Seconds to be added to the machine's time of day at this moment."""
        return self.now() - self._base.now()

    def align(self, server: float, sent: float) -> None:
        """``server``: its time in an answer that has come just now, to a request sent at ``sent`` (steady clock).

        What the way of the answer may account for is no difference; a slow one still tells what is wrong by more. A process that
        was frozen has all of the way on one side of the server's time, and a clock that is the same may differ besides.
        """
        half = (self.steady() - sent) / 2
        self.aligned = True
        right, same = server + half, half + SAME_SECONDS
        differs = right - self.now()
        kept = abs(differs) < same
        self.unsure = min(self.unsure, max(SAME_SECONDS, half + kept * abs(differs)))
        if kept:
            return
        if abs(right - self._base.now()) < same:  # it has been set right: it is better than what we can measure
            right = self._base.now()
        _log.warning("clock.differs", seconds=round(differs, 3))
        self._ahead = right - self._follow()


_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", None)
SYSTEM = SystemClock()
_here: ContextVar[Clock] = ContextVar("tenure_clock", default=SYSTEM)


def here() -> Clock:
    """The clock of where this runs: the machine's, unless ``using`` says otherwise."""
    return _here.get()


@contextmanager
def using(clock: Clock) -> Iterator[None]:
    """What is opened inside, and in the tasks that are made inside, takes ``clock`` for its own."""
    token = _here.set(clock)
    try:
        yield
    finally:
        _here.reset(token)
