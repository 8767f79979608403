"""Printing: one JSON document, or tables for people.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

_WIDE = 10_000
"""Columns where there is no terminal: whoever reads it with a program wants whole lines."""


def print_json(value: Any) -> None:
    """One line of JSON, at once (a stream's reader must not wait for a buffer)."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_fields(fields: Mapping[str, Any]) -> None:
    """Names and values, one pair a line; what is None or empty is left out."""
    shown = {name: _text(value) for name, value in fields.items() if value is not None and value != ""}
    width = max(map(len, shown), default=0)
    for name, text in shown.items():
        print(f"{name.replace('_', ' '):<{width}}  {text}")
    sys.stdout.flush()


def print_answer(fields: Mapping[str, Any], *, as_json: bool) -> None:
    """What a command has to say, as JSON or as ``print_fields`` does."""
    if as_json:
        print_json(fields)
    else:
        print_fields(fields)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """A table, as wide as the terminal or, in a pipe, as its contents."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row))
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def print_value(value: Any) -> None:
    """A result: a string as it is, anything else as JSON."""
    if isinstance(value, str):
        print(value, flush=True)
    else:
        print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), flush=True)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
