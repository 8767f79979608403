"""Attempts whose handling ended in the middle, by a defect of ours or without the server, while their session went on.

One that still holds its key is taken over by the next delivery of its wake-up to this process. One that was superseded
meanwhile may have no such delivery: another process has answered its wake-up, which cannot tell that its body is gone.
Its own process can, and so it is the one that takes it out of ``previous``.
"""

from __future__ import annotations

import asyncio

from tenure.core.errors import TenureError
from tenure.core.records import Holder
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tenure.telemetry import get_logger
from tenure.worker.table import Table
from tenure.worker.tail import Tail

_log = get_logger("tenure.worker")
_LOOK_SECONDS = 2.0


class Remnants:
    """Those of one worker."""

    def __init__(self, stores: Stores, table: Table) -> None:
        self._stores = stores
        self._table = table
        self._tail = Tail(stores)

    async def run(self) -> None:
        """Look after them, without an end."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Once at each."""
        for holder, key in self._table.remnants():
            try:
                if await self._is_over(holder, key):
                    self._table.forget_remnant(holder)
            except TenureError as error:
                _log.warning("remnant.not_settled", key=key, run_id=holder.run_id, error=str(error))

    async def _is_over(self, holder: Holder, key: str) -> bool:
        patience = Patience(self._stores.clock, self._stores.config.patience_seconds)
        record = (await self._stores.runs.read(key, patience)).record
        if record is None or record.holder == holder:
            return record is None
        if any(entry.holder() == holder for entry in record.previous):
            await self._tail.confirm(key, holder, patience)
        return True
