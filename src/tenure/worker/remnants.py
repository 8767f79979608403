"""Attempts whose handling ended in the middle, by a defect of ours or without the server, while their session went on.

One that still holds its key is taken over by the next delivery of its wake-up to this process: nobody else can tell that
no body of it runs, or that a claim without an answer was stored at all. Of ten workers each is the next one in ten times,
and they wait ever longer in between; so this process looks again at the delivery that it had [47]. One that was superseded
meanwhile may have no such delivery: another process has answered its wake-up. So its own process takes it out of ``previous``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from tenure.core.errors import TenureError
from tenure.core.policy import second_look
from tenure.core.records import Holder
from tenure.nats.patience import Patience
from tenure.nats.work import Delivery
from tenure.stores import Stores
from tenure.telemetry import get_logger
from tenure.worker.table import Table
from tenure.worker.tail import Tail

_log = get_logger("tenure.worker")
_LOOK_SECONDS = 2.0
_CALM = 4
"""A defect may come each time: the pause after it begins with that of so many looks more, 1.6 s, and doubles."""


class Remnants:
    """Those of one worker. ``free`` and ``start`` as of the puller."""

    def __init__(
        self,
        stores: Stores,
        table: Table,
        *,
        free: Callable[[], int],
        start: Callable[[Delivery], Coroutine[Any, Any, None]],
    ) -> None:
        self._stores = stores
        self._table = table
        self._free = free
        self._start = start
        self._tail = Tail(stores)
        self._unheard: dict[str, tuple[float, Delivery]] = {}
        self._due: dict[str, Delivery] = {}
        self.overdue = False
        """Whether some found no slot at the last look: the next one that comes free is theirs, and not what is pulled."""

    def gave_up(self, run_id: str, delivery: Delivery, *, crashed: bool = False) -> None:
        """A delivery whose handling ended without the server, or (``crashed``) by a defect: what was asked of it may be stored.

        It waits for a look, slot or not: a defect that comes at once must not be met again at once.
        """
        longest = self._stores.config.ack_wait_seconds
        pause = second_look(delivery.deliveries + _CALM, longest) if crashed else 0.0
        again = replace(delivery, found=None, deliveries=delivery.deliveries + 1)
        self._unheard[run_id] = self._stores.clock.steady() + pause, again

    async def run(self) -> None:
        """Look after them, without an end."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Once at each."""
        now = self._stores.clock.steady()
        for run_id in [run_id for run_id, (due, _) in self._unheard.items() if due <= now]:
            self._due[run_id] = self._unheard.pop(run_id)[1]
        await self.start()
        await self._settle()

    async def start(self) -> None:
        """Those that are due, as far as there are slots."""
        while self._due and self._free() > 0:
            run_id = next(iter(self._due))
            delivery = self._due.pop(run_id)
            if self._table.get(run_id) is None:  # else it has come again
                await self._start(delivery)
        self.overdue = bool(self._due)

    async def _settle(self) -> None:
        for holder, key, claim in self._table.remnants():
            try:
                if await self._is_over(holder, key, claim):
                    self._table.forget_remnant(holder)
            except TenureError as error:
                _log.warning("remnant.not_settled", key=key, run_id=holder.run_id, error=str(error))

    async def _is_over(self, holder: Holder, key: str, claim: int) -> bool:
        patience = Patience(self._stores.clock, self._stores.config.patience_seconds)
        found = await self._stores.runs.read_on(key, claim, patience)
        record = found.record
        if record is None or record.holder == holder:
            return record is None
        if any(entry.holder() == holder for entry in record.previous):
            await self._tail.confirm(key, holder, patience, since=found.revision)
        return True
