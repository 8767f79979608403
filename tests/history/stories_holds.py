"""Hand-made histories of who is let go of: the holder of a run, and those in ``previous``."""

from __future__ import annotations

from msgspec.structs import replace

from tests.history.evidence import Clocks, Fault, PreviousSeen
from tests.history.stories import Story
from tests.history.stories_good import replaced_while_running, stopped_then_next, taken_over


def run_again(story: Story, session: str = "s1", at: float = 3.0) -> Story:
    """One more attempt of the run that waits, which succeeds."""
    story.claim(session, at=at, stored=at)
    story.end(at + 0.5)
    story.finish(at=at + 0.5, stored=at + 0.6)
    return story


# -- what must be accepted -------------------------------------------------------------------------------------------


def retried() -> Story:
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    story.end(1.5, how="raise")
    story.write(phase="waiting", holder=None, stored=1.6)
    return run_again(story)


def handed_back_before_its_body() -> Story:
    """Its process was told to stop when it had claimed the run."""
    story = Story()
    story.submit()
    story.claim(body=False, stored=0.9)
    story.write(phase="waiting", holder=None, stored=1.0)
    return run_again(story)


def evicted() -> Story:
    """Past its timeout and its grace: put back by others, told to stop; its body goes on, void."""
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    told = (PreviousSeen("s1", "r1", 1, 2.0),)
    story.write(phase="waiting", holder=None, evicted=True, previous=told, stored=2.1)
    story.claim("s2", at=3.0, stored=3.0, previous=(), evicted=False)
    story.end(3.5)
    story.finish(at=3.5, stored=3.6)
    story.end(9.0, attempt=1, session="s1", pid=1, fence=2)
    return story


def lost_with_its_budget_spent() -> Story:
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    story.died(1, 1.5)
    story.session("s1", 1, "expired", at=4.0)
    story.finish(last=replace(story.last("failed", at=4.5), session=""), phase="failed", stored=4.5)
    story.evidence.letters.append("r1")
    return story


def taken_over_in_the_moment_of_its_closing() -> Story:
    """The two were written down to the last digit by different ways."""
    story = taken_over()
    story.evidence.clocks = Clocks(observers=0.0)
    story.session("s1", 1, "expired", at=4.0000002)
    story.evidence.revisions[2:] = [replace(one, stored=4.0) for one in story.evidence.revisions[2:3]]
    story.finish(at=5.0)
    return story


def claim_heard_late() -> Story:
    """The answer to its claim was on its way for three seconds; meanwhile it was replaced."""
    story = Story()
    story.submit()
    story.claim(body=False, stored=0.9)
    story.start(4.0)
    story.replaced(deadline=9.0, stored=1.5)
    story.end(4.1, how="stop superseded", generation=1, run_id="r1")
    story.write(previous=(), stored=4.2)
    story.claim(at=5.0, stored=5.0)
    story.end(5.5)
    story.finish(stored=5.6)
    return story


def told_long_before_it_was_stored() -> Story:
    """A replace that was decided in time, and reached the server three seconds later: its grace was counted meanwhile."""
    story = hurried_after_a_while()
    story.evidence.asks[-1] = replace(story.evidence.asks[-1], asked=5.4)
    return story


def cancelled_long_before_it_was_stored(asked: float = 1.2, evicted: float = 4.4) -> Story:
    """The same of a cancel; the next run does not wait for the body whose time is over."""
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    story.evidence.asks_whole = True
    story.asked("submit", "accepted", "r1", 1, asked=0.4, wall=0.5)
    story.write(phase="stopping", stopped=True, stored=4.0)
    story.asked("cancel", "stopping", "r1", 1, asked=asked, wall=4.1)
    story.replaced(deadline=2.2, stored=4.3, last=story.last("cancelled", at=4.3))
    story.asked("submit", "accepted", "r2", 2, asked=4.2, wall=4.4)
    story.end(evicted, how="stop cancelled", generation=1, run_id="r1")
    story.write(previous=(), stored=4.6)
    story.claim("s2", at=4.7, stored=4.7)
    story.end(4.8)
    story.finish(stored=4.9)
    return story


def hurried_by_a_cancel() -> Story:
    """It was asked for when it was stored, and its time was over then."""
    return cancelled_long_before_it_was_stored(asked=3.9)


def told_by_a_successor() -> Story:
    """Nobody has asked for it: who asks later has not told it."""
    story = replaced_while_running("parallel")
    story.evidence.asks_whole = True
    story.asked("submit", "accepted", "r1", 1, asked=0.4, wall=0.5)
    story.asked("replace", "accepted", "r2", 2, asked=1.0, wall=1.1)
    story.claim("s2", at=1.2, stored=1.2)
    story.end(1.4, rescheduled=True)
    told = tuple(replace(entry, deadline=2.4) for entry in story.newest.previous)
    story.submit("r3", 3, overlap="stop", previous=told, last=story.last(at=1.4), stored=1.5)
    story.end(1.6, how="stop superseded", session="s1", pid=1, run_id="r1", generation=1, fence=2)
    story.write(previous=(), stored=1.7)
    story.claim("s2", at=1.8, stored=1.8)
    story.end(1.9)
    story.finish(stored=2.0)
    story.asked("cancel", "finished", "r3", 3, asked=5.0, wall=5.1)
    return story


def told_by_who_was_frozen_over_the_time() -> Story:
    """It stood still while it asked the server for the time, and is half of that behind."""
    story = hurried()
    story.evidence.frozen = [Fault(kind="freeze", target="p", at=0.1, until=0.9, pid=7)]
    return story


