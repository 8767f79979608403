"""Hand-made histories with one violation each, and the invariant that it breaks."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.aftermath import derived_id
from tests.history.evidence import Counts, HolderSeen, PreviousSeen
from tests.history.stories import Story, ran_well
from tests.history.stories_good import (
    cancelled_in_its_body,
    hooked,
    purged_and_anew,
    replaced_while_running,
    spawned,
    stopped_then_next,
    taken_over,
)


def generation_goes_back() -> Story:
    story = ran_well()
    story.submit("r2", 2)
    story.submit("r3", 1, last=story.newest.last)
    return story


def attempt_goes_back() -> Story:
    story = taken_over()
    story.write(attempt=1)
    return story


def run_returns() -> Story:
    """An old life's late write: its run is back after a purge."""
    story = purged_and_anew()
    story.submit("r1", 2)
    return story


def two_outcomes() -> Story:
    """Attempt 1, fenced, stores its outcome after attempt 2 did."""
    story = taken_over()
    story.write(last=replace(story.last(), attempt=1, session="s1"))
    return story


def terminal_changes() -> Story:
    story = ran_well()
    story.write(phase="failed")
    return story


def outcome_of_a_superseded_run() -> Story:
    story = replaced_while_running()
    story.end(1.4, generation=1, run_id="r1", fence=2)
    story.write(last=replace(story.last(), run_id="r1", generation=1, attempt=1, session="s1"))
    return story


def outcome_by_a_fenced_attempt() -> Story:
    story = Story()
    story.submit()
    story.claim("s1", at=1.0)
    story.session("s1", 1, "expired", at=1.5)
    story.claim("s2", at=2.0)
    story.end(2.5, attempt=1, session="s1", pid=1, fence=2)
    story.finish(last=replace(story.last(), attempt=1, session="s1"))
    return story


def outcome_without_a_body() -> Story:
    story = Story()
    story.submit()
    story.claim(body=False)
    story.finish()
    return story


def started_twice() -> Story:
    """A redelivery to another process after ack_wait starts the same attempt again."""
    story = ran_well()
    story.evidence.bodies.append(replace(story.evidence.bodies[0], at=1.95, wall=1.95, pid=2))
    return story


def started_without_a_claim() -> Story:
    story = ran_well()
    story.evidence.bodies[0] = replace(story.evidence.bodies[0], fence=1)
    return story


def fence_falls() -> Story:
    story = taken_over()
    bodies = story.evidence.bodies
    first, second = (line for line in bodies if line.what == "start")
    bodies[bodies.index(first)] = replace(first, fence=9)
    bodies[bodies.index(second)] = replace(second, fence=8)
    return story


def claim_changes_hands() -> Story:
    story = Story()
    story.submit()
    story.claim(body=False)
    story.write(holder=HolderSeen("s2", "r1", 1))
    return story


def cancelled_then_succeeded() -> Story:
    story = Story()
    story.submit()
    story.claim(at=1.0)
    story.write(phase="stopping", stopped=True)
    story.end(1.2)
    story.finish()
    return story


def told_cancelled_then_succeeded() -> Story:
    """No revision shows the cancel: it was answered and is nowhere."""
    story = ran_well()
    story.asked("cancel", "cancelled", "r1", 1, wall=1.5)
    return story


def cancelled_then_claimed() -> Story:
    story = cancelled_in_its_body()
    story.claim("s2", at=3.0)
    return story


def cancelled_then_retried() -> Story:
    story = Story()
    story.submit()
    story.claim(at=1.0)
    story.write(phase="stopping", stopped=True)
    story.end(1.2, how="raise")
    story.write(phase="waiting", holder=None)
    return story


def two_bodies_under_stop() -> Story:
    """The next generation starts though the stopped body has its grace and its session."""
    story = replaced_while_running(overlap="stop")
    story.claim("s2", at=1.1, previous=())
    story.end(1.5, how="return")
    story.finish(at=1.5)
    return story


def two_bodies_under_wait() -> Story:
    """As before; and however long the grace is over, ``wait`` waits."""
    story = replaced_while_running(overlap="wait")
    story.claim("s2", at=30.0, previous=())
    story.end(31.0)
    story.finish(at=31.0)
    return story


def two_attempts_at_once() -> Story:
    """Taken over while the holder's session is open."""
    story = taken_over()
    story.evidence.deaths.clear()
    story.session("s1", 1)
    story.evidence.alive.add(1)
    return story


def late_starter_beside_its_successor() -> Story:
    """The older body starts only when the newer one runs already."""
    story = two_bodies_under_stop()
    story.evidence.bodies[0] = replace(story.evidence.bodies[0], at=1.2, wall=1.2)
    return story


def body_forgotten() -> Story:
    """A replace of a queued replace forgets the body that still runs."""
    story = Story()
    story.submit()
    story.claim(at=1.0)
    story.submit("r2", 2)
    return story


def no_successor() -> Story:
    story = Story()
    story.submit(every=True)
    story.claim()
    story.end(1.9)
    story.finish()
    return story


