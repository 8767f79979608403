"""How many unexpected errors a process may have: a defect ends one key's handling, too many a minute end the process."""

from __future__ import annotations

from collections import deque

from tenure.clock import Clock
from tenure.core.errors import TenureError

_MOST_A_MINUTE = 30
_MINUTE = 60.0


class Crashes:
    """The unexpected errors of the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at: deque[float] = deque()

    def one_more(self) -> TenureError | None:
        """Count one; the error to end the process with, if that was one too many."""
        now = self._clock.steady()
        self._at.append(now)
        while self._at[0] < now - _MINUTE:
            self._at.popleft()
        if len(self._at) <= _MOST_A_MINUTE:
            return None
        return TenureError(f"{len(self._at)} unexpected errors within a minute: giving up; see the log")
