"""The client's end of a connection to a ``MemoryServer``: what nats-py has instead of a socket."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any
from urllib.parse import ParseResult, urlsplit

from nats.aio.client import Srv
from nats.aio.transport import Transport
from nats.nuid import NUID

from tenure.core.errors import ConfigError
from tenure.nats.memory.peer import Ends, Peer
from tenure.nats.memory.registry import find_server
from tenure.nats.wire import QuickClient


class MemoryTransport(Transport):
    """Bytes to and from a server in this process."""

    def __init__(self) -> None:
        self._peer: Peer | None = None
        self._came: list[bytes] = []
        self._more = asyncio.Event()
        self._ended = False

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Raises ConnectionRefusedError if the server does not run."""
        del buffer_size, connect_timeout
        server = find_server(uri.netloc)
        if not server.running:
            raise ConnectionRefusedError(f"the server {uri.geturl()} does not run")
        if server.loop is not asyncio.get_running_loop():
            raise ConfigError(
                f"{uri.geturl()} lives on another event loop: everything of one memory server shares one loop"
            )
        self._peer = server.accept(Ends(contextvars.copy_context(), self._take, self._hang_up))

    async def connect_tls(self, *_args: Any, **_options: Any) -> None:
        """There is nobody in between who could listen."""
        raise ConfigError("a memory:// server has no TLS")

    def _take(self, data: bytes) -> None:
        if not self._ended:
            self._came.append(data)
            self._more.set()

    def _hang_up(self) -> None:
        self._ended = True
        self._more.set()

    def write(self, payload: bytes) -> None:
        """Send bytes; lost if the connection is over."""
        if self._peer is not None and not self._ended:
            self._peer.receive(payload)

    def writelines(self, payload: list[bytes]) -> None:
        """Send several pieces."""
        self.write(b"".join(payload))

    async def read(self, buffer_size: int) -> bytes:
        """What has come, once something has; nothing at the end."""
        del buffer_size
        while not self._came and not self._ended:
            self._more.clear()
            await self._more.wait()
        came, self._came = self._came, []
        return b"".join(came)

    async def readline(self) -> bytes:
        """One line; what has come after it stays."""
        line = b""
        while b"\n" not in line:
            more = await self.read(0)
            if not more:
                return line
            line += more
        line, _, rest = line.partition(b"\n")
        if rest:
            self._came.insert(0, rest)
        return line + b"\n"

    async def drain(self) -> None:
        """Raises ConnectionResetError if the connection is over."""
        if self._ended:
            raise ConnectionResetError("the connection is over")

    async def wait_closed(self) -> None:
        """It closes at once."""

    def close(self) -> None:
        """End the connection."""
        peer, self._peer = self._peer, None
        if peer is not None and not self._ended:
            peer.leave()
        self._hang_up()

    def at_eof(self) -> bool:
        """Whether nothing more will come."""
        return self._ended and not self._came

    def __bool__(self) -> bool:
        return self._peer is not None


class _Numbers(NUID):
    """Names that nobody else on the server has, and the same ones each time that the same things happen."""

    def __init__(self, client: int) -> None:
        self._client = client
        self._number = 0

    def next(self) -> bytearray:
        self._number += 1
        return bytearray(b"M%011d%010d" % (self._client, self._number))


class MemoryClient(QuickClient):
    """nats-py's client, connected to a ``MemoryServer``.

    Only the way to the server, the names that it makes up and the clock of its waits between two tries differ.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tried_at: float | None = None

    def _setup_server_pool(self, connect_url: str | list[str]) -> None:
        urls = [connect_url] if isinstance(connect_url, str) else connect_url
        self._server_pool = [Srv(ParseResult(part.scheme, part.netloc, "", "", "", "")) for part in map(urlsplit, urls)]
        self._nuid = _Numbers(find_server(self._server_pool[0].uri.netloc).next_client())

    async def _connect_to_server(self, s: Srv) -> None:
        transport = MemoryTransport()
        self._tried_at = self._loop.time()
        await transport.connect(s.uri, 0, 0)
        self._transport = transport

    async def _select_next_server(self) -> None:
        """As nats-py's, which looks at the machine's clock."""
        (server,) = self._server_pool
        while True:
            wait = self.options["reconnect_time_wait"]
            if self._tried_at is not None and self._loop.time() < self._tried_at + wait:
                await asyncio.sleep(wait)
            try:
                await self._connect_to_server(server)
            except OSError as error:
                self._err = error
                server.reconnects += 1
                await self._error_cb(error)
            else:
                self._current_server = server
                return
