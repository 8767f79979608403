"""Rates: what is decided, and that no order of reads, writes and lost answers lets one start too many into a window.

In the world below a few processes ask to start runs under one rate. Each step of each may come before any other's: read,
CAS (which may be refused, or be applied and answered to nobody), start of the body at some moment up to its mark, or later.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tenure.core.permits import Answer
from tenure.core.rates import (
    EXACT,
    MOST_PLACES,
    PLACE_US,
    SECOND,
    Asked,
    Entry,
    Leave,
    Look,
    Place,
    Rate,
    Start,
    decide,
    is_rate,
    next_room,
    rate_name,
    room_to_hand_over,
    ttl_of,
    window_of,
)

NOW = 1_000 * SECOND
WINDOW = 10 * SECOND


def start(run: str, *, n: int = 2, within: int = SECOND, old: int = 0, drop: bool = False) -> Start:
    return Start(key=f"k{run}", run_id=run, within=within, n=n, old=old, drop=drop)


def entry(*marks: int, n: int = 2, places: Sequence[str] = (), parked: bool = False, at: int = NOW) -> Entry:
    counted = tuple(sorted((mark, marks.count(mark)) for mark in set(marks)))
    kept = tuple(Place(key=f"k{run}", run_id=run, at=at) for run in places)
    return Entry(n=n, marks=counted, places=kept, parked=parked)


def told(
    before: Entry | None, asked: Sequence[Asked], parked: Sequence[str] = (), published: str = "", now: int = NOW
) -> tuple[list[Answer], Entry]:
    pairs, searched = [(f"k{run}", run) for run in parked], room_to_hand_over(before, asked, WINDOW, now)
    decided = decide(before, asked, pairs, published.split(), WINDOW, now, searched)
    return [answer for answer, _ in decided.answers], decided.entry


def test_n_start_and_the_next_one_parks_until_the_first_mark_is_a_window_ago() -> None:
    answers, after = told(None, [start("a"), start("b"), start("c")])
    assert answers == [Answer.GRANTED, Answer.GRANTED, Answer.PARK]
    assert after.marks == ((NOW + SECOND, 2),)
    assert told(after, [start("c")], now=NOW + SECOND + WINDOW - 1)[0] == [Answer.PARK]
    assert told(after, [start("c")], now=NOW + SECOND + WINDOW)[0] == [Answer.GRANTED]
    assert next_room(after, WINDOW, NOW) == NOW + SECOND + WINDOW


def test_who_parks_sets_the_flag_also_where_it_is_set() -> None:
    full = entry(NOW, NOW, parked=True)
    decided = decide(full, [start("c")], [], {"c"}, WINDOW, NOW, 0)
    assert (decided.answers, decided.write, decided.entry.parked) == (((Answer.PARKED, 0),), True, True)


def test_what_is_to_be_dropped_is_told_so_and_writes_nothing() -> None:
    decided = decide(entry(NOW, NOW), [start("c", drop=True)], [], (), WINDOW, NOW, 0)
    assert (decided.answers, decided.write) == (((Answer.EXCESS, 0),), False)
    late = decide(entry(NOW - WINDOW, NOW), [start("c", drop=True)], [], (), WINDOW, NOW, 0)
    assert late.answers == ((Answer.GRANTED, NOW + SECOND),)


def test_who_is_parked_comes_first_and_the_flag_goes_with_the_last() -> None:
    free = entry(NOW - WINDOW, NOW, parked=True)
    assert room_to_hand_over(free, [start("new")], WINDOW, NOW) == 1
    decided = decide(free, [start("new")], [("kx", "x")], (), WINDOW, NOW, 1)
    assert decided.answers == ((Answer.PARK, 0),)
    assert (decided.reserved, decided.entry.parked) == (("x",), True), "as many as there is room for: there may be more"
    later = decide(free, [start("new")], [("kx", "x")], (), WINDOW, NOW + WINDOW, 1)
    assert (later.answers[0][0], later.entry.parked) == (Answer.PARK, True), "there is more room than was searched for"
    empty = decide(entry(parked=True), [Look()], [("kx", "x")], (), WINDOW, NOW, 2)
    assert (empty.reserved, empty.entry.parked) == (("x",), False)


def test_nobody_passes_who_is_parked_while_many_are_on_their_way() -> None:
    """As many places are kept as an entry takes: there is room, but it is for those who came first."""
    crowded = entry(n=MOST_PLACES + 9, places=[f"p{number}" for number in range(MOST_PLACES)], parked=True)
    assert room_to_hand_over(crowded, [start("new", n=MOST_PLACES + 9)], WINDOW, NOW) == 0
    answers, after = told(crowded, [start("new", n=MOST_PLACES + 9)])
    assert (answers, after.parked) == ([Answer.PARK], True)


def test_a_place_counts_until_its_run_starts_and_is_void_after_a_minute() -> None:
    kept = entry(NOW, places=["x"])
    assert told(kept, [start("new")])[0] == [Answer.PARK]
    answers, after = told(kept, [start("x")])
    assert (answers, after.places, after.marks) == ([Answer.FROM_PARKED], (), ((NOW, 1), (NOW + SECOND, 1)))
    assert told(kept, [Leave(run_id="x"), start("new")])[0] == [Answer.DONE, Answer.GRANTED]
    assert told(entry(NOW, places=["x"], at=NOW - PLACE_US), [start("new")])[0] == [Answer.GRANTED]


def test_who_does_not_start_takes_its_mark_out_and_no_other() -> None:
    full = entry(NOW, NOW, NOW + 5, n=3, parked=True)
    decided = decide(full, [Leave(run_id="a", mark=NOW)], [("kx", "x")], (), WINDOW, NOW, 1)
    assert decided.entry.marks == ((NOW, 1), (NOW + 5, 1))
    assert decided.reserved == ("x",), "who is parked has its room"
    assert told(full, [Leave(run_id="a", mark=NOW - 1)])[1].marks == full.marks


def test_who_is_late_moves_its_mark_and_needs_no_room() -> None:
    full = entry(NOW - 5, NOW - 4)
    decided = decide(full, [start("a", old=NOW - 4, drop=True)], [], (), WINDOW, NOW, 0)
    assert decided.answers == ((Answer.GRANTED, NOW + SECOND),)
    assert decided.entry.marks == ((NOW - 5, 1), (NOW + SECOND, 1))
    void = decide(entry(NOW, NOW), [start("a", old=NOW - WINDOW, drop=True)], [], (), WINDOW, NOW, 0)
    assert void.answers == ((Answer.EXCESS, 0),), "what it had does not count any more: others may have started"


def test_the_newest_code_says_how_many() -> None:
    old = Entry(n=1, deployed=5.0, marks=((NOW, 1),))
    older, newer = start("a", n=9), Start(key="k", run_id="a", within=SECOND, n=2, deployed=6.0)
    assert decide(old, [older], [], (), WINDOW, NOW, 0).answers[0][0] is Answer.PARK
    decided = decide(old, [newer], [], (), WINDOW, NOW, 0)
    assert (decided.answers[0][0], decided.entry.n, decided.entry.deployed) == (Answer.GRANTED, 2, 6.0)


def test_many_starts_share_marks_and_an_entry_stays_small() -> None:
    after, now = None, NOW
    for number in range(4_000):
        decided = decide(after, [start(str(number), n=5_000, within=5_000)], [], (), WINDOW, now, 0)
        assert decided.answers[0][1] >= now + 5_000, "a mark is never before the start that it allows"
        after, now = decided.entry, now + 2_000
    assert after is not None
    assert len(after.marks) <= EXACT + 2
    assert sum(number for _, number in after.marks) == 4_000


def test_an_entry_is_kept_for_as_long_as_anything_in_it_counts() -> None:
    assert ttl_of(entry(NOW + SECOND), WINDOW, NOW) == 11 + 5
    assert ttl_of(entry(NOW, places=["x"]), WINDOW, NOW) == 60 + 5
    assert ttl_of(entry(), WINDOW, NOW) == 5
    assert ttl_of(entry(NOW, parked=True), WINDOW, NOW) == 10 + 60 + 5


def test_names_tell_rates_from_limits_and_equal_values_are_one() -> None:
    plain, per = Rate(n=1, seconds=0.25), Rate(n=1, seconds=60.0, per="who")
    assert rate_name("send", plain, b"{}") == "send=250000us"
    one, other = (rate_name("send", per, args) for args in (b'{"who":1}', b'{"who":1.0}'))
    assert one == other
    assert rate_name("send", per, b'{"who":2}') != one
    assert (is_rate(one), is_rate("send"), is_rate("send=0123456789abcdef0123456789abcdef")) == (True, False, False)
    assert window_of(one) == 60 * SECOND


# -- every order of steps --------------------------------------------------------------------------------------------


@dataclass
class Process:
    """A run in a process's hands: what it has read, what it was told."""

    run: str
    at: str = "read"
    found: tuple[Entry | None, int] = (None, 0)
    searched: tuple[int, list[str]] = (0, [])
    mark: int = 0


