"""Due times as users give them: a delay in seconds, or an aware datetime."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from tenure.core.errors import MAX_DELAY_SECONDS, InvalidCall


def due_time(delay: float | timedelta | None, at: datetime | None, now: float) -> float:
    """Seconds since the epoch at which a run is due, 0.0 for at once.

    Raises InvalidCall (field ``delay`` or ``at``).
    """
    if delay is not None and at is not None:
        msg = "give delay or at, not both"
        raise InvalidCall(msg, field="at")
    if at is not None:
        return _at(at, now)
    if delay is None:
        return 0.0
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        msg = f"delay must be a finite number of seconds or a timedelta, got {delay!r}"
        raise InvalidCall(msg, field="delay")
    if seconds < 0:
        msg = f"delay must not be negative, got {seconds!r}"
        raise InvalidCall(msg, field="delay")
    if seconds > MAX_DELAY_SECONDS:
        msg = f"delay must be at most ten years, got {seconds!r} seconds"
        raise InvalidCall(msg, field="delay")
    return now + seconds if seconds else 0.0


def _at(at: object, now: float) -> float:
    if not isinstance(at, datetime):
        msg = f"at must be an aware datetime, got {type(at).__name__}"
        raise InvalidCall(msg, field="at")
    if at.tzinfo is None or at.utcoffset() is None:
        msg = f"at={at.isoformat()} has no time zone: use an aware datetime, e.g. datetime.now(UTC) + timedelta(...)"
        raise InvalidCall(msg, field="at")
    due = at.timestamp()
    if due > now + MAX_DELAY_SECONDS:
        msg = f"at={at.isoformat()} is more than ten years away"
        raise InvalidCall(msg, field="at")
    return due if due > now else 0.0
