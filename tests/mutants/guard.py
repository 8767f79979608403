"""What a guard of the protocol is to the mutants, and where its tests are."""

from __future__ import annotations

from typing import NamedTuple

CORE = "src/tenure/core/"
REAL = "tests/integration/"
STORE = "tests/contract/"


class Guard(NamedTuple):
    """One guard: ``old`` becomes ``new`` in ``file``; one of ``tests`` (pytest's arguments) must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def unit(*names: str) -> tuple[str, ...]:
    """Tests of the core, by the names of their files."""
    return tuple(f"tests/unit/core/{name}" for name in names)
