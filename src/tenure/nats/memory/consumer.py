"""One consumer: what of a stream it still has to deliver, what it waits to hear about, and to whom it delivers."""

from __future__ import annotations

import asyncio
import heapq
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.nats.memory.broker import fits, overlap
from tenure.nats.memory.pulls import Pull, Pulls
from tenure.nats.memory.refusals import refuse
from tenure.nats.memory.stored import SECOND, Stored, add_fields, read_time, write_fields, write_time

if TYPE_CHECKING:
    from tenure.nats.memory.stream import Stream

_EPHEMERAL_SECONDS = 5.0
"""How long an ephemeral consumer without a threshold of its own lives unused."""
_START = ("deliver_policy", "opt_start_seq", "opt_start_time")


class Pending(msgspec.Struct, eq=False):
    """A message that was delivered and not answered; ``deadline``: when it is delivered again (loop time)."""

    consumer_seq: int
    deliveries: int
    deadline: float


def settle(asked: dict[str, Any]) -> dict[str, Any]:
    """A consumer's settings with what the server fills in."""
    config = {name: value for name, value in asked.items() if value not in (None, "", [], 0)}
    config.setdefault("deliver_policy", "all")
    config.setdefault("ack_policy", "none")
    config.setdefault("replay_policy", "instant")
    config.setdefault("max_deliver", -1)
    config.setdefault("num_replicas", 0)
    if config["ack_policy"] != "none":
        config.setdefault("ack_wait", 30 * SECOND)
        config.setdefault("max_ack_pending", 1_000)
    if "deliver_subject" not in config:
        config.setdefault("max_waiting", 512)
    return config


