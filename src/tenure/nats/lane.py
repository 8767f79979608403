"""A lane: the continuous pull of one durable consumer (one queue, one priority; or the inbox).

Owns how many messages are asked for and not yet here (``outstanding``). Pulls overlap on one inbox, so a freed slot is
asked for at once. The server's idle heartbeats tell a quiet lane from a dead one; a reconnect or two missed heartbeats
start it afresh. What a forgotten pull still delivers is handled like any other message: a wake-up too many is harmless.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from tenure.clock import Clock
from tenure.core.errors import Unavailable
from tenure.core.subjects import Names
from tenure.nats.connection import Connection
from tenure.nats.work import Delivery, Work
from tenure.telemetry import get_logger

_QUIET_SECONDS = 0.02
_BURST_SECONDS = 2.0
OnCrash = Callable[[], None]
_log = get_logger("tenure.lane")
_IDLE, _NOT_FOUND, _TIMEOUT, _CONFLICT, _NO_RESPONDERS = "100", "404", "408", "409", "503"


class Pull(ABC):
    """Pulls from one consumer of a stream.

    ``on_crash`` is told, in its ``except`` block, what went wrong unexpectedly: nats-py would keep that to itself. The lane
    then starts afresh.
    """

    def __init__(self, conn: Connection, *, clock: Clock, stream: str, consumer: str, on_crash: OnCrash) -> None:
        self.outstanding = 0
        self.wanted = 0
        self._conn = conn
        self._clock = clock
        self._on_crash = on_crash
        self._consumer = consumer
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = conn.new_inbox()
        self._subscription: Subscription | None = None
        self._heard_at = 0.0
        self._broken = False
        self._down = False
        self._off: list[Callable[[], None]] = []

    @abstractmethod
    async def _ensure_consumer(self) -> None:
        """Create the consumer if need be. Raises Unavailable."""

    @abstractmethod
    async def _deliver(self, msg: Msg) -> None:
        """Hand a message on; it must neither block nor ask the server anything."""

    async def open(self) -> None:
        """Create the consumer if need be and listen. Nothing is pulled before ``want``."""
        await self._ensure_consumer()
        self._subscription = await self._conn.listen(self._inbox, self._received)
        self._heard_at = self._clock.steady()
        self._off = [self._conn.on_reconnect(self._restart), self._conn.on_disconnect(self._forget)]

    async def close(self) -> None:
        """Stop listening.

        The server drops what was asked for; what it had sent is still delivered before this returns.
        """
        offs, self._off = self._off, []
        for off in offs:
            off()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await self._until_quiet()
            await self._conn.drain(subscription)  # what is already on its way is handed back, not left to ack_wait
        self.outstanding = self.wanted = 0

    async def _until_quiet(self) -> None:
        """Let a burst that was asked for arrive: what the server is about to send to nobody waits for ``ack_wait``."""
        until = self._clock.steady() + _BURST_SECONDS
        while self.outstanding and self._conn.is_connected:
            now = self._clock.steady()
            if now - self._heard_at >= _QUIET_SECONDS or now >= until:
                return
            await asyncio.sleep(_QUIET_SECONDS)

    @property
    def alive(self) -> bool:
        """Whether the server was heard lately: `ready` asks this."""
        quiet = self._clock.steady() - self._heard_at
        return self._conn.is_connected and not self._broken and quiet < self._patience

    @property
    def _patience(self) -> float:
        return 2.5 * self._conn.config.idle_heartbeat_seconds

    async def want(self, number: int) -> None:
        """Have ``number`` messages outstanding: ask for the rest. Never takes back what was asked for."""
        self.wanted = number
        more = number - self.outstanding
        if more <= 0 or not self._conn.is_connected or self._broken or self._subscription is None:
            return
        if not self.outstanding:
            self._heard_at = self._clock.steady()
        self.outstanding += more
        config = self._conn.config
        body = {
            "batch": more,
            "expires": int(config.pull_expires_seconds * 1e9),
            "idle_heartbeat": int(config.idle_heartbeat_seconds * 1e9),
        }
        await self._conn.publish(self._subject, msgspec.json.encode(body), reply=self._inbox)

    async def tend(self) -> None:
        """Called every second or so: start afresh if the server has been silent for too long."""
        if self._broken:
            await self._restart()
        if not self.outstanding or not self._conn.is_connected:
            self._heard_at = self._clock.steady()
        elif self._clock.steady() - self._heard_at > self._patience:
            _log.warning("lane.silent", consumer=self._consumer)
            await self._restart()

    def _forget(self) -> None:
        self.outstanding = 0

    async def _restart(self) -> None:
        """The consumer may be gone (a server restart with memory storage, a deletion).

        Make sure of it, then ask again.
        """
        self.outstanding = 0
        try:
            await self._ensure_consumer()
        except Unavailable as error:
            if not self._down:  # once: it is tried again every second
                _log.warning("lane.broken", consumer=self._consumer, error=str(error))
            self._broken = self._down = True
            return
        self._broken = self._down = False
        self._heard_at = self._clock.steady()
        await self.want(self.wanted)

    async def _received(self, msg: Msg) -> None:
        try:
            await self._take(msg)
        except Exception:  # noqa: BLE001  (whatever it is: what is outstanding is not known any more)
            self._broken = True
            self._on_crash()

    async def _take(self, msg: Msg) -> None:
        self._heard_at = self._clock.steady()
        headers = msg.headers
        if headers is not None and not msg.reply and "Status" in headers:
            await self._status(headers["Status"], headers)
            return
        if self.outstanding:
            self.outstanding -= 1
        if self.wanted:
            self.wanted -= 1
        await self._deliver(msg)

    async def _status(self, status: str, headers: dict[str, str]) -> None:
        if status == _IDLE:
            return
        if status in {_TIMEOUT, _CONFLICT, _NOT_FOUND}:
            self.outstanding -= min(self.outstanding, int(headers.get("Nats-Pending-Messages", "0")))
            if status == _CONFLICT:
                _log.info("lane.refused", consumer=self._consumer, reason=headers.get("Description", ""))
                if "Nats-Pending-Messages" not in headers:
                    self._broken = True  # consumer deleted, leadership change: `tend` starts afresh
                    return
            await self.want(self.wanted)
        elif status == _NO_RESPONDERS:
            self._broken = True


class Lane(Pull):
    """The pull of one queue and priority. ``on_delivery`` gets each message; it must not block. ``on_crash``: see ``Pull``."""

    def __init__(
        self,
        conn: Connection,
        names: Names,
        work: Work,
        *,
        clock: Clock,
        queue: str,
        priority: str,
        on_delivery: Callable[[Lane, Delivery], Awaitable[None]],
        on_crash: OnCrash = lambda: None,
    ) -> None:
        super().__init__(
            conn,
            clock=clock,
            stream=names.work_stream,
            consumer=names.consumer(queue, priority),
            on_crash=on_crash,
        )
        self.queue = queue
        self.priority = priority
        self._work = work
        self._on_delivery = on_delivery

    async def _ensure_consumer(self) -> None:
        await self._work.ensure_consumer(self.queue, self.priority)

    async def _deliver(self, msg: Msg) -> None:
        await self._on_delivery(self, self._work.open(msg))
