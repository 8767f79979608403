"""Wake-ups that are due in a moment: kept in hand, so that their runs start at their due time and not some time after it.

Whoever hands a wake-up back until it is due asks for it ``EARLY`` seconds before. What comes so soon before its due takes no
slot and no claim, only room here; at its due it is started like any delivery, so the head check decides as ever. What has
no slot by then follows as slots come free; what has none so long after its due goes back, for whoever is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from itertools import count
from typing import Any

from tenure.core.policy import EARLY
from tenure.nats.work import Delivery
from tenure.stores import Stores

_ROUNDED_SECONDS = 0.0005
"""uvloop's timers go by whole milliseconds, and half of them would be early."""


def due_of(delivery: Delivery) -> float | None:
    """When its run is due, if the delivery tells; None: the record must be read, or a later submit may have moved it on."""
    record = delivery.found.record if delivery.found is not None else None
    return None if record is None or record.settling is not None else record.due


def rest_of(delivery: Delivery, delay: float) -> float:
    """After how many seconds a wake-up that is not due for ``delay`` is asked for again."""
    return delay - EARLY if delay > EARLY and due_of(delivery) is not None else delay


class Brink:
    """What one worker keeps: ``most`` at once. ``free`` and ``start`` as of the puller; ``start`` may hand back itself."""

    def __init__(
        self,
        stores: Stores,
        *,
        most: int,
        free: Callable[[], int],
        start: Callable[[Delivery], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_crash: Callable[[], None],
    ) -> None:
        self._stores = stores
        self._most = most
        self._free = free
        self._start = start
        self._spawn = spawn
        self._on_crash = on_crash
        self._held: list[tuple[float, int, Delivery]] = []
        self._turns = count()
        self._timer: asyncio.TimerHandle | None = None
        self._going = False

    @property
    def is_full(self) -> bool:
        """Whether there is no room for one more."""
        return len(self._held) >= self._most

    def keeps(self, delivery: Delivery) -> bool:
        """Take in what is due in a moment; False if that is something else, or there is no room."""
        due = due_of(delivery)
        if due is None or self.is_full or not 0.0 < due - self._stores.clock.now() <= EARLY:
            return False
        heappush(self._held, (due, next(self._turns), delivery))
        if self._held[0][2] is delivery:
            self._arm()
        return True

    def go_on(self) -> None:
        """A slot came free."""
        if self._held and self._held[0][0] <= self._stores.clock.now():
            self._wake()

    async def close(self) -> None:
        """Hand everything back."""
        self._disarm()
        held, self._held = self._held, []
        for _, _, delivery in held:
            await self._stores.work.nak(delivery.reply)

    def _arm(self) -> None:
        self._disarm()
        if self._held:
            left = self._held[0][0] - self._stores.clock.now()
            if left <= 0.0 and self._free() <= 0:
                left += EARLY  # a slot that comes free calls; else it goes back by then
            self._timer = asyncio.get_running_loop().call_later(max(0.0, left) + _ROUNDED_SECONDS, self._wake)

    def _wake(self) -> None:
        if not self._going:
            self._going = True
            self._spawn(self._go())

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _go(self) -> None:
        try:
            while self._held:
                late = self._stores.clock.now() - self._held[0][0]
                if late >= 0.0 and self._free() > 0:
                    await self._start(heappop(self._held)[2])
                elif abs(late) > EARLY:  # or the clock was set
                    await self._stores.work.nak(heappop(self._held)[2].reply)
                else:
                    break
        except Exception:  # noqa: BLE001  (nobody looks at a task's end; the message comes again)
            self._on_crash()
        finally:
            self._going = False
        self._arm()
