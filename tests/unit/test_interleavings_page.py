"""The page of interleavings names the tests that the mutants show to be red, and the numbers in the code are on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.__main__ import GUARDS
from tests.mutants.guard import Guard

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src" / "tenure" / "INTERLEAVINGS.md"


def rows() -> dict[int, set[str]]:
    """The tests of each number."""
    lines = [line.split("|") for line in PAGE.read_text().splitlines() if re.match(r"\| \d", line)]
    return {int(line[1]): set(re.findall(r"`(test_\w+)`", line[-2])) for line in lines}


def names(guard: Guard) -> set[str]:
    """The tests of a guard, by name."""
    return {test.partition("::")[2] for test in guard.tests}


def test_every_test_on_the_page_is_there() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in set().union(*rows().values()) if not re.search(rf"def {name}\b", tests)] == []


def test_every_rule_on_the_page_is_taken_away_by_a_mutant_that_each_of_its_tests_must_notice() -> None:
    """``[n]`` is in the name of guards: what they name as their tests, which all must be red without them, is row n."""
    numbered = [guard for guard in GUARDS if guard.numbers]
    shown = {number: set().union(*(names(one) for one in numbered if number in one.numbers)) for number in rows()}
    assert {
        number: tests - shown[number] for number, tests in rows().items() if not tests or tests - shown[number]
    } == {}


@pytest.mark.parametrize("guard", [one for one in GUARDS if one.numbers], ids=lambda guard: guard.name)
def test_a_numbered_guard_names_tests_of_its_rows_and_no_others(guard: Guard) -> None:
    on_page = {number: rows()[number] & names(guard) for number in guard.numbers}
    assert all(on_page.values()), on_page
    assert names(guard) == set().union(*on_page.values())


def test_every_number_that_the_protocol_cites_is_on_the_page() -> None:
    cited: set[int] = set()
    for path in (*(ROOT / "src" / "tenure").rglob("*.py"), *(ROOT / "tests" / "mutants").glob("*.py")):
        for numbers in re.findall(r"(?<![\w\])])\[(\d+(?:, \d+)*)\]", path.read_text()):
            cited |= {int(number) for number in numbers.split(", ")}
    assert cited - set(rows()) <= {0}, "0 is an index"
