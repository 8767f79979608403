"""How long to keep trying: one small object that every retry loop shares, so that each is bounded and jittered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.clock import Clock

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


class Patience:
    """Pauses between tries.

    20 ms doubling to 1 s, spread over +-50 %; ends after ``seconds`` or once ``alive`` says no.
    """

    def __init__(self, clock: Clock, seconds: float | None = None, alive: Callable[[], bool] | None = None) -> None:
        self._clock = clock
        self._until = None if seconds is None else clock.steady() + seconds
        self._alive = alive
        self._pause = _FIRST_PAUSE

    def at_most(self, seconds: float) -> Patience:
        """One that ends after ``seconds``, if this one does not before; its pauses begin anew."""
        until = self._clock.steady() + seconds
        limited = Patience(self._clock, alive=self._alive)
        limited._until = until if self._until is None else min(until, self._until)
        return limited

    @property
    def spent(self) -> bool:
        """Whether trying again is not allowed any more."""
        if self._alive is not None and not self._alive():
            return True
        return self._until is not None and self._clock.steady() >= self._until

    async def pause(self) -> bool:
        """Wait a little; False if there is no point in trying again."""
        if self.spent:
            return False
        wait = self._pause * (0.5 + self._clock.random())
        self._pause = min(_LONGEST_PAUSE, self._pause * 2)
        if self._until is not None:
            wait = min(wait, max(0.0, self._until - self._clock.steady()))
        await asyncio.sleep(wait)
        return not self.spent
