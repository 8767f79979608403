"""What a test gives: each refusal is an InvalidCall that names its argument."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tenure.app import App
from tenure.core.errors import MAX_DELAY_SECONDS, InvalidCall
from tenure.core.given import seconds as seconds_of
from tenure.core.given import whole


def check_app(app: object) -> App:
    """The app that is to run, or whose actor is called."""
    if not isinstance(app, App):
        raise _refusal("app", f"must be a tenure.App, got {app!r}")
    return app


def check_count(field: str, value: object, *, least: int) -> int:
    """A whole number of at least ``least``."""
    count = whole(value)
    if count is None or count < least:
        raise _refusal(field, f"must be a whole number >= {least}, got {value!r}")
    return count


def check_seed(seed: object) -> int:
    """Any whole number: with None, say, chance would be another one each time."""
    number = whole(seed)
    if number is None:
        raise _refusal("seed", f"must be a whole number of at most 64 bits, got {seed!r}")
    return number


def check_moment(field: str, moment: object) -> float:
    """Seconds since the epoch of an aware datetime."""
    if not isinstance(moment, datetime):
        raise _refusal(field, f"must be an aware datetime, got {moment!r}")
    if moment.utcoffset() is None:
        raise _refusal(field, f"must be an aware datetime, {moment.isoformat()} has no time zone: give it a tzinfo")
    return moment.timestamp()


def check_start(start: object) -> float:
    """The time of day at the beginning, seconds since the epoch: no id can be made before that."""
    seconds = check_moment("start", start)
    if seconds < 0:
        raise _refusal("start", f"must not be before 1970, got {start}")
    return seconds


def check_span(seconds: object) -> float:
    """How much time is to pass, in seconds."""
    span = seconds_of(seconds)
    if span is None:
        raise _refusal("seconds", f"must be a finite number or a timedelta, got {seconds!r}")
    if span < 0:
        raise _refusal("seconds", f"must not be negative, got {seconds!r}: time never goes back")
    if span > MAX_DELAY_SECONDS:
        raise _refusal("seconds", f"must be at most ten years, got {seconds!r}")
    return span


def check_message(subject: object, data: object, headers: object) -> None:
    """What is published as by another program."""
    if not isinstance(subject, str) or not subject.isprintable() or not subject or " " in subject:
        raise _refusal(
            "subject", f"must be a str without white space, such as 'tenure.shop.submit.pay', got {subject!r}"
        )
    if not isinstance(data, bytes | bytearray | memoryview):
        raise _refusal("data", f"must be bytes, such as json.dumps(args).encode(), got {type(data).__name__}")
    if headers is None:
        return
    if not isinstance(headers, Mapping) or not all(isinstance(text, str) for pair in headers.items() for text in pair):
        raise _refusal("headers", f"must be a mapping of names to texts, or None, got {headers!r}")


def _refusal(field: str, what: str) -> InvalidCall:
    return InvalidCall(f"{field} {what}", field=field)
