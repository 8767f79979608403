"""What clients were told: the checker accepts what some order explains, and refuses the rest."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from itertools import combinations_with_replacement
from types import FrameType
from typing import Any

import pytest

from tests.history.check_answers import Bound, place
from tests.history.checker import check
from tests.history.stories import Story
from tests.history.stories_answers import BAD_ANSWERS, GOOD_ANSWERS


@pytest.mark.parametrize("story", GOOD_ANSWERS, ids=lambda story: story.__name__)
def test_answers_that_an_order_explains_are_accepted(story: Callable[[], Story]) -> None:
    assert check(story().evidence) == []


@pytest.mark.parametrize(("story", "invariant"), BAD_ANSWERS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_answers_that_no_order_explains_are_found(story: Callable[[], Story], invariant: str) -> None:
    assert {violation.invariant for violation in check(story().evidence)} == {invariant}


class Ask:
    """An ask of the register: the write of one state, or a read of any of some."""

    def __init__(self, chance: random.Random, states: int, last: int) -> None:
        self.start = chance.randrange(last)
        self.end = chance.randrange(self.start, last)
        self.effect = chance.randrange(1, states) if chance.random() < 0.4 else None
        self.read = sorted(chance.sample(range(states), chance.randrange(1, states)))

    def bound(self) -> Bound:
        def sees(read: list[int], at: int) -> int | None:
            return min((state for state in read if state >= at), default=None)

        read = [self.effect] if self.effect else self.read
        return Bound(what="it", start=self.start, end=self.end, effect=self.effect, sees=(partial(sees, read),))

    def fits(self, moments: tuple[int, ...]) -> bool:
        """Whether it can be so where state n came into force at the n-th moment."""
        oldest = sum(moment < self.start for moment in moments)
        newest = sum(moment <= self.end for moment in moments)
        if self.effect is not None:
            return oldest < self.effect <= newest
        return any(oldest <= state <= newest for state in self.read)


def test_the_walk_finds_an_order_exactly_if_there_is_one() -> None:
    """Against all ways to place the writes, for small histories of reads of anything and writes of anything."""
    chance, last = random.Random(4), 6
    found = 0
    for _ in range(4000):
        states = chance.randrange(2, 5)
        asks = [Ask(chance, states, last) for _ in range(chance.randrange(1, 6))]
        ways = combinations_with_replacement(range(last + 1), states - 1)
        possible = any(all(ask.fits(moments) for ask in asks) for moments in ways)
        wrong = place([ask.bound() for ask in asks], states)[1]
        assert (not wrong) == possible, [vars(ask) for ask in asks]
        found += possible
    assert 1000 < found < 3000


def test_twice_the_history_costs_about_twice_the_work() -> None:
    """Counted in lines that are run: seconds depend on what else the machine does."""

    def work(runs: int) -> int:
        story = Story()
        story.evidence.asks_whole = True
        for number in range(1, runs + 1):
            at, run_id = float(number), f"r{number}"
            story.submit(run_id, number)
            story.asked("submit", "accepted", run_id, number, asked=at, wall=at + 0.1)
            story.asked("status", "queued", run_id, number, asked=at, wall=at + 0.1)
            story.claim(at=at + 0.2)
            story.end(at + 0.3)
            story.finish(at=at + 0.3)
        lines = 0

        def count(_frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
            nonlocal lines
            lines += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            wrong = check(story.evidence)
        finally:
            sys.settrace(before)
        assert wrong == []
        return lines

    assert work(600) < 2.2 * work(300)
