"""Seconds of a record as a time that people can be shown."""

from __future__ import annotations

from datetime import UTC, datetime

_FIRST = datetime(1, 1, 2, tzinfo=UTC).timestamp()
_LAST = datetime(9999, 12, 30, tzinfo=UTC).timestamp()


def moment_of(seconds: float) -> datetime:
    """The time (UTC) so many seconds after the epoch; of what no calendar has, its first or last.

    A backoff may name a year that none has, and a record that others wrote whatever it likes: neither is a reason to show nothing.
    """
    return datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC)
