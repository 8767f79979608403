"""What a guard of the protocol is to the mutants, and where its tests are."""

from __future__ import annotations

import re
from typing import NamedTuple

CORE = "src/tenure/core/"
REAL = "tests/integration/"
STORE = "tests/contract/"
CORE_TESTS = "tests/unit/core/"
_CITED = re.compile(r"\[(\d+(?:, \d+)*)\]")


class Guard(NamedTuple):
    """One guard: ``old`` becomes ``new`` in ``file``; one of ``tests`` (pytest's arguments) must fail then.

    ``[n]`` in its name is the interleaving that it keeps out. Then each of ``tests`` must fail, and is in row n of the page.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def numbers(self) -> set[int]:
        """The interleavings that it keeps out."""
        return {int(n) for cited in _CITED.findall(self.name) for n in cited.split(", ")}


def unit(*names: str) -> tuple[str, ...]:
    """Tests of the core, by the names of their files."""
    return tuple(f"tests/unit/core/{name}" for name in names)
