"""Debounce, Cooldown and dropped runs: what each makes of a record, at which time, through which door."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.generations import leaves_trace
from tenure.core.outcomes import Did, Wake, Why
from tenure.core.rates import Pace, Rate, Settle
from tenure.core.records import Death, Phase, Settling, ttl_of
from tests.unit.core.histories import (
    BOOM,
    CANCEL,
    MARK,
    NOW,
    S1,
    SEEN,
    claim,
    decided,
    fail,
    play,
    refused,
    submit,
    succeed,
    supersede,
    task,
)

CALM = Pace(debounce=Settle(settle=2.0, max_wait=5.0))
COOL = Pace(cooldown=60.0)
DROP = Pace(rates=(Rate(n=1, seconds=1.0, excess="drop"),))


def calm(run: str, n: int = 0, **more: object) -> c.Submit:
    return replace(submit(run), task=task(args=b'{"n":%d}' % n, pace=CALM), **more)


# -- debounce --------------------------------------------------------------------------------------------------------


def test_a_run_waits_for_the_last_submit_and_takes_its_arguments() -> None:
    at = play(calm("r1"), 1.5, calm("r2", 2), 1.5, calm("r3", 3))
    assert (at.found.run_id, at.found.generation, at.found.due) == ("r1", 1, NOW + 5.0)
    assert bytes(at.found.task.args) == b'{"n":3}'
    assert refused(at, claim()) is Why.NOT_DUE
    assert play(2.0, claim(), start=at).found.phase is Phase.RUNNING


def test_it_starts_at_the_latest_so_long_after_the_first_submit() -> None:
    at = play(calm("r1"))
    for n in range(2, 20):
        at = play(0.9, calm(f"r{n}", n), start=at)
        assert at.found.due == min(at.now + 2.0, NOW + 5.0)
        if at.now > NOW + 5.0:
            break
    assert play(claim(), start=at).found.run_id == "r1"


def test_a_later_due_needs_no_wake_up_and_an_earlier_one_does() -> None:
    """The one that it has comes sooner and is put off; one that is gone, or comes too late, is stored again."""
    assert decided(play(calm("r1"), 1.0), calm("r2")).effects == ()
    late = replace(calm("r1"), due=NOW + 60.0)
    assert play(late).found.due == NOW + 60.0
    assert decided(play(late, 1.0), calm("r2")).effects == (Wake(),)
    assert decided(play(calm("r1"), 4.1), calm("r2")).effects == (Wake(),), "it is due for seconds: its wake-up is lost"


def test_a_submit_that_was_taken_in_is_known_when_it_comes_again() -> None:
    """Server committed, client raised: told again, it must neither move the run nor be of unknown fate."""
    at = play(calm("r1"), 1.0, calm("r2", 2), 1.0)
    assert leaves_trace(at.found, "r2")
    assert refused(at, calm("r2", 2)) is Why.ALREADY
    assert refused(play(10.0, claim(), succeed(S1), start=at), calm("r2", 2)) is Why.ALREADY


@pytest.mark.parametrize(
    ("wish", "why"),
    [({"if_live": "reject"}, Why.LIVE), ({"if_differs": "error"}, Why.DIFFERS)],
)
def test_who_asks_for_a_refusal_gets_it(wish: dict[str, object], why: Why) -> None:
    assert refused(play(calm("r1")), calm("r2", 2, **wish)) is why


def test_the_same_arguments_do_not_differ_and_are_debounced() -> None:
    assert play(calm("r1"), 1.0, calm("r2", if_differs="error")).found.due == NOW + 3.0


def test_a_running_body_is_kept_and_a_retry_takes_the_new_arguments_at_its_time() -> None:
    running = play(calm("r1", 1), 2.0, claim())
    assert refused(running, calm("r2", 2)) is Why.LIVE
    retry = play(fail(S1), start=running)
    after = play(0.1, calm("r2", 2), start=retry).found
    assert (after.due, after.run_id, bytes(after.task.args)) == (retry.found.due, "r1", b'{"n":2}')
    assert (after.attempt, after.failures) == (1, 1)


def test_a_replace_over_a_run_that_has_not_started_waits_from_the_same_first_submit_on() -> None:
    newer = replace(supersede("r2"), task=task(pace=CALM))
    at = play(calm("r1"), 1.5, calm("r1a"), 1.5, calm("r1b"), 1.0, newer)
    assert (at.found.run_id, at.found.due) == ("r2", NOW + 5.0)
    fresh = play(calm("r1"), 2.0, claim(), 1.0, newer)
    assert fresh.found.due == NOW + 5.0, "the run had started: the next one begins anew"
    assert fresh.found.settling == Settling(since=NOW + 3.0)


def test_a_spawn_and_a_command_of_the_inbox_are_taken_in_once() -> None:
    for seen in (SEEN, MARK):
        at = play(calm("r1"), 1.0, calm("r2", 2, seen=seen))
        assert (at.found.seen, at.found.due) == ((seen,), NOW + 3.0)
        assert refused(play(1.0, start=at), calm("r2", 2, seen=seen)) is Why.ALREADY


def test_a_successor_and_a_replay_do_not_wait() -> None:
    rescheduled = succeed(S1, then=c.Successor(due=NOW + 9.0))
    chained = play(calm("r1"), 2.0, claim(), rescheduled).found
    assert (chained.due, chained.settling) == (NOW + 9.0, None)
    death = Death(run_id="r0", generation=1, attempts=1, failures=1, queued_at=NOW, at=NOW, failure=BOOM)
    assert play(calm("r9", history=(death,), if_live="reject")).found.due == 0.0


# -- cooldown --------------------------------------------------------------------------------------------------------


def cool(run: str, **more: object) -> c.Submit:
    return replace(submit(run), task=task(pace=COOL), **more)


@pytest.mark.parametrize("end", [succeed(S1), fail(S1, final=True)])
def test_after_a_run_no_submit_starts_one_for_so_long(end: c.Command) -> None:
    at = play(cool("r1"), 5.0, claim(), 7.0, end)
    assert refused(play(59.9, start=at), cool("r2")) is Why.COOLING
    assert refused(play(1.0, start=at), cool("r2", if_live="replace")) is Why.COOLING
    assert play(60.0, cool("r2"), start=at).found.run_id == "r2"


def test_what_was_cancelled_holds_nobody_off() -> None:
    assert play(cool("r1"), CANCEL, cool("r2")).found.run_id == "r2"


def test_a_replace_a_replay_and_another_actor_start_all_the_same() -> None:
    at = play(cool("r1"), claim(), succeed(S1))
    assert play(supersede("r2", pace=COOL), start=at).found.run_id == "r2"
    death = Death(run_id="r1", generation=1, attempts=1, failures=1, queued_at=NOW, at=NOW, failure=BOOM)
    assert play(cool("r2", history=(death,)), start=at).found.run_id == "r2"
    assert play(replace(submit("r2"), task=replace(task(pace=COOL), actor="other")), start=at).found.run_id == "r2"


def test_a_spawn_over_a_run_that_cools_down_leaves_its_trace_and_starts_nothing_later() -> None:
    """Else a repeat after a crash, when the time is over, would start what was answered already."""
    at = play(cool("r1"), claim(), succeed(S1), 1.0, cool("r2", seen=SEEN))
    assert (at.found.phase, at.found.seen, at.found.run_id) == (Phase.SUCCEEDED, (SEEN,), "r1")
    assert refused(play(100.0, start=at), cool("r2", seen=SEEN)) is Why.ALREADY


def test_a_record_is_kept_for_as_long_as_it_cools_down() -> None:
    short = play(submit(pace=COOL, result_ttl=1.0), claim(), succeed(S1)).found
    long = play(submit(pace=COOL, result_ttl=90.0), claim(), succeed(S1)).found
    assert (ttl_of(short), ttl_of(long)) == (60, 90)


# -- drop ------------------------------------------------------------------------------------------------------------


def test_a_run_that_is_dropped_is_cancelled_with_the_reason_and_counted() -> None:
    decision = decided(play(submit(pace=DROP)), replace(claim(), permit=1, excess="too many"))
    assert decision.did is Did.DROPPED
    assert decision.record is not None
    assert decision.record.last is not None
    assert (decision.record.phase, decision.record.last.reason) == (Phase.CANCELLED, "too many")
    assert [(count.what, count.where) for count in decision.counts] == [("cancelled", "waiting")]


def test_what_has_started_once_is_not_dropped() -> None:
    at = play(submit(pace=DROP), replace(claim(), permit=1), fail(S1), 1.0)
    assert refused(at, replace(claim(), permit=2, excess="too many")) is Why.LIMITED


def test_a_drop_that_was_decided_for_a_run_that_is_claimed_meanwhile_stops_no_body() -> None:
    at = play(submit(pace=DROP), replace(claim("s2"), permit=1))
    assert refused(at, replace(claim("s1"), permit=1, excess="too many")) is Why.BUSY
