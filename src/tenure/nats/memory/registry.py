"""The servers of this process that can be reached as ``memory://<name>``, from their start to their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from tenure.core.errors import ConfigError

if TYPE_CHECKING:
    from tenure.nats.memory.peer import Ends, Peer

SCHEME = "memory"


class Reachable(Protocol):
    """A server, or what stands in front of one."""

    name: str
    """What it is found by."""

    @property
    def running(self) -> bool:
        """Whether it accepts connections."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The only loop that it can be reached from."""
        ...

    def next_client(self) -> int:
        """A number for a client that no other has."""
        ...

    def accept(self, ends: Ends) -> Peer:
        """A new connection."""
        ...


_servers: dict[str, Reachable] = {}


def find_server(name: str) -> Reachable:
    """The server of this name. Raises ConfigError if there is none."""
    server = _servers.get(name)
    if server is None:
        there = ", ".join(sorted(_servers)) or "none"
        raise ConfigError(
            f"there is no server memory://{name} in this process (there is: {there}): start a MemoryServer({name!r}) first"
        )
    return server


def register(server: Reachable) -> None:
    """Make a server known. Raises ConfigError if its name is taken."""
    if _servers.setdefault(server.name, server) is not server:
        raise ConfigError(f"there is a server memory://{server.name} already: stop it, or take another name")


def unregister(server: Reachable) -> None:
    """Forget a server."""
    if _servers.get(server.name) is server:
        del _servers[server.name]
