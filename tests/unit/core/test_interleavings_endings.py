"""Interleavings about ends and what they owe: the outbox, whose write it was, bodies that overstay.

The name is the claim; the docstring is the interleaving with its number, the one that ``core/transitions.py`` cites.
"""

from __future__ import annotations

import pytest

from tenure.core import commands as c
from tenure.core.generations import leaves_trace
from tenure.core.outcomes import Apply, Did, Refused, Signal, Wake, Why, effects_of
from tenure.core.records import Phase, ttl_of
from tests.unit.core.histories import (
    BOOM,
    NOW,
    ON_B,
    RUN,
    S1,
    S2,
    SEEN,
    STOPPING,
    Step,
    ask,
    claim,
    decided,
    evict,
    expire,
    fail,
    holder,
    play,
    refused,
    snooze,
    spawned,
    submit,
    succeed,
    supersede,
)

# -- outbox ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newer", [submit("r2"), supersede("r2")])
def test_a_new_generation_carries_the_outbox_and_its_effects(newer: c.Submit | c.Replace) -> None:
    """[6] an outcome with an outbox; the key is replaced before the entry is applied: spawned task lost."""
    at = play(*RUN, succeed(S1, outbox=(spawned(),)))
    after = decided(at, newer)
    assert after.record is not None
    assert after.record.outbox == (spawned(),)
    assert Apply(spawned()) in after.effects
    ended = play(newer, claim("s2", "r2"), succeed(ON_B, outbox=(spawned("o2"),)), start=at).found
    assert ended.outbox == (spawned(), spawned("o2"))


def test_a_successor_carries_the_outbox_of_its_forerunner() -> None:
    """[6] the same with the successor in one write, through its claim, retry and cancel."""
    at = play(*RUN, succeed(S1, outbox=(spawned(),), then=c.Successor(due=0.0)))
    by = holder("s2", "r1+")
    steps: tuple[Step, ...] = (claim("s2", "r1+"), fail(by), c.Cancel(run_id="r1+"))
    for what in steps:
        assert Apply(spawned()) in effects_of(at.found)
        at = play(what, start=at)
    assert at.found.outbox == (spawned(),)


def test_a_record_with_an_outbox_neither_expires_nor_is_purged() -> None:
    """[6] an outcome with an outbox; the record expires before the entry is applied: spawned task lost."""
    at = play(*RUN, succeed(S1, outbox=(spawned(),)))
    assert ttl_of(at.found) is None
    assert refused(at, c.Purge()) is Why.OWED
    assert ttl_of(play(c.ClearOutbox(ids=frozenset({"o1"})), start=at).found) is not None


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param((), id="child waits"),
        pytest.param((claim(), succeed(S1)), id="child finished"),
        pytest.param(
            (claim(), succeed(S1), submit("r2"), claim("s2", "r2"), succeed(ON_B)), id="submitted again by a user"
        ),
        pytest.param((claim(), supersede("r2"), supersede("r3")), id="replaced twice by a user"),
    ],
)
def test_an_outbox_entry_is_applied_once(meanwhile: tuple[Step, ...]) -> None:
    """[7] the entry is applied, the child finishes, the entry is not yet cleared, a repairer applies it again."""
    assert refused(play(submit(seen=SEEN), *meanwhile), submit(seen=SEEN)) is Why.ALREADY


def test_a_child_does_not_expire_while_its_origin_may_apply_the_entry_again() -> None:
    """[7] the child finishes and expires, then the repairer applies the entry to an absent key."""
    at = play(submit(seen=SEEN), claim(), succeed(S1))
    assert ttl_of(at.found) is None
    assert refused(at, c.Purge()) is Why.OWED
    assert ttl_of(play(c.ForgetSeen(ids=frozenset({SEEN.id})), start=at).found) is not None


def test_an_entry_that_joined_a_live_run_is_not_applied_again_after_it() -> None:
    """[7] the entry meets a live run and joins it; that run ends; the entry is not yet cleared and is applied again."""
    at = play(submit("r0"), submit(seen=SEEN))
    assert at.found.run_id == "r0"
    assert refused(play(claim("s1", "r0"), succeed(holder("s1", "r0")), start=at), submit(seen=SEEN)) is Why.ALREADY


def test_a_command_that_was_applied_does_not_hit_a_later_run() -> None:
    """[13] a command is applied to run 1, crash before the ack, run 2 is submitted, redelivery."""
    at = play(submit(seen=SEEN), claim(), succeed(S1), submit("r2"))
    again = c.Submit(key="k", run_id="r9", task=submit().task, if_live="replace", seen=SEEN)
    assert refused(at, again) is Why.ALREADY


# -- whose write was it ----------------------------------------------------------------------------------------------


def test_an_old_body_is_not_taken_for_the_same_attempt_of_a_new_life() -> None:
    """[9] purge, submit anew, the same worker claims; the old body's refused CAS reads and matches (session, 1, 1)."""
    at = play(*RUN, succeed(S1), c.Purge(), submit("r2"), claim("s1", "r2"))
    assert (at.found.generation, at.found.attempt) == (1, 1)
    for late in (succeed(S1), fail(S1), snooze(S1), c.HandBack(holder=S1)):
        assert refused(at, late) is Why.SUPERSEDED
    assert refused(at, evict(S1)) is Why.FENCED


