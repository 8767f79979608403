"""What can be the address of a NATS server, before anybody is asked at it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from tenure.core.errors import ConfigError

_SCHEMES = ("nats", "tls", "ws", "wss")
_NEXT = re.compile(r",(?=\s*\w+://)")
_BREAKS, _SHORTEST = re.compile(r"[@/,:]"), 4
_SECRET = re.compile(r"(\s*(?:\w+://)?)(.*@)", re.DOTALL)


def check_url(url: str) -> None:
    """ConfigError, naming what is wrong, unless ``url`` can be one: several are separated by commas, a scheme may be missing."""
    if url.startswith("memory://"):
        from tenure.nats.memory.registry import find_server

        find_server(url.removeprefix("memory://"))
        return
    parts = [part.strip() for part in url.split(",")]
    web = {_check_one(part, url) in {"ws", "wss"} for part in parts}
    if len(web) > 1:
        raise _bad(url, "ws and wss do not mix with nats and tls")


def _check_one(part: str, url: str) -> str:
    try:
        address = urlsplit(part if "://" in part else f"nats://{part}")
        host = address.hostname
    except ValueError:  # an open bracket, say; its own words quote what may be a password, here and below
        raise _bad(url, "its host cannot be read") from None
    try:
        port = address.port
    except ValueError:
        raise _bad(url, "its port is no number up to 65535") from None
    if address.scheme not in _SCHEMES:
        raise _bad(url, f"the scheme {address.scheme!r} is none of {', '.join(_SCHEMES)}")
    if not host or re.search(r"\s", host):
        raise _bad(url, "a host is missing" if not host else f"{host!r} is no host")
    if port == 0:
        raise _bad(url, "no server listens on port 0")
    return address.scheme


def _bad(url: str, why: str) -> ConfigError:
    return ConfigError(
        f"{without_secrets(url)!r} cannot be the URL of a NATS server: {why}; write it like nats://127.0.0.1:4222"
    )


def without_secrets(url: str) -> str:
    """The address for people: what stands before an ``@`` is nobody's to see.

    Of each server up to its last one, for a password may hold an ``@``, a comma or a slash that nobody has escaped.
    """
    return ",".join(_SECRET.sub(r"\1", part) for part in _NEXT.split(url))


def scrubbed(text: str, url: str) -> str:
    """Words of a library about a connection to ``url``, without what must not be seen of it."""
    for part in _NEXT.split(url):
        found = _SECRET.match(part)
        secret = found[2].rpartition("@")[0] if found is not None else ""
        password = secret.partition(":")[2]
        pieces = [piece for piece in _BREAKS.split(password) if len(piece) >= _SHORTEST]  # where a library has cut it
        for word in filter(None, (secret, password, *pieces)):
            text = text.replace(word, "***")
    return text


def in_this_loop(url: str) -> bool:
    """Whether the server is an object in the caller's own loop, so that no thread can talk to it."""
    return url.startswith("memory://")
