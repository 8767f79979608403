"""The list of guards fits the code: what each takes away is there, once, and so are its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.decisions import DECISIONS
from tests.mutants.deeds import DEEDS
from tests.mutants.deeds_gaps import GAPS
from tests.mutants.deeds_rates import RATES
from tests.mutants.field import FIELD
from tests.mutants.guard import Guard
from tests.mutants.limits import LIMITS
from tests.mutants.sealing import SEALING
from tests.mutants.switches import SWITCHES

ROOT = Path(__file__).parents[2]

GUARDS = (*DECISIONS, *DEEDS, *GAPS, *FIELD, *LIMITS, *RATES, *SEALING, *SWITCHES)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_what_a_guard_takes_away_is_there_once(guard: Guard) -> None:
    assert (ROOT / guard.file).read_text().count(guard.old) == 1
    assert guard.old != guard.new


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_tests_of_a_guard_are_there(guard: Guard) -> None:
    for test in guard.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text()
        assert not name or re.search(rf"def {name}\b", text), test


def test_no_two_guards_have_one_name() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)
