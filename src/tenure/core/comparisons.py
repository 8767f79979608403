"""Comparisons of an argument's value, as a switch has them among the values that count as equal: ``>=100``.

No value in JSON begins so. An older Tenure takes one for a value that nothing equals, blocks nothing by it, and writes it back
as it was; what a newer one may write there fits nothing here. Several of one argument must all hold; values that cannot be
compared, such as a text with a number, hold nothing but ``!=``.

Pure.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import msgspec

_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_DIFFERS = "!="
OPS = ("==", _DIFFERS, *_ORDERED, "between")
_BEGIN = ("!", "<", ">")


def said(value: Any) -> str:
    """A value as JSON has it; equal ones are said the same way: ``1`` and ``1.0``, objects in any order of their fields."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value, order="sorted").decode()


def kind_of(value: object) -> type | None:
    """Of what kind a value is that has an order: ``float`` (any number), ``str``; None: it has none."""
    if isinstance(value, str):
        return str
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float if isinstance(value, int) or math.isfinite(value) else None  # an int may be too large for a float


def fits_of(values: tuple[str, ...]) -> Callable[[Any], bool]:
    """Tells of a value whether it is one of those that count as equal, if there are any, and every comparison holds."""
    equal = frozenset(value for value in values if not value.startswith(_BEGIN))
    tests = [_test(value) for value in values if value.startswith(_BEGIN)]
    if not tests:
        return lambda given: said(given) in equal
    return lambda given: (not equal or said(given) in equal) and all(test(given) for test in tests)


def in_words(name: str, values: tuple[str, ...]) -> str:
    """An argument and its values for people: ``size=1``, ``size >= 1 and size < 5``; of several equal ones the first."""
    equal = [f"{name}={value}" for value in values if not value.startswith(_BEGIN)]
    compared = [f"{name} {op} {literal}" for op, literal in map(_parts, values) if op]
    return " and ".join([*equal[:1], *compared])


def _parts(value: str) -> tuple[str, str]:
    """Comparison and value, as JSON; of what is none, or none that is known, ("", "")."""
    op = next((op for op in (_DIFFERS, *_ORDERED) if value.startswith(op)), "")
    return (op, value[len(op) :]) if op else ("", "")


def _test(value: str) -> Callable[[Any], bool]:
    op, literal = _parts(value)
    if op == _DIFFERS:
        return lambda given: said(given) != literal
    try:
        bound = msgspec.json.decode(literal)
    except msgspec.DecodeError:
        bound = None
    kind, holds = kind_of(bound), _ORDERED.get(op)
    if kind is None or holds is None:
        return lambda _given: False
    return lambda given: kind_of(given) is kind and holds(given, bound)
