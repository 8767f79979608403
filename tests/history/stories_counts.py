"""Hand-made histories of what is counted: by whom, where, and how much of it may be unknown after a kill."""

from __future__ import annotations

from msgspec.structs import replace

from tests.history.evidence import Counts, Unread
from tests.history.stories import Story
from tests.history.stories_good import cancelled_in_its_body

NONE = Counts()
ONE_KILLED = [Unread(pid=1, since=1.9, until=2.1)]
"""The process of session ``s1``: scraped for the last time, and killed, around second 2."""


def _exactly(story: Story, counts: Counts = NONE) -> Story:
    story.evidence.counts = counts
    story.evidence.counted_exactly = True
    return story


def _ran(session: str = "s1", *, stored: float) -> Story:
    story = Story()
    story.submit()
    story.claim(session)
    story.end(min(1.9, stored))
    story.finish(stored=stored)
    return story


def _cancelled_while_it_waited(*, taken: float) -> Story:
    """The cancel notes it; whoever takes the note out, at ``taken``, counts it."""
    story = Story()
    story.submit()
    last = replace(story.last("cancelled"), session="")
    story.asked("cancel", "cancelled", "r1", 1)
    story.write(phase="cancelled", last=last, uncounted={"cancelled waiting": 1}, stored=1.5)
    story.write(uncounted={}, stored=taken)
    return story


def counted_by_the_killed() -> Story:
    """It stored the outcome between its last scrape and its end."""
    story = _exactly(_ran(stored=2.0))
    story.evidence.unread = ONE_KILLED
    return story


def stored_before_the_scrape_and_counted_after_it() -> Story:
    """The answer was on its way meanwhile."""
    story = _exactly(_ran(stored=1.5))
    story.evidence.unread = ONE_KILLED
    return story


def note_taken_by_the_killed() -> Story:
    story = _exactly(_cancelled_while_it_waited(taken=2.0))
    story.evidence.unread = ONE_KILLED
    return story


def note_taken_by_others() -> Story:
    """It may have been the one that was killed, and was not."""
    story = _exactly(_cancelled_while_it_waited(taken=2.0), Counts(cancelled={"waiting": 1}))
    story.evidence.unread = ONE_KILLED
    return story


def forced_in_its_body() -> Story:
    return _exactly(cancelled_in_its_body(), Counts(cancelled={"forced": 1}, outcomes={"cancelled": 1}))


# -- what must be found ----------------------------------------------------------------------------------------------


def lost_before_the_last_scrape() -> Story:
    story = _exactly(_ran(stored=0.5))
    story.evidence.unread = ONE_KILLED
    return story


def lost_after_the_end() -> Story:
    story = _exactly(_ran(stored=2.5))
    story.evidence.unread = ONE_KILLED
    return story


def lost_by_one_that_lives() -> Story:
    """Another process was killed at that time; the outcome names the one that stored it."""
    story = _exactly(_ran("s2", stored=2.0))
    story.evidence.unread = ONE_KILLED
    return story


def note_lost_before_the_last_scrape() -> Story:
    """The cancel itself came later than that, and counts nothing."""
    story = _exactly(_cancelled_while_it_waited(taken=2.5))
    story.evidence.unread = [Unread(pid=1, since=1.4, until=1.6)]
    return story


def counted_in_its_body_though_it_waited() -> Story:
    return _exactly(_cancelled_while_it_waited(taken=2.0), Counts(cancelled={"running": 1}))


def counted_as_waiting_though_it_ran() -> Story:
    return _exactly(cancelled_in_its_body(), Counts(cancelled={"waiting": 1}))


GOOD_COUNTS = [
    counted_by_the_killed,
    stored_before_the_scrape_and_counted_after_it,
    note_taken_by_the_killed,
    note_taken_by_others,
    forced_in_its_body,
]
BAD_COUNTS = {
    lost_before_the_last_scrape: "counted once",
    lost_after_the_end: "counted once",
    lost_by_one_that_lives: "counted once",
    note_lost_before_the_last_scrape: "counted once",
    counted_in_its_body_though_it_waited: "counted once",
    counted_as_waiting_though_it_ran: "counted once",
}