def frozen_before_its_body() -> Story:
    story = void_and_started()
    story.evidence.frozen = [Fault(kind="freeze", target="w", at=1.0, until=20.0, pid=1)]
    return story


# -- what must be found ----------------------------------------------------------------------------------------------


def put_back_in_its_body() -> Story:
    """The retry of a stale attempt: by chance the next one starts when the body that it took the run from is over."""
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    story.write(phase="waiting", holder=None, stored=1.2)
    story.end(2.0)
    return run_again(story)


def taken_from_who_lives() -> Story:
    """Its body is over, its outcome not stored yet; its session is open."""
    story = Story()
    story.submit()
    story.claim("s1", at=1.0, stored=0.9)
    story.end(1.5)
    return run_again(story, "s2")


def taken_over_before_its_session_was_closed() -> Story:
    story = taken_over()
    story.evidence.revisions[2:] = [replace(one, stored=3.5) for one in story.evidence.revisions[2:]]
    return story


def failed_by_others_in_its_body() -> Story:
    """Taken for lost, with the budget spent: there is no attempt after it that could show that it goes on."""
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    story.finish(last=replace(story.last("failed", at=1.4), session=""), phase="failed", stored=1.4)
    story.evidence.letters.append("r1")
    story.end(1.9)
    return story


def confirmed_in_its_body() -> Story:
    """Somebody says of the body of another that it has ended."""
    story = stopped_then_next()
    story.evidence.revisions[3:] = [replace(one, stored=1.2) for one in story.evidence.revisions[3:]]
    return story


def forgotten_by_the_second_replace() -> Story:
    """A runs, B waits, C replaces B and forgets A; C starts when A has ended by itself."""
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    story.replaced("r2", deadline=9.0, stored=1.1)
    story.replaced("r3", previous=(), stored=1.2)
    story.end(1.5, how="stop superseded", generation=1, run_id="r1")
    return run_again(story)


def void_and_started() -> Story:
    """It starts ten seconds after it was replaced, and nothing had held it up."""
    story = Story()
    story.submit()
    story.claim(body=False, stored=0.9)
    story.start(20.0)
    story.replaced(deadline=2.0, stored=1.1)
    story.claim("s2", at=2.0, stored=2.0, previous=())
    story.end(2.5)
    story.finish(stored=2.6)
    return story


def hurried() -> Story:
    """Its grace is over as soon as it is told; so the next one may start beside it."""
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    story.replaced(deadline=1.5, stored=1.5)
    story.claim("s2", at=1.6, stored=1.6, previous=())
    story.end(1.7)
    story.finish(stored=1.8)
    return story


def hurried_after_a_while() -> Story:
    """It had run for long: what counts is when somebody began to ask for the next one."""
    story = hurried()
    story.evidence.revisions[2:] = [
        replace(one, stored=one.stored + 5.0, previous=tuple(replace(p, deadline=6.5) for p in one.previous))
        for one in story.evidence.revisions[2:]
    ]
    story.evidence.bodies[1:] = [
        replace(line, at=line.at + 5.0, wall=line.wall + 5.0) for line in story.evidence.bodies[1:]
    ]
    story.evidence.asks_whole = True
    story.asked("submit", "accepted", "r1", 1, asked=0.4, wall=0.5)
    story.asked("replace", "accepted", "r2", 2, asked=6.4, wall=6.6)
    return story


def started_when_its_session_was_closed() -> Story:
    story = taken_over()
    first = story.evidence.bodies[0]
    story.evidence.bodies[0] = replace(first, at=9.5, wall=9.5)
    story.evidence.deaths.clear()
    return story


def claimed_over_one_who_runs() -> Story:
    """The claim has left in ``previous`` what it had to wait for."""
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    story.replaced(deadline=9.0, stored=1.1)
    story.end(1.2, how="stop superseded", generation=1, run_id="r1")
    story.claim("s2", at=2.0, stored=2.0)
    story.end(2.5)
    story.finish(stored=2.6)
    story.write(previous=(), stored=2.7)
    return story


def entry_of_nobody() -> Story:
    story = Story()
    story.submit()
    story.write(previous=(PreviousSeen("s2", "r0", 1, 0.4),), stored=0.5)
    story.write(previous=(), stored=0.6)
    return run_again(story)


def cancelled_in_its_body_by_nobody() -> Story:
    """From running to cancelled, and no cancel was accepted."""
    story = Story()
    story.submit()
    story.claim(at=1.0, stored=0.9)
    story.end(1.5)
    story.finish("cancelled", stored=1.6)
    return story


def failed_while_it_waited() -> Story:
    story = Story()
    story.submit()
    story.finish("failed")
    story.evidence.letters.append("r1")
    return story


GOOD_HOLDS = [
    retried,
    handed_back_before_its_body,
    evicted,
    lost_with_its_budget_spent,
    claim_heard_late,
    taken_over_in_the_moment_of_its_closing,
    told_long_before_it_was_stored,
    cancelled_long_before_it_was_stored,
    told_by_a_successor,
    told_by_who_was_frozen_over_the_time,
    frozen_before_its_body,
]
BAD_HOLDS = {
    **dict.fromkeys(
        (
            put_back_in_its_body,
            taken_from_who_lives,
            taken_over_before_its_session_was_closed,
            failed_by_others_in_its_body,
            confirmed_in_its_body,
            forgotten_by_the_second_replace,
            void_and_started,
            hurried,
            hurried_after_a_while,
            hurried_by_a_cancel,
            started_when_its_session_was_closed,
        ),
        "let go",
    ),
    claimed_over_one_who_runs: "previous",
    entry_of_nobody: "previous",
    cancelled_in_its_body_by_nobody: "no late outcome",
    failed_while_it_waited: "no late outcome",
}
