"""Values as people give them, made plain: what is stored must be read back as what it was.

``True`` is an int to Python and no number to whoever reads the record; a class derived from ``str``, ``int`` or ``float``
is one that the encoder does not know, and may show another text than its own. Nothing is raised here: the caller knows
the name of the argument and which error it is.
"""

from __future__ import annotations

import math
from datetime import timedelta

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that are none of ours: it has an error of its own, but none for text that is no UTF-8."""


def number(value: object) -> float | None:
    """A finite number as a plain float; None for anything else, a bool and an int that no float can hold included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        plain = float(value)
    except OverflowError:
        return None
    return plain if math.isfinite(plain) else None


def seconds(value: object) -> float | None:
    """A number of seconds or a timedelta as a plain float; None for anything else."""
    return value.total_seconds() if isinstance(value, timedelta) else number(value)


def whole(value: object) -> int | None:
    """A whole number of at most 64 bits as a plain int; None for anything else, a bool included."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        return None
    return int(value)


def plain(text: str) -> str:
    """The same text as a plain str."""
    return str.__str__(text)


def text_fault(value: object, most: int) -> str:
    """What is wrong with a text of at most ``most`` bytes of UTF-8; empty if nothing is."""
    if not isinstance(value, str):
        return f"must be a str, got {type(value).__name__}"
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        return f"is not valid Unicode: {error.reason} at position {error.start}"
    return f"has {size} bytes of UTF-8, at most {most} are kept: shorten it" if size > most else ""
