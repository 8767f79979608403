"""Hand-made histories of what clients were told: linearizable ones, those that are not, and effects without an ask."""

from __future__ import annotations

from msgspec.structs import replace

from tests.history.evidence import Clocks
from tests.history.stories import Story, ran_well


def asked_for() -> Story:
    """Every ask is known, and every effect has one."""
    story = ran_well()
    story.evidence.asks_whole = True
    return story


def claimed_at_one() -> Story:
    """Submitted from 0.4 to 0.5, its body runs from 1.0 to 1.9, and whoever waits is told at 2.1."""
    story = ran_well()
    story.asked("result", "succeeded", "r1", 1, wall=2.1, asked=0.6)
    return story


# -- what must be accepted -------------------------------------------------------------------------------------------


def read_beside_a_write() -> Story:
    """Two statuses at the same time: one sees the claim, the other, which began later and ended first, does not."""
    story = Story()
    story.submit()
    story.claim(at=3.1)
    story.asked("status", "running", "r1", 1, asked=1.0, wall=3.0, attempt=1)
    story.asked("status", "queued", "r1", 1, asked=1.5, wall=2.5)
    story.end(4.0)
    story.finish(at=4.0)
    return story


def told_late() -> Story:
    """Kept, but told so only when the run is long over."""
    story = claimed_at_one()
    story.asked("submit", "kept", "r1", 1, asked=0.8, wall=9.0)
    return story


def applied_long_after_it_was_given_up() -> Story:
    """A replace of unknown fate comes into force after three seconds: nats-py sends a publish after it raised."""
    story = asked_for()
    story.asked("replace", "unknown", "r2", asked=2.0, wall=3.0)
    story.submit("r2", 2, stored=6.0)
    story.claim(at=6.1)
    story.end(6.2)
    story.finish(at=6.2)
    return story


def never_applied() -> Story:
    story = asked_for()
    story.asked("replace", "unknown", "r2", asked=2.0, wall=3.0)
    story.asked("status", "succeeded", "r1", 1, asked=9.0, wall=9.1, attempt=1)
    return story


def applied_though_its_asker_died() -> Story:
    story = asked_for()
    story.asking("replace", 2.0)
    story.submit("r2", 2, stored=2.5)
    story.asking("cancel", 2.6, "b")
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""), stored=4.0)
    return story


def absent_between_two_lives() -> Story:
    """A status that spans a purge and the next submit; and one before anything was."""
    story = ran_well()
    story.asked("status", "none", asked=0.1, wall=0.2)
    story.write(gone=True)
    story.asked("purge", "purged", asked=3.0, wall=3.2)
    story.asked("status", "none", asked=2.5, wall=4.5)
    story.submit("r2", last=None)
    story.asked("submit", "accepted", "r2", 1, asked=3.5, wall=4.0)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def two_told_of_one_cancel() -> Story:
    """One write, and a canceller of unknown fate who found it done."""
    story = asked_for()
    story.submit("r2", 2)
    story.asked("submit", "accepted", "r2", 2, asked=2.5, wall=2.6)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    for number in range(2):
        story.asked("cancel", "cancelled", "r2", 2, asked=3.0 + number / 10, wall=3.5)
    return story


def finished_by_a_newer_one() -> Story:
    """A cancel saw r1, and then r2 in its place, which is over itself."""
    story = claimed_at_one()
    story.submit("r2", 2)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    story.asked("cancel", "finished", "r1", 1, asked=1.8, wall=5.0)
    return story


def read_of_what_nobody_else_saw() -> Story:
    """The claim's revision is missing; a status has seen it."""
    story = read_beside_a_write()
    del story.evidence.revisions[1]
    story.evidence.missing = 1
    return story


def stale_within_tolerance() -> Story:
    """Its clock is a little ahead of that of the worker."""
    story = claimed_at_one()
    story.asked("status", "queued", "r1", 1, asked=1.01, wall=1.1)
    return story


def read_from_a_deposed_leader() -> Story:
    story = stale_read()
    story.evidence.clocks = Clocks(reads_behind=10.0)
    return story


# -- answers that fit no order ---------------------------------------------------------------------------------------


def stale_read() -> Story:
    """Told that it waits, well after its body had started."""
    story = claimed_at_one()
    story.asked("status", "queued", "r1", 1, asked=1.05, wall=1.1)
    return story


def reads_go_back() -> Story:
    """Nothing tells when the claim was stored, but one client had seen it before the other began to ask."""
    story = Story()
    story.submit()
    story.claim(at=3.0)
    story.asked("status", "running", "r1", 1, asked=1.0, wall=2.0, attempt=1)
    story.asked("status", "queued", "r1", 1, asked=2.1, wall=2.5)
    story.end(4.0)
    story.finish(at=4.0)
    return story


def told_a_state_that_never_was() -> Story:
    story = claimed_at_one()
    story.asked("status", "running", "r1", 1, asked=1.0, wall=9.0, attempt=2)
    return story


def told_before_it_was_stored() -> Story:
    story = ran_well()
    story.submit("r2", 2, stored=4.0)
    story.asked("replace", "accepted", "r2", 2, asked=3.0, wall=3.5)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def stored_before_it_was_asked() -> Story:
    """Also an unknown write has no effect before it was asked for; and reads may be old, writes never."""
    story = ran_well()
    story.evidence.clocks = Clocks(reads_behind=10.0)
    story.submit("r2", 2)
    story.asked("status", "queued", "r2", 2, asked=2.0, wall=2.2)
    story.asked("replace", "unknown", "r2", asked=3.0, wall=3.5)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def kept_what_was_over() -> Story:
    story = claimed_at_one()
    story.asked("submit", "kept", "r1", 1, asked=2.2, wall=2.3)
    return story


