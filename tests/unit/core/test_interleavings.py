"""Interleavings that broke an earlier draft: cancels, claims, older bodies.

The name is the claim; the docstring is the interleaving with its number, the one that ``core/transitions.py`` cites.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.outcomes import Decision, Did, Signal, Wake, Why, effects_of
from tenure.core.records import MAX_PREVIOUS, Holder, Phase, Previous, ttl_of
from tenure.core.transitions import transition
from tenure.core.upkeep import forgotten
from tests.unit.core.histories import (
    CANCEL,
    NOW,
    ON_B,
    RUN,
    S1,
    STOPPING,
    Step,
    claim,
    decided,
    evict,
    expire,
    fail,
    holder,
    paid,
    play,
    refused,
    snooze,
    spawned,
    step,
    submit,
    succeed,
    supersede,
)


def untold(by: Holder) -> Previous:
    return Previous(session=by.session, run_id=by.run_id, attempt=by.attempt, generation=1, actor="actor")


# -- cancel ----------------------------------------------------------------------------------------------------------


def test_a_takeover_ends_a_cancelled_run_and_does_not_start_it_again() -> None:
    """[1] claim, crash, session closed, cancel -> stopping, redelivery -> takeover."""
    after = decided(play(*STOPPING), claim("s2", closed="s1"))
    assert after.did is Did.CANCELLED
    assert after.record is not None
    assert (after.record.phase, after.record.holder, after.record.attempt) == (Phase.CANCELLED, None, 1)


def test_a_delivery_that_finds_its_own_session_without_the_body_ends_a_cancelled_run() -> None:
    """[1] in one process: claim, its answer is lost, cancel, redelivery to the same process."""
    after = decided(play(*STOPPING), claim("s1", own_lost=S1))
    assert after.record is not None
    assert (after.record.phase, after.record.holder) == (Phase.CANCELLED, None)


@pytest.mark.parametrize(
    "what_the_body_did",
    [
        pytest.param(fail(S1), id="failed, to be retried"),
        pytest.param(fail(S1, final=True, then=c.Successor(due=0.0)), id="failed, with a successor"),
        pytest.param(c.HandBack(holder=S1), id="drain hand-back"),
        pytest.param(snooze(S1), id="snooze"),
        pytest.param(succeed(S1), id="late success"),
        pytest.param(succeed(S1, then=c.Successor(due=0.0)), id="reschedule"),
        pytest.param(succeed(S1, outbox=(spawned(),)), id="spawn"),
        pytest.param(evict(S1, closed="s1"), id="swept under a closed session"),
    ],
)
def test_a_stopping_run_ends_cancelled_whatever_its_body_did(what_the_body_did: c.Command) -> None:
    """[2] cancel -> stopping, then a retry, hand-back, late success or successor revived the run."""
    ended = play(*STOPPING, what_the_body_did).found
    assert (ended.phase, ended.run_id, ended.outbox) == (Phase.CANCELLED, "r1", ())
    assert ended.last is not None
    assert (ended.last.run_id, ended.last.phase, ended.last.reason) == ("r1", Phase.CANCELLED, "no longer needed")


@pytest.mark.parametrize("what_the_body_did", [succeed(S1), fail(S1), fail(S1, final=True)])
def test_a_cancel_ends_the_chain_of_a_perpetual_key(what_the_body_did: c.Command) -> None:
    """[2] perpetual: cancel -> stopping, the body ends, its outcome wrote the next generation."""
    ended = play(submit(every=60.0), claim(), CANCEL, what_the_body_did).found
    assert (ended.phase, ended.generation) == (Phase.CANCELLED, 1)


def test_a_forced_end_of_a_cancelled_run_writes_no_retry_and_no_successor() -> None:
    """[2] cancel, the body does not listen, the sweep ends it after the grace."""
    ended = play(submit(every=60.0), claim(), CANCEL, 10.0, evict(S1)).found
    assert (ended.phase, ended.generation, ended.holder) == (Phase.CANCELLED, 1, None)
    assert [entry.holder() for entry in ended.previous] == [S1]


def test_a_cancel_never_hits_another_run_than_the_one_it_saw() -> None:
    """[10] cancel of run 1, answer unknown; purge, submit anew; the cancel is repeated."""
    new_life = play(*RUN, succeed(S1), c.Purge(), submit("r2"))
    assert new_life.found.generation == 1
    assert refused(new_life, CANCEL) is Why.FINISHED
    assert refused(play(claim("s1", "r2"), start=new_life), CANCEL) is Why.FINISHED


def test_a_cancel_of_a_superseded_run_tells_that_body_alone() -> None:
    """[10] A runs, B beside it (parallel); cancel of A must not end B, and must not be lost either."""
    at = play(*RUN, supersede(overlap="parallel"), claim("s2", "r2"))
    after = decided(at, CANCEL)
    assert after.record is not None
    assert (after.record.phase, after.record.holder) == (Phase.RUNNING, ON_B)
    assert after.effects == (Signal(S1, "superseded"),)


def test_a_repeated_cancel_extends_no_grace() -> None:
    """[10] a canceller that got no answer repeats its cancel: the body's time does not start anew."""
    at = play(*STOPPING, 9.0)
    assert refused(at, CANCEL) is Why.STOPPING
    assert play(1.0, evict(S1), start=at).found.phase is Phase.CANCELLED


