"""nats-py's client with a shorter way for what we do a hundred thousand times: publish, and take the answer to a request.

In nats-py 2.16 a request and its answer cost 14 us of Python, more than everything that Tenure does about it: each header goes
through three regular expressions, each answer through header parsing, a message object, a queue and a task. Here the protocol line
is written in one go, and an answer without headers goes from the parser straight to whoever waits for it: 6 us.

Whatever is unusual (not connected, draining, too large, odd subjects or headers, answers with headers) takes nats-py's own way, so
nothing behaves differently. This leans on private parts of nats-py: ``make_client`` therefore gives the plain client for every version
that is not listed here, and the tests run against both.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping

from nats.aio.client import Client as NatsClient
from nats.aio.subscription import Subscription

TESTED = ("2.16.",)
"""Versions of nats-py whose private parts are known to be as they are used here."""


def make_client() -> NatsClient:
    """A client that is not connected: the quick one where nats-py's version is known, else nats-py's own."""
    return QuickClient() if importlib.metadata.version("nats-py").startswith(TESTED) else NatsClient()


class QuickClient(NatsClient):
    """A nats-py client that publishes and answers with less ado."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nats-py leaves it unannotated
        self._answers_sid = -1
        self._answers_skip = 0
        self._answered: Callable[[bytes, bytes], None] = lambda _token, _data: None

    def take_answers(self, subscription: Subscription, prefix: str, answered: Callable[[bytes, bytes], None]) -> None:
        """Give ``answered`` the rest of the subject after ``prefix``, and the data, of what arrives for ``subscription`` without headers."""
        self._answered = answered
        self._answers_skip = len(prefix)
        self._answers_sid = subscription._id  # noqa: SLF001  (nats-py has no other name for it)

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """As nats-py's ``publish``."""
        size = len(payload)
        queue = self._flush_queue
        text = "NATS/1.0\r\n" + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) if headers else ""
        lines = text.count("\n")
        if (
            self._status != NatsClient.CONNECTED
            or queue is None
            or size > self._max_payload
            or not subject
            or " " in subject
            or " " in reply
            or not subject.isprintable()
            or not reply.isprintable()
            or (headers is not None and (lines != len(headers) + 1 or text.count("\r") != lines))
        ):
            await super().publish(subject, payload, reply, headers)  # type: ignore[arg-type]  # nats-py only reads it
            return
        if headers is None:
            command = b"".join((f"PUB {subject} {reply} {size}\r\n".encode(), payload, b"\r\n"))
        else:
            head = f"{text}\r\n".encode()
            line = f"HPUB {subject} {reply} {len(head)} {len(head) + size}\r\n".encode()
            command = b"".join((line, head, payload, b"\r\n"))
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += size
        self._pending.append(command)
        self._pending_data_size += len(command)
        if 0 < self._max_pending_size < self._pending_data_size:
            await self._flush_pending(force_flush=True)
        if queue.empty():
            await self._flush_pending()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        if sid == self._answers_sid and not headers:
            self.stats["in_msgs"] += 1
            self.stats["in_bytes"] += len(data)
            self._answered(subject[self._answers_skip :], data)
        else:
            await super()._process_msg(sid, subject, reply, data, headers)  # type: ignore[arg-type]  # None for no headers
