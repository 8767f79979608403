"""Numbers that follow from a policy."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.config import Config
from tenure.core.policy import backoff, second_look, trusted_until
from tenure.core.records import Policy

JITTER = st.floats(0.0, 1.0, exclude_max=True)
DOUBLING = Policy(initial=0.5, factor=2.0, maximum=60.0, jitter=0.2)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.5), (2, 1.0), (3, 2.0), (7, 32.0), (8, 60.0), (9, 60.0), (10**9, 60.0)]
)
def test_backoff_grows_by_its_factor_up_to_its_maximum(failures: int, seconds: float) -> None:
    assert backoff(DOUBLING, failures, 0.5) == pytest.approx(seconds)


@given(
    st.builds(
        Policy,
        initial=st.floats(0.0, 1e6),
        factor=st.floats(0.0, 1e6),
        maximum=st.floats(0.0, 1e6),
        jitter=st.floats(0.0, 1.0),
    ),
    st.integers(1, 10**6),
    JITTER,
)
@example(Policy(initial=0.0, factor=1e300, maximum=5.0), 10**6, 0.5)
@example(Policy(initial=1.0, factor=2, maximum=5.0), 10**5, 0.5)
def test_backoff_stays_within_its_bounds_however_many_failures(policy: Policy, failures: int, jitter: float) -> None:
    seconds = backoff(policy, failures, jitter)
    assert 0.0 <= seconds <= policy.maximum * (1 + policy.jitter)


@given(JITTER, st.integers(1, 100))
def test_jitter_spreads_around_the_step_by_its_share(jitter: float, failures: int) -> None:
    middle = backoff(DOUBLING, failures, 0.5)
    assert 0.8 * middle <= backoff(DOUBLING, failures, jitter) <= 1.2 * middle


def test_the_ends_of_the_jitter_are_the_ends_of_its_spread() -> None:
    assert backoff(DOUBLING, 1, 0.0) == pytest.approx(0.4)
    assert backoff(DOUBLING, 1, math.nextafter(1.0, 0.0)) == pytest.approx(0.6)


def test_without_jitter_backoff_is_exact() -> None:
    policy = Policy(initial=0.5, factor=2.0, jitter=0.0)
    assert {backoff(policy, 3, jitter) for jitter in (0.0, 0.3, 0.99)} == {2.0}


def test_trust_runs_from_the_send() -> None:
    """[17] renewal sent, answer slow; trust counted from the answer: the holder trusts itself past the close."""
    assert trusted_until(sent_at=100.0, ttl=5.0) == 105.0


@given(st.integers(0, 10**9), st.floats(0.1, 1e4))
def test_a_second_look_comes_soon_and_never_later_than_its_ceiling(deliveries: int, ack_wait: float) -> None:
    assert 0.0 < second_look(deliveries, ack_wait) <= 2.5 * ack_wait
    assert second_look(1, ack_wait) == pytest.approx(0.1)
    assert second_look(deliveries + 1, ack_wait) >= second_look(deliveries, ack_wait)


def test_what_nobody_can_run_is_looked_at_every_15_seconds_by_default() -> None:
    assert second_look(1_000, Config().ack_wait_seconds) == 15.0
