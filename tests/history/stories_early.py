"""Hand-made histories of runs that are started before their time, and of runs that their rate drops."""

from __future__ import annotations

from tenure.core.rates import Rate, rate_name
from tests.history.evidence import CHIME, CURBED, CURBED_SECONDS, CURBED_STARTS, Fault, RateSeen
from tests.history.stories import Story

_RATE = rate_name(CURBED, Rate(n=CURBED_STARTS, seconds=CURBED_SECONDS), b"{}")

# -- triggered -------------------------------------------------------------------------------------------------------


def triggered(told: str = "accepted", *, due: float = 0.0, asked: float = 0.99, wall: float = 1.01) -> Story:
    """A run that was to wait until 60.0 is started at 1.0, and somebody was told so."""
    story = Story()
    story.evidence.asks_whole = True
    story.submit(due=60.0, stored=0.5)
    story.asked("submit", "accepted", "r1", 1, wall=0.51, asked=0.49, id="first")
    story.write(due=due, stored=1.0)
    if told:
        story.asked("trigger", told, "" if told == "unknown" else "r1", 1, wall=wall, asked=asked, id="now")
    story.claim(at=1.1, stored=1.1)
    story.end(1.9)
    story.finish(at=1.9, stored=1.9)
    return story


def triggered_and_told() -> Story:
    return triggered()


def triggered_and_not_told() -> Story:
    return triggered("unknown")


def triggered_and_told_that_it_runs() -> Story:
    """Its answer was lost, and when it looked its run had been claimed."""
    return triggered("kept", wall=1.2)


def triggered_unheard_and_purged() -> Story:
    """Its answer was lost, and when it looked the key was gone, with the run that it had made due."""
    story = Story()
    story.evidence.asks_whole = True
    story.submit(due=60.0, stored=0.5)
    story.asked("submit", "accepted", "r1", 1, wall=0.51, asked=0.49, id="first")
    story.write(due=0.0, stored=1.0)
    story.asked("trigger", "kept", "r1", 1, wall=1.3, asked=0.99, id="now")
    story.asked("purge", "purged", wall=1.12, asked=1.05, id="purge")
    story.write(gone=True, stored=1.1)
    return story


def ticks(*, second: float, third: float) -> Story:
    """A chain of which the second run, for 12.0, is started at 10.5; the tick that it then has, and that of the next."""
    story = Story()
    story.key = CHIME
    chain = {"actor": CHIME, "every": True}
    story.submit("r1", 1, tick=10.0, due=10.0, stored=8.0, **chain)
    story.claim(at=10.0, stored=10.0)
    story.end(10.1)
    story.submit("r2", 2, tick=12.0, due=12.0, stored=10.1, last=story.last(at=10.1), **chain)
    story.write(tick=second, due=0.0, stored=10.5)
    story.claim(at=10.6, stored=10.6)
    story.end(10.7)
    story.submit("r3", 3, tick=third, due=third, stored=10.7, last=story.last(at=10.7), **chain)
    story.claim(at=third, stored=third)
    return story


def triggered_and_its_tick_comes_all_the_same() -> Story:
    return ticks(second=11.0, third=12.0)


def nobody_triggered_it() -> Story:
    return triggered("")


def triggered_by_one_ask_for_another_run() -> Story:
    """The answer was lost, the run ended, and the repeat started the next one."""
    story = triggered()
    story.submit("r2", 2, due=60.0, stored=2.0, last=story.newest.last)
    story.asked("submit", "accepted", "r2", 2, wall=2.01, asked=1.99, id="second")
    story.write(due=0.0, stored=2.1)
    story.claim(at=2.2, stored=2.2)
    story.end(2.3)
    story.finish(at=2.3, stored=2.3)
    return story


def triggered_and_waits_on() -> Story:
    return triggered(due=50.0)


def told_that_it_runs_while_it_waits() -> Story:
    return triggered("kept", asked=0.7, wall=0.8)


def triggered_in_the_place_of_its_tick() -> Story:
    return ticks(second=12.0, third=14.0)


def triggered_and_the_last_tick_comes_again() -> Story:
    return ticks(second=9.9, third=10.0)


# -- dropped ---------------------------------------------------------------------------------------------------------


def dropped(*marks: float, places: int = 0, at: float = 2.0, actor: str = CURBED, attempt: int = 0) -> Story:
    """A run that is dropped at once, ``at``; the rate's entry has these marks since 1.0."""
    story = Story()
    story.evidence.asks_whole = True
    story.evidence.rates = [
        RateSeen(seq=90, name=_RATE, stored=1.0, n=1, marks=tuple((mark, 1) for mark in marks), places=places)
    ]
    story.submit(actor=actor, stored=at - 0.1)
    story.asked("submit", "accepted", "r1", 1, wall=at - 0.09, asked=at - 0.11)
    if attempt:
        story.claim(at=at - 0.05, stored=at - 0.05)
        story.end(at - 0.04, how="raise")
        story.write(phase="waiting", holder=None, stored=at - 0.03)
    story.write(phase="cancelled", dropped=True, stored=at, last=story.last("cancelled", at, session=""))
    return story


def dropped_while_a_start_stands() -> Story:
    return dropped(1.1)


def dropped_while_a_place_is_kept() -> Story:
    return dropped(places=1)


def dropped_though_there_was_room() -> Story:
    return dropped()


def dropped_when_the_window_was_over() -> Story:
    return dropped(1.1, at=4.3)


def dropped_by_who_was_frozen_over_the_time() -> Story:
    """Its clock is behind by half of that, and by it the window goes on."""
    story = dropped_when_the_window_was_over()
    story.evidence.frozen = [Fault(kind="freeze", target="p", at=0.1, until=2.1, pid=7)]
    return story


def dropped_after_it_was_started() -> Story:
    return dropped(1.1, attempt=1)


def dropped_though_it_may_wait() -> Story:
    return dropped(1.1, actor="metered")


GOOD_EARLY = [
    triggered_and_told,
    triggered_and_not_told,
    triggered_and_told_that_it_runs,
    triggered_unheard_and_purged,
    triggered_and_its_tick_comes_all_the_same,
    dropped_while_a_start_stands,
    dropped_while_a_place_is_kept,
    dropped_by_who_was_frozen_over_the_time,
]
BAD_EARLY = {
    nobody_triggered_it: "caused",
    triggered_by_one_ask_for_another_run: "caused",
    triggered_and_waits_on: "told",
    told_that_it_runs_while_it_waits: "linearizable",
    triggered_in_the_place_of_its_tick: "each tick once",
    triggered_and_the_last_tick_comes_again: "each tick once",
    dropped_though_there_was_room: "drops",
    dropped_when_the_window_was_over: "drops",
    dropped_after_it_was_started: "drops",
    dropped_though_it_may_wait: "drops",
}