# -- claims ----------------------------------------------------------------------------------------------------------


def test_a_second_delivery_to_the_same_process_does_not_start_the_attempt_again() -> None:
    """[3] claim, ack_wait passes, a second delivery to the same process finds its own session as holder."""
    assert refused(play(*RUN), claim("s1")) is Why.BUSY


def test_a_process_without_the_body_claims_again_as_the_next_attempt_and_counts_no_failure() -> None:
    """[3] the claim was applied, but its delivery gave up: another one to the same process finds no such body."""
    record = play(*RUN, claim("s1", own_lost=S1)).found
    assert (record.attempt, record.failures) == (2, 0)
    assert record.holder == holder("s1", attempt=2)


def test_two_deliveries_that_miss_the_same_body_start_one() -> None:
    """[3] twice: both read attempt 1 as lost; one starts attempt 2; the other's CAS is refused and it decides again."""
    at = play(*RUN, claim("s1", own_lost=S1))
    assert refused(at, claim("s1", own_lost=S1)) is Why.BUSY
    assert refused(play(CANCEL, start=at), claim("s1", own_lost=S1)) is Why.BUSY


def test_an_exhausted_takeover_writes_failed_and_starts_no_body() -> None:
    """[22] the last allowed attempt crashes: a takeover would be one too many, and nobody else ends the run."""
    after = decided(play(submit(max_attempts=2), claim(), fail(S1), 60.0, claim("s2")), claim("s3", closed="s2"))
    assert after.did is Did.EXHAUSTED
    assert after.record is not None
    assert (after.record.phase, after.record.holder, after.record.failures) == (Phase.FAILED, None, 2)
    assert after.record.last is not None
    assert after.record.last.failure is not None
    assert after.record.last.failure.type == "WorkerLost"
    assert "gone, or was cut off" in after.record.last.failure.message


def test_an_exhausted_takeover_of_a_perpetual_key_keeps_its_chain() -> None:
    """[22] the same, perpetual: failed and the next generation are one write."""
    record = play(submit(max_attempts=1, every=60.0), claim(), claim("s2", closed="s1")).found
    assert (record.phase, record.generation, record.due) == (Phase.WAITING, 2, NOW + 60)
    assert record.last is not None
    assert record.last.phase is Phase.FAILED


def test_a_takeover_from_a_drained_session_counts_no_failure() -> None:
    """[22, 27] the process closed its session in good order: one attempt was allowed, and it has not failed."""
    record = play(submit(max_attempts=1), claim(), claim("s2", drained="s1")).found
    assert (record.phase, record.attempt, record.failures) == (Phase.RUNNING, 2, 0)


# -- older bodies ----------------------------------------------------------------------------------------------------

A_B_C = (*RUN, supersede("r2"), supersede("r3"))


def test_a_replace_of_a_replacement_remembers_every_older_body() -> None:
    """[4] A runs, B replaces it (queued, previous = A), C replaces B: A forgotten, C beside it."""
    at = play(*A_B_C)
    assert [entry.holder() for entry in at.found.previous] == [S1]
    assert refused(at, claim("s2", "r3")) is Why.BUSY
    assert play(c.Confirm(holder=S1), claim("s2", "r3"), start=at).found.phase is Phase.RUNNING


