"""The targets of ``make fuzz`` without its instruments: a few hundred spoilt seeds each."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.spoil import spoiled
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
@given(chance=st.randoms(use_true_random=False), noise=st.binary(max_size=40))
@settings(max_examples=40, deadline=None, database=None)
def test_whatever_is_read_ends_in_a_value_or_in_what_is_declared(
    name: str, chance: random.Random, noise: bytes
) -> None:
    run, seeds = TARGETS[name]
    seed = chance.choice(seeds)
    for data in (seed, noise, spoiled(seed, chance), spoiled(spoiled(seed, chance), chance), seed[:1] + noise):
        run(data)
