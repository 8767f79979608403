"""Hand-made histories of limits, schedules and the inbox."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.history.evidence import (
    CHIME,
    CHIME_LATE_SECONDS,
    TAKEOVER_SECONDS,
    Clocks,
    CommandLine,
    LimitSeen,
    PreviousSeen,
)
from tests.history.stories import KEY, Story, ran_well
from tests.history.stories_rules import ended_by_its_canceller


def limited(story: Story, allowed: int = 1) -> Story:
    """Every body runs under one limit."""
    story.evidence.bodies[:] = [
        replace(line, limit="solo", allowed=allowed) if line.what == "start" else line for line in story.evidence.bodies
    ]
    return story


def ran(story: Story, key: str, start: float, end: float, session: str = "s1") -> Story:
    """One run of a key, from claim to outcome."""
    story.key = key
    story.submit(f"run of {key}")
    story.claim(session, at=start, stored=start)
    story.end(end)
    story.finish(at=end, stored=end)
    return story


def one_after_the_other() -> Story:
    return limited(ran(ran(Story(), "a", 1.0, 2.0), "b", 2.0, 3.0, "s2"))


def as_many_as_are_allowed() -> Story:
    return limited(ran(ran(Story(), "a", 1.0, 2.0), "b", 1.5, 3.0, "s2"), allowed=2)


def beside_a_body_whose_session_is_closed() -> Story:
    """Frozen past its ttl: its place is given back, and it wakes up."""
    story = ran(Story(), "a", 1.0, 9.0)
    story.session("s1", 1, "expired", at=4.0)
    return limited(ran(story, "b", 4.5, 5.0, "s2"))


def started_as_its_place_came_free() -> Story:
    """In no time, as it is simulated: the session's end is told by the time of day, which is rounded (seed 25,006,828)."""
    story = ran(Story(), "a", 1.0, 9.0)
    story.session("s1", 1, "expired", at=4.5)
    story.evidence.clocks = Clocks(observers=0.0)
    return limited(ran(story, "b", 4.5 - 1e-7, 5.0, "s2"))


def beside_a_body_that_was_ended_for_it() -> Story:
    """Past its deadline and grace: its attempt was taken out of the record, and it goes on."""
    story = Story()
    story.key = "a"
    story.submit()
    story.claim(at=1.0, stored=1.0)
    last, told = replace(story.last("failed", 3.0), session=""), (PreviousSeen("s1", "r1", 1, 2.5),)
    story.write(phase="failed", holder=None, stored=3.0, last=last, previous=told)
    story.write(previous=(), stored=3.1)
    story.evidence.letters.append("r1")
    story.end(9.0, how="return")
    return limited(ran(story, "b", 4.0, 5.0, "s2"))


def ticked(*ticks: float) -> Story:
    """A chain with these ticks, cancelled by somebody in the end."""
    story = Story()
    story.key = CHIME
    for number, tick in enumerate(ticks, 1):
        last = story.last(at=tick) if number > 1 else None
        story.submit(f"r{number}", number, actor=CHIME, every=True, tick=tick, due=tick, last=last)
        story.claim(at=tick)
        story.end(tick)
    return story


def each_tick() -> Story:
    return ticked(10.0, 12.0, 14.0)


def looked_at(story: Story, at: float) -> Story:
    story.evidence.looked_at = at
    return story


def goes_on() -> Story:
    return looked_at(each_tick(), 15.0)


def commanded(*commands: CommandLine) -> Story:
    story = ran_well()
    story.evidence.commands = list(commands)
    return story


def command(verb: Any = "submit", run_id: str = "r1", number: str = "1", *, acked: bool = True) -> CommandLine:
    return CommandLine(wall=0.4, verb=verb, key=KEY, id=number, acked=acked, run_id=run_id)


def applied() -> Story:
    return commanded(command(acked=False), command())


def never_heard() -> Story:
    """The second one was never acknowledged, and did nothing."""
    return commanded(command(), command("replace", "r2", "2", acked=False))


# -- what must be found ----------------------------------------------------------------------------------------------


def two_under_a_limit_of_one() -> Story:
    return limited(ran(ran(Story(), "a", 1.0, 2.0), "b", 1.9, 3.0, "s2"))


def three_under_a_limit_of_two() -> Story:
    story = ran(ran(Story(), "a", 1.0, 5.0), "b", 2.0, 4.0, "s2")
    return limited(ran(story, "c", 3.0, 3.5), allowed=2)


def too_many_places() -> Story:
    story = ran_well()
    story.evidence.limits = [LimitSeen(seq=1, name="solo", n=1, places=2)]
    return story


def tick_left_out() -> Story:
    return ticked(10.0, 14.0)


def tick_that_comes_twice() -> Story:
    return ticked(10.0, 12.0, 12.0)


def never_fired() -> Story:
    return looked_at(ran_well(), 100.0)


def stopped() -> Story:
    return looked_at(each_tick(), 14.1 + CHIME_LATE_SECONDS + TAKEOVER_SECONDS)


def command_lost() -> Story:
    return commanded(command(), command("replace", "r2", "2"))


def run_of_no_command() -> Story:
    return commanded(command(run_id="another"))


def refused(*, told: bool) -> Story:
    """One that cannot be carried out, for a key of its own."""
    wrong = CommandLine(wall=0.4, verb="submit", key="bad", id="9", acked=True, refusal="c9")
    story = commanded(command(), wrong)
    story.evidence.rejected = {"c9"} if told else set()
    return story


def rejected() -> Story:
    return refused(told=True)


def accepted_and_forgotten() -> Story:
    return refused(told=False)


def one_cancel_for_two_runs() -> Story:
    """A cancel that is delivered again after the run that it has cancelled."""
    story = Story()
    story.submit()
    ended_by_its_canceller(story)
    story.submit("r2", 2)
    ended_by_its_canceller(story)
    runs = command(), command("submit", "r2", "2")
    story.evidence.commands = [*runs, command("cancel", "", "3"), command("cancel", "", "3")]
    return story


GOOD_ADDED = [
    one_after_the_other,
    as_many_as_are_allowed,
    beside_a_body_whose_session_is_closed,
    started_as_its_place_came_free,
    beside_a_body_that_was_ended_for_it,
    each_tick,
    goes_on,
    applied,
    never_heard,
    rejected,
]
BAD_ADDED = {
    two_under_a_limit_of_one: "limits hold",
    three_under_a_limit_of_two: "limits hold",
    too_many_places: "limits hold",
    tick_left_out: "each tick once",
    never_fired: "each tick once",
    stopped: "each tick once",
    tick_that_comes_twice: "each tick once",
    command_lost: "commands once",
    accepted_and_forgotten: "commands once",
    run_of_no_command: "commands once",
    one_cancel_for_two_runs: "commands once",
}