@dataclass
class World:
    """One rate, its entry at a revision, the runs that are parked, and when bodies have started."""

    chance: random.Random
    n: int
    now: int = NOW
    entry: Entry | None = None
    revision: int = 0
    hands: list[Process] = field(default_factory=list)
    parked: list[str] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    guard: bool = True

    def step(self) -> None:
        self.now += self.chance.choice((0, 0, 1, 3, 40))
        hand = self.chance.choice(self.hands)
        if hand.at == "read":
            hand.found, hand.at = (self.entry, self.revision), "search"
        elif hand.at == "search":
            self.search(hand)
        elif hand.at == "cas":
            self.cas(hand)
        else:
            self.body(hand)

    def asked(self, hand: Process) -> list[Asked]:
        return [Look()] if hand.run == "look" else [start(hand.run, n=self.n, within=20, old=hand.mark)]

    def search(self, hand: Process) -> None:
        before, _ = hand.found
        room = room_to_hand_over(before, self.asked(hand), 100, self.now)
        inside = {place.run_id for place in before.places} if before else set()
        hand.searched = room, [run for run in self.parked if run not in inside][:room]
        hand.at = "cas"

    def cas(self, hand: Process) -> None:
        before, revision = hand.found
        room, oldest = hand.searched
        pairs = [(run, run) for run in oldest]
        decided = decide(before, self.asked(hand), pairs, self.parked, 100, self.now, room)
        answer, mark = decided.answers[0]
        if answer is Answer.PARK:  # its message is stored; the CAS that says so is still to come
            self.parked.append(hand.run)
            return
        if decided.write:
            if revision != self.revision:
                hand.at = "read"
                return
            self.entry, self.revision = decided.entry, revision + 1
        self.parked = [run for run in self.parked if run not in decided.reserved]
        self.woken += decided.reserved
        if decided.write and self.chance.random() < 0.1:  # applied, and its answer is lost: it asks again
            hand.at = "read"
        elif answer in {Answer.GRANTED, Answer.FROM_PARKED}:
            self.parked = [run for run in self.parked if run != hand.run]
            hand.mark, hand.at = mark, "body"
        elif answer is Answer.PARKED:
            self.hands.remove(hand)
        else:
            hand.at = "read"

    def body(self, hand: Process) -> None:
        if self.guard and self.now > hand.mark:
            hand.at = "read"  # late: its mark is moved first
            return
        self.starts.append(self.now)
        self.hands.remove(hand)

    def run(self, runs: int) -> None:
        waiting = [f"r{number}" for number in range(runs)]
        for _ in range(1_000 * runs):
            while waiting and len(self.hands) < 4:
                self.hands.append(Process(waiting.pop(0)))
            while self.woken:
                self.hands.append(Process(self.woken.pop(0)))
            if self.parked and not any(hand.run == "look" for hand in self.hands):
                self.hands.append(Process("look"))
            if not self.hands:
                break
            self.step()
            self.hands = [hand for hand in self.hands if hand.run != "look" or hand.at != "read" or self.parked]

    def most(self) -> int:
        """How many bodies have started in one window at most, its end not included."""
        return max(sum(1 for other in self.starts if one <= other < one + 100) for one in self.starts)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_no_order_of_steps_lets_more_than_n_start_in_a_window_and_all_start(n: int) -> None:
    for seed in range(150):
        world = World(random.Random(seed), n)
        world.run(12)
        assert world.most() <= n, f"seed {seed}"
        assert len(world.starts) >= 12, f"seed {seed}: {world}"


def test_without_a_look_at_the_mark_a_late_body_is_one_too_many() -> None:
    worlds = [World(random.Random(seed), 2, guard=False) for seed in range(150)]
    for world in worlds:
        world.run(12)
    assert max(world.most() for world in worlds) > 2
