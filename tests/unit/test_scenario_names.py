"""Each numbered scenario from the field has a test that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
SCENARIOS = set(range(1, 46))


def test_every_scenario_has_a_test_that_is_named_after_its_number() -> None:
    found = {
        int(number)
        for path in TESTS.rglob("test_*.py")
        for number in re.findall(r"^(?:async )?def test_scenario_(\d\d)_\w", path.read_text(), re.MULTILINE)
    }
    assert sorted(SCENARIOS - found) == []
