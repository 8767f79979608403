"""Tables of commands in a terminal of any width: what does not fit is left out by rule, folded or told in paragraphs, and never cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from tenure.cli.look import _in_words, row_of
from tenure.cli.output import print_table
from tenure.core.records import Policy, _schedule

COLUMNS = ("KEY", "GEN", "RUN ID", "QUEUE", "ERROR", "CODE")
ID = "01M8KDF9WJW513BJVPMB39W3D7"
ROWS = [("bad", 1, ID, "default", "no such file or directory", ""), ("日本", 12, ID, "bulk", "", "")]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def told(width: int, columns: Any = COLUMNS, rows: Any = ROWS, **how: Any) -> str:
        monkeypatch.setattr("tenure.cli.output._WIDE", width)
        print_table(columns, rows, **how)
        out = capsys.readouterr().out
        assert all(cell_len(line) <= width for line in out.splitlines()), out
        return out

    return told


def heads(table: str) -> list[str]:
    return [name for name in COLUMNS if name in table]


def test_what_fits_is_shown_as_it_is(printed: Any) -> None:
    assert heads(printed(200)) == [*COLUMNS]
    assert "KEY   WHY" in printed(20, ("KEY", "WHY"), [])


def test_a_narrow_terminal_has_no_empty_columns_then_none_that_can_be_spared(printed: Any) -> None:
    assert heads(printed(85)) == [*COLUMNS[:-1]]
    assert heads(printed(70, spare=("QUEUE", "RUN ID"))) == ["KEY", "GEN", "RUN ID", "ERROR"]
    assert heads(printed(45, spare=("QUEUE", "RUN ID"))) == ["KEY", "GEN", "ERROR"]


def test_the_widest_column_is_folded(printed: Any) -> None:
    table = printed(40, ("KEY", "WHY"), [("k", "one two three four five six seven eight")])
    assert len(table.strip().splitlines()) == 4
    assert "…" not in table
    assert " ".join(table.split()).endswith("one two three four five six seven eight")


@pytest.mark.parametrize("width", range(38, 90))
def test_no_width_cuts_anything(printed: Any, width: int) -> None:
    table = printed(width)
    assert "…" not in table
    assert table.count(ID) == 2
    assert "directory" in table


def test_what_does_not_fit_at_all_is_told_in_paragraphs(printed: Any) -> None:
    told = printed(40)
    assert told.startswith("key     bad\ngen     1\n")
    assert "\n\nkey     日本\n" in told


def test_numbers_stand_under_each_other(printed: Any) -> None:
    one, twelve = (line for line in printed(200, ("N", "K"), [(1, "x"), (12, "x")]).splitlines() if line.endswith("x "))
    assert one.index("1") == twelve.index("2")


def test_times_are_short(printed: Any) -> None:
    today = datetime.now(UTC)
    table = printed(80, ("K", "AT"), [("now", today), ("past", today - timedelta(days=400))])
    assert f"{today.astimezone():%H:%M:%S} " in table
    assert f"{(today - timedelta(days=400)).astimezone():%Y-%m-%d %H:%M} " in table


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Policy(every=900.0), "every 15m"),
        (Policy(every=1_234_567.5), "every 14d6h"),
        (Policy(cron="30 2 * * MON-FRI", tz="America/New_York"), "30 2 * * MON-FRI America/New_York"),
    ],
)
def test_a_schedule_is_told_in_words(policy: Policy, words: str) -> None:
    """A zone may have the very character that stands for a space in a header."""
    row = row_of("k", f"waiting - - - - actor default 1 {ID} {_schedule(policy)} -", 0.0)
    assert row is not None
    assert _in_words("schedule", row.schedule) == words


def test_no_digit_of_an_interval_is_lost() -> None:
    assert _schedule(Policy(every=1_234_567.5)) == "every:1234567.5"
