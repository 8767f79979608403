"""Each numbered scenario from the field has a test that is named after it, and that every run of the tests makes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
SCENARIOS = set(range(1, 46))


def test_every_scenario_has_a_test_that_is_named_after_its_number() -> None:
    """One that is marked ``long`` as a whole is none."""
    found = {
        int(named[1])
        for path in TESTS.rglob("test_*.py")
        for test in ast.walk(ast.parse(path.read_text()))
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef)
        if (named := re.match(r"test_scenario_(\d\d)_\w", test.name))
        if "pytest.mark.long" not in map(ast.unparse, test.decorator_list)
    }
    assert sorted(SCENARIOS - found) == []
