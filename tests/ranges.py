"""Numbers that a tool is given: one with which it would look at nothing is refused, by the name of its argument."""

from __future__ import annotations

import argparse
import math


def one_or_more(text: str) -> int:
    """A whole number from 1 on."""
    if text.strip().isdecimal() and int(text) >= 1:
        return int(text)
    msg = f"a whole number >= 1 is needed, got {text!r}"
    raise argparse.ArgumentTypeError(msg)


def positive(text: str) -> float:
    """A number above 0, of seconds."""
    return _finite(text, above=True)


def zero_or_more(text: str) -> float:
    """A number from 0 on, of seconds."""
    return _finite(text, above=False)


def _finite(text: str, *, above: bool) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isfinite(number) and (number > 0 or (not above and number == 0)):
        return number
    msg = f"a number {'>' if above else '>='} 0 is needed, got {text!r}"
    raise argparse.ArgumentTypeError(msg)
