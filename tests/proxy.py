"""A TCP proxy between clients and a NATS server that loses, delays or cuts exactly one chosen publish or its answer.

It reads the protocol of both directions frame by frame, so a fault hits the bytes that a test means: "the server
committed, the client never heard" is ``lose_answer``; "the request was still on its way when the client gave up" is
``hold``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tenure import App

_LIMIT = 8 << 20
_FETCH = b"PUB", b"HPUB"
_DELIVER = b"MSG", b"HMSG"


@dataclass(frozen=True)
class Publish:
    """One PUB or HPUB of a client."""

    subject: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def raw(self) -> bytes:
        """The same on the wire."""
        head = f"HPUB {self.subject} {self.reply} {len(self.headers)} {len(self.headers) + len(self.payload)}\r\n"
        if not self.headers:
            head = f"PUB {self.subject} {self.reply} {len(self.payload)}\r\n"
        return b"".join((head.encode(), self.headers, self.payload, b"\r\n"))

    def says(self, text: str) -> bool:
        """Whether ``text`` is in its headers or payload."""
        return text.encode() in self.headers or text.encode() in self.payload


Matches = Callable[[Publish], bool]


class What(Enum):
    """What happens to a matching publish."""

    LOSE_ANSWER = "the server gets it, its answer is thrown away"
    CUT = "the server gets it; instead of its answer the client sees the connection break"
    LOSE = "the server never gets it"
    HOLD = "the server gets it when the test says so"


@dataclass
class Fault:
    """A planned fault.

    ``hits`` are the publishes it met, ``done`` is set when it has done to the first what it does.
    """

    what: What
    matches: Matches
    times: int
    hits: list[Publish] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    held: list[Publish] = field(default_factory=list)
    cleared: bool = False

    def takes(self, publish: Publish) -> bool:
        """Whether this publish is one of its ``times``."""
        return not self.cleared and len(self.hits) < self.times and self.matches(publish)

    def clear(self) -> None:
        """Do nothing from now on."""
        self.cleared = True


class Faults:
    """The faults that are planned, and the answers that belong to them."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._answers: dict[str, Fault] = {}

    def lose_answer(self, matches: Matches, times: int = 1) -> Fault:
        """The server acts on the publish; the client never hears."""
        return self._plan(What.LOSE_ANSWER, matches, times)

    def cut_answer(self, matches: Matches, times: int = 1) -> Fault:
        """The server acts on the publish; then the client's connection breaks."""
        return self._plan(What.CUT, matches, times)

    def lose(self, matches: Matches, times: int = 1) -> Fault:
        """The publish gets lost."""
        return self._plan(What.LOSE, matches, times)

    def hold(self, matches: Matches, times: int = 1) -> Fault:
        """Keep the publish back until ``release``; what the client sends after it overtakes it."""
        return self._plan(What.HOLD, matches, times)

    def _plan(self, what: What, matches: Matches, times: int) -> Fault:
        fault = Fault(what, matches, times)
        self._faults.append(fault)
        return fault

    def plan_for(self, publish: Publish) -> Fault | None:
        """The fault that takes this publish, noted as its hit."""
        for fault in self._faults:
            if fault.takes(publish):
                fault.hits.append(publish)
                if publish.reply:
                    self._answers[publish.reply] = fault
                return fault
        return None

    def answer_to(self, subject: str) -> Fault | None:
        """The fault whose publish is answered on ``subject``, once."""
        fault = self._answers.get(subject)
        if fault is None or fault.what not in {What.LOSE_ANSWER, What.CUT}:
            return None
        del self._answers[subject]
        return fault


