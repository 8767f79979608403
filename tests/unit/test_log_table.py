"""The table of log events in ARCHITECTURE.md is the code's: no event, level or field more, and none less."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tenure"
CODE = """
_log = get_logger("tenure.test")

class Thing:
    def work(self, key):
        about = {"key": key, "attempt": 1}
        _log.info("run.made", **about, extra=2)
        start(lambda: self._unexpected("thing.crashed", key=key))

    def _unexpected(self, what, **about):
        _log.exception(what, **about)
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "log_table.py"))


def told(script: dict[str, Any]) -> dict[str, tuple[set[str], set[str]]]:
    """Levels and fields of each event, as the page has them."""
    page = script["PAGE"].read_text(encoding="utf-8")
    rows = page.partition(script["BEGIN"])[2].partition(script["END"])[0]
    found = {}
    for line in re.findall(r"^\| `.*$", rows, re.MULTILINE):
        _, event, levels, fields, _, meaning, _ = re.split(r"\s*\|\s*", line)
        assert meaning, f"{event} has no meaning"
        found[event.strip("`")] = (set(levels.split(", ")), set(re.findall(r"\w+", fields)))
    return found


def test_the_table_in_the_architecture_page_is_up_to_date(script: dict[str, Any]) -> None:
    assert script["section"]() in script["PAGE"].read_text(encoding="utf-8"), (
        "run `python scripts/log_table.py --write`"
    )


def test_every_event_of_the_code_with_its_fields_is_in_the_table_and_nothing_else_is(script: dict[str, Any]) -> None:
    found: dict[str, tuple[set[str], set[str]]] = {}
    for one in script["written"]():
        levels, fields = found.setdefault(one.event, (set(), set()))
        levels.add(one.level)
        fields.update(one.fields)
    assert told(script) == found
    assert set(script["MEANINGS"]) == set(found)


def test_events_are_named_as_what_has_happened_to_what(script: dict[str, Any]) -> None:
    assert [one for one in script["MEANINGS"] if not re.fullmatch(r"[a-z]+\.[a-z]+(?:_[a-z]+)*", one)] == []


def test_the_library_logs_through_its_own_loggers_alone() -> None:
    """Else an event would be in no table: loggers are named ``_log``, or asked for where they speak."""
    allowed = re.compile(
        r'_log = get_logger\("tenure\.\w+"\)|get_logger\(.*\)\.info\(|get_logger\("tenure\.body"\)|def get_logger'
    )
    problems = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        problems += [line for line in text.splitlines() if "get_logger(" in line and not allowed.search(line)]
        if "_log." in text and "self._log" not in text:
            assert "get_logger" in text, path
    assert problems == []


def test_what_is_written_is_read_off_the_code(script: dict[str, Any]) -> None:
    written: Callable[..., Any] = script["_written_in"]
    got = {(one.event, one.level, one.fields) for one in written(ast.parse(CODE), "thing")}
    assert got == {
        ("run.made", "info", ("key", "attempt", "extra")),
        ("thing.crashed", "error", ("key", "exception")),
    }


@pytest.mark.parametrize(
    "line", ['_log.info(f"run.{what}")', '_log.info("run.made", **self.about)', '_log.info("a %s", 1)']
)
def test_what_cannot_be_read_off_the_code_is_refused(script: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=r"thing:2|line 2"):
        list(script["_written_in"](ast.parse(f"def work(self):\n    {line}\n"), "thing"))
