"""Hand-made histories of what was excused too broadly once: owed runs, dead letters, stop signals, ends, what expires, what is kept."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.aftermath import derived_id
from tests.history.evidence import CHIME, LimitSeen, PreviousSeen
from tests.history.stories import KEY, Story, ran_well
from tests.history.stories_added import command
from tests.history.stories_answers import asked_for
from tests.history.stories_good import replaced_while_running, spawned
from tests.history.stories_rules import ended_by_its_canceller


def failed_for_good() -> Story:
    """Its dead letter is owed under its own key."""
    story = Story()
    story.evidence.asks_whole = True
    story.submit()
    story.asked("submit", "accepted", "r1", 1, wall=0.5, asked=0.4)
    story.claim()
    story.end(1.9, how="raise")
    story.finish("failed", outbox=("letter",), outbox_keys=(KEY,))
    story.write(outbox=(), outbox_keys=())
    story.evidence.letters.append("r1")
    return story


def spawned_and_asked_for() -> Story:
    story = spawned()
    story.evidence.asks_whole = True
    story.asked("submit", "accepted", "r1", 1, wall=0.5, asked=0.4)
    return story


# -- what must be accepted -------------------------------------------------------------------------------------------


def child_cancelled() -> Story:
    """What is spawned has no submit; whoever cancels it has asked."""
    story = spawned_and_asked_for()
    del story.evidence.revisions[6:], story.evidence.bodies[2:]
    story.key = "child"
    ended_by_its_canceller(story)
    story.asked("cancel", "cancelled", "c1", 1, wall=4.6, asked=4.5, key="child")
    return story


def timed_out_and_returned() -> Story:
    """Its body heeded no signal, and returned when its last attempt had failed."""
    story = Story()
    story.submit(actor="stubborn")
    story.claim()
    story.end(1.9)
    story.finish("failed")
    story.evidence.letters.append("r1")
    return story


def killed_when_it_had_returned() -> Story:
    """The worker has heard nothing of it: its child process was killed too soon."""
    story = failed_though_it_returned()
    story.evidence.bodies[:] = [replace(line, child=11) for line in story.evidence.bodies]
    return story


def older_body_cancelled() -> Story:
    """A cancel of a run that was replaced, whose body was waited for."""
    story = replaced_while_running("wait")
    story.evidence.asks_whole = True
    story.asked("submit", "accepted", "r1", 1, wall=0.5, asked=0.4)
    story.asked("replace", "accepted", "r2", 2, wall=1.1, asked=1.0)
    story.write(previous=(PreviousSeen("s1", "r1", 1, 3.0),), stored=1.2)
    story.asked("cancel", "stopping", "r1", 1, wall=1.25, asked=1.05)
    story.end(1.4, how="stop cancel", generation=1, run_id="r1", fence=2)
    story.write(previous=(), stored=1.5)
    story.claim(at=1.6, stored=1.6)
    story.end(1.9)
    story.finish(stored=2.0)
    return story


def two_submits_one_run() -> Story:
    """The second one found the run of the first."""
    story = ran_well()
    story.evidence.commands = [command(), command(run_id="r2", number="2")]
    return story


def kept_to_the_end() -> Story:
    story = ran_well()
    story.write(stored=2.0)
    story.evidence.looked_at, story.evidence.quiet = 20.0, False  # there is no schedule here that would have to go on
    return story


def dropped_from_beside_a_body() -> Story:
    """Who drops a run for want of room tells the older bodies, as a cancel does."""
    story = replaced_while_running("parallel")
    story.evidence.asks_whole = True
    story.asked("submit", "accepted", "r1", 1, wall=0.5, asked=0.4)
    story.asked("replace", "accepted", "r2", 2, wall=1.1, asked=1.0)
    told = (PreviousSeen("s1", "r1", 1, 3.0),)
    story.write(phase="cancelled", dropped=True, previous=told, last=replace(story.last("cancelled"), session=""))
    story.end(1.4, how="stop superseded", generation=1, run_id="r1", fence=2)
    story.write(previous=())
    return story


# -- what must be found ----------------------------------------------------------------------------------------------


def run_from_nowhere_after_a_letter() -> Story:
    story = failed_for_good()
    story.submit("r2", 2)
    story.claim(at=3.0)
    story.end(3.1)
    story.finish(at=3.1)
    return story


def child_cancelled_by_nobody() -> Story:
    story = child_cancelled()
    story.evidence.asks.pop()
    return story


def child_of_an_attempt_that_raised() -> Story:
    """Its retry owes what only its outcome may."""
    story = Story()
    story.submit()
    story.claim()
    story.end(1.5, how="raise", spawned=("child",))
    story.write(phase="waiting", holder=None, outbox=("e",), outbox_keys=("child",))
    story.write(outbox=(), outbox_keys=())
    story.claim(at=2.0)
    story.end(2.5)
    story.finish(at=2.5)
    story.key = "child"
    story.submit("c1")
    return ended_by_its_canceller(story)


def child_of_nobody() -> Story:
    story = ran_well()
    story.write(outbox=("e",), outbox_keys=("child",))
    story.write(outbox=(), outbox_keys=())
    return story


def hook_before_its_outcome() -> Story:
    """Owed by a run that goes on."""
    story = Story()
    story.submit()
    story.claim()
    story.write(outbox=("e",), outbox_keys=(derived_id("r1", "failed.0"),))
    story.write(outbox=(), outbox_keys=())
    story.end(1.9)
    story.finish()
    return story


def failed_though_it_returned() -> Story:
    story = timed_out_and_returned()
    story.evidence.revisions[:] = [replace(one, actor="nap") for one in story.evidence.revisions]
    story.evidence.bodies[:] = [replace(line, actor="nap") for line in story.evidence.bodies]
    return story


def successor_of_a_failure() -> Story:
    """Only what is perpetual goes on after it."""
    story = Story()
    story.submit()
    story.claim()
    story.end(1.9, how="raise", rescheduled=True)
    story.submit("r2", 2, last=story.last("failed"))
    story.evidence.letters.append("r1")
    return ended_by_its_canceller(story)


def older_body_told_by_nobody() -> Story:
    """Told to stop under ``wait``."""
    story = older_body_cancelled()
    story.evidence.asks.pop()
    return story


def stopped_by_the_signal_for_another_attempt() -> Story:
    """Attempt 1 overstayed and was told to stop; attempt 2 hears it."""
    story = Story()
    story.submit(actor="stubborn")
    story.claim(at=1.0)
    story.end(2.5, how="return")
    told = (PreviousSeen("s1", "r1", 1, 2.0),)
    story.write(phase="waiting", holder=None, evicted=True, previous=told)
    story.claim("s2", at=3.0, previous=(), evicted=False)
    story.end(3.1, how="stop superseded")
    story.finish("failed", at=3.1)
    story.evidence.letters.append("r1")
    return story


def stopped_before_it_was_told() -> Story:
    story = older_body_cancelled()
    story.evidence.bodies[1] = replace(story.evidence.bodies[1], at=1.05, wall=1.05)
    return story


def life_that_begins_in_the_middle() -> Story:
    story = ran_well()
    story.write(gone=True)
    story.submit("r2", 2)
    return ended_by_its_canceller(story)


def life_that_knows_the_one_before() -> Story:
    story = ran_well()
    story.write(gone=True)
    story.submit("r2", 1, last=story.evidence.revisions[2].last)
    return ended_by_its_canceller(story)


def both_submits_lost() -> Story:
    story = Story()
    story.evidence.commands = [command(), command(run_id="r2", number="2")]
    return story


def end_forgotten() -> Story:
    """The record of a run that is over is gone, and nobody has purged it."""
    story = kept_to_the_end()
    story.evidence.records.clear()
    return story


def end_undone() -> Story:
    """What is there at the end is older than what was stored before: a server came back with less."""
    story = kept_to_the_end()
    story.evidence.records[KEY] = story.evidence.revisions[-2]
    return story


def at_rest(places: int) -> Story:
    story = kept_to_the_end()
    story.key = CHIME
    story.submit("t1", actor=CHIME, every=True, tick=20.0, due=20.0)
    story.evidence.quiet = True
    story.evidence.limits = [
        LimitSeen(seq=1, name="solo", n=3, places=1),
        LimitSeen(seq=2, name="solo", n=3, places=places),
    ]
    return story


def places_given_back() -> Story:
    return at_rest(0)


def place_kept_for_ever() -> Story:
    """There is room for others, so nobody waits for it."""
    return at_rest(1)


def purged_what_was_gone() -> Story:
    """The second of two purges is told that it has purged."""
    story = ran_well()
    story.write(gone=True)
    for asked in (3.0, 4.0):
        story.asked("purge", "purged", asked=asked, wall=asked + 0.1)
    return story


def purged_what_had_expired() -> Story:
    story = ran_well()
    story.write(gone=True, expired=True, stored=2.9)
    story.asked("purge", "purged", asked=3.0, wall=3.1)
    return story


def expired_while_its_purge_was_under_way() -> Story:
    """Who has not heard of its own purge and finds nothing takes that for it."""
    story = ran_well()
    story.write(gone=True, expired=True, stored=2.9)
    story.asked("purge", "purged", asked=2.8, wall=4.0)
    return story


def submitted_twice_by_one_ask() -> Story:
    story = asked_for()
    story.submit("r2", 2)
    return ended_by_its_canceller(story)


GOOD_WRONG = [
    failed_for_good,
    spawned_and_asked_for,
    child_cancelled,
    timed_out_and_returned,
    killed_when_it_had_returned,
    older_body_cancelled,
    two_submits_one_run,
    kept_to_the_end,
    places_given_back,
    expired_while_its_purge_was_under_way,
    dropped_from_beside_a_body,
]
BAD_WRONG = {
    run_from_nowhere_after_a_letter: "caused",
    child_cancelled_by_nobody: "caused",
    older_body_told_by_nobody: "caused",
    submitted_twice_by_one_ask: "caused",
    child_of_an_attempt_that_raised: "spawned once",
    child_of_nobody: "spawned once",
    hook_before_its_outcome: "spawned once",
    failed_though_it_returned: "no late outcome",
    successor_of_a_failure: "successor once",
    stopped_by_the_signal_for_another_attempt: "stopped for a reason",
    stopped_before_it_was_told: "stopped for a reason",
    life_that_begins_in_the_middle: "never back",
    life_that_knows_the_one_before: "never back",
    both_submits_lost: "commands once",
    place_kept_for_ever: "limits hold",
    purged_what_was_gone: "linearizable",
    purged_what_had_expired: "linearizable",
    end_forgotten: "nothing lost",
    end_undone: "nothing lost",
}
