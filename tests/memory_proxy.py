"""The proxy's counterpart for a server in memory: the same faults, on the link between client and server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tenure.nats.memory import PROMPT, Link, MemoryServer
from tenure.nats.memory.link import Message
from tenure.nats.memory.peer import Ends, Peer
from tenure.nats.memory.registry import find_server, register, unregister
from tests.proxy import Fault, Faults, Publish, What

_numbers = itertools.count(1)


class MemoryProxy(Faults):
    """``async with MemoryProxy(url) as proxy``: connect clients to ``proxy.url``."""

    def __init__(self, url: str) -> None:
        super().__init__()
        server = find_server(url.removeprefix("memory://"))
        assert isinstance(server, MemoryServer)
        self._server = server
        self._peers: list[Peer] = []
        self._up = False
        self.name = f"{server.name}-proxy{next(_numbers)}"

    async def __aenter__(self) -> Self:
        register(self)
        await self.bring_up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.take_down()
        unregister(self)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"memory://{self.name}"

    @property
    def running(self) -> bool:
        return self._up and self._server.running

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._server.loop

    def next_client(self) -> int:
        return self._server.next_client()

    def accept(self, ends: Ends) -> Peer:
        self._peers = [peer for peer in self._peers if not peer.gone]
        self._peers.append(self._server.accept(ends, lambda _name: _Faulty(self)))
        return self._peers[-1]

    async def bring_up(self) -> None:
        """Accept connections (again)."""
        self._up = True

    async def take_down(self) -> None:
        """Break every connection and refuse new ones until ``bring_up``."""
        self._up = False
        await self.cut()

    async def cut(self) -> None:
        """Break every connection, once; clients may connect again at once."""
        self.cut_now()

    def cut_now(self) -> None:
        """As ``cut``."""
        for peer in self._peers:
            peer.cut()

    async def release(self, fault: Fault) -> None:
        """Send what was held; the server has acted on it when this returns."""
        held, fault.held = fault.held, []
        for publish in held:
            self._server.publish(None, publish.subject, publish.reply, publish.headers, publish.payload)

    async def say(self, subject: str, headers: bytes, payload: bytes = b"") -> None:
        """Have the server publish something."""
        self._server.publish(None, subject, "", headers, payload)


class _Faulty(Link):
    """One client's link: loses, holds or breaks at what the proxy's faults take."""

    def __init__(self, proxy: MemoryProxy) -> None:
        self._proxy = proxy

    def sent(self, message: Message) -> Sequence[float]:
        publish = Publish(message.subject, message.reply, message.headers, message.data)
        fault = self._proxy.plan_for(publish)
        if fault is None or fault.what not in {What.HOLD, What.LOSE}:
            return PROMPT
        if fault.what is What.HOLD:
            fault.held.append(publish)
        fault.done.set()
        return ()

    def received(self, message: Message) -> Sequence[float]:
        fault = self._proxy.answer_to(message.subject)
        if fault is None:
            return PROMPT
        fault.done.set()
        if fault.what is What.CUT:
            self._proxy.cut_now()
        return ()
