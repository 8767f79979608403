"""One stream: what it holds, by sequence and by subject, and what expires in it."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tenure.nats.memory.broker import Subjects, fits
from tenure.nats.memory.refusals import refuse
from tenure.nats.memory.schedules import SCHEDULE, Schedules
from tenure.nats.memory.stored import NEVER, SLACK, Stored, add_fields, write_duration, write_fields, write_time

if TYPE_CHECKING:
    from tenure.nats.memory.consumer import Consumer
    from tenure.nats.memory.server import MemoryServer

MARKER = "Nats-Marker-Reason"
_DEFAULTS: dict[str, Any] = {
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard": "old",
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 120_000_000_000,
    "compression": "none",
    "allow_direct": False,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "consumer_limits": {},
    "allow_msg_ttl": False,
}
_OMITTED_WHEN_EMPTY = ("subject_delete_marker_ttl", "allow_msg_schedules", "republish", "metadata", "description")


def settle(asked: dict[str, Any]) -> dict[str, Any]:
    """A stream's settings with what the server fills in. Raises Refused."""
    config = _DEFAULTS | {name: value for name, value in asked.items() if value is not None}
    config["subjects"] = config.get("subjects") or ([] if config.get("mirror") else [config["name"]])
    for name in ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size", "max_consumers"):
        config[name] = config[name] or -1
    for name in _OMITTED_WHEN_EMPTY:
        if not config.get(name):
            config.pop(name, None)
    if config.get("allow_msg_schedules"):
        config["allow_rollup_hdrs"], config["deny_purge"] = True, False
        if config["discard"] == "new":
            raise refuse(500, 10052, "message schedules can not be used with discard policy new")
    if config.get("subject_delete_marker_ttl"):
        config["allow_msg_ttl"] = config["allow_rollup_hdrs"] = True
    return config