def rejected_for_what_was_over() -> Story:
    story = claimed_at_one()
    story.asked("submit", "live", "r1", 1, asked=2.2, wall=2.3)
    return story


def not_found_while_it_ran() -> Story:
    story = claimed_at_one()
    story.asked("cancel", "not_found", asked=1.1, wall=1.2)
    return story


def purged_and_still_there() -> Story:
    story = claimed_at_one()
    story.asked("purge", "purged", asked=2.2, wall=2.3)
    return story


def purge_refused_for_nothing() -> Story:
    story = claimed_at_one()
    story.asked("purge", "live", "r1", 1, asked=2.2, wall=2.3)
    return story


def superseded_by_nobody() -> Story:
    story = claimed_at_one()
    story.asked("result", "superseded", "r1", 1, asked=1.0, wall=9.0)
    return story


def finished_while_it_ran() -> Story:
    """A cancel that says that there was nothing to cancel."""
    story = claimed_at_one()
    story.evidence.revisions[-1] = replace(story.newest, stored=2.0)
    story.asked("cancel", "finished", "r1", 1, asked=1.1, wall=1.2)
    return story


def stopping_though_it_was_over() -> Story:
    story = claimed_at_one()
    story.asked("cancel", "stopping", "r1", 1, asked=2.2, wall=2.3)
    return story


def outcome_before_its_body_had_ended() -> Story:
    story = claimed_at_one()
    story.asked("status", "succeeded", "r1", 1, asked=1.0, wall=1.5, attempt=1)
    return story


# -- effects without an ask ------------------------------------------------------------------------------------------


def run_from_nowhere() -> Story:
    story = asked_for()
    story.submit("r2", 2)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    story.asked("cancel", "cancelled", "r2", 2, asked=2.5, wall=2.7)
    return story


def happened_though_unavailable() -> Story:
    """Unavailable says that nothing has happened."""
    story = run_from_nowhere()
    story.asked("replace", "unavailable", asked=2.1, wall=2.4)
    return story


def one_ask_two_runs() -> Story:
    """A producer died asking for one run, and there are two: its write was decided anew."""
    story = applied_though_its_asker_died()
    story.submit("r3", 3)
    story.asked("cancel", "cancelled", "r3", 3, asked=5.0, wall=5.5)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def cancelled_another_run() -> Story:
    """A cancel that saw r1 came late and hit r2."""
    story = asked_for()
    story.asked("cancel", "finished", "r1", 1, asked=1.5, wall=4.0)
    story.submit("r2", 2)
    story.asked("submit", "accepted", "r2", 2, asked=2.5, wall=2.6)
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def cancelled_before_it_was_asked() -> Story:
    story = two_told_of_one_cancel()
    story.evidence.asks = [a for a in story.evidence.asks if a.ask != "cancel"]
    story.asked("status", "cancelled", "r2", 2, asked=3.0, wall=3.1)
    story.asked("cancel", "unknown", "r2", asked=3.2, wall=3.5)
    return story


def purged_by_nobody() -> Story:
    story = asked_for()
    story.write(gone=True)
    return story


def two_accepted_one_run() -> Story:
    story = ran_well()
    story.asked("submit", "accepted", "r1", 1, wall=0.5, asked=0.4)
    return story


def submitted_over_a_live_run() -> Story:
    """Its CAS was right, its decision was not."""
    story = Story()
    story.submit()
    story.submit("r2", 2)
    story.asked("submit", "accepted", "r2", 2, mode="keep")
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def replaced_by_another_policy() -> Story:
    story = ran_well()
    story.submit("r2", 2)
    story.asked("replace", "accepted", "r2", 2, asked=2.5, wall=2.6, mode="wait")
    story.write(phase="cancelled", last=replace(story.last("cancelled"), session=""))
    return story


def cancelled_as_another_generation() -> Story:
    """The cancel of an older run is told with the generation of the newest."""
    story = finished_by_a_newer_one()
    story.evidence.asks[-1] = replace(story.evidence.asks[-1], generation=2)
    return story


GOOD_ANSWERS = [
    asked_for,
    claimed_at_one,
    read_beside_a_write,
    told_late,
    applied_long_after_it_was_given_up,
    never_applied,
    applied_though_its_asker_died,
    absent_between_two_lives,
    two_told_of_one_cancel,
    finished_by_a_newer_one,
    read_of_what_nobody_else_saw,
    stale_within_tolerance,
    read_from_a_deposed_leader,
]
BAD_ANSWERS = {
    **dict.fromkeys(
        (
            stale_read,
            reads_go_back,
            told_a_state_that_never_was,
            told_before_it_was_stored,
            stored_before_it_was_asked,
            kept_what_was_over,
            rejected_for_what_was_over,
            not_found_while_it_ran,
            purged_and_still_there,
            purge_refused_for_nothing,
            superseded_by_nobody,
            finished_while_it_ran,
            stopping_though_it_was_over,
            outcome_before_its_body_had_ended,
        ),
        "linearizable",
    ),
    **dict.fromkeys(
        (
            run_from_nowhere,
            happened_though_unavailable,
            one_ask_two_runs,
            cancelled_another_run,
            cancelled_before_it_was_asked,
            purged_by_nobody,
        ),
        "caused",
    ),
    two_accepted_one_run: "told",
    submitted_over_a_live_run: "one live run",
    replaced_by_another_policy: "told",
    cancelled_as_another_generation: "told",
}
