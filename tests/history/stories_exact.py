"""Hand-made histories told by one clock and one server: a write is in force as soon as it is stored, and whoever reads sees it."""

from __future__ import annotations

from msgspec.structs import replace

from tests.history.evidence import Clocks
from tests.history.stories import Story


def stamped(*, finished: float = 2.0) -> Story:
    """It runs from 1.0 to 1.9, and every write has its time."""
    story = Story()
    story.evidence.clocks = Clocks(in_force=0.0)
    story.submit(stored=0.45)
    story.asked("submit", "accepted", "r1", 1, wall=0.5, asked=0.4)
    story.claim(stored=0.9)
    story.end(1.9)
    story.finish(stored=finished)
    return story


def seen_as_it_is() -> Story:
    story = stamped()
    story.asked("status", "running", "r1", 1, asked=1.95, wall=2.5, attempt=1)
    story.asked("status", "succeeded", "r1", 1, asked=2.1, wall=2.2, attempt=1)
    return story


def seen_late_where_a_leader_asks_others() -> Story:
    """Of three servers the one that has stored it first may answer for it much later."""
    story = seen_long_after()
    story.evidence.clocks = Clocks()
    return story


def seen_long_after() -> Story:
    """A status of before the outcome, twenty seconds after it was stored; nobody else has looked since."""
    story = stamped()
    story.asked("status", "running", "r1", 1, asked=22.0, wall=22.1, attempt=1)
    return story


def kept_by_what_was_over() -> Story:
    story = stamped()
    story.asked("submit", "kept", "r1", 1, asked=3.0, wall=3.1, mode="keep")
    return story


def rejected_for_what_was_over() -> Story:
    story = stamped()
    story.asked("submit", "live", "r1", 1, asked=3.0, wall=3.1, mode="reject")
    return story


def stored_before_its_body_had_ended() -> Story:
    return stamped(finished=1.5)


def unknown_and_seen_before_it_was_asked() -> Story:
    """A replace of unknown fate, in force before anybody had asked for it."""
    story = stamped()
    story.submit("r2", 2, stored=3.0)
    story.asked("replace", "unknown", "r2", asked=3.5, wall=4.0)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""), stored=5.0)
    return story


GOOD_EXACT = [stamped, seen_as_it_is, seen_late_where_a_leader_asks_others]
BAD_EXACT = dict.fromkeys(
    (
        seen_long_after,
        kept_by_what_was_over,
        rejected_for_what_was_over,
        stored_before_its_body_had_ended,
        unknown_and_seen_before_it_was_asked,
    ),
    "linearizable",
)