class Consumer:
    """A consumer of a stream."""

    def __init__(self, stream: Stream, config: dict[str, Any]) -> None:
        self.stream = stream
        self.server = stream.server
        self.config = config
        self.created = write_time(self.server.now())
        self.ready: OrderedDict[int, None] = OrderedDict()
        self.again: OrderedDict[int, None] = OrderedDict()
        self.pending: OrderedDict[int, Pending] = OrderedDict()
        self.delivered = 0
        self.delivered_seq = 0
        self.pulls = Pulls(self)
        self._deadlines: list[tuple[float, int]] = []
        self._kick: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._beat_at = 0.0
        self._used_at = self.server.loop.time()
        self._begin()
        self.recover()

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.config["name"])

    @property
    def wanted(self) -> str:
        """The subjects that it delivers."""
        return str(self.config.get("filter_subject") or ">")

    @property
    def pushes_to(self) -> str:
        """Where it delivers by itself; empty if it is asked."""
        return str(self.config.get("deliver_subject", ""))

    @property
    def lasts(self) -> bool:
        """Whether it survives a kill of the server, and disuse."""
        return "durable_name" in self.config

    # -- life --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        stream, policy = self.stream, self.config["deliver_policy"]
        start = 1
        if policy == "by_start_sequence":
            start = int(self.config.get("opt_start_seq", 1))
        if policy == "new":
            start = stream.last_seq + 1
        if policy == "last":
            last = stream.last_fitting(self.wanted)
            start = last.seq if last else stream.last_seq + 1
        if policy == "last_per_subject":
            seqs = sorted(stream.last_of(subject) for subject in stream.subjects(self.wanted))
        else:
            seqs = self._stored_from(start)
        if policy == "by_start_time":
            since = read_time(str(self.config["opt_start_time"])) or 0
            seqs = [seq for seq in seqs if stream.messages[seq].time >= since]
        self.ready = OrderedDict.fromkeys(seqs)
        self.delivered_seq = (seqs[0] if seqs else max(start, stream.last_seq + 1)) - 1
        stream.filters.add(self.wanted, self)

    def _stored_from(self, start: int) -> list[int]:
        if self.wanted == ">":
            return [seq for seq in self.stream.messages if seq >= start]
        subjects = self.stream.subjects(self.wanted)
        return sorted(seq for subject in subjects for seq in self.stream.by_subject[subject] if seq >= start)

    def recover(self) -> None:
        """Arm the timers, after its making and after each start of the server."""
        self._kick = self._timer = self._beat = self._idle = None
        self._used_at = self.server.loop.time()
        self._watch_deadlines()
        if self.pushes_to and self.config.get("idle_heartbeat"):
            self._beat_at = self.server.loop.time() + self.config["idle_heartbeat"] / SECOND
            self._beat = self.server.call_later(self.config["idle_heartbeat"] / SECOND, self._heartbeat)
        self._watch_use()

    def update(self, config: dict[str, Any]) -> None:
        """Take other settings over. Raises Refused for what cannot be changed."""
        for name in _START:
            if config.get(name) != self.config.get(name):
                raise refuse(500, 10012, f"{name.replace('_', ' ')} can not be updated")
        if ("deliver_subject" in config) != ("deliver_subject" in self.config):
            raise refuse(500, 10012, "can not update pull consumer to push based")
        changed_by = (config.get("ack_wait", 0) - self.config.get("ack_wait", 0)) / SECOND
        old_filter = self.wanted
        self.config = config
        if self.wanted != old_filter:
            self.stream.filters.remove(old_filter, self)
            self.stream.filters.add(self.wanted, self)
            self.ready = OrderedDict.fromkeys(self._stored_from(self.delivered_seq + 1))
        if changed_by:
            for entry in self.pending.values():
                entry.deadline += changed_by
            self._watch_deadlines()
        self.kick()

    def close(self, *, told: bool) -> None:
        """It is deleted; ``told``: whoever waits for messages hears of it."""
        self.stream.filters.remove(self.wanted, self)
        self.pulls.close(told=told)
        for timer in (self._kick, self._timer, self._beat, self._idle):
            if timer is not None:
                timer.cancel()

    # -- what is to be delivered -------------------------------------------------------------------------------------

    def offer(self, message: Stored) -> None:
        """A message that fits was stored."""
        self.ready[message.seq] = None
        self.kick_soon()

    def kick_soon(self) -> None:
        """At the next turn: as with a real server, whoever stored a message or made it is answered before it delivers."""
        if self._kick is None:
            self._kick = self.server.call_soon(self.kick)

    def forget(self, seq: int) -> None:
        """A message is not stored any more."""
        self.ready.pop(seq, None)
        self.again.pop(seq, None)
        self.pending.pop(seq, None)

    def pull(self, pull: Pull) -> None:
        """Somebody asks for messages."""
        self._used_at = self.server.loop.time()
        self.pulls.add(pull)

    def kick(self) -> None:
        """Deliver while there is something and somebody takes it."""
        self._kick = None
        most = self.config.get("max_ack_pending", -1)
        while self.again or (self.ready and not 0 < most <= len(self.pending)):
            to, pull = self.pushes_to, None
            if to:
                if not self.server.broker.hears(to):
                    return
            else:
                pull = self.pulls.next()
                if pull is None:
                    return
                to = pull.reply
            queue = self.again or self.ready
            seq, _ = queue.popitem(last=False)
            message = self.stream.messages.get(seq)
            if message is None:  # removed after the filter was changed: it is not this consumer's any more
                self.pending.pop(seq, None)
                continue
            self._deliver(message, to)
            if pull is not None:
                self.pulls.served(pull)

    def _deliver(self, message: Stored, to: str) -> None:
        self.delivered += 1
        self.delivered_seq = max(self.delivered_seq, message.seq)
        deliveries = 1
        if self.config["ack_policy"] != "none":
            entry = self.pending.get(message.seq)
            if entry is None:
                entry = self.pending[message.seq] = Pending(self.delivered, 0, 0.0)
            entry.deliveries += 1
            entry.consumer_seq = self.delivered
            self._due_in(message.seq, entry, self.config["ack_wait"] / SECOND)
            deliveries = entry.deliveries
        place = f"{deliveries}.{message.seq}.{self.delivered}.{message.time}.{len(self.ready)}"
        reply = f"$JS.ACK.{self.stream.name}.{self.name}.{place}"
        headers, data = message.headers, message.data
        if self.config.get("headers_only"):
            headers, data = add_fields(headers, {"Nats-Msg-Size": str(len(data))}), b""
        self.server.broker.deliver(to, message.subject, reply, headers, data)
        self._used_at = self.server.loop.time()
        if self._beat is not None:
            self._beat_at = self._used_at + self.config["idle_heartbeat"] / SECOND

    # -- answers -----------------------------------------------------------------------------------------------------

    def answer(self, seq: int, said: bytes) -> bool:
        """What a client says of a delivery, whichever it was; False for what is no answer at all."""
        entry = self.pending.get(seq)
        if said in {b"", b"+ACK", b"+OK"} or said.startswith(b"+TERM"):
            if entry is not None:
                self.forget(seq)
                if self.stream.keeps_until_acked:
                    self.stream.remove(seq)
        elif said.startswith(b"-NAK"):
            if entry is not None:
                self._nak(seq, entry, said[4:].strip())
        elif said == b"+WPI":
            if entry is not None:
                self._due_in(seq, entry, self.config["ack_wait"] / SECOND)
        else:
            return False
        return seq <= self.delivered_seq

    def _nak(self, seq: int, entry: Pending, how: bytes) -> None:
        delay = 0
        if how:
            delay = int(json.loads(how).get("delay", 0)) if how.startswith(b"{") else 0
        if delay > 0:
            self._due_in(seq, entry, delay / SECOND)
        elif self._may_come_again(seq, entry):
            self.again[seq] = None
            self.kick_soon()

    def _may_come_again(self, seq: int, entry: Pending) -> bool:
        if 0 < self.config["max_deliver"] <= entry.deliveries:
            del self.pending[seq]  # it stays in the stream
            return False
        return True

    def _due_in(self, seq: int, entry: Pending, seconds: float) -> None:
        entry.deadline = self.server.loop.time() + seconds
        heapq.heappush(self._deadlines, (entry.deadline, seq))
        if self._timer is None or self._timer.when() > entry.deadline:
            self._arm()

    def _watch_deadlines(self) -> None:
        self._deadlines = [(entry.deadline, seq) for seq, entry in self.pending.items() if seq not in self.again]
        heapq.heapify(self._deadlines)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines:
            self._timer = self.server.call_later(self._deadlines[0][0] - self.server.loop.time(), self._overdue)

    def _overdue(self) -> None:
        self._timer = None
        now = self.server.due_by
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, seq = heapq.heappop(self._deadlines)
            entry = self.pending.get(seq)
            if entry is not None and entry.deadline == deadline and self._may_come_again(seq, entry):
                self.again[seq] = None
        while self._deadlines and not self._stands(*self._deadlines[0]):
            heapq.heappop(self._deadlines)
        self._arm()
        self.kick()

    def _stands(self, deadline: float, seq: int) -> bool:
        entry = self.pending.get(seq)
        return entry is not None and entry.deadline == deadline

    # -- whether anybody is there ------------------------------------------------------------------------------------

    def interest_changed(self) -> None:
        """Somebody began or ceased to listen where it delivers."""
        self._watch_use()
        self.kick()

    def _heartbeat(self) -> None:
        now = self.server.due_by
        every = self.config["idle_heartbeat"] / SECOND
        if now >= self._beat_at:
            self._beat_at = now + every
            self.server.broker.deliver(self.pushes_to, self.pushes_to, "", self.heartbeat(), b"")
        self._beat = self.server.call_later(self._beat_at - self.server.loop.time(), self._heartbeat)

    def heartbeat(self) -> bytes:
        """Headers of an idle heartbeat."""
        place = {"Nats-Last-Consumer": str(self.delivered), "Nats-Last-Stream": str(self.delivered_seq)}
        return write_fields(place, "100 Idle Heartbeat")

    def _watch_use(self) -> None:
        seconds = self.config.get("inactive_threshold", 0) / SECOND or (0.0 if self.lasts else _EPHEMERAL_SECONDS)
        if seconds and self._idle is None:
            self._idle = self.server.call_later(seconds, lambda: self._look_for_use(seconds))

    def _look_for_use(self, seconds: float) -> None:
        self._idle = None
        now = self.server.loop.time()
        if self.server.broker.hears(self.pushes_to) if self.pushes_to else self.pulls.waiting:
            self._used_at = now
        until = self._used_at + seconds
        if until > self.server.due_by:
            self._idle = self.server.call_later(until - now, lambda: self._look_for_use(seconds))
        else:
            self.server.jetstream.delete_consumer(self)

    # -- tell --------------------------------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        """What CONSUMER.INFO says."""
        floor, floor_seq = self.delivered, self.delivered_seq
        if self.pending:
            floor_seq = next(iter(self.pending)) - 1
            floor = min(entry.consumer_seq for entry in self.pending.values()) - 1
        return {
            "stream_name": self.stream.name,
            "name": self.name,
            "created": self.created,
            "config": self.config,
            "delivered": {"consumer_seq": self.delivered, "stream_seq": self.delivered_seq},
            "ack_floor": {"consumer_seq": floor, "stream_seq": floor_seq},
            "num_ack_pending": len(self.pending),
            "num_redelivered": sum(entry.deliveries > 1 for entry in self.pending.values()),
            "num_waiting": len(self.pulls.waiting),
            "num_pending": len(self.ready),
            "ts": write_time(self.server.now()),
        }


def check(stream: Stream, config: dict[str, Any]) -> None:
    """Raises Refused for a consumer that the stream cannot have."""
    if not stream.keeps_until_acked:
        return
    if config["ack_policy"] != "explicit":
        if "deliver_subject" in config:
            raise refuse(400, 10098, "workqueue stream requires explicit ack")
        raise refuse(400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream")
    for other in stream.consumers.values():
        if other.name == config["name"]:
            continue
        mine = config.get("filter_subject") or ">"
        if mine == other.wanted == ">":
            raise refuse(400, 10099, "multiple non-filtered consumers not allowed on workqueue stream")
        if fits(mine, other.wanted) or overlap(mine, other.wanted):
            raise refuse(400, 10100, "filtered consumer not unique on workqueue stream")
