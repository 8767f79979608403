"""The time of day that a process goes by is the server's, as far as an answer can tell it."""

from __future__ import annotations

import asyncio

import pytest

from tenure.clock import SYSTEM, AlignedClock, SystemClock, here, using


class Told(SystemClock):
    """Clocks that show what the test says: ``wall`` is the machine's time of day."""

    def __init__(self, wall: float, *, counts_suspension: bool = True) -> None:
        self.wall = wall
        self.since_boot = 50.0
        self.counts_suspension = counts_suspension

    def now(self) -> float:
        return self.wall

    def steady(self) -> float:  # type: ignore[override]  # the machine's is a static method
        return self.since_boot


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("wrong", [-3600.0, -0.35, 0.35, 86_400.0])
def test_a_wrong_clock_is_corrected_by_the_server_s_time_and_half_the_way(wrong: float, counts: bool) -> None:
    base = Told(1_000.0 + wrong, counts_suspension=counts)
    clock = AlignedClock(base)
    clock.align(999.95, sent=49.9)
    assert clock.now() == pytest.approx(1_000.0)
    base.wall += 7
    base.since_boot += 7
    assert clock.now() == pytest.approx(1_007.0)
    assert clock.offset == pytest.approx(-wrong)


@pytest.mark.parametrize(("server", "sent"), [(1_000.2, 50.0), (999.8, 50.0), (999.0, 48.2), (999.9, 48.2)])
def test_a_small_difference_or_what_a_slow_answer_accounts_for_changes_nothing(server: float, sent: float) -> None:
    clock = AlignedClock(Told(1_000.0))
    assert not clock.aligned
    clock.align(server, sent)
    assert (clock.offset, clock.now()) == (0.0, 1_000.0)
    assert clock.aligned


@pytest.mark.parametrize("off", [-0.2, 0.0, 0.2])
@pytest.mark.parametrize("frozen", ["before it asked", "before it read"])
def test_a_freeze_between_question_and_answer_moves_no_clock_that_was_right(off: float, frozen: str) -> None:
    """All of the nine seconds lie before the server's time, or all after it: half of them, or what the machine says, would be wrong."""
    base = Told(996.0)
    clock = AlignedClock(base)
    clock.align(1_000.0 - off, sent=50.0)
    assert clock.now() == pytest.approx(1_000.0 - off)
    base.wall += 9
    base.since_boot += 9
    clock.align(1_009.0 if frozen == "before it asked" else 1_000.0, sent=50.0)
    assert clock.now() == pytest.approx(1_009.0 - off)


def test_a_slow_answer_still_tells_that_a_clock_is_wrong_by_hours() -> None:
    """The server was busy when the process started: 3 s for an answer, and nothing else to go by for four seconds, or ever."""
    clock = AlignedClock(Told(4_600.0))
    clock.align(1_000.0, sent=47.0)
    assert clock.now() == pytest.approx(1_001.5)


@pytest.mark.parametrize("wrong", [0.0, 0.2, 0.4, 0.63, 3.0])
@pytest.mark.parametrize("way", [0.0, 0.2, 0.477, 2.0])
@pytest.mark.parametrize("before", [0.0, 0.5, 1.0])
def test_a_clock_knows_by_how_much_it_may_be_wrong(wrong: float, way: float, before: float) -> None:
    """Wherever on its way an answer took so long: ``before``, that much of it lay before the server's time."""
    for sign in (1.0, -1.0):
        clock = AlignedClock(Told(1_000.0 + sign * wrong))
        clock.align(1_000.0 - (1.0 - before) * way, sent=50.0 - way)
        assert abs(clock.now() - 1_000.0) <= clock.unsure + 1e-6


@pytest.mark.parametrize("by", [-3_600.0, 3_600.0])
def test_setting_the_machine_s_clock_moves_nothing(by: float) -> None:
    """Put right or put wrong, whoever asked the server once goes on from there."""
    base = Told(900.0)
    clock = AlignedClock(base)
    clock.align(1_000.0, sent=50.0)
    base.wall += by
    assert clock.now() == 1_000.0


def test_a_clock_that_was_set_right_meanwhile_is_what_counts() -> None:
    base = Told(900.0, counts_suspension=False)
    clock = AlignedClock(base)
    clock.align(1_000.0, sent=50.0)
    base.wall = 1_010.1
    clock.align(1_010.0, sent=50.0)
    assert (clock.offset, clock.now()) == (0.0, 1_010.1)


@pytest.mark.parametrize("server", [1_000.9, 1_010.1])
def test_a_clock_that_was_set_right_meanwhile_counts_after_a_freeze_too(server: float) -> None:
    """Nine seconds, all of them on one side of the server's time: half of that is no better than the machine's."""
    base = Told(900.0, counts_suspension=False)
    clock = AlignedClock(base)
    clock.align(1_000.0, sent=50.0)
    base.wall, base.since_boot = 1_010.0, 59.0
    clock.align(server, sent=50.0)
    assert clock.offset == 0.0


def test_a_sleep_that_the_steady_clock_does_not_count_is_seen_by_the_time_of_day() -> None:
    base = Told(1_000.0, counts_suspension=False)
    clock = AlignedClock(base)
    base.wall += 3_600
    assert clock.now() == 4_600.0


def test_everything_else_is_the_machine_s() -> None:
    clock = AlignedClock(SYSTEM)
    assert clock.steady() == pytest.approx(SYSTEM.steady(), abs=1)
    assert 0 <= clock.random() < 1
    assert len(clock.new_id()) == 26


async def test_a_task_has_the_clock_of_the_place_where_it_was_made() -> None:
    async def clock() -> object:
        return here()

    mine = Told(5.0)
    assert here() is SYSTEM
    with using(mine):
        made_inside = asyncio.create_task(clock())
        assert here() is mine
    assert here() is SYSTEM
    assert await made_inside is mine
    assert await asyncio.create_task(clock()) is SYSTEM
