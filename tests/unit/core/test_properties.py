"""The invariants of one key over random histories: workers crash, zombies report late, commands come twice or stale.

The checks are in ``ghost.py`` and ``walk.py``. Chance has two sources: seeds for many quick walks, and hypothesis for
fewer ones that it can shrink.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure.core.outcomes import Did, Why
from tests.unit.core.fences import Fences, FromOne, OfTheAttempt
from tests.unit.core.walk import Walk

BLOCKS, WALKS, STEPS = range(8), 500, 60


def walk(seed: int, fences: type[Fences] = Fences) -> Walk:
    chance = Walk(random.Random(seed).choice)
    chance.ghost.fences = fences()
    try:
        chance.go(STEPS)
    except AssertionError as error:
        error.add_note(f"seed {seed}, after {len(chance.done)} commands: {chance.done[-12:]}")
        raise
    return chance


@pytest.mark.parametrize("block", BLOCKS)
def test_the_invariants_hold_on_random_walks(block: int) -> None:
    for seed in range(block * WALKS, (block + 1) * WALKS):
        walk(seed)


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_the_invariants_hold_on_walks_that_hypothesis_can_shrink(data: st.DataObject) -> None:
    Walk(lambda choices: data.draw(st.sampled_from(choices))).go(25)


@pytest.mark.parametrize("fences", [FromOne, OfTheAttempt])
def test_a_fence_that_goes_back_is_noticed(fences: type[Fences]) -> None:
    def walks() -> None:
        for seed in range(WALKS):
            walk(seed, fences)

    with pytest.raises(AssertionError, match="a fence went back"):
        walks()


def test_the_walks_get_everywhere() -> None:
    """Every decision and every refusal comes up, else the walks prove little."""
    met = Counter(repr(what) for seed in range(1_200) for what, _ in walk(seed).done)
    rare = {repr(what) for what in (*Did, *Why) if met[repr(what)] < 5 and what is not Why.CROWDED}
    assert rare == set()
