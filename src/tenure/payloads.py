"""Arguments and results as JSON: what could not be read back as what it was is refused where it is given.

A payload is stored inside its record, so one that is no JSON, or is nested deeper than a reader follows, would take the
whole key with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec
import msgspec.inspect
from msgspec import Raw

MAX_DEPTH = 200
"""Lists and objects inside each other. A decoder stops at a thousand, less the reader's own stack and the record around."""

_is_json = msgspec.json.Decoder(Raw).decode
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_PLAIN: tuple[Any, ...] = (None, True, 1, 1.0, "", [], {})
_STRINGS = rb'"(?:[^"\\]|\\.)*"'


def fault(value: Any, data: bytes, *, depth: int = MAX_DEPTH) -> str:
    """Why ``data``, to which ``value`` was encoded, must not be stored; empty if it may be."""
    if is_deeper(data, depth):
        return f"is nested deeper than {depth} levels"
    try:
        _is_json(data)
        if not data.isascii():
            data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"holds a msgspec.Raw that is no JSON: {error}"
    if b"null" in data and has_nan(value):
        return "holds NaN or an infinity, which JSON has not"
    return ""


def is_deeper(data: bytes, depth: int) -> bool:
    """Whether JSON is nested deeper than ``depth``."""
    if len(data) <= 2 * depth or data.count(b"[") + data.count(b"{") <= depth:
        return False
    brackets = re.sub(_STRINGS, b"", data, flags=re.DOTALL).translate(None, _NOT_BRACKETS)
    for _ in range(depth):  # each turn takes the innermost level away
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return bool(brackets)


def has_nan(value: Any) -> bool:
    """Whether a NaN or an infinity is somewhere in a value that was encoded: JSON would silently make it null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(has_nan(item) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(has_nan(item) for item in value)
    names: Iterable[str] = getattr(value, "__struct_fields__", getattr(value, "__dataclass_fields__", ()))
    return any(has_nan(getattr(value, name, None)) for name in names)


def foreign_class(kind: Any) -> type | None:
    """A class inside an annotation that no JSON value is ever decoded to; None if there is none."""
    return _foreign(msgspec.inspect.type_info(kind), set())


def _foreign(info: object, seen: set[type]) -> type | None:
    if isinstance(info, tuple | list):
        return next((found for part in info if (found := _foreign(part, seen)) is not None), None)
    if isinstance(info, msgspec.inspect.CustomType):
        return None if _is_shown_by(info.cls) else info.cls
    if not isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        return None
    about = getattr(info, "cls", None)
    if about is not None:
        if about in seen:  # a class with fields of its own kind
            return None
        seen.add(about)
    return _foreign([getattr(info, name) for name in info.__struct_fields__ if name != "default"], seen)


def _is_shown_by(cls: type) -> bool:
    """Whether plain JSON values are instances of a class: of ``object``, say, or of a protocol that can be asked."""
    try:
        return any(isinstance(value, cls) for value in _PLAIN)
    except TypeError:
        return False
