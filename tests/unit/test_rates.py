"""What is said of rates where an actor is registered: what is wrong is named, what is right is in its policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tenure import App, ConfigError, Context, Cooldown, Debounce, Limit, RateLimit
from tenure.core.permits import Bound
from tenure.core.rates import Pace, Rate, Settle

NO_TIMES = [
    0,
    -1,
    0.0,
    -0.5,
    float("nan"),
    float("inf"),
    True,
    "60",
    None,
    timedelta(0),
    timedelta(seconds=-1),
    4e8,
    1e-9,
]


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None, True, 2**64, float("nan")])
def test_a_rate_of_no_whole_number_over_zero_is_refused(n: Any) -> None:
    with pytest.raises(ConfigError, match="RateLimit: n must be a whole number >= 1"):
        RateLimit(n, 60)


@pytest.mark.parametrize("seconds", NO_TIMES)
def test_a_window_is_some_time_over_zero(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="RateLimit: window must be a finite number or a timedelta, at least"):
        RateLimit(1, seconds)
    with pytest.raises(ConfigError, match="Cooldown: window must be"):
        Cooldown(seconds)
    with pytest.raises(ConfigError, match="Debounce: settle must be"):
        Debounce(seconds, 60)
    with pytest.raises(ConfigError, match="Debounce: max_wait must be"):
        Debounce(0.001, seconds)


def test_a_debounce_does_not_wait_longer_than_it_may() -> None:
    with pytest.raises(ConfigError, match="settle must not be longer than max_wait, got 61 and "):
        Debounce(61, timedelta(minutes=1))
    Debounce(60, timedelta(minutes=1))


@pytest.mark.parametrize("per", ["", 1, ["customer"], b"customer"])
def test_per_is_the_name_of_an_argument(per: Any) -> None:
    with pytest.raises(ConfigError, match="RateLimit: per must be the name of an argument"):
        RateLimit(1, 60, per=per)


@pytest.mark.parametrize("excess", ["", "wait", None, 1, True])
def test_excess_is_delayed_or_dropped(excess: Any) -> None:
    with pytest.raises(ConfigError, match="RateLimit: excess must be delay or drop"):
        RateLimit(1, 60, excess=excess)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (
            [RateLimit(1, 60, per="custmer")],
            "actor paced: RateLimit: per='custmer' names no argument of it; it has customer",
        ),
        ([RateLimit(1, 60, per="ctx")], "per='ctx' names no argument"),
        ([RateLimit(1, 60), RateLimit(2, timedelta(minutes=1))], "two RateLimits of all its runs in 60 s"),
        ([RateLimit(1, 60, per="depth"), RateLimit(2, 60, per="depth")], "two RateLimits per 'depth' in 60 s"),
        ([Debounce(1, 2), Debounce(2, 3)], "actor paced: 2 of Debounce"),
        ([Cooldown(1), Cooldown(2)], "actor paced: 2 of Cooldown"),
        ([60], "limits must be a list of Limit, RateLimit, Debounce and Cooldown"),
        ([RateLimit], "limits must be a list of Limit, RateLimit, Debounce and Cooldown"),
        (RateLimit(1, 60), "limits must be a list of Limit, RateLimit, Debounce and Cooldown"),
        ("RateLimit", "limits must be a list of Limit"),
        ([RateLimit(1, n) for n in range(1, 10)], "9 limits; 8 at most"),
        ([Limit(1), *(RateLimit(1, n) for n in range(1, 9))], "9 limits; 8 at most"),
    ],
)
def test_bad_rates_are_refused_where_the_actor_is_registered(limits: Any, says: str) -> None:
    app = App("rates")
    with pytest.raises(ConfigError, match=says):

        @app.actor(limits=limits)
        async def paced(ctx: Context, customer: str, depth: int = 1) -> None: ...

    assert not app.actors


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (Debounce(1, 2), "actor tick: Debounce is about submits, and a perpetual actor goes on by itself"),
        (Cooldown(1), "actor tick: Cooldown is about submits"),
        (RateLimit(1, 60, excess="drop"), "actor tick: RateLimit: excess='drop' would end its schedule"),
    ],
)
@pytest.mark.parametrize("schedule", [{"every": 5.0}, {"cron": "* * * * *"}])
def test_what_makes_no_sense_with_a_schedule_is_refused(limit: Any, says: str, schedule: Any) -> None:
    app = App("rates")
    with pytest.raises(ConfigError, match=says):

        @app.actor(limits=[limit], **schedule)
        async def tick() -> None: ...


def test_rates_are_in_the_policy_that_every_record_carries() -> None:
    app = App("rates")
    every_kind: list[Any] = [
        RateLimit(100, timedelta(minutes=1), per="customer"),
        RateLimit(5, 1),
        Limit(3),
        RateLimit(1_000, 60, excess="drop"),
        Debounce(2, timedelta(seconds=30)),
        Cooldown(timedelta(hours=1)),
    ]

    @app.actor(limits=every_kind)
    async def paced(customer: str) -> None: ...

    policy = paced.call("c").task.policy
    assert policy.limits == (Bound(n=3),)
    assert policy.pace == Pace(
        rates=(
            Rate(n=100, seconds=60.0, per="customer"),
            Rate(n=5, seconds=1.0),
            Rate(n=1_000, seconds=60.0, excess="drop"),
        ),
        debounce=Settle(settle=2.0, max_wait=30.0),
        cooldown=3_600.0,
    )

    @app.actor(limits=[Limit(1)])
    async def free() -> None: ...

    assert free.call().task.policy.pace is None
