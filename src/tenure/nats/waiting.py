"""Requests that wait for their answers, and when one counts as lost.

Owns the future of each request in flight. A body that blocks the loop makes every timer late, and then the answer is often
there, unread: what came meanwhile is read before an answer is missed.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Mapping

import msgspec

from tenure.core.errors import TenureError

_LATE_SECONDS = 0.2
"""A timer that is later than that was kept by whoever blocked the loop."""
_READ_SECONDS = 0.05


class Lost(TenureError):
    """The request may or may not have happened, or may still."""


class Answer(msgspec.Struct, frozen=True):
    """What came back for a request."""

    data: bytes
    headers: Mapping[str, str] | None = None


class Waiting:
    """Futures by token. Those with the usual limit, ``seconds``, share one timer: one each costs a tenth of a CAS."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._tokens = itertools.count()
        self._futures: dict[bytes, asyncio.Future[Answer]] = {}
        self._ages: deque[tuple[float, bytes]] = deque()
        self._reaper: asyncio.TimerHandle | None = None

    def add(self, timeout: float | None) -> tuple[bytes, asyncio.Future[Answer], asyncio.TimerHandle | None]:
        """A token, the future of its answer (Lost once its time is over), and its own timer, if it has one, to be cancelled."""
        token = b"%d" % next(self._tokens)
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._futures[token] = future
        if timeout is not None:
            until = self._loop.time() + timeout
            return token, future, self._loop.call_at(until, self._give_up, token, until)
        self._ages.append((self._loop.time() + self._seconds, token))
        if self._reaper is None:
            self._reap_at(self._ages[0][0])
        return token, future, None

    def forget(self, token: bytes) -> None:
        """Nobody waits for it any more."""
        self._futures.pop(token, None)

    def resolve(self, token: bytes, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Its answer has come."""
        future = self._futures.get(token)
        if future is not None and not future.done():
            future.set_result(Answer(data, headers))

    def fail_all(self, why: str) -> None:
        """No answer will come to any of them."""
        for future in self._futures.values():
            if not future.done():
                future.set_exception(Lost(why))

    def close(self) -> None:
        """``fail_all``, and no timer is left."""
        self.fail_all("the connection was closed")
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None

    def _reap_at(self, when: float) -> None:
        self._reaper = self._loop.call_at(when, self._reap, when)

    def _reap(self, due: float) -> None:
        """Give up on those whose time is over: they stand in the order of their deadlines, answered ones are passed."""
        now = self._loop.time()
        self._reaper = None
        if now - due > _LATE_SECONDS:
            self._reaper = self._loop.call_later(_READ_SECONDS, self._reap, math.inf)
            return
        while self._ages:
            deadline, token = self._ages[0]
            if token in self._futures and deadline > now:
                self._reap_at(deadline)
                return
            self._ages.popleft()
            self._give_up(token)

    def _give_up(self, token: bytes, due: float = math.inf) -> None:
        future = self._futures.get(token)
        if future is None or future.done():
            return
        if self._loop.time() - due > _LATE_SECONDS:
            self._loop.call_later(_READ_SECONDS, self._give_up, token)
            return
        future.set_exception(Lost("no answer in time"))
