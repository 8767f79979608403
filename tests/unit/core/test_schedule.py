"""When a perpetual key runs next: intervals, cron expressions, summer time, missed fires."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.core.records import Policy
from tenure.core.schedule import first_due, next_due, next_tick

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


# -- cron --------------------------------------------------------------------------------------------------------------


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def fires(policy: Policy, start: float, number: int) -> list[str]:
    """The next ticks after ``start``, each run on time, as the zone's clock and offset show them."""
    shown, tick = [], start
    for _ in range(number):
        tick = next_due(policy, tick, tick)
        shown.append(datetime.fromtimestamp(tick, ZoneInfo(policy.tz)).strftime("%m-%d %H:%M:%S %z"))
    return shown


def test_a_cron_key_starts_with_its_next_fire_unless_it_is_asked_for_another_time() -> None:
    policy = Policy(cron="30 4 * * *")
    assert first_due(policy, 0.0, at("2026-05-01T10:00")) == at("2026-05-02T04:30")
    assert first_due(policy, at("2026-05-01T11:00"), at("2026-05-01T10:00")) == at("2026-05-01T11:00")
    assert first_due(Policy(every=5.0), 0.0, at("2026-05-01T10:00")) == 0.0
    assert first_due(Policy(), 0.0, at("2026-05-01T10:00")) == 0.0


def test_a_fire_is_identified_by_its_tick_not_by_when_it_ran() -> None:
    """The run of 04:30 ended at 04:31:07: the next one is that of the next day, to the second."""
    policy = Policy(cron="30 4 * * *")
    assert next_due(policy, at("2026-05-01T04:30"), at("2026-05-01T04:31:07")) == at("2026-05-02T04:30")


def test_a_run_that_ends_before_its_own_tick_does_not_fire_it_again() -> None:
    """A clock behind the one that set the due time: the tick of the run is what counts."""
    policy = Policy(cron="30 4 * * *")
    assert next_due(policy, at("2026-05-01T04:30"), at("2026-05-01T04:29:59")) == at("2026-05-02T04:30")


def test_seconds_come_first_where_there_are_six_fields() -> None:
    assert fires(Policy(cron="*/20 * * * * *"), at("2026-05-01T00:00"), 3) == [
        "05-01 00:00:20 +0000",
        "05-01 00:00:40 +0000",
        "05-01 00:01:00 +0000",
    ]


@given(
    st.sampled_from(["30 2 * * *", "15,45 1-3 * * *", "*/7 * * * *", "30 * * * *", "0 0 * * 0", "*/11 * * * * *"]),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kathmandu"]),
    st.integers(1_767_225_600, 1_800_000_000),
    st.floats(0.0, 200_000.0),
)
def test_ticks_only_go_forward_and_miss_none(cron: str, zone: str, start: int, late: float) -> None:
    """Also in hours that come twice. ``none`` and ``one`` agree with the list of all ticks."""
    policy = {kind: Policy(cron=cron, tz=zone, catch_up=kind) for kind in ("none", "one", "all")}
    tick = float(start)
    ticks: list[float] = []
    while tick <= start + late and len(ticks) < 50:
        tick = next_due(policy["all"], tick, start + late)
        ticks.append(tick)
    assert all(one < other for one, other in pairwise([float(start), *ticks]))
    if len(ticks) < 50:
        missed = [tick for tick in ticks if tick <= start + late]
        assert next_due(policy["none"], start, start + late) == ticks[-1]
        assert next_due(policy["one"], start, start + late) == (missed[-1] if missed else ticks[-1])


# -- missed fires --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Policy(every=3_600.0), Policy(cron="0 * * * *")], ids=["every", "cron"])
@pytest.mark.parametrize(
    ("catch_up", "wanted"),
    [
        ("none", ["16:00", "17:00"]),
        ("one", ["15:00", "16:00"]),
        ("all", ["11:00", "12:00", "13:00", "14:00", "15:00", "16:00"]),
    ],
)
def test_missed_fires_are_made_up_for_as_the_policy_says(policy: Policy, catch_up: str, wanted: list[str]) -> None:
    """Nothing ran from 10:00, whose run ends at 15:20, on."""
    policy = replace(policy, catch_up=catch_up)
    tick, now, shown = at("2026-05-01T10:00"), at("2026-05-01T15:20"), []
    for _ in wanted:
        tick = next_due(policy, tick, now)
        now = max(now, tick)
        shown.append(datetime.fromtimestamp(tick, ZoneInfo("UTC")).strftime("%H:%M"))
    assert shown == wanted