def test_a_replace_of_a_running_replacement_appends_its_body() -> None:
    """[4] A runs, B beside it (parallel), C replaces B with stop: both have to end before C starts."""
    at = play(*RUN, supersede("r2", overlap="parallel"), claim("s2", "r2"), supersede("r3"))
    assert [entry.holder() for entry in at.found.previous] == [S1, ON_B]
    assert all(entry.deadline is not None for entry in at.found.previous)
    at = step(at, c.Confirm(holder=ON_B))
    assert refused(at, claim("s3", "r3")) is Why.BUSY
    assert play(expire("s1"), claim("s3", "r3"), start=at).found.phase is Phase.RUNNING


def test_a_replacement_does_not_extend_the_grace_of_an_older_body() -> None:
    """[4] replaced again and again, each time just before its grace is over, A would never be void."""
    at = play(*RUN, supersede("r2"), 9.0, supersede("r3"))
    assert [entry.deadline for entry in at.found.previous] == [NOW + 10]
    assert play(1.0, claim("s2", "r3"), start=at).found.phase is Phase.RUNNING


def test_a_replaced_body_keeps_the_grace_of_its_own_actor() -> None:
    """[4] A has 60 s to end; B, with 3 s of its own, replaces it and must not start beside it after 3."""
    after = decided(play(submit(grace=60.0), claim()), supersede("r2", grace=3.0))
    assert after.record is not None
    assert [entry.deadline for entry in after.record.previous] == [NOW + 60]


def test_the_newest_policy_applies_to_every_older_body() -> None:
    """[4] A runs, B waits for it (overlap wait), C replaces B with stop: A is told at last, from now on."""
    at = play(*RUN, supersede("r2", overlap="wait"), 100.0)
    assert refused(at, claim("s2", "r2")) is Why.BUSY
    after = decided(at, supersede("r3"))
    assert after.effects == (Signal(S1, "superseded"), Wake())
    assert after.record is not None
    assert [entry.deadline for entry in after.record.previous] == [NOW + 110]


def test_a_successor_with_stop_tells_the_bodies_that_ran_beside_its_forerunner() -> None:
    """[4] A runs, B beside it (parallel) reschedules as C with stop: untold, A would block C for ever."""
    then = c.Successor(due=0.0, task=submit().task)
    after = decided(play(*RUN, supersede("r2", overlap="parallel"), claim("s2", "r2")), succeed(ON_B, then=then))
    assert Signal(S1, "superseded") in after.effects
    assert after.record is not None
    assert [entry.deadline for entry in after.record.previous] == [NOW + 10]


@pytest.mark.parametrize(
    "how_b_ends",
    [
        pytest.param((c.Cancel(run_id="r2"),), id="cancelled"),
        pytest.param((claim("s2", "r2"), succeed(ON_B)), id="succeeded"),
        pytest.param((claim("s2", "r2"), fail(ON_B, final=True)), id="failed"),
        pytest.param((claim("s2", "r2"), claim("s3", "r2", closed="s2")), id="exhausted"),
    ],
)
def test_the_end_of_a_replacement_forgets_no_older_body(how_b_ends: tuple[Step, ...]) -> None:
    """[5] A runs, B beside it ends: then a submit, the record's expiry or a purge forgot A."""
    at = play(*RUN, supersede("r2", overlap="parallel", max_attempts=1), *how_b_ends)
    assert [entry.holder() for entry in at.found.previous] == [S1]
    assert ttl_of(at.found) is None
    assert refused(at, c.Purge()) is Why.OWED
    assert refused(play(submit("r3"), start=at), claim("s4", "r3")) is Why.BUSY
    ended = paid(play(c.Confirm(holder=S1), start=at))
    assert ttl_of(ended.found) is not None
    assert play(c.Purge(), start=ended).record is None


def test_a_waiting_run_with_an_older_body_is_not_purged() -> None:
    """[5] A runs, B replaces it (queued); purge; submit anew: A forgotten."""
    assert refused(play(*RUN, supersede()), c.Purge()) is Why.OWED


