"""How the slots of a worker are shared between lanes that have work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tenure.core.errors import ConfigError
from tenure.core.shares import Line, Shares, check_queues

ENDLESS = 10**9


class World:
    """A server that always has what a lane is asked for, as long as it holds some, and a worker of ``slots`` bodies."""

    def __init__(self, weights: Mapping[str, int], held: Mapping[tuple[str, str], int]) -> None:
        self.shares = Shares(weights)
        self.held = Counter(held)
        self.got: Counter[tuple[str, str]] = Counter()
        for lane, number in held.items():
            self.shares.waits(self.shares.line(*lane), number)

    def fill(self, free: int) -> int:
        """Fill ``free`` slots with what is allotted, and then with what the answers tell; how many were."""
        filled = 0
        names = {self.shares.line(*lane): lane for lane in self.held}
        while left := free - filled:
            given = self.shares.allot(left)
            if not any(given.values()):
                break
            for line, number in given.items():
                lane = names[line]
                for _ in range(min(number, self.held[lane])):
                    self.held[lane] -= 1
                    assert self.shares.brings(line, self.held[lane], free - filled)
                    self.shares.took(line)
                    self.got[lane] += 1
                    filled += 1
        return filled


def test_lanes_of_a_queue_share_sixteen_to_four_to_one() -> None:
    world = World({"q": 1}, {("q", p): ENDLESS for p in ("high", "normal", "low")})

    assert sum(world.fill(1) for _ in range(2_100)) == 2_100

    assert world.got == {("q", "high"): 1_600, ("q", "normal"): 400, ("q", "low"): 100}


@pytest.mark.parametrize("free", [1, 2, 7, 21, 100])
def test_the_shares_do_not_depend_on_how_many_slots_come_free_at_once(free: int) -> None:
    world = World({"q": 1}, {("q", p): ENDLESS for p in ("high", "normal", "low")})

    while sum(world.got.values()) < 21_000:
        world.fill(free)

    shares = {p: world.got["q", p] / sum(world.got.values()) * 21 for p in ("high", "normal", "low")}
    assert shares == pytest.approx({"high": 16, "normal": 4, "low": 1}, rel=0.02)


def test_a_low_lane_waits_for_no_more_than_a_round() -> None:
    world = World({"q": 1}, {("q", p): ENDLESS for p in ("high", "normal", "low")})
    gaps, since = [], 0
    for _ in range(2_100):
        before = world.got["q", "low"]
        world.fill(1)
        since += 1
        if world.got["q", "low"] > before:
            gaps.append(since)
            since = 0

    assert max(gaps) == 21


def test_queues_share_by_weight_whatever_their_lanes_priorities() -> None:
    """Weights of lanes multiplied would give the high lane of one queue 48 times what the low one of the other gets."""
    world = World({"default": 3, "bulk": 1}, {("default", "high"): ENDLESS, ("bulk", "low"): ENDLESS})

    world.fill(4_000)

    assert world.got == {("default", "high"): 3_000, ("bulk", "low"): 1_000}


def test_a_queue_without_work_gives_its_share_away() -> None:
    world = World({"default": 3, "bulk": 1}, {("default", "normal"): 30, ("bulk", "normal"): ENDLESS})

    assert world.fill(100) == 100

    assert world.got == {("default", "normal"): 30, ("bulk", "normal"): 70}


def test_who_comes_back_has_saved_no_more_than_a_round() -> None:
    world = World({"default": 1, "bulk": 1}, {("default", "normal"): 1, ("bulk", "normal"): ENDLESS})
    world.fill(1_000)

    world.held["default", "normal"] = ENDLESS
    world.shares.waits(world.shares.line("default", "normal"), ENDLESS)
    world.got.clear()
    world.fill(100)

    assert world.got["default", "normal"] == pytest.approx(50, abs=2)


def test_slots_that_nobody_else_wanted_are_no_debt() -> None:
    """A lane that had everything while it was alone goes on with its share, and does not starve for as long."""
    world = World({"q": 1}, {("q", "low"): ENDLESS, ("q", "high"): 0})
    world.fill(1_000)

    world.held["q", "high"] = ENDLESS
    world.shares.waits(world.shares.line("q", "high"), ENDLESS)
    world.got.clear()
    world.fill(17 * 20)

    assert world.got["q", "low"] == pytest.approx(20, abs=2)


def test_a_lane_is_asked_for_no_more_than_it_holds() -> None:
    """What does not come would keep a slot idle."""
    shares = Shares({"q": 1})
    high, low = shares.line("q", "high"), shares.line("q", "low")
    shares.waits(high, 3)
    shares.waits(low, ENDLESS)

    assert shares.allot(10) == {high: 3, low: 7}


def test_what_was_asked_for_and_is_still_to_come_counts() -> None:
    shares = Shares({"q": 1})
    high, low = shares.line("q", "high"), shares.line("q", "low")
    shares.waits(high, ENDLESS)
    shares.waits(low, ENDLESS)
    low.asked = 4

    given = shares.allot(10)

    assert given == {high: 6, low: 0}


def busy(shares: Shares, priority: str, *, asked: int) -> Line:
    line = shares.line("q", priority)
    shares.waits(line, ENDLESS)
    line.asked = asked
    return line


def test_what_a_quiet_low_lane_brings_does_not_take_the_slot_that_was_kept_for_high() -> None:
    """Else messages that trickle in would get every second slot, whatever their priority."""
    shares = Shares({"q": 1})
    busy(shares, "high", asked=1)
    low = shares.line("q", "low")
    shares.took(low)

    assert not shares.brings(low, pending=0, free=1)
    assert low.waiting == 1, "it waits, and gets its share"


def test_what_a_quiet_high_lane_brings_takes_the_slot_that_was_kept_for_low() -> None:
    shares = Shares({"q": 1})
    busy(shares, "low", asked=1)

    assert shares.brings(shares.line("q", "high"), pending=0, free=1)


def test_a_slot_that_is_kept_for_nobody_is_for_whoever_comes() -> None:
    shares = Shares({"q": 1})
    busy(shares, "high", asked=1)
    low = shares.line("q", "low")
    shares.took(low)

    assert shares.brings(low, pending=0, free=2)


def test_a_surplus_waits() -> None:
    """It is handed back, and does not count as pending any more: its lane must be asked for it all the same."""
    shares = Shares({"q": 1})
    line = shares.line("q", "high")

    assert not shares.brings(line, pending=0, free=0)
    assert line.waiting == 1


def test_a_redelivery_tells_that_there_may_be_more() -> None:
    shares = Shares({"q": 1})
    line = shares.line("q", "low")

    assert shares.brings(line, pending=0, free=1, again=True)
    assert line.waiting == 1


def test_queues_are_names_or_names_with_weights() -> None:
    assert check_queues(["a", "b", "a"]) == {"a": 1, "b": 1}
    assert check_queues({"a": 3, "b": 1}) == {"a": 3, "b": 1}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bulk": 0}, "queue 'bulk': its weight must be a whole number from 1 to 1000, got 0"),
        ({"bulk": True}, "'bulk'"),
        ({"bulk": 1.5}, "'bulk'"),
        ({"bulk": "3"}, "'bulk'"),
        ({"bulk": 1_001}, "'bulk'"),
        ({"a b": 1}, "queue 'a b'"),
        ({5: 1}, "queue 5"),
        ([], "at least one queue"),
        ({}, "at least one queue"),
        ("default", "queues must be a list of names"),
        (5, "queues must be a list of names"),
    ],
)
def test_bad_queues_are_refused(given: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_queues(given)
    assert words in str(caught.value)
