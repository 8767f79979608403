"""What becomes of one key, state by state, for whoever waits for it. Owns no subscription: ``runs.follow`` does.

Events are told at most once, so they are only what makes it quick; what was missed is found by reading again.
"""

from __future__ import annotations

import asyncio
from collections import deque
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
_SURE_SECONDS = 10.0
"""How long a key must have been found gone, or older than it was: longer than any election."""
_DOUBT_SECONDS = 1.0
"""Until then it is asked as often as this."""
_FRESH_SECONDS = 0.002
"""How long a run that was started just now has for its first event. Mostly it comes, and whoever waits need not read at all."""


class Changes:
    """What ``follow`` yields: call ``next`` for one newer state after the other, from one task at a time.

    States overwritten meanwhile may be skipped.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Found]],
        decode: Callable[[Msg], Found],
        conn: Connection,
        *,
        fresh: bool,
        since: int = 0,
    ) -> None:
        """``since``: a revision that the key is known to have had."""
        self._read = read
        self._decode = decode
        self._loop = asyncio.get_running_loop()
        self._reread_seconds = conn.config.reread_seconds
        self._soon = [min(seconds, self._reread_seconds) for seconds in _SOON_SECONDS if conn.is_clustered]
        self._news: deque[Found | TenureError | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        if fresh:
            self._timer = self._loop.call_later(_FRESH_SECONDS, self.look)
        else:
            self._news.append(None)  # subscribed; now read
        self._newest, self._since = -1, since
        self._gone_since: float | None = None

    async def on_event(self, msg: Msg) -> None:
        """Take a repeated record in; one that cannot be read is raised by ``next``."""
        try:
            self._put(self._decode(msg))
        except TenureError as error:
            self._put(error)

    def look(self) -> None:
        """Events may have been missed, or no more will come (the connection is closed): read again."""
        self._put(None)

    def close(self) -> None:
        """Nobody calls ``next`` any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _put(self, item: Found | TenureError | None) -> None:
        self._news.append(item)
        if self._timer is not None:  # whatever it is, it is newer than what a read would have been for
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _look_again(self) -> None:
        del self._soon[:1]
        self.look()

    async def next(self) -> Found:
        """The next state, never older than one already returned.

        Raises NewerSchema for a record beyond this version, and what reading raises.
        """
        while True:
            if not self._news:
                await self._wait()
            item = self._news.popleft()
            was_read = item is None
            if item is None:
                item = await self._read()
            if isinstance(item, TenureError):
                raise item
            if self._is_newer(item, was_read=was_read):
                self._newest = item.revision
                return item

    def _is_newer(self, found: Found, *, was_read: bool) -> bool:
        if found.revision >= max(self._newest, self._since):
            self._gone_since = None
            return found.revision > self._newest
        if not was_read:  # an event that comes late
            return False
        # Nothing is there any more, not even a mark, or what was there before: it was over and has expired, or the bucket was made
        # anew; or the leader that says so is none any more.
        now = self._loop.time()
        self._gone_since = now if self._gone_since is None else self._gone_since
        if now - self._gone_since < _SURE_SECONDS:
            return False
        self._since = 0
        return True

    async def _wait(self) -> None:
        if self._timer is None:
            seconds = self._soon[0] if self._soon else self._reread_seconds
            if self._gone_since is not None:
                seconds = min(seconds, _DOUBT_SECONDS)
            self._timer = self._loop.call_later(seconds, self._look_again)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