class Stream:
    """A stream and its consumers."""

    def __init__(self, server: MemoryServer, config: dict[str, Any]) -> None:
        self.server = server
        self.config = config
        self.created = write_time(server.now())
        self.last_seq = 0
        self.last_time = 0
        self.size = 0
        self.messages: OrderedDict[int, Stored] = OrderedDict()
        self.by_subject: dict[str, OrderedDict[int, None]] = {}
        self.consumers: dict[str, Consumer] = {}
        self.filters: Subjects[Consumer] = Subjects()
        self.seen_ids: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self.mirrors: dict[str, Stream] = {}
        self._expiring: list[tuple[int, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.schedules = Schedules(self)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.config["name"])

    @property
    def keeps_until_acked(self) -> bool:
        """Whether an acknowledgement removes a message."""
        return bool(self.config["retention"] == "workqueue")

    @property
    def first_seq(self) -> int:
        """The lowest sequence stored; one more than the last one if nothing is."""
        return next(iter(self.messages), self.last_seq + 1 if self.last_seq else 0)

    # -- look up -----------------------------------------------------------------------------------------------------

    def last_of(self, subject: str) -> int:
        """The sequence of the newest message of exactly this subject, 0 if there is none."""
        seqs = self.by_subject.get(subject)
        return next(reversed(seqs)) if seqs else 0

    def subjects(self, wanted: str) -> Iterator[str]:
        """Every stored subject that fits."""
        if wanted in self.by_subject:
            yield wanted
        elif "*" in wanted or ">" in wanted:
            yield from [subject for subject in self.by_subject if fits(subject, wanted)]

    def last_fitting(self, wanted: str) -> Stored | None:
        """The newest message of any subject that fits."""
        seq = max((self.last_of(subject) for subject in self.subjects(wanted)), default=0)
        return self.messages.get(seq)

    def next_fitting(self, wanted: str, start: int) -> Stored | None:
        """The oldest message from ``start`` on whose subject fits."""
        if wanted in self.by_subject:
            return next((self.messages[seq] for seq in self.by_subject[wanted] if seq >= start), None)
        return next((m for m in self.messages.values() if m.seq >= start and fits(m.subject, wanted)), None)

    # -- change ------------------------------------------------------------------------------------------------------

    def make_room(self, size: int) -> None:
        """Remove what is too much before a message is stored, or refuse that message."""
        most, most_bytes = self.config["max_msgs"], self.config["max_bytes"]
        while self.messages and (0 < most <= len(self.messages) or 0 < most_bytes < self.size + size):
            if self.config["discard"] == "new":
                what = "messages" if 0 < most <= len(self.messages) else "bytes"
                raise refuse(400, 10077, f"maximum {what} exceeded")
            self.remove(next(iter(self.messages)))

    def append(
        self, subject: str, headers: bytes, data: bytes, fields: dict[str, str], ttl: int | None = None
    ) -> Stored:
        """Store a message, deliver it and repeat it where the stream says so. ``ttl`` in nanoseconds; 0: never."""
        before = self.last_of(subject)
        now = self.server.now()
        message = Stored(self.last_seq + 1, subject, headers, data, now, fields)
        self._keep(message, self.config["max_age"] if ttl is None else ttl)
        if fields.get(SCHEDULE):
            self.schedules.add(message)
        for consumer in self.filters.match(subject):
            consumer.offer(message)
        self._republish(message, before)
        for mirror in self.mirrors.values():
            mirror.copy(message)
        return message

    def copy(self, message: Stored) -> None:
        """Take in, as a mirror, what was stored at its origin: with its number and time, for as long as the mirror keeps it."""
        if message.seq <= self.last_seq or not fits(
            message.subject, self.config["mirror"].get("filter_subject") or ">"
        ):
            return
        self.make_room(message.size)
        copied = Stored(message.seq, message.subject, message.headers, message.data, message.time, message.fields)
        self._keep(copied, self.config["max_age"])
        for consumer in self.filters.match(message.subject):
            consumer.offer(copied)

    def _keep(self, message: Stored, age: int) -> None:
        self.last_seq, self.last_time = message.seq, message.time
        self.messages[message.seq] = message
        self.size += message.size
        seqs = self.by_subject.setdefault(message.subject, OrderedDict())
        seqs[message.seq] = None
        most = self.config["max_msgs_per_subject"]
        while 0 < most < len(seqs):
            self.remove(next(iter(seqs)))
        if age:
            message.expires = message.time + age
            heapq.heappush(self._expiring, (message.expires, message.seq))
            self._arm()

    def _republish(self, message: Stored, before: int) -> None:
        rule = self.config.get("republish")
        wanted = (rule or {}).get("src") or ">"
        if rule is None or not fits(message.subject, wanted):
            return
        headers = add_fields(
            message.headers,
            {
                "Nats-Stream": self.name,
                "Nats-Subject": message.subject,
                "Nats-Sequence": str(message.seq),
                "Nats-Time-Stamp": write_time(message.time),
                "Nats-Last-Sequence": str(before),
            },
        )
        data = message.data
        if rule.get("headers_only"):
            headers, data = add_fields(headers, {"Nats-Msg-Size": str(len(data))}), b""
        self.server.publish(None, _mapped(message.subject, wanted, rule["dest"]), "", headers, data)

    def remove(self, seq: int) -> Stored | None:
        """Remove a message; None if it is not there."""
        message = self.messages.pop(seq, None)
        if message is None:
            return None
        self.size -= message.size
        seqs = self.by_subject[message.subject]
        del seqs[seq]
        if not seqs:
            del self.by_subject[message.subject]
        for consumer in self.filters.match(message.subject):
            consumer.forget(seq)
        return message

    def purge(self, wanted: str = ">", below: int = 0, keep: int = 0) -> int:
        """Remove all that fits: up to the sequence before ``below``, or all but the newest ``keep``."""
        if wanted in {"", ">"}:
            seqs = list(self.messages)
        else:
            seqs = sorted(seq for subject in self.subjects(wanted) for seq in self.by_subject[subject])
        if below:
            seqs = [seq for seq in seqs if seq < below]
        if keep:
            seqs = seqs[:-keep]
        for seq in seqs:
            self.remove(seq)
        return len(seqs)

    # -- time --------------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Go on after a start of the server."""
        self._timer = None
        self._arm()
        self.schedules.recover()

    def retime(self) -> None:
        """The age of what is stored was changed."""
        age = self.config["max_age"]
        for message in self.messages.values():
            if "Nats-TTL" not in message.fields:
                message.expires = message.time + age if age else NEVER
        self._expiring = [(m.expires, m.seq) for m in self.messages.values() if m.expires]
        heapq.heapify(self._expiring)
        self._arm()

    def close(self) -> None:
        """No timer of a stream that is deleted fires any more."""
        if self._timer is not None:
            self._timer.cancel()
        self.schedules.close()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._expiring:
            delay = (self._expiring[0][0] - self.server.now()) / 1_000_000_000
            self._timer = self.server.call_later(delay, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self.server.now() + SLACK
        marker_ttl = self.config.get("subject_delete_marker_ttl", 0)
        while self._expiring and self._expiring[0][0] <= now:
            expires, seq = heapq.heappop(self._expiring)
            message = self.messages.get(seq)
            if message is None or message.expires != expires:
                continue
            if marker_ttl and self.last_of(message.subject) == seq and not _is_marker(message.fields):
                fields = {MARKER: "MaxAge", "Nats-TTL": write_duration(marker_ttl), "Nats-Rollup": "sub"}
                self.append(message.subject, write_fields(fields), b"", fields, marker_ttl)
            self.remove(seq)
        self._arm()

    # -- tell --------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What STREAM.INFO says of what is stored."""
        first = self.messages.get(self.first_seq)
        state: dict[str, Any] = {
            "messages": len(self.messages),
            "bytes": self.size,
            "first_seq": self.first_seq,
            "first_ts": write_time(first.time if first else 0),
            "last_seq": self.last_seq,
            "last_ts": write_time(self.last_time),
            "consumer_count": len(self.consumers),
        }
        if self.by_subject:
            state["num_subjects"] = len(self.by_subject)
        if deleted := self.last_seq - self.first_seq + 1 - len(self.messages):
            state["num_deleted"] = deleted if self.messages else 0
        return state


def _is_marker(fields: dict[str, str]) -> bool:
    return MARKER in fields or fields.get("KV-Operation") in {"DEL", "PURGE"}


def _mapped(subject: str, src: str, dest: str) -> str:
    """Where a message is repeated: ``dest`` with what the wildcards of ``src`` stand for."""
    tokens, wanted = subject.split("."), src.split(".")
    stars = [tokens[at] for at, part in enumerate(wanted) if part == "*"]
    for number, token in enumerate(stars, 1):
        dest = dest.replace(f"{{{{wildcard({number})}}}}", token)
    if dest.endswith(">"):
        dest = dest[:-1] + ".".join(tokens[len(wanted) - 1 :])
    return dest
