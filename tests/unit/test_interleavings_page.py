"""The page of interleavings names tests that are there, and the numbers in the code are on the page."""

from __future__ import annotations

import re
from pathlib import Path

from tests.mutants.__main__ import GUARDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src" / "tenure" / "INTERLEAVINGS.md"


def rows() -> dict[int, str]:
    """The test of each number."""
    lines = [line.split("|") for line in PAGE.read_text().splitlines() if re.match(r"\| \d", line)]
    return {int(line[1]): line[-2].strip().strip("`") for line in lines}


def cites(number: int, text: str) -> bool:
    """Whether ``[number]`` is in the text, by itself or with others."""
    return any(str(number) in numbers.split(", ") for numbers in re.findall(r"\[(\d+(?:, \d+)*)\]", text))


def test_every_test_on_the_page_is_there() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in rows().values() if not re.search(rf"def {name}\b", tests)] == []


def test_every_rule_on_the_page_is_taken_away_by_a_mutant() -> None:
    """``[n]`` is in the name of a guard, whose tests must be red without it."""
    assert [number for number in rows() if not any(cites(number, guard.name) for guard in GUARDS)] == []


def test_every_number_that_the_protocol_cites_is_on_the_page() -> None:
    cited: set[int] = set()
    for path in (*(ROOT / "src" / "tenure").rglob("*.py"), *(ROOT / "tests" / "mutants").glob("*.py")):
        for numbers in re.findall(r"(?<![\w\])])\[(\d+(?:, \d+)*)\]", path.read_text()):
            cited |= {int(number) for number in numbers.split(", ")}
    assert cited - set(rows()) <= {0}, "0 is an index"
