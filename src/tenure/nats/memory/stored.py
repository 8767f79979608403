"""A stored message, and the forms in which headers, durations and times are written."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime

import msgspec

SECOND = 1_000_000_000
NEVER = 0
SLACK = 1_000
"""What is due within a microsecond is due: the time of day as a float is hardly finer (and see ``MemoryServer.due_by``)."""
_LINE = b"NATS/1.0\r\n"
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")


class Stored(msgspec.Struct, eq=False):
    """A message in a stream; ``time`` and ``expires`` in nanoseconds since the epoch (0: it does not expire)."""

    seq: int
    subject: str
    headers: bytes
    data: bytes
    time: int
    fields: dict[str, str]
    expires: int = NEVER

    @property
    def size(self) -> int:
        """Bytes that it takes, as the server counts them."""
        return len(self.subject) + len(self.headers) + len(self.data) + 22 + (4 if self.headers else 0)


def read_fields(headers: bytes) -> dict[str, str]:
    """Headers by name; of several with one name the first."""
    fields: dict[str, str] = {}
    if headers:
        for line in headers.decode("utf-8", "surrogateescape").split("\r\n")[1:]:
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name, value.strip())
    return fields


def write_fields(fields: dict[str, str], status: str = "") -> bytes:
    """Headers as they are sent."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0{' ' + status if status else ''}\r\n{lines}\r\n".encode("utf-8", "surrogateescape")


def add_fields(headers: bytes, fields: dict[str, str]) -> bytes:
    """The same headers, and more."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return (headers[:-2] if headers else _LINE) + f"{lines}\r\n".encode()


def read_duration(text: str) -> int | None:
    """Nanoseconds of ``1h30m``, ``5s`` or whole seconds; None for what is neither."""
    if text.isdigit():
        return int(text) * SECOND
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return int(sum(float(number) * _UNITS[unit] for number, unit in parts))


def write_duration(nanos: int) -> str:
    """As Go writes a duration of whole seconds."""
    minutes, seconds = divmod(nanos // SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def write_time(nanos: int) -> str:
    """RFC 3339 with nanoseconds; the year 1 for 0."""
    if not nanos:
        return "0001-01-01T00:00:00Z"
    seconds, rest = divmod(nanos, SECOND)
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{_write_second(seconds)}{fraction}Z"


@functools.lru_cache(maxsize=16)
def _write_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def read_time(text: str) -> int | None:
    """Nanoseconds since the epoch of an RFC 3339 time; None for what is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        return None
    whole = int(at.replace(microsecond=0).timestamp())
    return whole * SECOND + at.microsecond * 1_000
