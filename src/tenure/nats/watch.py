"""An ordered watch over a bucket.

Every entry once, then every change, live again about a second after a server restart.

Owns one ephemeral consumer at a time, by a name of its own, and deletes it when it starts over: reconnects leak no
consumers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from tenure.clock import here
from tenure.nats.acks import parse_ack
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.telemetry import get_logger

_HEARTBEAT_SECONDS = 1.0
_MISSED = 2.5
_INACTIVE_SECONDS = 30
_log = get_logger("tenure.watch")


class Watch:
    """Calls ``on_message`` for the latest message of each subject of ``filter_subject`` and then for each new one, in order."""

    def __init__(
        self, conn: Connection, stream: str, filter_subject: str, on_message: Callable[[Msg], Awaitable[None]]
    ) -> None:
        self._conn = conn
        self._steady = here().steady
        self._stream = stream
        self._filter = filter_subject
        self._on_message = on_message
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._left: list[str] = []
        self._next_delivery = 1
        self._last_sequence = 0
        self._heard_at = 0.0
        self._created = ""
        self._refusal = ""
        self._failure: Exception | None = None
        self._restart = asyncio.Event()
        self._live = asyncio.Event()

    async def run(self, live: asyncio.Event | None = None) -> None:
        """Watch until cancelled. ``live`` is set while all that was stored is delivered and what comes will be."""
        self._live = live or self._live
        off = self._conn.on_reconnect(self._restart.set)
        try:
            while True:
                self._restart.clear()
                self._live.clear()
                if not await self._start():
                    await asyncio.sleep(0.25)
                    continue
                await self._until_broken()
                if self._failure is not None:
                    raise self._failure
        finally:
            self._live.clear()
            off()
            await self._stop()

    async def _until_broken(self) -> None:
        while not self._restart.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_SECONDS):
                    await self._restart.wait()
            if self._steady() - self._heard_at > _MISSED * _HEARTBEAT_SECONDS and self._conn.is_connected:
                _log.warning("watch.silent", stream=self._stream)
                return

    async def _start(self) -> bool:
        await self._conn.wait_connected()
        await self._stop()
        if not await self._find_stream():
            return False
        inbox = self._conn.new_inbox()
        self._consumer = "w" + inbox.rpartition(".")[2]
        self._next_delivery = 1
        self._subscription = await self._conn.subscribe(inbox, self._received)
        config: dict[str, object] = {
            "name": self._consumer,
            "deliver_subject": inbox,
            "filter_subject": self._filter,
            "ack_policy": "none",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "idle_heartbeat": int(_HEARTBEAT_SECONDS * 1e9),
            "inactive_threshold": _INACTIVE_SECONDS * 1_000_000_000,
            "deliver_policy": "last_per_subject",
        }
        if self._last_sequence:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": self._last_sequence + 1}
        call = f"CONSUMER.CREATE.{self._stream}.{self._consumer}.{self._filter}"
        try:
            answer = await self._conn.api(call, {"stream_name": self._stream, "config": config})
        except (NotSent, Lost) as error:
            _log.debug("watch.not_started", stream=self._stream, error=str(error))
            return False
        self._heard_at = self._steady()
        if isinstance(answer, ApiError):
            self._refused(answer.description)
            return False
        self._refusal = ""
        if not answer.get("num_pending"):
            self._live.set()
        return True

    def _refused(self, why: str) -> None:
        if why != self._refusal:  # once: it is tried again four times a second
            _log.warning("watch.refused", stream=self._stream, error=why)
        self._refusal = why

    async def _find_stream(self) -> bool:
        """Look whether the stream is there, and still the same: one made anew begins at 1, and so must the watch."""
        try:
            info = await self._conn.api(f"STREAM.INFO.{self._stream}", {})
        except (NotSent, Lost) as error:
            _log.debug("watch.not_started", stream=self._stream, error=str(error))
            return False
        if isinstance(info, ApiError):
            self._refused(info.description)
            return False
        if info["created"] != self._created:
            self._created, self._last_sequence = info["created"], 0
        return True

    async def _stop(self) -> None:
        """Delete what was made. What could not be deleted, because the connection broke again, is kept for the next time."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._left.append(self._consumer)
            await self._conn.unsubscribe(subscription)
        while self._left and self._conn.is_connected:
            try:
                await self._conn.api(f"CONSUMER.DELETE.{self._stream}.{self._left[0]}", {}, timeout=0.5)
            except (NotSent, Lost):
                return
            del self._left[0]

    async def _received(self, msg: Msg) -> None:
        self._heard_at = self._steady()
        if msg.headers is not None and "Status" in msg.headers:
            if "Nats-Last-Consumer" in msg.headers and int(msg.headers["Nats-Last-Consumer"]) >= self._next_delivery:
                self._restart.set()
            return
        ack = parse_ack(msg.reply)
        if ack is None or ack.consumer != self._consumer:
            return
        if ack.consumer_sequence != self._next_delivery:
            self._restart.set()
            return
        self._next_delivery += 1
        self._last_sequence = ack.stream_sequence
        try:
            await self._on_message(msg)
        except Exception as error:  # noqa: BLE001  (nats-py would keep it to itself; ``run`` raises it)
            self._failure = error
            self._restart.set()
            return
        if not ack.pending:
            self._live.set()
