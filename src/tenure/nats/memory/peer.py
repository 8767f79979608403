"""The server's end of one connection: takes the protocol apart, and puts together what goes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.nats.memory.broker import Sub
from tenure.nats.memory.link import PROMPT, Link, Message

if TYPE_CHECKING:
    from tenure.nats.memory.server import MemoryServer

_PROMPT_LINK = Link()
_PONG = Message("PONG", "", b"", b"")
_INFO = Message("INFO", "", b"", b"")


class Op(msgspec.Struct):
    """One line of the protocol, and what belongs to it."""

    kind: str
    subject: str = ""
    reply: str = ""
    headers: bytes = b""
    data: bytes = b""


class Ends(NamedTuple):
    """The client's end: what comes goes to ``take``, and ``hang_up`` tells of the end.

    Both are called in the client's ``context``: so a simulation that stops or ends the process of a client has it hear
    nothing any more.
    """

    context: Context
    take: Callable[[bytes], None]
    hang_up: Callable[[], None]


class Peer:
    """One connection."""

    def __init__(self, server: MemoryServer, number: int, ends: Ends, make_link: Callable[[str], Link]) -> None:
        self.server = server
        self._make_link = make_link
        self.number = number
        self.context = ends.context
        self.name = ""
        self.link = _PROMPT_LINK
        self.gone = False
        self.subs: dict[str, Sub] = {}
        self._take = ends.take
        self._hang_up = ends.hang_up
        self._rest = b""
        self._out: list[bytes] = []

    def __repr__(self) -> str:
        return f"<Peer {self.number} {self.name!r}>"

    # -- from the client ---------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take bytes from the client: each message goes its way up the link."""
        if self.gone:
            return
        for op in self._parse(data):
            if op.kind == "CONNECT":
                self.name = str(json.loads(op.data).get("name") or "")
                self.link = self._make_link(self.name)
            delays = PROMPT
            if self.link is not _PROMPT_LINK and op.kind in {"PUB", "PING"}:
                delays = self.link.sent(Message(op.subject or op.kind, op.reply, op.headers, op.data))
            for delay in delays:
                if delay > 0:
                    self.server.call_later(delay, lambda op=op: self.server.post(self, op))  # type: ignore[misc]  # as the default says
                else:
                    self.server.post(self, op)

    def leave(self) -> None:
        """The client closes; what it has published before is still taken."""
        if not self.gone:
            self.forget()

    def handle(self, op: Op) -> None:
        """Do what a message asks for. The connection may be gone by now: what was sent is handled all the same."""
        match op.kind:
            case "PUB":
                self.server.publish(self, op.subject, op.reply, op.headers, op.data)
            case "PING":
                self._down(_PONG, b"PONG\r\n")
            case _ if self.gone:
                return
            case "SUB":
                sub = self.subs[op.reply] = Sub(self, op.reply, op.subject, op.data.decode())
                self.server.broker.add(sub)
                self.server.jetstream.interest_changed(op.subject)
            case "UNSUB":
                self.unsubscribe(op.reply, int(op.data or b"0"))
            case "GREET":
                self._down(_INFO, self.server.greeting(self.number))
            case _:
                return

    def unsubscribe(self, sid: str, after: int) -> None:
        """End a subscription, now or ``after`` so many messages."""
        sub = self.subs.get(sid)
        if sub is None:
            return
        if after > 0:
            sub.left = after
            return
        del self.subs[sid]
        self.server.broker.remove(sub)
        self.server.jetstream.interest_changed(sub.subject)

    def forget(self) -> None:
        """The connection is over."""
        self.gone = True
        self.server.peers.pop(self.number, None)
        for sid in list(self.subs):
            self.unsubscribe(sid, 0)

    def _parse(self, data: bytes) -> list[Op]:
        if self._rest:
            data, self._rest = self._rest + data, b""
        ops: list[Op] = []
        at, end = 0, len(data)
        while at < end:
            line = data.find(b"\r\n", at)
            if line < 0:
                break
            words = data[at:line].decode("utf-8", "replace").split(" ")
            kind = words[0].upper()
            after = line + 2
            if kind in {"PUB", "HPUB"}:
                size = int(words[-1])
                if after + size + 2 > end:
                    break
                start = after + (int(words[-2]) if kind == "HPUB" else 0)
                reply = words[2] if len(words) > (4 if kind == "HPUB" else 3) else ""
                ops.append(Op("PUB", words[1], reply, data[after:start], data[start : after + size]))
                after += size + 2
            elif kind == "SUB":
                ops.append(Op(kind, words[1], words[-1], data=" ".join(words[2:-1]).encode()))
            elif kind == "UNSUB":
                ops.append(Op(kind, reply=words[1], data=words[2].encode() if len(words) > 2 else b""))  # noqa: PLR2004  (the limit is its third word)
            elif kind == "CONNECT":
                ops.append(Op(kind, data=data[at + 8 : line]))
            else:
                ops.append(Op(kind))
            at = after
        self._rest = data[at:]
        return ops

    # -- to the client -----------------------------------------------------------------------------------------------

    def deliver(self, sid: str, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """Send a message to one of the client's subscriptions."""
        if self.gone:
            return
        middle = f"{subject} {sid} {reply} " if reply else f"{subject} {sid} "
        line = f"MSG {middle}{len(data)}\r\n"
        if headers:
            line = f"HMSG {middle}{len(headers)} {len(headers) + len(data)}\r\n"
        self._down(Message(subject, reply, headers, data), b"".join((line.encode(), headers, data, b"\r\n")))

    def _down(self, message: Message, raw: bytes) -> None:
        if self.gone:
            return
        delays = PROMPT if self.link is _PROMPT_LINK else self.link.received(message)
        for delay in delays:
            if delay > 0:
                self.server.loop.call_later(delay, self._arrive_late, raw, context=self.context)
                continue
            if not self._out:
                self.server.loop.call_soon(self._arrive, context=self.context)
            self._out.append(raw)

    def _arrive(self) -> None:
        out, self._out = self._out, []
        self._take(b"".join(out))

    def _arrive_late(self, raw: bytes) -> None:
        if not self.gone:
            self._take(raw)

    def cut(self) -> None:
        """Break the connection: the client sees its end at once, after what it was sent before."""
        if not self.gone:
            self.forget()
            self.server.loop.call_soon(self._hang_up, context=self.context)
