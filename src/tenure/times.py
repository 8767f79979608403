"""Times as users give them: a delay in seconds, an aware datetime, how long to wait."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta

from tenure.core.errors import MAX_DELAY_SECONDS, ConfigError, InvalidCall
from tenure.core.given import number
from tenure.core.given import seconds as seconds_of

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+\Z")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds_in(text: str) -> float | None:
    """Seconds of a duration such as 500ms, 10s, 2m, 1h30m; None for what is none."""
    if not _DURATION.match(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


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
    seconds = seconds_of(delay)
    if seconds is None:
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


def end_time(duration: float | timedelta | None, until: datetime | None, now: float) -> float:
    """Seconds since the epoch at which something is over, 0.0 for not by itself.

    Raises InvalidCall (field ``duration`` or ``until``), for a time that has passed as well.
    """
    if duration is not None and until is not None:
        raise InvalidCall("give duration or until, not both", field="until")
    try:
        end = due_time(duration, until, now)
    except InvalidCall as error:
        name, given = ("delay", "duration") if until is None else ("at", "until")
        raise InvalidCall(str(error).replace(name, given, 1), field=given) from error
    if not end and duration is not None:
        raise InvalidCall("duration must be more than 0 seconds", field="duration")
    if not end and until is not None:
        raise InvalidCall(f"until={until.isoformat()} has passed", field="until")
    return end


def deployed_time(given: object) -> float | None:
    """Seconds since the epoch at which a release was deployed: ``given``, else ``$TENURE_DEPLOYED``; None: neither is there.

    Raises ConfigError.
    """
    if given is None:
        said = os.environ.get("TENURE_DEPLOYED", "").strip()
        if not said:
            return None
        try:
            given = datetime.fromisoformat(said)
        except ValueError as error:
            msg = f"$TENURE_DEPLOYED must be a time such as 2026-05-01T12:00:00Z, got {said!r}"
            raise ConfigError(msg) from error
    if not isinstance(given, datetime) or given.utcoffset() is None:
        told = given.isoformat() if isinstance(given, datetime) else repr(given)
        raise ConfigError(f"deployed must be a time with its zone, e.g. 2026-05-01T12:00:00Z, got {told}")
    return given.timestamp()


def check_timeout(timeout: object) -> float | None:
    """How long to wait, in seconds; None: for ever. Raises InvalidCall (field ``timeout``)."""
    if timeout is None:
        return None
    seconds = number(timeout)
    if seconds is None or seconds < 0:
        msg = f"timeout must be a finite number of seconds >= 0, or None to wait for ever, got {timeout!r}"
        raise InvalidCall(msg, field="timeout")
    return seconds
