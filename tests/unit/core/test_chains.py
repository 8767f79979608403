"""Schedules that supervisors keep alive, retire and start early: what becomes of ticks, and whose code decides."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.cron import fire_after
from tenure.core.outcomes import Did, Why
from tenure.core.records import Phase, read_state, state_of
from tenure.core.sweeps import is_orphan
from tests.unit.core.histories import (
    CANCEL,
    KEY,
    NOW,
    S1,
    Step,
    claim,
    decided,
    fail,
    keep,
    play,
    refused,
    submit,
    succeed,
    supersede,
    task,
)

HOURLY = c.KeepAlive(
    key=KEY, run_id="r1", task=task(cron="0 * * * *", autostart="jobs"), deployed=2.0
)  # NOW is 00:16:40


def test_any_number_of_supervisors_start_one_chain() -> None:
    at = play(keep("r1"))
    assert refused(at, keep("r2")) is Why.LIVE
    assert refused(at, keep("r3", deployed=9.0)) is Why.LIVE


def test_only_what_is_missing_from_its_own_module_is_gone_from_the_code() -> None:
    """Two apps share a namespace: the one that does not know the other's schedule must not end it."""
    at = play(keep("r1"))
    header = read_state(state_of(replace(at.found, task=HOURLY.task)))
    assert header is not None
    actor = HOURLY.task.actor
    assert is_orphan(actor, header, {"jobs"}, ())
    assert not is_orphan(actor, header, {"jobs"}, {actor})
    assert not is_orphan(actor, header, {"others"}, ())
    assert not is_orphan("k2", header, {"jobs"}, ()), "a run of that actor under another key is somebody's"
    over = read_state(state_of(replace(at.found, task=HOURLY.task, phase=Phase.CANCELLED)))
    assert over is not None
    assert not is_orphan(actor, over, {"jobs"}, ())


def test_a_schedule_leaves_somebody_elses_run_alone() -> None:
    """Its key was given to a run of another actor: that is not for a deployment to end."""
    theirs = submit("r1")
    other = replace(keep("r2", deployed=9.0), task=replace(keep("r2").task, actor="another"))
    assert refused(play(theirs), other) is Why.DIFFERS
    assert refused(play(theirs, claim()), other) is Why.DIFFERS


def test_a_chain_of_a_cron_schedule_starts_with_its_next_fire() -> None:
    assert (play(HOURLY).found.due, play(HOURLY).found.tick) == (3_600.0, 3_600.0)


def test_a_chain_that_was_cancelled_is_started_again_as_its_next_generation() -> None:
    at = play(keep("r1"), CANCEL, keep("r2"))
    assert (at.found.phase, at.found.generation, at.found.run_id) == (Phase.WAITING, 2, "r2")


def test_newer_code_changes_the_schedule_and_older_code_does_not_change_it_back() -> None:
    """A rolling deploy: supervisors of both are there."""
    old, new = keep("r2", deployed=2.0, every=60.0), keep("r3", deployed=3.0, every=5.0)
    at = play(keep("r1", deployed=2.0), new)
    assert (at.found.generation, at.found.task.policy.every, at.found.deployed) == (2, 5.0, 3.0)
    assert refused(at, old) is Why.OUTDATED


def test_what_older_code_says_is_remembered_over_the_end_of_a_chain() -> None:
    at = play(keep("r1", deployed=2.0), keep("r3", deployed=3.0, every=5.0), c.Cancel(run_id="r3"))
    assert refused(at, keep("r2", deployed=2.0)) is Why.OUTDATED
    assert decided(at, keep("r4", deployed=3.0, every=5.0)).did is Did.SCHEDULED


def test_no_body_is_stopped_for_a_change_of_schedule() -> None:
    """It takes effect at the run that follows."""
    new = keep("r3", deployed=3.0, every=5.0)
    at = play(keep("r1"), claim())
    assert refused(at, new) is Why.LIVE
    at = play(succeed(S1), start=at)
    assert decided(at, new).did is Did.SCHEDULED


@pytest.mark.parametrize(("every", "due"), [(5.0, NOW + 5.0), (600.0, NOW + 60.0)])
def test_a_changed_interval_fires_no_later_than_the_old_one_and_not_at_once(every: float, due: float) -> None:
    at = play(keep("r1"), claim(), succeed(S1))
    assert at.found.due == NOW + 60.0
    assert play(keep("r2", deployed=3.0, every=every), start=at).found.due == due


DUE = (2_900.0,)
RETRIED = (2_600.0, claim(), 1.0, fail(S1))
TRIGGERED = (c.Trigger(),)


