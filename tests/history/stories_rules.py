"""More hand-made histories: what may be forgotten, told to stop, started or counted, and what follows an outcome."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.aftermath import derived_id
from tests.history.evidence import Counts, HolderSeen
from tests.history.stories import Story, ran_well
from tests.history.stories_good import overstayed, purged_and_anew, replaced_while_running, taken_over


def ended_by_its_canceller(story: Story) -> Story:
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


# -- what must be accepted -------------------------------------------------------------------------------------------


def rescheduled() -> Story:
    """The body has asked for a successor: outcome and successor are one write."""
    story = Story()
    story.submit()
    story.claim()
    story.end(1.9, rescheduled=True)
    story.submit("r2", 2, last=story.last())
    return ended_by_its_canceller(story)


def rescheduled_and_fenced() -> Story:
    """An attempt that asked for a successor, and lost: the one that won did not ask."""
    story = taken_over()
    story.end(6.0, rescheduled=True, attempt=1, session="s1", pid=1, fence=2)
    story.evidence.deaths.clear()
    return story


def expired() -> Story:
    story = ran_well()
    story.write(gone=True, expired=True)
    return story


def purged_while_it_waited() -> Story:
    story = Story()
    story.submit()
    story.write(gone=True)
    return story


def started_when_due() -> Story:
    """The clock of its worker is a little behind."""
    story = Story()
    story.submit(due=1.01)
    story.claim(at=1.0)
    story.end(1.9)
    story.finish()
    return story


def submitted_over_a_lost_run() -> Story:
    """Its holder is gone and its budget spent: a submit that keeps what lives ends it, and starts the next [29]."""
    story = Story()
    story.submit()
    story.claim(at=1.0)
    story.died(1, 1.5)
    story.session("s1", 1, "expired", at=4.0)
    lost = replace(story.last("failed", at=5.0), session="")
    story.submit("r2", 2, last=lost)
    story.evidence.letters.append("r1")
    story.asked("submit", "accepted", "r2", 2, asked=4.9, wall=5.1, mode="keep")
    return ended_by_its_canceller(story)


def stopped_with_the_older() -> Story:
    """A cancel of the newest run tells the older bodies too, so one of theirs was stopped by it."""
    story = replaced_while_running("wait")
    before = story.newest.previous
    told = tuple(replace(entry, deadline=3.0) for entry in before)
    story.write(phase="cancelled", previous=told, last=replace(story.last("cancelled"), session=""))
    story.end(1.4, how="stop cancel", generation=1, run_id="r1", fence=2)
    story.write(previous=())
    return story


def everything_counted() -> Story:
    story = overstayed()
    story.evidence.counts = Counts(superseded={"tail": 1}, outcomes={"succeeded": 1, "retried": 7})
    story.evidence.counted_exactly = True
    return story


def fenced_and_counted() -> Story:
    story = rescheduled_and_fenced()
    story.evidence.counts = Counts(fenced={1: 1})
    story.evidence.fenced = [HolderSeen("s1", "r1", 1)]
    story.evidence.scraped = {1, 2}
    return story


def frozen_before_its_body_and_fenced() -> Story:
    """Its claim was stored, and its session closed before it could start."""
    story = Story()
    story.submit()
    story.claim("s1", at=1.0, body=False)
    story.session("s1", 1, "expired", at=4.0)
    story.claim("s2", at=4.1)
    story.end(5.0)
    story.finish(at=5.0)
    story.evidence.counts = Counts(fenced={1: 1})
    return story


def fenced_and_killed() -> Story:
    """Nobody has seen what it counted last."""
    story = fenced_and_counted()
    story.evidence.counts = Counts()
    story.evidence.scraped = {2}
    return story


def evicted_and_fenced() -> Story:
    """Others have put the run back, as it would have done itself."""
    story = Story()
    story.submit()
    story.claim(at=1.0)
    story.write(phase="waiting", holder=None, evicted=True)
    story.end(1.9)
    story.evidence.counts = Counts(fenced={1: 1})
    return ended_by_its_canceller(story)


def purged_and_counted_by_nobody() -> Story:
    """Forgotten, not superseded: nobody counts it."""
    story = purged_while_it_waited()
    story.submit("r2", last=None)
    story.claim(at=1.0)
    story.end(1.9)
    story.finish()
    story.evidence.counts = Counts(outcomes={"succeeded": 1})
    story.evidence.counted_exactly = True
    return story


# -- what must be found ----------------------------------------------------------------------------------------------


def successor_lost() -> Story:
    story = ran_well()
    story.evidence.bodies[-1] = replace(story.evidence.bodies[-1], rescheduled=True)
    return story


def successor_of_a_loser() -> Story:
    """The attempt that was fenced asked for a successor, the one that won did not; there is one all the same."""
    story = Story()
    story.submit()
    story.claim("s1", at=1.0)
    story.end(1.4, rescheduled=True)
    story.session("s1", 1, "expired", at=1.5)
    story.claim("s2", at=2.0)
    story.end(2.5)
    story.submit("r2", 2, last=story.last(at=2.5))
    return ended_by_its_canceller(story)


def hook_of_a_superseded_run() -> Story:
    story = Story()
    story.submit(actor="hooked")
    story.submit("r2", 2)
    ended_by_its_canceller(story)
    story.key = derived_id("r1", "cancelled.0")
    story.submit("h1")
    return ended_by_its_canceller(story)


def purged_in_its_body() -> Story:
    story = Story()
    story.submit()
    story.claim()
    story.write(gone=True)
    return story


def purged_while_owing() -> Story:
    story = ran_well()
    story.write(outbox=("e",), outbox_keys=("child",))
    story.write(gone=True)
    return story


def expired_while_it_waited() -> Story:
    """A live record that has a TTL."""
    story = Story()
    story.submit()
    story.write(gone=True, expired=True)
    return story


def deadline_extended() -> Story:
    """A second replace gives the body of the first another grace."""
    story = replaced_while_running()
    later = tuple(replace(entry, deadline=9.0) for entry in story.newest.previous)
    story.replaced("r3", previous=later)
    return ended_by_its_canceller(story)


def stop_signal_of_another_life() -> Story:
    """A cancel of the purged run stops the body of the new one."""
    story = purged_and_anew()
    story.evidence.bodies[-1] = replace(story.evidence.bodies[-1], how="stop cancel")
    return story


def claimed_nowhere() -> Story:
    """A body whose claim was refused, or never sent."""
    story = ran_well()
    story.evidence.bodies[:] = [replace(line, fence=0) for line in story.evidence.bodies]
    return story


def body_of_another_actor() -> Story:
    story = ran_well()
    story.evidence.bodies[0] = replace(story.evidence.bodies[0], actor="noop")
    return story


def body_in_another_process() -> Story:
    story = ran_well()
    story.evidence.bodies[:] = [replace(line, pid=2) for line in story.evidence.bodies]
    return story


def started_early() -> Story:
    story = Story()
    story.submit(due=1.1)
    story.claim(at=1.0)
    story.end(1.9)
    story.finish()
    return story


def two_attempts_at_once_though_parallel() -> Story:
    """``parallel`` is for generations: two attempts of one run are never at once while sessions live."""
    story = taken_over()
    story.evidence.revisions = [replace(r, overlap="parallel") for r in story.evidence.revisions]
    story.evidence.deaths.clear()
    story.session("s1", 1)
    story.evidence.alive.add(1)
    return story


def two_writes_over_one() -> Story:
    """The server took two writes that expected the same revision."""
    story = ran_well()
    story.evidence.revisions[-1] = replace(story.newest, before=1)
    return story


def outcome_counted_twice() -> Story:
    story = ran_well()
    story.evidence.counts = Counts(outcomes={"succeeded": 1, "rescheduled": 1})
    return story


def tail_not_counted() -> Story:
    story = everything_counted()
    story.evidence.counts = Counts(outcomes={"succeeded": 1})
    return story


def fenced_not_counted() -> Story:
    story = fenced_and_counted()
    story.evidence.counts = Counts()
    return story


def fenced_twice() -> Story:
    story = fenced_and_counted()
    story.evidence.counts = Counts(fenced={1: 2})
    return story


def winner_counted_as_fenced() -> Story:
    """The attempt that has the run is not fenced by it, nor by its own outcome."""
    story = fenced_and_counted()
    story.evidence.counts = Counts(fenced={1: 1, 2: 1})
    return story


def retried_and_counted_as_fenced() -> Story:
    """It has put the run back itself."""
    story = Story()
    story.evidence.answers_known = True
    story.submit()
    story.claim(at=1.0)
    story.end(1.9, how="raise")
    story.write(phase="waiting", holder=None)
    story.claim(at=2.0)
    story.end(2.9)
    story.finish()
    story.evidence.counts = Counts(fenced={1: 1})
    return story


def retried_unheard_and_counted_as_fenced() -> Story:
    """It has put the run back itself, missed the answer, and looked when the next attempt was under way."""
    story = Story()
    story.submit()
    story.claim(at=1.0)
    story.end(1.9, how="raise")
    story.write(phase="waiting", holder=None)
    story.claim(at=2.0)
    story.end(2.9)
    story.finish()
    story.evidence.counts = Counts(fenced={1: 1})
    return story


def outcome_not_counted() -> Story:
    story = everything_counted()
    story.evidence.counts = Counts(superseded={"tail": 1})
    return story


GOOD_RULES = [
    retried_unheard_and_counted_as_fenced,
    purged_and_counted_by_nobody,
    rescheduled,
    rescheduled_and_fenced,
    expired,
    purged_while_it_waited,
    started_when_due,
    submitted_over_a_lost_run,
    stopped_with_the_older,
    everything_counted,
    fenced_and_counted,
    frozen_before_its_body_and_fenced,
    fenced_and_killed,
    evicted_and_fenced,
]
BAD_RULES = {
    successor_lost: "successor once",
    successor_of_a_loser: "successor once",
    hook_of_a_superseded_run: "hooked once",
    purged_in_its_body: "nothing lost",
    purged_while_owing: "nothing lost",
    expired_while_it_waited: "nothing lost",
    deadline_extended: "deadlines stay",
    stop_signal_of_another_life: "stopped for a reason",
    claimed_nowhere: "claims",
    body_of_another_actor: "claims",
    body_in_another_process: "claims",
    started_early: "not early",
    two_attempts_at_once_though_parallel: "no two bodies",
    two_writes_over_one: "one write",
    outcome_counted_twice: "counted once",
    tail_not_counted: "counted once",
    outcome_not_counted: "counted once",
    fenced_not_counted: "counted once",
    fenced_twice: "counted once",
    winner_counted_as_fenced: "counted once",
    retried_and_counted_as_fenced: "counted once",
}
