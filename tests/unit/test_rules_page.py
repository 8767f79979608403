"""The rules of ARCHITECTURE.md name where they bind: these places are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/tenure"


def places() -> Iterator[tuple[str, str]]:
    """Module and name of each place in the table of rules."""
    text = (SOURCE / "ARCHITECTURE.md").read_text()
    table = text.partition("## The rules, and where they bind")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| [^-].*\| (`.*) \|$", table, re.MULTILINE):
        for place in re.findall(r"`([^`]+)`", row):
            module, _, names = place.partition(": ")
            for name in names.split(", "):
                yield module, name


@pytest.mark.parametrize(("module", "name"), sorted(set(places())))
def test_the_place_of_a_rule_is_there(module: str, name: str) -> None:
    text = (SOURCE / f"{module}.py").read_text()
    assert re.search(rf"^ *(async def|def|class) {name}\b", text, re.MULTILINE)


def test_the_table_was_found() -> None:
    assert len(set(places())) > 50
