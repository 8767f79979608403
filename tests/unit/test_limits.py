"""What is said of limits where an actor is registered: what is wrong is named, what is right is in its policy."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import App, ConfigError, Context, Limit
from tenure.core.permits import Bound


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None, True, 2**64, float("nan")])
def test_a_limit_of_no_whole_number_over_zero_is_refused(n: Any) -> None:
    with pytest.raises(ConfigError, match="Limit: n must be a whole number >= 1"):
        Limit(n)


@pytest.mark.parametrize("n", [2_001, 2**62])
def test_a_limit_of_more_places_than_one_message_can_name_is_refused(n: int) -> None:
    assert Limit(2_000).n == 2_000
    with pytest.raises(ConfigError, match="Limit: n must be at most 2,000"):
        Limit(n)


@pytest.mark.parametrize("per", ["", 1, ["customer"], b"customer"])
def test_per_is_the_name_of_an_argument(per: Any) -> None:
    with pytest.raises(ConfigError, match="Limit: per must be the name of an argument"):
        Limit(1, per=per)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (
            [Limit(1, per="custmer")],
            "actor capped: Limit: per='custmer' names no argument of it; it has customer, depth",
        ),
        ([Limit(1, per="ctx")], "per='ctx' names no argument"),
        ([Limit(1), Limit(2)], "two limits of all its runs"),
        ([Limit(1, per="depth"), Limit(2, per="depth")], "two limits per 'depth'"),
        ([1], "limits must be a list of Limit"),
        (Limit(1), "limits must be a list of Limit"),
        ("Limit", "limits must be a list of Limit"),
        ([Limit(n) for n in range(1, 10)], "9 limits; 8 at most"),
    ],
)
def test_bad_limits_are_refused_where_the_actor_is_registered(limits: Any, says: str) -> None:
    app = App("limits")
    with pytest.raises(ConfigError, match=says):

        @app.actor(limits=limits)
        async def capped(ctx: Context, customer: str, depth: int = 1) -> None: ...

    assert not app.actors


def test_per_of_an_actor_without_arguments_says_so() -> None:
    app = App("limits")
    with pytest.raises(ConfigError, match="it has none"):

        @app.actor(limits=[Limit(1, per="x")])
        async def capped() -> None: ...


def test_limits_are_in_the_policy_that_every_record_carries() -> None:
    app = App("limits")

    @app.actor(limits=[Limit(2, per="customer"), Limit(10)])
    async def capped(customer: str) -> None: ...

    assert capped.call("c").task.policy.limits == (Bound(n=2, per="customer"), Bound(n=10))
    assert capped.call("c").args == b'{"customer":"c"}'

    @app.actor(limits=())
    async def free() -> None: ...

    assert free.call().task.policy.limits == ()