@pytest.mark.parametrize("wish", [submit("r2"), supersede("r2")])
def test_a_repeated_wish_finds_its_trace_while_there_is_one(wish: c.Submit | c.Replace) -> None:
    """[14] replace unknown, the record moves on, retry: it must not supersede a newer run with an older wish."""
    at = play(*RUN, succeed(S1), wish)
    assert refused(at, wish) is Why.ALREADY
    running = play(claim("s2", "r2"), start=at)
    assert refused(running, wish) is Why.ALREADY
    assert refused(play(supersede("r3"), start=running), wish) is Why.ALREADY  # still in `previous`
    assert refused(play(succeed(ON_B), submit("r3"), start=running), wish) is Why.ALREADY  # still in `last`


def test_a_wish_that_left_no_trace_cannot_be_told_from_one_never_applied() -> None:
    """[14] replaced while it waited, run 2 is in no field: its client must raise OutcomeUnknown, not decide again."""
    moved_on = play(*RUN, supersede("r2"), supersede("r3"), c.Confirm(holder=S1)).found
    never = play(*RUN, supersede("r3"), c.Confirm(holder=S1)).found
    assert not leaves_trace(moved_on, "r2")
    assert not leaves_trace(never, "r2")
    assert leaves_trace(moved_on, "r3")


@pytest.mark.parametrize(
    ("stored", "then"),
    [
        pytest.param(succeed(S1, then=c.Successor(due=0.0)), (), id="success, successor waits"),
        pytest.param(succeed(S1, then=c.Successor(due=0.0)), (claim("s2", "r1+"),), id="success, successor runs"),
        pytest.param(fail(S1, final=True), (submit("r2"), claim("s2", "r2")), id="failure, submitted again"),
        pytest.param(fail(S1), (), id="retry"),
        pytest.param(snooze(S1), (), id="snooze"),
        pytest.param(c.HandBack(holder=S1), (), id="hand-back"),
    ],
)
def test_a_holder_recognises_its_own_stored_outcome_under_what_came_after(
    stored: c.Command, then: tuple[Step, ...]
) -> None:
    """[23] own outcome stored, answer lost, a successor overwrites it, read: counted superseded, result lost."""
    at = play(*RUN, stored, *then)
    assert refused(at, stored) is Why.ALREADY
    if at.found.last is not None:
        assert at.found.last.run_id == "r1"


@pytest.mark.parametrize("stored", [fail(S2), snooze(S2), c.HandBack(holder=S2)])
def test_an_attempt_after_an_evicted_one_recognises_its_own_write(stored: c.Command) -> None:
    """[23] attempt 1 is evicted; attempt 2 puts the run back itself, its answer is lost."""
    at = play(submit(timeout=5.0), claim(), 15.0, evict(S1), 1.0, claim("s2"), stored)
    assert refused(at, stored) is Why.ALREADY
    assert refused(at, succeed(S1)) is Why.FENCED


@pytest.mark.parametrize(
    "by_others",
    [
        pytest.param((submit(timeout=5.0), claim(), 15.0, evict(S1)), id="evicted"),
        pytest.param((submit(timeout=5.0), claim(), 15.0, evict(S1), expire()), id="evicted, its entry expired"),
        pytest.param(
            (submit(timeout=5.0, max_attempts=1), claim(), 15.0, evict(S1), expire()), id="timed out for good"
        ),
        pytest.param((*STOPPING, 10.0, evict(S1), expire()), id="cancel forced"),
        pytest.param((*STOPPING, claim("s2", closed="s1")), id="cancelled by a head check"),
        pytest.param((submit(max_attempts=1), claim(), claim("s2", closed="s1")), id="exhausted"),
    ],
)
def test_a_holder_does_not_take_an_end_by_others_for_its_own(by_others: tuple[Step, ...]) -> None:
    """[23] turned round: others ended the attempt; its late body reads its own run id and attempt number."""
    at = play(*by_others)
    assert (at.found.run_id, at.found.attempt) == ("r1", 1)
    for late in (succeed(S1), fail(S1), snooze(S1), c.HandBack(holder=S1)):
        assert refused(at, late) is Why.FENCED


def test_the_outcome_stays_readable_under_the_successor() -> None:
    """[23] who waits for run 1 reads a record of run 2."""
    record = play(*RUN, fail(S1, final=True, then=c.Successor(due=0.0))).found
    assert record.last is not None
    assert (record.run_id, record.phase) == ("r1+", Phase.WAITING)
    assert (record.last.run_id, record.last.generation, record.last.failure) == ("r1", 1, BOOM)


