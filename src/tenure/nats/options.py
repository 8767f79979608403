"""Options of a connection: those of nats-py's ``connect``, less those that Tenure sets itself; and what the environment says.

Commands have no other way to be given credentials: what stands on a command line everybody on the machine can read.
"""

from __future__ import annotations

import inspect
import os
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from nats.aio.client import Client as NatsClient

from tenure.core.errors import ConfigError

_OURS = frozenset({
    "servers", "name", "error_cb", "disconnected_cb", "reconnected_cb", "allow_reconnect", "max_reconnect_attempts",
    "reconnect_time_wait", "connect_timeout", "ping_interval", "max_outstanding_pings", "drain_timeout",
})  # fmt: skip
_KNOWN = tuple(name for name in inspect.signature(NatsClient.connect).parameters if name not in _OURS | {"self"})

ENVIRONMENT = {
    "TENURE_NATS_CREDS": "a credentials file",
    "TENURE_NATS_NKEY": "a file with the seed of an nkey",
    "TENURE_NATS_CA": "a file of certificates that the server's is checked against, instead of the system's",
    "TENURE_NATS_CERT": "a file with the client's certificate, and its key unless TENURE_NATS_KEY names another",
    "TENURE_NATS_KEY": "a file with the key of the client's certificate",
    "TENURE_NATS_INBOX": "the prefix of the subjects on which answers are heard",
}


def from_environment() -> dict[str, Any]:
    """What the variables of ``ENVIRONMENT`` ask for. Raises ConfigError that names the one whose file cannot be used."""
    given = {name: os.environ.get(name, "") for name in ENVIRONMENT}
    found: dict[str, Any] = {}
    for name, option in (("TENURE_NATS_CREDS", "user_credentials"), ("TENURE_NATS_NKEY", "nkeys_seed")):
        if given[name]:
            _readable(name, given[name])
            found[option] = given[name]
    if given["TENURE_NATS_CA"] or given["TENURE_NATS_CERT"]:
        found["tls"] = _trusting(given["TENURE_NATS_CA"], given["TENURE_NATS_CERT"], given["TENURE_NATS_KEY"])
    if given["TENURE_NATS_INBOX"]:
        found["inbox_prefix"] = given["TENURE_NATS_INBOX"].encode()
    return found


def _readable(name: str, path: str) -> None:
    try:
        with open(path, "rb"):  # noqa: PTH123  (nats-py opens it so, too)
            pass
    except OSError as error:
        raise ConfigError(f"${name} is {ENVIRONMENT[name]}: {error}") from error


def _trusting(ca: str, cert: str, key: str) -> ssl.SSLContext:
    name = "TENURE_NATS_CA"
    try:
        context = ssl.create_default_context(cafile=ca or None)
        name = "TENURE_NATS_CERT"
        if cert:
            context.load_cert_chain(cert, key or None)
    except OSError as error:  # an SSLError is one
        raise ConfigError(f"${name} is {ENVIRONMENT[name]}: {error}") from error
    return context


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
