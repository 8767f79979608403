"""Who waits for messages of a consumer that is asked for them."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from tenure.nats.memory.stored import SECOND, write_fields

if TYPE_CHECKING:
    from tenure.nats.memory.consumer import Consumer


class Ask(msgspec.Struct):
    """The body of a pull; durations in nanoseconds."""

    batch: int = 1
    expires: int = 0
    no_wait: bool = False
    idle_heartbeat: int = 0


class Pull(msgspec.Struct, eq=False):
    """One pull that is not served in full; times by the loop, 0: never."""

    reply: str
    left: int
    expires_at: float = 0.0
    no_wait: bool = False
    every: float = 0.0
    beat_at: float = 0.0


def read_pull(reply: str, data: bytes, now: float) -> Pull | bytes:
    """The pull that somebody asks for, or the headers of a refusal."""
    try:
        ask = msgspec.json.decode(data, type=Ask) if data.startswith(b"{") else Ask(batch=int(data or b"1"))
    except (msgspec.MsgspecError, ValueError):
        return write_fields({}, "400 Bad Request")
    if ask.idle_heartbeat and (not ask.expires or ask.idle_heartbeat * 2 > ask.expires):
        return write_fields({}, "400 Bad Request - heartbeat value too large")
    every = ask.idle_heartbeat / SECOND
    return Pull(
        reply=reply,
        left=max(1, ask.batch),
        expires_at=now + ask.expires / SECOND if ask.expires else 0.0,
        no_wait=ask.no_wait,
        every=every,
        beat_at=now + every if every else 0.0,
    )


class Pulls:
    """The pulls of one consumer; they take turns, message by message."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.waiting: OrderedDict[int, Pull] = OrderedDict()
        self._numbers: dict[Pull, int] = {}
        self._next = 0
        self._times: list[tuple[float, int]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, pull: Pull) -> None:
        """Serve a pull, now and while it stands."""
        consumer = self._consumer
        if len(self.waiting) >= consumer.config.get("max_waiting", 512):
            self._say(pull, write_fields({}, "409 Exceeded MaxWaiting"))
            return
        self._next += 1
        self._numbers[pull] = self._next
        self.waiting[self._next] = pull
        for at in (pull.expires_at, pull.beat_at):
            if at:
                heapq.heappush(self._times, (at, self._next))
        self._arm()
        consumer.kick()
        if pull.no_wait and pull in self._numbers:
            self._drop(pull)
            self._say(pull, write_fields({}, "404 No Messages"))

    def next(self) -> Pull | None:
        """Whose turn it is; None if nobody waits. Who does not listen any more is left out."""
        hears = self._consumer.server.broker.hears
        while self.waiting:
            pull = next(iter(self.waiting.values()))
            if hears(pull.reply):
                return pull
            self._drop(pull)
        return None

    def served(self, pull: Pull) -> None:
        """It has got a message."""
        pull.left -= 1
        if pull.left <= 0:
            self._drop(pull)
            return
        pull.beat_at = self._consumer.server.loop.time() + pull.every if pull.every else 0.0
        self.waiting.move_to_end(self._numbers[pull])

    def close(self, *, told: bool) -> None:
        """Nobody is served any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pull in list(self.waiting.values()):
            self._drop(pull)
            if told:
                self._say(pull, write_fields({}, "409 Consumer Deleted"))
        self._times.clear()

    def _drop(self, pull: Pull) -> None:
        del self.waiting[self._numbers.pop(pull)]

    def _say(self, pull: Pull, headers: bytes) -> None:
        self._consumer.server.broker.deliver(pull.reply, pull.reply, "", headers, b"")

    def _arm(self) -> None:
        while self._times and self._times[0][1] not in self.waiting:
            heapq.heappop(self._times)
        if not self._times:
            return
        at = self._times[0][0]
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._consumer.server.call_later(at - self._consumer.server.loop.time(), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._consumer.server.due_by
        while self._times and self._times[0][0] <= now:
            _, number = heapq.heappop(self._times)
            pull = self.waiting.get(number)
            if pull is None:
                continue
            if pull.expires_at and pull.expires_at <= now:
                self._drop(pull)
                pending = {"Nats-Pending-Messages": str(pull.left), "Nats-Pending-Bytes": "0"}
                self._say(pull, write_fields(pending, "408 Request Timeout"))
                continue
            if pull.beat_at:
                if pull.beat_at <= now:
                    self._say(pull, self._consumer.heartbeat())
                    pull.beat_at = now + pull.every
                heapq.heappush(self._times, (pull.beat_at, number))
        self._arm()
