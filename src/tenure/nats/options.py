"""Options of a connection: those of nats-py's ``connect``, less those that Tenure sets itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from nats.aio.client import Client as NatsClient

from tenure.core.errors import ConfigError

_OURS = frozenset({
    "servers", "name", "error_cb", "disconnected_cb", "reconnected_cb", "allow_reconnect", "max_reconnect_attempts",
    "reconnect_time_wait", "connect_timeout", "ping_interval", "max_outstanding_pings", "drain_timeout",
})  # fmt: skip
_KNOWN = tuple(name for name in inspect.signature(NatsClient.connect).parameters if name not in _OURS | {"self"})


def check_options(door: str, options: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """The options given to ``app.<door>()``, which itself takes ``others``. Raises ConfigError that names what is wrong."""
    for name in options:
        if name in _OURS:
            raise ConfigError(f"{door}: option {name!r} is Tenure's own and cannot be set")
        if name not in _KNOWN:
            raise ConfigError(f"{door} has no option {name!r}; it takes {', '.join(('url', *others, *_KNOWN))}")
    return dict(options)


def wants_tls(servers: Iterable[str], options: Mapping[str, Any]) -> bool:
    """Whether whoever connects so must not talk in the clear."""
    asked = any(options.get(name) for name in ("tls", "tls_hostname", "tls_handshake_first"))
    return asked or any(server.startswith("tls://") for server in servers)