def test_an_attempt_fenced_by_a_later_one_is_told_apart_from_a_superseded_run() -> None:
    """[24] attempt 1 fenced by attempt 2 acks its message; attempt 2 crashes: nothing wakes the key."""
    at = play(*RUN, claim("s2", closed="s1"))
    assert refused(at, succeed(S1)) is Why.FENCED
    assert refused(play(supersede(), start=at), succeed(S1)) is Why.SUPERSEDED
    assert play(succeed(S2), start=at).found.phase is Phase.SUCCEEDED


# -- the end of bodies -----------------------------------------------------------------------------------------------


def test_only_the_holder_hands_back() -> None:
    """[27] drain hands back while the body still runs elsewhere: two bodies."""
    at = play(*RUN, claim("s2", closed="s1"))
    assert refused(at, c.HandBack(holder=S1)) is Why.FENCED
    record = play(c.HandBack(holder=S2), start=at).found
    assert (record.phase, record.holder, record.failures, record.due) == (Phase.WAITING, None, 1, 0.0)


def test_a_submit_during_stopping_starts_a_new_generation() -> None:
    """[28] submit during stopping: swallowed by a run that ends cancelled."""
    at = play(*STOPPING, 4.0)
    after = decided(at, submit("r2"))
    record = after.record
    assert record is not None
    assert (record.generation, record.phase) == (2, Phase.WAITING)
    assert record.last is not None
    assert (record.last.run_id, record.last.phase, record.last.reason) == ("r1", Phase.CANCELLED, "no longer needed")
    assert [(entry.holder(), entry.deadline) for entry in record.previous] == [(S1, NOW + 10)]
    assert after.effects == (Signal(S1, "superseded"), Wake())
    new = play(submit("r2"), start=at)
    assert refused(new, succeed(S1)) is Why.SUPERSEDED
    assert refused(new, claim("s2", "r2")) is Why.BUSY


def test_a_submit_over_a_dead_run_without_budget_starts_a_new_generation() -> None:
    """[29] submit joins a live run whose holder is dead and its budget used up: failed without having run."""
    at = play(submit(max_attempts=1), claim())
    record = play(submit("r2", lost=S1), start=at).found
    assert (record.run_id, record.generation, record.phase, record.previous) == ("r2", 2, Phase.WAITING, ())
    assert record.last is not None
    assert (record.last.run_id, record.last.phase, record.last.session) == ("r1", Phase.FAILED, "")


def test_a_submit_joins_a_dead_run_that_a_takeover_will_run_again() -> None:
    """[29] the same with budget left: the live run goes on, nothing is lost."""
    assert refused(play(*RUN), submit("r2", lost=S1)) is Why.LIVE


def test_a_submit_that_read_a_dead_holder_does_not_forget_a_live_one() -> None:
    """[29] it reads s1 dead; before its write s2 takes the drained s1 over; its CAS is refused, it decides again."""
    at = play(submit(max_attempts=1), claim(), claim("s2", drained="s1"))
    assert refused(at, submit("r2", lost=S1)) is Why.LIVE


def test_a_body_past_its_deadline_and_grace_is_ended_by_the_sweep() -> None:
    """[30] the body never ends in a live process: the key is never free."""
    at = play(submit(timeout=5.0), claim())
    early = ask(play(14.9, start=at), evict(S1))
    assert early == Refused(Why.NOT_DUE, NOW + 15)
    after = decided(play(15.0, start=at), evict(S1))
    record = after.record
    assert record is not None
    assert (record.phase, record.holder, record.failures, record.attempt) == (Phase.WAITING, None, 1, 1)
    assert after.effects == (Signal(S1, "superseded"), Wake())
    again = play(15.0, evict(S1), 1.0, claim("s2"), start=at).found
    assert again.holder == S2


def test_a_body_that_outlives_its_last_attempt_ends_failed() -> None:
    """[30] without budget: failed for good, and its late success stores nothing."""
    at = play(submit(timeout=5.0, max_attempts=1), claim(), 15.0, evict(S1))
    assert at.found.phase is Phase.FAILED
    assert at.found.previous[0].holder() == S1
    assert refused(at, succeed(S1)) is Why.FENCED


def test_a_body_that_ignores_its_stop_is_ended_after_the_grace_of_the_stop() -> None:
    """[30] cancel, no timeout, the body does not listen."""
    at = play(*STOPPING)
    assert ask(at, evict(S1)) == Refused(Why.NOT_DUE, NOW + 10)
    after = decided(play(12.0, start=at), evict(S1))
    assert after.did is Did.FORCED
    assert after.record is not None
    assert [(entry.holder(), entry.deadline) for entry in after.record.previous] == [(S1, NOW + 10)]


def test_an_eviction_hits_only_the_attempt_it_saw() -> None:
    """[30] the sweep reads attempt 1 past its deadline; attempt 2 is claimed before its write."""
    at = play(submit(timeout=5.0), claim(), 15.0, claim("s2", closed="s1"), 15.0)
    assert refused(at, evict(S1)) is Why.FENCED


def test_only_what_has_a_deadline_is_evicted() -> None:
    """[30] no timeout was asked for: a body may run for as long as its session lives."""
    assert refused(play(*RUN, 1e9), evict(S1)) is Why.NOT_DUE
