"""When cron expressions fire around changes to and from summer time, against a walk through every minute of those days."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from tenure.core.cron import ScheduleError, fire_after, last_fire
from tenure.core.records import Policy
from tenure.core.schedule import next_due

MINUTE = timedelta(minutes=1)

CHANGES = {  # the days of 2026 on which the clock is changed, by one hour, half an hour (Lord Howe) or two (Troll)
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-10-04", "2026-04-05"),
    "Pacific/Chatham": ("2026-09-27", "2026-04-05"),
    "Antarctica/Troll": ("2026-03-29", "2026-10-25"),
}

FOLLOWING = [  # a star in minute or hour, or six fields: the expression, and the minutes and hours that it means
    ("30 * * * *", {30}, range(24)),
    ("15,45 * * * *", {15, 45}, range(24)),
    ("*/30 * * * *", {0, 30}, range(24)),
    ("*/7 * * * *", range(0, 60, 7), range(24)),
    ("50 */2 * * *", {50}, range(0, 24, 2)),
    ("* 1 * * *", range(60), {1}),
    ("* 2 * * *", range(60), {2}),
    ("*/5 2-3 * * *", range(0, 60, 5), {2, 3}),
    ("0 30 2 * * *", {30}, {2}),
    ("0 0,45 1-3 * * *", {0, 45}, {1, 2, 3}),
]
FIXED = [
    ("30 2 * * *", {30}, {2}),
    ("15 2 * * *", {15}, {2}),
    ("30 1 * * *", {30}, {1}),
    ("0,30 1-3 * * *", {0, 30}, {1, 2, 3}),
    ("10,50 0-23 * * *", {10, 50}, range(24)),
    ("0 4 * * *", {0}, {4}),
]
DAYS = [pytest.param(zone, day, id=f"{zone}-{day}") for zone, days in CHANGES.items() for day in days]


@cache
def walk(zone: str, day: str) -> list[tuple[float, datetime]]:
    """Each minute of the day to noon: the moment, and what the zone's clock shows then."""
    noon = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    moments = [noon - number * MINUTE for number in range(24 * 60, 0, -1)]
    return [(moment.timestamp(), moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for moment in moments]


def assert_fires(expression: str, zone: str, day: str, wanted: list[float]) -> None:
    """One after the other, and asked for from any moment on and back."""
    minutes = [moment for moment, _ in walk(zone, day)]
    policy = Policy(cron=expression, tz=zone)
    found: list[float] = []
    tick = minutes[0] - 1.0
    while (tick := next_due(policy, tick, tick)) <= minutes[-1]:
        found.append(tick)
    assert found == wanted
    for moment in (*minutes[::61], *(tick + off for tick in wanted[::9] for off in (-0.5, 0.5))):
        number = bisect_right(wanted, moment)
        if number < len(wanted):
            assert fire_after(expression, zone, moment) == wanted[number], moment
        if number:
            assert last_fire(expression, zone, moment) == wanted[number - 1], moment


@pytest.mark.parametrize(("zone", "day"), DAYS)
def test_with_a_star_in_minute_or_hour_the_fires_follow_the_clock_that_the_zone_shows(zone: str, day: str) -> None:
    """Each moment at which it shows what the expression says, and no other one."""
    for expression, minutes, hours in FOLLOWING:
        wanted = [at for at, clock in walk(zone, day) if clock.minute in minutes and clock.hour in hours]
        assert_fires(expression, zone, day, wanted)


@pytest.mark.parametrize(("zone", "day"), DAYS)
def test_a_fixed_time_that_is_skipped_fires_right_after_the_gap_and_one_that_is_repeated_once(
    zone: str, day: str
) -> None:
    for expression, minutes, hours in FIXED:
        wanted: list[float] = []
        shown: datetime | None = None  # the latest that the clock has shown
        for moment, clock in walk(zone, day):
            if shown is None or clock > shown:
                new = [clock]
                while shown is not None and new[-1] - MINUTE > shown:
                    new.append(new[-1] - MINUTE)
                if any(one.minute in minutes and one.hour in hours for one in new):
                    wanted.append(moment)
                shown = clock
        assert_fires(expression, zone, day, wanted)


@pytest.mark.parametrize(
    ("expression", "zone", "start", "wanted"),
    [
        ("30 * * * *", "Australia/Lord_Howe", "2026-10-04T01:00", ["01:30 +1030", "02:30 +1100", "03:30 +1100"]),
        ("30 * * * *", "Australia/Lord_Howe", "2026-04-05T01:00", ["01:30 +1100", "01:30 +1030", "02:30 +1030"]),
        ("0 2 * * *", "Australia/Lord_Howe", "2026-10-04T01:00", ["02:30 +1100", "02:00 +1100"]),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T01:45", ["02:30 +0200", "02:30 +0100", "03:30 +0100"]),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00", ["03:00 +0200", "02:30 +0200"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:00", ["02:30 +0200", "02:30 +0100"]),
    ],
)
def test_the_policy_in_examples(expression: str, zone: str, start: str, wanted: list[str]) -> None:
    tick, shown = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).timestamp(), []
    for _ in wanted:
        tick = fire_after(expression, zone, tick)
        shown.append(datetime.fromtimestamp(tick, ZoneInfo(zone)).strftime("%H:%M %z"))
    assert shown == wanted


@pytest.mark.parametrize(("expression", "zone"), [("* 5 29 2 *", "Europe/Berlin"), ("0 */5 1 1 1 *", "UTC")])
def test_what_fires_seldom_is_found_on_the_other_side_of_many_changes(expression: str, zone: str) -> None:
    start = datetime(2028, 1, 1, 3, tzinfo=UTC).timestamp()
    following = fire_after(expression, zone, start)
    before = last_fire(expression, zone, start)
    assert datetime.fromtimestamp(following, ZoneInfo(zone)).year in {2028, 2029}
    assert datetime.fromtimestamp(before, ZoneInfo(zone)).year in {2024, 2028}
    assert before <= start < following
    assert fire_after(expression, zone, following - 0.5) == following
    assert last_fire(expression, zone, before) == before


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cron",
    ["", "* * *", "61 * * * *", "@daily", "0 0 31 2 *", "x * * * *", "* * * * * * *", "*/0 * * * *", "5-1 * * * *"],
)
def test_an_impossible_expression_is_refused_by_name(cron: str) -> None:
    with pytest.raises(ScheduleError, match=r"cron expression|never fires") as caught:
        fire_after(cron, "UTC", 0.0)
    assert repr(cron) in str(caught.value)


@pytest.mark.parametrize(
    "zone", ["", "Mars/Olympus", "../etc/passwd", "/etc", "Europe", "x" * 300, "Europe/Berlin\0", "CET6"]
)
def test_an_unknown_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(ScheduleError, match="no IANA time zone"):
        fire_after("0 4 * * *", zone, 0.0)


def test_an_expression_that_names_only_what_the_clock_skips_never_fires() -> None:
    """New York's clocks go from 02:00 to 03:00 on the second Sunday of March."""
    with pytest.raises(ScheduleError, match=r"'0 30 2 [*] 3 SUN#2' never fires"):
        fire_after("0 30 2 * 3 SUN#2", "America/New_York", 1_780_000_000.0)
