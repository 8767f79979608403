"""Numbers that follow from a policy."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.config import Config
from tenure.core.policy import backoff, next_tick, second_look, trusted_until
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


EPOCH = st.floats(1e9, 4e9)


@given(EPOCH, st.floats(0.01, 1e7), st.floats(-1e6, 1e8))
def test_the_next_tick_keeps_the_phase_and_is_the_first_one_to_come(due: float, every: float, late: float) -> None:
    now = due + late
    tick = next_tick(due, every, now)
    assert tick > now
    steps = (tick - due) / every
    assert steps == pytest.approx(round(steps), abs=1e-3 * max(1.0, 1e-6 / every))
    assert round(steps) >= 1
    if late >= 0:
        assert tick <= now + every * (1 + 1e-9) + 1e-6


def test_ticks_do_not_drift_with_late_runs() -> None:
    due = 1_000.0
    for late in (0.0, 3.0, 0.5, 9.99):
        due = next_tick(due, 10.0, due + late)
    assert due == 1_040.0


def test_missed_ticks_are_skipped_not_made_up_for() -> None:
    assert next_tick(1_000.0, 10.0, 1_035.0) == 1_040.0
    assert next_tick(1_000.0, 10.0, 1_030.0) == 1_040.0


def test_a_run_that_ends_before_its_tick_still_moves_on_by_one() -> None:
    """A clock behind the one that set the due time."""
    assert next_tick(1_000.0, 10.0, 999.0) == 1_010.0


def test_without_a_due_time_the_chain_starts_from_now() -> None:
    assert next_tick(0.0, 10.0, 1_003.0) == 1_013.0


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