def test_a_superseded_body_confirms_and_that_wakes_the_waiting_generation() -> None:
    """[20] overlap wait: A's body ends; its one confirm is what lets B start, so it has to be seen and to wake B."""
    at = play(*RUN, supersede("r2", overlap="wait"))
    assert refused(at, succeed(S1)) is Why.SUPERSEDED
    after = decided(at, c.Confirm(holder=S1))
    assert after.effects == (Wake(),)
    assert after.record is not None
    assert after.record.previous == ()


def test_a_repeated_confirm_is_refused_and_harmless() -> None:
    """[20] the confirm's answer is lost, so it is repeated until the record does not show the entry any more."""
    at = play(*RUN, supersede("r2", overlap="wait"), c.Confirm(holder=S1))
    assert refused(at, c.Confirm(holder=S1)) is Why.NOTHING
    assert refused(play(claim("s1", "r2"), start=at), c.Confirm(holder=S1)) is Why.NOTHING


def test_a_confirm_of_another_attempt_takes_nothing_out() -> None:
    """[20] a delivery to a process confirms for the attempt it looked for, not for whichever runs there now."""
    at = play(*RUN, claim("s1", own_lost=S1), supersede("r2", overlap="wait"))
    assert refused(at, c.Confirm(holder=S1)) is Why.NOTHING
    assert refused(at, claim("s2", "r2")) is Why.BUSY


def test_an_older_body_under_a_closed_session_blocks_nobody() -> None:
    """[20] A's process dies before it can confirm."""
    at = play(*RUN, supersede("r2", overlap="wait"))
    assert refused(at, claim("s2", "r2", closed="s3")) is Why.BUSY
    assert play(claim("s2", "r2", closed="s1"), start=at).found.previous == ()
    assert decided(at, expire("s1")).effects == (Wake(),)


def test_an_outcome_refused_over_another_bodys_confirm_is_stored_on_the_second_look() -> None:
    """[21] parallel: A's confirm moves the revision, B's outcome is refused; B still holds and must not give up."""
    at = play(*RUN, supersede("r2", overlap="parallel"), claim("s2", "r2"), c.Confirm(holder=S1))
    after = decided(at, succeed(ON_B))
    assert after.record is not None
    assert (after.record.phase, after.record.previous) == (Phase.SUCCEEDED, ())


def test_an_older_body_is_listed_as_it_stands() -> None:
    """[4] parallel tells nobody: the entry is there, without a deadline, and owes no signal."""
    record = play(*RUN, supersede(overlap="parallel")).found
    assert record.previous == (untold(S1),)
    assert effects_of(record) == (Wake(),)


@pytest.mark.parametrize(
    ("command", "first"),
    [
        pytest.param(claim("s2", "r2"), (S1,), id="a claim"),
        pytest.param(claim("s2", "r2", closed="s1"), (), id="a claim that knows its session to be closed"),
        pytest.param(expire(), (S1,), id="a sweep"),
        pytest.param(expire("s1"), (), id="a sweep that knows its session to be closed"),
        pytest.param(c.Confirm(holder=S1), (), id="its own end"),
        pytest.param(supersede("r3"), (), id="a replace, which keeps it"),
    ],
)
def test_whoever_takes_a_body_out_that_may_still_run_has_to_tell_it_first(
    command: c.Command, first: tuple[Holder, ...]
) -> None:
    """[46] A runs, B replaces it; its caller dies before the signal, and A's grace is over: nobody else knows of A any more."""
    at = play(*RUN, supersede("r2"), 11.0)
    assert forgotten(at.found, decided(at, command).record, command) == first


def test_a_replace_that_makes_room_among_older_bodies_has_to_tell_those_that_it_drops() -> None:
    """[46] so many that the void ones have to go."""
    at = play(*RUN, supersede("r2"), 11.0)
    (entry,) = at.found.previous
    many = tuple(replace(entry, attempt=number) for number in range(MAX_PREVIOUS + 1))
    record = replace(at.found, previous=many)
    command = supersede("r3")
    after = transition(record, command, NOW + 11.0)
    assert isinstance(after, Decision)
    assert forgotten(record, after.record, command) == tuple(entry.holder() for entry in many)