@pytest.mark.parametrize("waits", [DUE, RETRIED, TRIGGERED], ids=["due", "retried", "triggered"])
@pytest.mark.parametrize("catch_up", ["none", "one", "all"])
@pytest.mark.parametrize("cron", ["0 * * * *", "*/10 * * * *"])
def test_a_fire_that_waits_while_code_is_deployed_is_not_lost(
    waits: tuple[Step, ...], catch_up: str, cron: str
) -> None:
    """Its worker is busy, its queue paused, its body has failed once: newer code with another policy runs it, and no sooner."""
    old = replace(HOURLY, task=task(cron="0 * * * *", autostart="jobs", catch_up=catch_up))
    new = task(cron=cron, autostart="jobs", catch_up=catch_up, timeout=30.0)
    at = play(old, *waits)
    before = at.found
    at = play(replace(old, run_id="r2", task=new, deployed=3.0), start=at)
    assert (at.found.generation, at.found.task.policy.timeout, at.found.due) == (2, 30.0, before.due)
    at = play(max(0.0, before.due - at.now), claim("s1", "r2"), 1.0, start=at)
    assert at.found.attempt == 1
    at = play(succeed(at.found.holder or S1), start=at)
    assert at.found.due == fire_after(
        cron, "UTC", before.tick if waits is not TRIGGERED and catch_up == "all" else at.now
    )


def test_an_interval_that_is_overdue_when_code_is_deployed_keeps_its_phase_and_what_it_has_to_make_up_for() -> None:
    at = play(keep("r1"), claim(), succeed(S1), 200.0)
    assert (at.found.due, at.found.tick) == (NOW + 60.0, NOW + 60.0)
    new = replace(keep("r2", deployed=3.0), task=task(every=60.0, autostart="jobs", catch_up="all"))
    at = play(new, claim("s1", "r2"), start=at)
    assert play(succeed(at.found.holder or S1), start=at).found.due == NOW + 120.0


def test_a_trigger_before_a_deploy_does_not_repeat_the_last_fire() -> None:
    """By a clock that is a little behind, the last fire is still to come."""
    at = play(HOURLY, 2_600.0, claim(), 1.0, succeed(S1), -1.2, c.Trigger())
    at = play(replace(HOURLY, run_id="r2", task=replace(HOURLY.task, priority="high"), deployed=3.0), start=at)
    at = play(claim("s1", "r2"), 0.1, start=at)
    assert play(succeed(at.found.holder or S1), start=at).found.due == 7_200.0


def test_what_somebody_put_in_its_place_stays_until_the_next_deployment() -> None:
    at = play(keep("r1"), supersede("r2", every=7.0))
    assert refused(at, keep("r3", deployed=2.0)) is Why.OUTDATED
    assert play(keep("r4", deployed=3.0), start=at).found.task.policy.every == 60.0


def test_a_schedule_that_newer_code_has_no_more_ends_and_older_code_does_not_start_it_again() -> None:
    at = play(keep("r1", deployed=2.0), c.Retire(deployed=3.0))
    assert at.found.phase is Phase.CANCELLED
    assert at.found.last is not None
    assert "not in the code any more" in at.found.last.reason
    assert refused(at, keep("r2", deployed=2.0)) is Why.OUTDATED


def test_what_did_not_start_by_itself_is_not_retired() -> None:
    assert refused(play(submit(every=60.0)), c.Retire(deployed=3.0)) is Why.NOTHING


# -- trigger -----------------------------------------------------------------------------------------------------------


def test_a_triggered_cron_key_runs_now_and_at_its_next_fire_too() -> None:
    at = play(HOURLY, c.Trigger())
    assert at.found.due == 0.0
    at = play(claim(), 5.0, succeed(S1), start=at)
    assert at.found.due == 3_600.0


def test_a_trigger_by_a_clock_that_is_behind_does_not_repeat_the_last_fire() -> None:
    at = play(HOURLY, 2_600.0, claim(), 1.0, succeed(S1))
    assert (at.now, at.found.due) == (3_601.0, 7_200.0)
    at = play(-1.2, c.Trigger(), claim("s1", "r1+"), 0.1, start=at)
    assert play(succeed(at.found.holder or S1), start=at).found.due == 7_200.0


def test_a_triggered_interval_keeps_its_phase() -> None:
    at = play(keep("r1"), claim(), succeed(S1), 10.0, c.Trigger(), claim("s1", "r1+"))
    at = play(3.0, succeed(at.found.holder or S1), start=at)
    assert at.found.due == NOW + 60.0


def test_a_retry_that_is_triggered_takes_no_second_fire_back() -> None:
    """The first run of the chain is to come much later than one interval from now; the fire before it is none."""
    at = play(submit(due=NOW + 600.0, every=60.0), c.Trigger(), claim(), fail(S1), c.Trigger(), claim())
    at = play(1.0, succeed(at.found.holder or S1), start=at)
    assert at.found.due == NOW + 600.0


def test_a_trigger_is_of_the_run_that_it_names_and_of_no_other() -> None:
    """Its write was applied and its answer lost: by the time of the repeat the next run of the key waits [10]."""
    at = play(HOURLY, c.Trigger(run_id="r1"), claim(), 5.0, succeed(S1))
    assert refused(at, c.Trigger(run_id="r1")) is Why.FINISHED
    assert at.found.due == 3_600.0


def test_a_delayed_run_is_triggered() -> None:
    at = play(submit(due=NOW + 60.0), c.Trigger())
    assert (at.found.due, at.found.tick, at.found.queued_at) == (0.0, 0.0, NOW)
    assert refused(at, c.Trigger()) is Why.ALREADY
