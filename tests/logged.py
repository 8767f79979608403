"""What the library logs while a test runs, at whatever level: each event must be as the table of ARCHITECTURE.md has it.

And each event of the table is seen somewhere: ``SEEN_IN`` names a test, which fails if it comes to its end without that event. A
test's own process is listened to; of others, commands that it has started in its folder, what they have written to ``stderr.log``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.seen_in import SEEN_IN

PAGE = Path(__file__).resolve().parents[1] / "src" / "tenure" / "ARCHITECTURE.md"
_PARTS_OF_A_LINE = {"event", "level", "timestamp"}
_PASSED_ON = {"exc_info", "stack_info", "stacklevel"}


class Row(NamedTuple):
    """What the table says of an event: its levels, fields that are always there, and those that may be."""

    levels: frozenset[str]
    always: frozenset[str]
    sometimes: frozenset[str]


@cache
def table() -> dict[str, Row]:
    """As ``scripts/log_table.py`` has written it."""
    rows = PAGE.read_text(encoding="utf-8").partition("<!-- log-table:begin -->")[2]
    found = {}
    for line in re.findall(r"^\| `(\w+\.\w+)` \| ([\w, ]+) \| ([^|]*) \|", rows, re.MULTILINE):
        event, levels, fields = line
        brackets = frozenset(re.findall(r"\((\w+)\)", fields))
        found[event] = Row(frozenset(levels.split(", ")), frozenset(re.findall(r"\w+", fields)) - brackets, brackets)
    return found


class Heard:
    """In one test."""

    def __init__(self) -> None:
        self.events: set[str] = set()
        self.wrong: list[str] = []

    def take(self, event: str, level: str, fields: set[str]) -> None:
        """One event; what is wrong with it is kept."""
        row = table().get(event)
        if row is None:
            self.wrong.append(f"{event} is in no table")
            return
        self.events.add(event)
        if level not in row.levels or not row.always <= fields <= row.always | row.sometimes:
            self.wrong.append(f"{event} at {level} with {sorted(fields)}, the table says {row}")

    def read(self, log: Path) -> None:
        """What processes have written to a file."""
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            said = _json(line)
            if said is not None and said["event"] in table():  # else a body's own
                self.take(said["event"], said["level"], set(said) - _PARTS_OF_A_LINE)


def _json(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        said = json.loads(line)
    except json.JSONDecodeError:  # cut off by a kill
        return None
    return said if isinstance(said, dict) and "event" in said and "level" in said else None


@contextmanager
def listening() -> Iterator[Heard]:
    """To all loggers of the library that there are: first of their processors, so before one that asks for a level."""
    heard = Heard()

    def hear(_logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        fields = set(event) - {"event"} - _PASSED_ON
        told = fields | ({"exception"} if method == "exception" or event.get("exc_info") else set())
        heard.take(str(event["event"]), "error" if method == "exception" else method, told)
        return event

    pipelines = [
        module._log._processors
        for name, module in list(sys.modules.items())
        if name.startswith("tenure.") and hasattr(module, "_log")
    ]
    for pipeline in pipelines:
        pipeline.insert(0, hear)
    try:
        yield heard
    finally:
        for pipeline in pipelines:
            pipeline.remove(hear)


def wanted(test: str) -> set[str]:
    """Events for which a test is named; ``test``: its node id."""
    return {event for event, named in SEEN_IN.items() if test == named or test.startswith(f"{named}[")}
