"""Pulling: asks the lanes for as many wake-ups as there are free slots, and hands back at once what comes too much.

A lane that lately delivered is asked for every free slot; a quiet one for a single wake-up, so that it is heard at once
when something comes. Once two lanes are known to hold more than they brought, each is asked for its share only
(`core/shares`). What was asked for cannot be taken back, so an answer may come late and be one too many: a surplus goes
back with no delay, for whoever is free.

What a lane holds is known from its last message. Another worker may have taken it since: what a share does not bring
within 30 ms is not kept a slot for any longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tenure.core.errors import Unavailable
from tenure.core.shares import Line, Shares
from tenure.core.subjects import PRIORITIES
from tenure.nats.lane import Lane
from tenure.nats.patience import Patience
from tenure.nats.work import Delivery
from tenure.stores import Stores
from tenure.together import all_of
from tenure.worker.brink import Brink
from tenure.worker.handover import Desk

_REFILL_SECONDS = 0.002
"""Slots that come free within this time are asked for together: a pull request each would cost a tenth of a task."""


_LOOK_SECONDS = 0.01
_DRY_LOOKS = 3
"""What a lane was asked for and has not brought at so many looks is not there any more. Looks, since between two of them what has
arrived is read: a loop that was blocked for a while must not take its own delay for the lane's."""


class Puller:
    """The lanes of one worker.

    ``queues``: their weights; of one that ``is_paused`` nothing is pulled. ``slots``: how many runs at once, of which ``free``
    says how many more may be started now; ``start`` starts one.
    """

    def __init__(
        self,
        stores: Stores,
        queues: Mapping[str, int],
        *,
        desk: Desk,
        slots: int,
        is_paused: Callable[[str], bool],
        free: Callable[[], int],
        start: Callable[[Delivery], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_crash: Callable[[], None],
    ) -> None:
        self._stores = stores
        self._queues = queues
        self._desk = desk
        self.is_paused = is_paused
        """Whether nothing of a queue is to be pulled."""
        self._free = free
        self._start = start
        self._spawn = spawn
        self._on_crash = on_crash
        self._brink = Brink(
            stores,
            most=2 * slots,  # those that start together, and as many that follow them
            free=lambda: free() if self.pulling else 0,
            start=start,
            spawn=spawn,
            on_crash=on_crash,
        )
        self._shares = Shares(queues)
        self._lanes: dict[Lane, Line] = {}
        self._hot: set[Lane] = set()
        self._asked: dict[Lane, int] = {}
        self._dry_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.pulling = False
        """Whether wake-ups are taken in. Set to False at the drain signal, before the lanes are closed."""

    async def open(self, stopping: asyncio.Event) -> None:
        """Open every lane and begin to pull, unless a drain signal came meanwhile. Raises Unavailable."""
        await self._desk.open(self._take)  # first: what the lanes ask of the server shows that it has taken this in
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
                self._lanes[lane] = self._shares.line(queue, priority)
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
        for timer in (self._timer, self._dry_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._dry_timer = None
        await self._brink.close()
        lanes, self._lanes = self._lanes, {}
        for line in lanes.values():
            self._shares.waits(line, 0)
        self._hot.clear()
        self._asked.clear()
        await self._desk.close()
        for lane in lanes:
            await lane.close()

    async def tend(self) -> None:
        """Called every second: lanes that went silent start afresh, lanes that went quiet are asked for less."""
        lanes = list(self._lanes)
        await all_of(*(lane.tend() for lane in lanes))  # together: each may wait for an election
        for lane in lanes:
            if lane not in self._hot:
                lane.wanted = min(lane.wanted, 1)
        self._hot.clear()
        await self._refill()

    def refill_soon(self) -> None:
        """A slot came free."""
        self._brink.go_on()
        self._refill_soon()

    def _refill_soon(self) -> None:
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
        pulled = {lane: line for lane, line in self._lanes.items() if not self.is_paused(lane.queue)}
        for lane in self._lanes.keys() - pulled.keys():
            self._shares.waits(self._lanes[lane], 0)
            lane.wanted = 0
        if self._shares.contended:
            await self._share_out(free, pulled)
            return
        for lane, line in pulled.items():
            await lane.want(free if (lane in self._hot or line.waiting) and not self._brink.is_full else 1)

    async def _share_out(self, free: int, pulled: Mapping[Lane, Line]) -> None:
        self._see_asked()
        given = self._shares.allot(free)
        for lane, line in pulled.items():
            more = given.get(line)
            if more is None:
                await lane.want(1)
            elif more:
                self._asked[lane] = 0
                await lane.want(lane.outstanding + more)
            elif lane.outstanding:  # asked for while it was alone: slots are kept for that too
                self._asked.setdefault(lane, 0)
        self._look_for_dry()

    def _see_asked(self) -> None:
        for lane, line in self._lanes.items():
            line.asked = lane.outstanding

    def _look_for_dry(self) -> None:
        if self._asked and self._dry_timer is None and self.pulling:
            self._dry_timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._find_dry)

    def _find_dry(self) -> None:
        """Give slots away that are kept for what does not come."""
        self._dry_timer = None
        for lane, looks in list(self._asked.items()):
            self._asked[lane] = looks + 1
            if not lane.outstanding or looks + 1 >= _DRY_LOOKS:
                del self._asked[lane]
            if lane.outstanding and looks + 1 >= _DRY_LOOKS:
                self._shares.waits(self._lanes[lane], 0)
                self._refill_soon()
        self._look_for_dry()

    async def _received(self, lane: Lane, delivery: Delivery) -> None:
        if lane not in self._hot:
            self._hot.add(lane)
            self._refill_soon()
        line = self._lanes.get(lane)
        if line is None or not self.pulling or self.is_paused(lane.queue):
            await self._stores.work.nak(delivery.reply)
            return
        if lane in self._asked:
            self._asked[lane] = 0
        if self._shares.contended:
            self._see_asked()
        free = self._free()
        if not self._shares.brings(line, delivery.pending, free, again=delivery.deliveries > 1):
            await self._stores.work.nak(delivery.reply)
            return
        if self._shares.contended or not self._brink.keeps(delivery):
            await self._start(delivery)
        left = self._free()
        if left < free:
            self._shares.took(line)
        # Foreign, or in hand already: no slot comes free that would ask for the next. Or a share turned out to be larger.
        if left == free or (left and line.waiting > lane.outstanding and self._shares.contended):
            self._refill_soon()

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
        """Whether nothing waits, but in queues that are paused, and nothing is unanswered; False while that is not known."""
        try:
            return self.pulling and all(
                pair == (0, 0) or self.is_paused(queue) for queue, pair in (await self.pending()).items()
            )
        except Unavailable:
            return False

    @property
    def deaf(self) -> list[str]:
        """Lanes on which the server was not heard lately."""
        return [f"{lane.queue}/{lane.priority}" for lane in self._lanes if not lane.alive]
