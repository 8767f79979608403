"""What a client still does for callers that went away in the middle.

A caller is cancelled (a timeout, a closed request) between its write and the effects of it, or while the write is on its way. Nobody
crashed, so nobody else would do what the record may now owe: the client finishes it in the background.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from tenure.core.errors import TenureError
from tenure.core.records import TERMINAL, Phase, Record
from tenure.stores import Stores

_CLOSE_SECONDS = 2.0
"""How long ``close`` waits for what is not finished yet."""


class Afterwards:
    """Unfinished writes of one client."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def finish(self, stores: Stores, key: str, shows: Callable[[Record | None], bool]) -> None:
        """Do what the record of ``key`` owes, until it ``shows`` the caller's write or that can no longer arrive."""
        task = asyncio.create_task(_finish(stores, key, shows))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait a little for what is under way, then give it up."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
        for task in self._tasks:
            task.cancel()


async def _finish(stores: Stores, key: str, shows: Callable[[Record | None], bool]) -> None:
    patience = stores.runs.patience()
    with contextlib.suppress(TenureError):
        while True:
            found = await stores.runs.read(key, patience, blind=True)  # who cannot read it tells its body all the same
            await stores.complete(found, patience)
            if shows(found.record) or not await patience.pause():
                return


def is_told(run_id: str, record: Record | None) -> bool:
    """Whether the run needs no cancel any more: it is stopping, over, superseded or gone."""
    return record is None or record.run_id != run_id or record.phase is Phase.STOPPING or record.phase in TERMINAL


def is_due(run_id: str, now: Callable[[], float], record: Record | None) -> bool:
    """Whether the run needs no trigger any more: it may start by now, has started, or is over, superseded or gone."""
    return record is None or record.run_id != run_id or record.phase is not Phase.WAITING or record.due <= now()
