"""Printing: one JSON document, or tables for people.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

_WIDE = 10_000
"""Columns where there is no terminal: whoever reads it with a program wants whole lines."""
_GAP = 3
_FOLDED = 20
"""Columns that are the least that a text can be folded to and read."""
_NUMBER = re.compile(r"[-\d]*")


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


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, spare: Sequence[str] = ()) -> None:
    """A table, as wide as its contents.

    In a terminal that is narrower: without the columns that are empty, then without those of ``spare``, one by one, then with
    the widest one folded, and if that is not enough with each row as a paragraph. No cell is ever cut.
    """
    from rich.console import Console

    cells = [[brief(value) for value in row] for row in rows]
    shown = {name: [row[place] for row in cells] for place, name in enumerate(columns)}
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    if cells and _width(shown) > console.width:
        shown = {name: column for name, column in shown.items() if any(column)}
    for name in spare:
        if _least(shown) > console.width:
            shown.pop(name, None)
    if _least(shown) <= console.width:
        console.print(_table(shown))
        return
    for number, row in enumerate(zip(*shown.values(), strict=True)):
        if number:
            print()
        print_fields(dict(zip(map(str.lower, shown), row, strict=True)))


def _table(shown: Mapping[str, Sequence[str]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    widest = _widest(shown)
    for name, column in shown.items():
        numbers = any(column) and all(map(_NUMBER.fullmatch, column))
        table.add_column(name, justify="right" if numbers else "left", overflow="fold", no_wrap=name != widest)
    for row in zip(*shown.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _width(shown: Mapping[str, Sequence[str]]) -> int:
    """Of a table, with the gaps between its columns and what is at its edges."""
    from rich.cells import cell_len

    return sum(max(map(cell_len, (name, *column))) + _GAP for name, column in shown.items()) - 1


def _widest(shown: Mapping[str, Sequence[str]]) -> str:
    """Of the columns with words in them, if there are any: an id is not to be broken."""
    worded = [name for name, column in shown.items() if any(" " in cell for cell in column)]
    return max(worded or shown, key=lambda name: _width({name: shown[name]}), default="")


def _least(shown: Mapping[str, Sequence[str]]) -> int:
    """How wide a table is at least, its widest column folded."""
    widest = _width({name: column for name, column in shown.items() if name == _widest(shown)})
    return _width(shown) - max(0, widest - _GAP + 1 - _FOLDED)


def print_value(value: Any) -> None:
    """A result: a string as it is, anything else as JSON."""
    if isinstance(value, str):
        print(value, flush=True)
    else:
        print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), flush=True)


def brief(value: Any) -> str:
    """As in a list of fields, but a time as short as it can be: of today without the day, and no parts of a second."""
    if not isinstance(value, datetime):
        return _text(value)
    local = value.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == datetime.now(UTC).astimezone().date() else f"{local:%Y-%m-%d %H:%M}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
