"""Messages that a stream publishes later (``Nats-Schedule: @at ...``), with the races of the real server.

It collects what is due and then stores it, without looking whether it is still there; and storing one removes all that
lies under the schedule's subject, a newer schedule included. So one that was cancelled may fire all the same, and one
that replaces another under the same subject may vanish. ``MemoryServer.schedule_gap`` is the time between the two steps.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING

from tenure.nats.memory.broker import fits
from tenure.nats.memory.refusals import refuse
from tenure.nats.memory.stored import SECOND, SLACK, Stored, read_time, write_fields

if TYPE_CHECKING:
    from tenure.nats.memory.stream import Stream

SCHEDULE = "Nats-Schedule"
TARGET = "Nats-Schedule-Target"
_SOONEST = SECOND // 4
"""The real server takes so long from storing a schedule to firing it, at least."""
_NOT_PASSED_ON = ("Nats-Schedule", "Nats-Expected-")
_NOT_PASSED_ON_EITHER = frozenset({"Nats-Msg-Id", "Nats-TTL", "Nats-Rollup"})


def due_of(pattern: str) -> int | None:
    """When a one-time schedule is due; None for any other pattern."""
    return read_time(pattern.removeprefix("@at ")) if pattern.startswith("@at ") else None


def check(stream: Stream, subject: str, fields: dict[str, str]) -> None:
    """Raises Refused for a schedule that cannot be."""
    if not stream.config.get("allow_msg_schedules"):
        raise refuse(400, 10188, "message schedules is disabled")
    if due_of(fields[SCHEDULE]) is None:
        raise refuse(400, 10189, "message schedules pattern is invalid")
    target = fields.get(TARGET, "")
    inside = any(fits(target, wanted) for wanted in stream.config["subjects"])
    if not target or target == subject or "*" in target or ">" in target or not inside:
        raise refuse(400, 10190, "message schedules target is invalid")


class Schedules:
    """The schedules of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._due: list[tuple[int, int]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message: Stored) -> None:
        """Arm a schedule that was just stored: the only one under its subject from now on."""
        for seq in list(self._stream.by_subject[message.subject]):
            if seq != message.seq:
                self._stream.remove(seq)
        due = due_of(message.fields[SCHEDULE]) or 0
        heapq.heappush(self._due, (max(due, message.time + _SOONEST), message.seq))
        self._arm()

    def recover(self) -> None:
        """Go on after a start of the server: what was missed fires at once."""
        self._timer = None
        self._due = [
            (due_of(message.fields[SCHEDULE]) or 0, message.seq)
            for message in self._stream.messages.values()
            if message.fields.get(SCHEDULE)
        ]
        heapq.heapify(self._due)
        self._arm()

    def close(self) -> None:
        """Fire nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            server = self._stream.server
            delay = (self._due[0][0] - server.now()) / SECOND + server.schedule_late()
            self._timer = server.call_later(delay, self._collect)

    def _collect(self) -> None:
        self._timer = None
        stream = self._stream
        now = stream.server.now() + SLACK
        due: list[Stored] = []
        while self._due and self._due[0][0] <= now:
            _, seq = heapq.heappop(self._due)
            message = stream.messages.get(seq)
            if message is not None and stream.last_of(message.subject) == seq:
                due.append(message)
        self._arm()
        if not due:
            return
        gap = stream.server.schedule_gap()
        if gap > 0:
            stream.server.call_later(gap, lambda: self._fire(due))
        else:
            self._fire(due)

    def _fire(self, due: list[Stored]) -> None:
        if self._stream.server.jetstream.streams.get(self._stream.name) is not self._stream:
            return
        for message in due:
            fields = {
                name: value
                for name, value in message.fields.items()
                if not name.startswith(_NOT_PASSED_ON) and name not in _NOT_PASSED_ON_EITHER
            }
            fields |= {"Nats-Scheduler": message.subject, "Nats-Schedule-Next": "purge"}
            self._stream.append(message.fields[TARGET], write_fields(fields), message.data, fields)
            self._stream.purge(message.subject)