def spawned_twice() -> Story:
    story = spawned()
    story.submit("c2", 2)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def spawn_lost() -> Story:
    story = spawned()
    story.evidence.revisions = [r for r in story.evidence.revisions if r.key != "child"]
    del story.evidence.records["child"]
    return story


def spawned_by_a_failed_attempt() -> Story:
    story = spawned()
    story.evidence.bodies[1] = replace(story.evidence.bodies[1], attempt=2)
    story.evidence.bodies.append(replace(story.evidence.bodies[1], attempt=1, spawned=()))
    return story


def hook_lost() -> Story:
    story = hooked()
    lost = story.key
    story.evidence.revisions = [r for r in story.evidence.revisions if r.key != lost]
    story.evidence.bodies = [line for line in story.evidence.bodies if line.key != lost]
    del story.evidence.records[lost]
    return story


def hook_twice() -> Story:
    story = hooked()
    story.submit("h2", 2)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def hook_of_another_end() -> Story:
    story = hooked()
    story.key = derived_id("r1", "succeeded.0")
    story.submit("h2")
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def letter_lost() -> Story:
    story = hooked()
    story.evidence.letters.clear()
    return story


def letter_twice() -> Story:
    story = hooked()
    story.evidence.letters.append("r1")
    return story


def letter_of_a_run_that_succeeded() -> Story:
    story = ran_well()
    story.evidence.letters.append("r1")
    return story


def outbox_dropped() -> Story:
    """A replace before the outbox is applied must carry it on."""
    story = Story()
    story.submit()
    story.claim()
    story.end(1.9, spawned=("child",))
    story.finish(outbox=("e",), outbox_keys=("child",))
    story.submit("r2", 2, outbox=(), outbox_keys=())
    return story


def submit_lost() -> Story:
    story = ran_well()
    story.asked("submit", "accepted", "r9", 2)
    return story


def told_another_generation() -> Story:
    story = ran_well()
    story.asked("submit", "kept", "r1", 7)
    return story


def told_another_result() -> Story:
    story = ran_well()
    story.asked("result", "failed", "r1", 1)
    return story


def unexpected_error() -> Story:
    story = ran_well()
    story.asked("submit", "error TypeError: x")
    return story


def never_ends() -> Story:
    story = Story()
    story.submit()
    return story


def still_owes() -> Story:
    story = ran_well()
    story.write(previous=(PreviousSeen("s1", "r0", 1, 2.0),))
    return story


def record_lost() -> Story:
    story = Story()
    story.submit()
    story.evidence.records.clear()
    return story


def work_left() -> Story:
    story = ran_well()
    story.evidence.work_left.append("a subject")
    return story


def dead_session_open() -> Story:
    story = ran_well()
    story.died(1, 2.5)
    return story


def cancelled_counted_twice() -> Story:
    story = cancelled_in_its_body()
    story.evidence.counts = Counts(cancelled={"running": 2})
    return story


def tail_counted_twice() -> Story:
    story = stopped_then_next()
    story.evidence.counts = Counts(superseded={"tail": 1, "retry": 1})
    return story


def head_counted_twice() -> Story:
    story = Story()
    story.submit()
    story.replaced()
    story.claim()
    story.end(1.9)
    story.finish()
    story.evidence.counts = Counts(superseded={"head": 2})
    return story


BAD = {
    generation_goes_back: "never back",
    attempt_goes_back: "never back",
    run_returns: "never back",
    two_outcomes: "one outcome",
    terminal_changes: "one outcome",
    outcome_of_a_superseded_run: "no late outcome",
    outcome_by_a_fenced_attempt: "no late outcome",
    outcome_without_a_body: "no late outcome",
    started_twice: "started once",
    started_without_a_claim: "claims",
    claim_changes_hands: "claims",
    fence_falls: "fence rises",
    cancelled_then_succeeded: "cancelled stays",
    told_cancelled_then_succeeded: "cancelled stays",
    cancelled_then_claimed: "cancelled stays",
    cancelled_then_retried: "cancelled stays",
    two_bodies_under_stop: "no two bodies",
    two_bodies_under_wait: "no two bodies",
    two_attempts_at_once: "no two bodies",
    late_starter_beside_its_successor: "no two bodies",
    body_forgotten: "no two bodies",
    no_successor: "successor once",
    spawned_twice: "spawned once",
    spawn_lost: "spawned once",
    spawned_by_a_failed_attempt: "spawned once",
    outbox_dropped: "spawned once",
    hook_lost: "hooked once",
    hook_twice: "hooked once",
    hook_of_another_end: "hooked once",
    letter_lost: "letters once",
    letter_twice: "letters once",
    letter_of_a_run_that_succeeded: "letters once",
    submit_lost: "nothing lost",
    record_lost: "nothing lost",
    told_another_generation: "told",
    told_another_result: "told",
    unexpected_error: "told",
    never_ends: "every run ends",
    still_owes: "every run ends",
    work_left: "no work left",
    dead_session_open: "sessions close",
    cancelled_counted_twice: "counted once",
    tail_counted_twice: "counted once",
    head_counted_twice: "counted once",
}
