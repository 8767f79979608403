"""Hand-made histories of failures that are counted, and of what follows from an outcome. Two failures are one too many."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.aftermath import derived_id
from tests.history.evidence import HOOKED
from tests.history.stories import KEY, Story
from tests.history.stories_rules import ended_by_its_canceller


def failing(how: str = "raise", *, first: int = 1) -> Story:
    """The first attempt ends ``how`` and adds so many failures."""
    story = Story()
    story.submit(budget=2)
    story.claim(at=1.0)
    story.end(1.5, how=how)
    story.write(phase="waiting", holder=None, failures=first)
    return story


def failed_twice(story: Story) -> Story:
    story.claim(at=2.0)
    story.end(2.5, how="raise")
    failures = story.newest.failures + 1
    story.finish(phase="failed", failures=failures, last=story.last("failed", at=2.5, failures=failures))
    story.evidence.letters.append("r1")
    return story


def lost(closed: str, failures: int) -> Story:
    """Its worker is gone, its session closed so; whoever takes it over counts so many failures."""
    story = Story()
    story.submit(budget=3)
    story.claim("s1", at=1.0)
    story.end(1.4, how="stop drain")
    story.session("s1", 1, closed, at=1.5)
    story.claim("s2", at=2.0, failures=failures)
    story.end(2.5)
    story.finish(at=2.5)
    return story


# -- what must be accepted -------------------------------------------------------------------------------------------


def failed_by_its_budget() -> Story:
    return failed_twice(failing())


def snoozed_and_went_well() -> Story:
    story = failing("snooze", first=0)
    story.claim(at=2.0)
    story.end(2.5)
    story.finish(at=2.5)
    return story


def taken_over_from_the_dead() -> Story:
    return lost("expired", 1)


def taken_over_from_who_had_drained() -> Story:
    return lost("drain", 0)


# -- what must be found ----------------------------------------------------------------------------------------------


def failed_too_soon() -> Story:
    story = Story()
    story.submit(budget=2)
    story.claim(at=1.0)
    story.end(1.5, how="raise")
    story.finish("failed", failures=1, last=story.last("failed", failures=1))
    story.evidence.letters.append("r1")
    return story


def claimed_with_nothing_left() -> Story:
    story = failing(first=1)
    story.write(budget=1)
    story.claim(at=2.0)
    story.end(2.5)
    story.finish(at=2.5)
    return story


def raised_and_not_counted() -> Story:
    return failed_twice(failed_again_uncounted())


def failed_again_uncounted() -> Story:
    story = failing(first=0)
    story.claim(at=1.6)
    story.end(1.7, how="raise")
    story.write(phase="waiting", holder=None, failures=1)
    return story


def snoozed_and_counted() -> Story:
    return failed_twice(failing("snooze", first=1))


def counted_for_nobody() -> Story:
    """While it waits."""
    story = failing(first=0)
    story.write(failures=1)
    return failed_twice(story)


def lost_and_not_counted() -> Story:
    return lost("expired", 0)


def drained_and_counted() -> Story:
    return lost("drain", 1)


def other_policy_in_one_run() -> Story:
    story = Story()
    story.submit()
    story.claim(overlap="parallel")
    story.end(1.9)
    story.finish()
    return story


def child_before_its_outcome() -> Story:
    story = Story()
    story.submit()
    story.claim()
    story.key = "child"
    story.submit("c1")
    ended_by_its_canceller(story)
    story.key = KEY
    story.end(1.9, spawned=("child",))
    story.write(phase="succeeded", holder=None, last=replace(story.last(), run_id="r1", attempt=1, session="s1"))
    return story


def hook_before_its_outcome() -> Story:
    story = Story()
    story.submit(actor=HOOKED)
    story.key = derived_id("r1", "cancelled.0")
    story.submit("h1")
    ended_by_its_canceller(story)
    story.key = KEY
    story.write(phase="cancelled", last=replace(story.last("cancelled"), run_id="r1", session=""))
    return story


GOOD_BUDGET = [
    failed_by_its_budget,
    snoozed_and_went_well,
    taken_over_from_the_dead,
    taken_over_from_who_had_drained,
]
BAD_BUDGET = {
    **dict.fromkeys(
        (
            failed_too_soon,
            claimed_with_nothing_left,
            raised_and_not_counted,
            snoozed_and_counted,
            counted_for_nobody,
            lost_and_not_counted,
            drained_and_counted,
        ),
        "budget",
    ),
    other_policy_in_one_run: "one run",
    child_before_its_outcome: "spawned once",
    hook_before_its_outcome: "hooked once",
}
