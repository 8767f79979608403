"""The memory servers of this process, by name, from their making to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.errors import ConfigError

if TYPE_CHECKING:
    from tenure.nats.memory.server import MemoryServer

SCHEME = "memory"
_servers: dict[str, MemoryServer] = {}


def find_server(name: str) -> MemoryServer:
    """The server of this name. Raises ConfigError if there is none."""
    server = _servers.get(name)
    if server is None:
        there = ", ".join(sorted(_servers)) or "none"
        raise ConfigError(
            f"there is no server memory://{name} in this process (there is: {there}): start a MemoryServer({name!r}) first"
        )
    return server


def register(server: MemoryServer) -> None:
    """Make a server known. Raises ConfigError if its name is taken."""
    if _servers.setdefault(server.name, server) is not server:
        raise ConfigError(f"there is a server memory://{server.name} already: stop it, or take another name")


def unregister(server: MemoryServer) -> None:
    """Forget a server."""
    if _servers.get(server.name) is server:
        del _servers[server.name]
