"""The table of log events in ARCHITECTURE.md is the code's: no event, level or field more, and none less."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.telemetry import get_logger
from tests.logged import Heard, listening
from tests.seen_in import SEEN_IN, UNSEEN

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


# -- events as they are really logged: `log_events` in conftest.py listens to every test ---------------------------------


def test_each_event_is_seen_in_a_test_or_it_is_said_why_not(script: dict[str, Any]) -> None:
    assert SEEN_IN.keys() | UNSEEN.keys() == script["MEANINGS"].keys()
    assert SEEN_IN.keys() & UNSEEN.keys() == set()


def test_the_tests_in_which_events_are_seen_are_made_at_every_change() -> None:
    """They are there, by these names, and are not left out of `make test`."""
    problems = []
    for event, test in SEEN_IN.items():
        file, _, name = test.partition("::")
        functions = {
            node.name: [ast.unparse(one) for one in node.decorator_list]
            for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        marks = functions.get(name.partition("[")[0])
        if marks is None or "pytest.mark.long" in marks:
            problems.append(f"{event}: {test}")
    assert problems == []


@pytest.mark.parametrize(
    ("event", "level", "fields", "fault"),
    [
        ("run.taken_over", "info", {"key", "run_id", "attempt"}, ""),
        ("run.taken_over", "info", {"key", "run_id"}, "run.taken_over at info"),
        ("run.taken_over", "info", {"key", "run_id", "attempt", "args"}, "run.taken_over at info"),
        ("run.taken_over", "warning", {"key", "run_id", "attempt"}, "run.taken_over at warning"),
        ("run.stuck", "error", {"key", "run_id", "told"}, ""),
        ("run.stuck", "error", {"key", "run_id", "told", "attempt"}, ""),
        ("run.made", "info", {"key"}, "run.made is in no table"),
    ],
)
def test_an_event_that_is_not_as_the_table_says_is_noticed(
    event: str, level: str, fields: set[str], fault: str
) -> None:
    heard = Heard()
    heard.take(event, level, fields)
    assert [wrong[: len(fault)] for wrong in heard.wrong] == ([fault] if fault else [])


def test_events_are_heard_whatever_the_level_and_with_a_traceback(tmp_path: Path) -> None:
    """In this process as it logs them, of others from what they have written as JSON."""
    from tenure import health

    with listening() as heard:
        health._log.debug("scrape.dropped", client="c", error="e")
        health._log.error("scrape.failed", client="c", exc_info=True)
        get_logger("tenure.body").info("greeted", name="Ada")  # a body's own
    assert heard.events == {"scrape.dropped", "scrape.failed"}
    assert heard.wrong == []
    with listening() as after:
        pass
    health._log.debug("scrape.dropped", client="c", error="e")
    assert after.events == set()
    log = tmp_path / "lines.txt"
    log.write_text(
        '{"event": "drain.started", "level": "info", "timestamp": "t", "running": 1}\n{"event": "dra', "utf-8"
    )
    heard.read(log)
    assert "drain.started" in heard.events