class Proxy(Faults):
    """``async with Proxy(url) as proxy``: connect clients to ``proxy.url``."""

    def __init__(self, url: str) -> None:
        super().__init__()
        address = urlsplit(url)
        self.upstream = (address.hostname or "", address.port or 0)
        """Host and port of the server."""
        self._links: set[_Link] = set()
        self._shut_out = ""
        self._muted: bytes | None = None
        self._muted_ids: set[bytes] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.bring_up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.take_down()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self._port}"

    # -- faults ------------------------------------------------------------------------------------------------------

    async def release(self, fault: Fault) -> None:
        """Send what was held, over a connection of its own; returns once the server has acted on it."""
        held, fault.held = fault.held, []
        await self._send(b"".join(publish.raw for publish in held))

    async def say(self, subject: str, headers: bytes, payload: bytes = b"") -> None:
        """Publish something over a connection of its own."""
        await self._send(Publish(subject, "", headers, payload).raw)

    async def _send(self, raw: bytes) -> None:
        reader, writer = await asyncio.open_connection(*self.upstream)
        try:
            writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
            writer.write(raw + b"PING\r\n")
            await writer.drain()
            while (await reader.readline()).strip() != b"PONG":
                pass
        finally:
            writer.close()

    def mute(self, stream: str) -> None:
        """Clients hear nothing more of their consumers of ``stream``, heartbeats included, once each has delivered anything."""
        self._muted = b" $JS.ACK." + stream.encode() + b"."

    def unmute(self) -> None:
        """Consumers are heard again."""
        self._muted = None
        self._muted_ids.clear()

    def is_muted(self, line: bytes) -> bool:
        """Whether a delivery is to be thrown away: of the stream by its ack subject, the rest by its subscription."""
        if self._muted is None:
            return False
        subscription = line.split()[2]
        if self._muted in line:
            self._muted_ids.add(subscription)
        return subscription in self._muted_ids

    async def cut(self) -> None:
        """Break every connection, once; clients may connect again at once."""
        links = list(self._links)
        for link in links:
            link.cut()
        await asyncio.gather(*(link.ended.wait() for link in links))

    async def take_down(self) -> None:
        """Break every connection and refuse new ones until ``bring_up``."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self.cut()
        if server is not None:
            await server.wait_closed()

    async def shut_out(self, name: str) -> None:
        """Break the connections of clients whose name contains ``name``, and refuse them until ``let_in``."""
        self._shut_out = name
        links = [link for link in self._links if name in link.name]
        for link in links:
            link.cut()
        await asyncio.gather(*(link.ended.wait() for link in links))

    def let_in(self) -> None:
        """Refuse nobody any more."""
        self._shut_out = ""

    def refuses(self, name: str) -> bool:
        """Whether a client of this name is shut out."""
        return bool(self._shut_out) and self._shut_out in name

    async def bring_up(self) -> None:
        """Accept connections (again), on the same port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=_LIMIT)
        self._port = int(self._server.sockets[0].getsockname()[1])

    # -- traffic -----------------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, (reader, writer))
        self._links.add(link)
        try:
            await link.run(self.upstream)
        finally:
            writer.close()
            self._links.discard(link)
            link.ended.set()


class _Link:
    """One client's connection and its counterpart to the server."""

    def __init__(self, proxy: Proxy, client: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._proxy = proxy
        self._client = client
        self._pumps: list[asyncio.Task[None]] = []
        self.name = ""
        """What the client calls itself."""
        self.ended = asyncio.Event()

    async def run(self, upstream: tuple[str, int]) -> None:
        """Pump both ways until either side ends."""
        try:
            server = await asyncio.open_connection(*upstream, limit=_LIMIT)
        except OSError:
            return
        client_in, client_out = self._client
        self._pumps = [
            asyncio.create_task(self._to_server(client_in, server[1])),
            asyncio.create_task(self._to_client(server[0], client_out)),
        ]
        try:
            await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            await asyncio.gather(*self._pumps, return_exceptions=True)
            server[1].close()

    def cut(self) -> None:
        """Break it."""
        for pump in self._pumps:
            pump.cancel()
        self._client[1].close()

    async def _to_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                line, body = await _frame(reader, _FETCH)
                if line.upper().startswith(b"CONNECT "):
                    self.name = str(json.loads(line[8:]).get("name") or "")
                    if self._proxy.refuses(self.name):
                        return
                publish = _publish(line, body) if body else None
                fault = self._proxy.plan_for(publish) if publish else None
                if publish is not None and fault is not None and fault.what is What.HOLD:
                    fault.held.append(publish)
                    fault.done.set()
                elif fault is not None and fault.what is What.LOSE:
                    fault.done.set()
                else:
                    writer.write(line + body)
                    await writer.drain()

    async def _to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                line, body = await _frame(reader, _DELIVER)
                if body and self._proxy.is_muted(line):
                    continue
                fault = self._proxy.answer_to(line.split()[1].decode()) if body else None
                if fault is not None:
                    fault.done.set()
                    if fault.what is What.CUT:
                        return
                    continue
                writer.write(line + body)
                await writer.drain()


async def _frame(reader: asyncio.StreamReader, with_body: Iterable[bytes]) -> tuple[bytes, bytes]:
    """One line and, for the operations ``with_body``, the payload that follows it."""
    line = await reader.readuntil(b"\r\n")
    operation, _, _ = line.partition(b" ")
    if operation.upper() not in with_body:
        return line, b""
    return line, await reader.readexactly(int(line.split()[-1]) + 2)


def _publish(line: bytes, body: bytes) -> Publish:
    operation, *parts = line.decode().split()
    headers = int(parts[-2]) if operation.upper() == "HPUB" else 0
    words = parts[: -2 if headers else -1]
    return Publish(words[0], words[1] if len(words) > 1 else "", body[:headers], body[headers:-2])


def record(app: App, key: str, state: str) -> Matches:
    """Writes of ``key``'s record that put it into phase ``state``."""
    return lambda p: p.subject == app.names.record(key) and p.says(f"Tenure-State: {state} ")


def wake_up(app: App, key: str) -> Matches:
    """Wake-ups of ``key``."""
    return lambda p: p.subject.startswith(app.names.work_prefix) and f".{key}." in p.subject
