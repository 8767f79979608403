"""The list of guards fits the code: what each takes away is there, once, and so are its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.__main__ import GUARDS
from tests.mutants.guard import Guard

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_what_a_guard_takes_away_is_there_once(guard: Guard) -> None:
    assert (ROOT / guard.file).read_text().count(guard.old) == 1
    assert guard.old != guard.new


@pytest.mark.parametrize(
    "guard", [guard for guard in GUARDS if guard.file.endswith(".py")], ids=lambda guard: guard.name
)
def test_the_file_is_python_without_a_guard(guard: Guard) -> None:
    """Else nothing can be imported, and no test says anything of the guard."""
    compile((ROOT / guard.file).read_text().replace(guard.old, guard.new), guard.file, "exec", dont_inherit=True)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_tests_of_a_guard_are_there(guard: Guard) -> None:
    for test in guard.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text()
        assert not name or re.search(rf"def {name}\b", text), test


def test_no_two_guards_have_one_name() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)
