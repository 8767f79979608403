"""Names and forms on the wire are what they were: in a rolling upgrade old and new read each other, and what is stored stays."""

from __future__ import annotations

import json

import pytest

from tests.frozen import FROZEN, derived

THINK = (
    "what is on the wire has changed: processes of the release before read and write it too while a deploy is under way, and "
    "what is stored lasts. Once that is thought of (a new field with a default, a schema, a migration): python -m tests.frozen"
)


@pytest.mark.parametrize("part", derived())
def test_what_is_on_the_wire_is_what_it_was(part: str) -> None:
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))
    assert derived()[part] == frozen[part], THINK
    assert derived().keys() == frozen.keys()
