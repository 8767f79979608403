"""What becomes of one key, state by state, for whoever waits for it. Owns no subscription: ``runs.follow`` does.

Events are told at most once, so they are only what makes it quick; what was missed is found by reading again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nats.aio.msg import Msg

from tenure.core.errors import TenureError
from tenure.nats.connection import Connection

if TYPE_CHECKING:
    from tenure.nats.runs import Found

_SOON_SECONDS = (0.5, 2.0)
"""When a cluster is asked once more. There results came exactly ``reread_seconds`` late now and then: an event was told to nobody.
Not seen happening, but likely: between members a read takes another connection than the subscription before it, and overtakes it."""


class Changes:
    """What ``follow`` yields: call ``next`` for one newer state after the other.

    States overwritten meanwhile may be skipped.
    """

    def __init__(self, read: Callable[[], Awaitable[Found]], decode: Callable[[Msg], Found], conn: Connection) -> None:
        self._read = read
        self._decode = decode
        self._reread_seconds = conn.config.reread_seconds
        self._soon = [min(seconds, self._reread_seconds) for seconds in _SOON_SECONDS if conn.is_clustered]
        self._queue: asyncio.Queue[Found | TenureError | None] = asyncio.Queue()
        self._queue.put_nowait(None)  # subscribed; now read
        self._newest = -1

    async def on_event(self, msg: Msg) -> None:
        """Take a repeated record in; one that cannot be read is raised by ``next``."""
        try:
            self._queue.put_nowait(self._decode(msg))
        except TenureError as error:
            self._queue.put_nowait(error)

    def look(self) -> None:
        """Events may have been missed, or no more will come (the connection is closed): read again."""
        self._queue.put_nowait(None)

    async def next(self) -> Found:
        """The next state, never older than one already returned.

        Raises NewerSchema for a record beyond this version, and what reading raises.
        """
        while True:
            item: Found | TenureError | None = None
            try:
                async with asyncio.timeout(self._soon[0] if self._soon else self._reread_seconds):
                    item = await self._queue.get()
            except TimeoutError:
                del self._soon[:1]
            if item is None:
                item = await self._read()
            if isinstance(item, TenureError):
                raise item
            if item.revision > self._newest:
                self._newest = item.revision
                return item
