"""Pulling: asks the lanes for as many wake-ups as there are free slots, and hands back at once what comes too much.

A lane that lately delivered is asked for every free slot; a quiet one for a single wake-up, so that it is heard at once
when something comes. With several lanes busy more may arrive than there are slots: a surplus goes back with no delay,
for whoever is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tenure.core.errors import Unavailable
from tenure.core.subjects import PRIORITIES
from tenure.nats.lane import Lane
from tenure.nats.patience import Patience
from tenure.nats.work import Delivery
from tenure.stores import Stores
from tenure.worker.handover import Desk

_REFILL_SECONDS = 0.002
"""Slots that come free within this time are asked for together: a pull request each would cost a tenth of a task."""


class Puller:
    """The lanes of one worker. ``free`` says how many more runs may be started now; ``start`` starts one."""

    def __init__(
        self,
        stores: Stores,
        queues: list[str],
        *,
        desk: Desk,
        free: Callable[[], int],
        start: Callable[[Delivery], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_crash: Callable[[], None],
    ) -> None:
        self._stores = stores
        self._queues = queues
        self._desk = desk
        self._free = free
        self._start = start
        self._spawn = spawn
        self._on_crash = on_crash
        self._lanes: list[Lane] = []
        self._hot: set[Lane] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.pulling = False
        """Whether wake-ups are taken in. Set to False at the drain signal, before the lanes are closed."""

    async def open(self, stopping: asyncio.Event) -> None:
        """Open every lane and begin to pull, unless a drain signal came meanwhile. Raises Unavailable."""
        for queue in self._queues:
            for priority in PRIORITIES:
                lane = Lane(
                    self._stores.conn,
                    self._stores.names,
                    self._stores.work,
                    queue=queue,
                    priority=priority,
                    clock=self._stores.clock,
                    on_delivery=self._received,
                    on_crash=self._on_crash,
                )
                await self._open(lane)
                self._lanes.append(lane)
        await self._desk.open(self._take)
        self.pulling = not stopping.is_set()
        await self._refill()

    async def _open(self, lane: Lane) -> None:
        """An answer that gets lost while it starts is no reason to end a worker."""
        patience = Patience(self._stores.clock, self._stores.config.patience_seconds)
        while True:
            try:
                await lane.open()
            except Unavailable:
                if not await patience.pause():
                    raise
            else:
                return

    async def close(self) -> None:
        """Close every lane; what was under way is handed back before this returns."""
        self.pulling = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lanes, self._lanes = self._lanes, []
        self._hot.clear()
        await self._desk.close()
        for lane in lanes:
            await lane.close()

    async def tend(self) -> None:
        """Called every second: lanes that went silent start afresh, lanes that went quiet are asked for less."""
        lanes = list(self._lanes)
        await asyncio.gather(*(lane.tend() for lane in lanes))  # together: each may wait for an election
        for lane in lanes:
            if lane not in self._hot:
                lane.wanted = min(lane.wanted, 1)
        self._hot.clear()
        await self._refill()

    def refill_soon(self) -> None:
        """A slot came free."""
        if self.pulling and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_REFILL_SECONDS, self._refill_now)

    def _refill_now(self) -> None:
        self._timer = None
        if self.pulling:
            self._spawn(self._refill())

    async def _refill(self) -> None:
        free = self._free()
        if free <= 0 or not self.pulling:
            return
        for lane in self._lanes:
            await lane.want(free if lane in self._hot else 1)

    async def _received(self, lane: Lane, delivery: Delivery) -> None:
        if lane not in self._hot:
            self._hot.add(lane)
            self.refill_soon()
        free = self._free()
        if self.pulling and free > 0:
            await self._start(delivery)
            if self._free() == free:  # foreign, or in hand already: no slot comes free that would ask for the next
                self.refill_soon()
        else:
            await self._stores.work.nak(delivery.reply)

    async def _take(self, delivery: Delivery) -> bool:
        """Start what another worker offers, in a slot that is free now: what was pulled for that slot is a surplus then."""
        if not self.pulling or self._free() <= 0:
            return False
        await self._start(delivery)
        return True

    async def pending(self) -> dict[str, tuple[int, int]]:
        """(not yet delivered, not yet answered) of each queue. Raises Unavailable."""
        totals: dict[str, tuple[int, int]] = {}
        for queue in self._queues:
            counts = [await self._stores.work.pending(queue, priority) for priority in PRIORITIES]
            totals[queue] = (sum(waiting for waiting, _ in counts), sum(unanswered for _, unanswered in counts))
        return totals

    async def idle(self) -> bool:
        """Whether nothing waits and nothing is unanswered; False while that cannot be found out."""
        try:
            return self.pulling and all(pair == (0, 0) for pair in (await self.pending()).values())
        except Unavailable:
            return False

    @property
    def deaf(self) -> list[str]:
        """Lanes on which the server was not heard lately."""
        return [f"{lane.queue}/{lane.priority}" for lane in self._lanes if not lane.alive]
