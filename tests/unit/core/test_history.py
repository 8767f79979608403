"""What is told of a key, from the revisions that the real transitions made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tenure.core import commands as c
from tenure.core.history import MAX_WHY, Refusal, Step, Told, Written, decode_refusal, encode_refusal, steps
from tests.unit.core.histories import (
    CANCEL,
    NOW,
    ON_B,
    RUN,
    S1,
    S2,
    STOPPING,
    At,
    claim,
    evict,
    fail,
    holder,
    snooze,
    step,
    submit,
    succeed,
    supersede,
)


def written(*history: Any) -> list[Written]:
    """The revisions of a history: every second number, since others' records lie in between."""
    at = At(None, NOW)
    out: list[Written] = []
    for what in history:
        if isinstance(what, int | float):
            at = At(at.record, at.now + what)
            continue
        at = step(at, what)
        out.append(Written(2 * len(out) + 10, at.now, at.record))
    return out


def told(*history: Any) -> list[tuple[str, int, int, str]]:
    return [(one.what, one.generation, one.attempt, one.who) for one in steps(written(*history))]


def test_a_run_that_succeeds() -> None:
    found = steps(written(submit(), 1, claim(), 2, succeed(S1)))

    assert [(one.what, one.who, one.revision) for one in found] == [
        ("submitted", "", 10),
        ("claimed", "s1", 12),
        ("succeeded", "s1", 14),
    ]
    assert [one.at.timestamp() - NOW for one in found] == [0, 1, 3]
    assert {one.run_id for one in found} == {"r1"}


def test_a_retry_names_what_the_attempt_died_of() -> None:
    found = steps(written(*RUN, fail(S1), 60, claim("s2")))

    assert [(one.what, one.attempt, one.who, one.why) for one in found][1:] == [
        ("claimed", 1, "s1", ""),
        ("retried", 1, "s1", "ValueError: boom"),
        ("claimed", 2, "s2", ""),
    ]


def test_a_takeover_names_both_sessions() -> None:
    found = steps(written(*RUN, claim("s2", closed="s1")))

    assert (found[-1].what, found[-1].who, found[-1].why, found[-1].attempt) == ("taken_over", "s2", "from s1", 2)


def test_a_claim_again_in_the_same_session_is_told_too() -> None:
    assert told(*RUN, claim("s1", own_lost=S1))[-1] == ("taken_over", 1, 2, "s1")


def test_a_snooze_a_hand_back_and_a_run_that_is_moved() -> None:
    assert told(*RUN, snooze(S1, NOW + 5))[-1] == ("snoozed", 1, 1, "s1")
    assert told(*RUN, c.HandBack(holder=S1))[-1] == ("handed_back", 1, 1, "s1")
    assert told(submit(due=NOW + 100), c.Trigger())[-1] == ("moved", 1, 0, "")


def test_a_cancel_that_waits_for_its_body_is_two_things() -> None:
    found = steps(written(*STOPPING, succeed(S1)))

    assert [(one.what, one.why) for one in found][2:] == [
        ("stopping", "no longer needed"),
        ("cancelled", "no longer needed"),
    ]


def test_a_cancel_of_what_waits_is_one() -> None:
    assert told(submit(), CANCEL)[1:] == [("cancelled", 1, 0, "")]


def test_a_replaced_body_ends_later() -> None:
    assert told(*RUN, supersede(), c.Confirm(holder=S1), claim("s2", "r2"), succeed(ON_B)) == [
        ("submitted", 1, 0, ""),
        ("claimed", 1, 1, "s1"),
        ("replaced", 2, 0, ""),
        ("ended", 1, 1, "s1"),
        ("claimed", 2, 1, "s2"),
        ("succeeded", 2, 1, "s2"),
    ]


def test_a_submit_over_a_run_that_is_stopping_ends_that_one_first() -> None:
    assert [one[:2] for one in told(*STOPPING, submit("r2"))][3:] == [("cancelled", 1), ("submitted", 2)]


def test_a_submit_over_a_run_that_is_over_is_no_replace() -> None:
    assert [one[:2] for one in told(*RUN, succeed(S1), submit("r2"))][2:] == [("succeeded", 1), ("submitted", 2)]


def test_outcome_and_successor_are_one_write_and_two_things() -> None:
    chain = submit(every=60.0)
    found = steps(written(chain, claim(), succeed(S1)))

    assert [(one.what, one.generation) for one in found][2:] == [("succeeded", 1), ("followed", 2)]
    assert found[2].revision == found[3].revision


def test_a_chain_goes_on_over_a_failure() -> None:
    found = told(submit(every=60.0), claim(), fail(S1, final=True))
    assert [one[:2] for one in found][2:] == [("failed", 1), ("followed", 2)]


def test_an_attempt_that_overstays() -> None:
    found = steps(written(submit(timeout=5.0), claim(), 16, evict(S1), c.Confirm(holder=S1)))
    assert [one.what for one in found][2:] == ["retried", "ended"]
    assert "did not end" in found[2].why


def test_marks_and_counts_are_nothing_to_tell() -> None:
    assert len(told(submit(), supersede("r2"), c.TakeCounts(tag="t"))) == 2


DAY = 86_400


def new_life(at: float) -> Written:
    return Written(50, at, step(At(None, at), submit("r9")).record)


def test_a_purge_and_the_next_life() -> None:
    found = steps([*written(*RUN, succeed(S1)), Written(40, NOW + 5, None), new_life(NOW + 9)])
    assert [one.what for one in found] == ["submitted", "claimed", "succeeded", "purged", "submitted"]


def test_what_has_expired_is_told_once_it_has() -> None:
    first = written(*RUN, succeed(S1))
    assert [one.what for one in steps(first, now=NOW + DAY - 60)] == ["submitted", "claimed", "succeeded"]
    found = steps(first, now=NOW + DAY + 60)
    assert [one.what for one in found] == ["submitted", "claimed", "succeeded", "expired"]
    assert (found[-1].revision, found[-1].at) == (0, found[-2].at + timedelta(days=1))


def test_the_life_after_one_that_has_expired() -> None:
    found = steps([*written(*RUN, succeed(S1)), new_life(NOW + DAY + 60)], now=NOW + DAY + 90)
    assert [one.what for one in found] == ["submitted", "claimed", "succeeded", "expired", "submitted"]


def test_a_new_life_is_told_without_its_marker() -> None:
    first = written(*RUN, succeed(S1), submit("r2"), claim("s1", "r2"))
    again = Written(50, NOW + 9, step(At(None, NOW + 9), submit("r9")).record)

    assert [one.what for one in steps([*first, again])][-2:] == ["claimed", "submitted"]


def test_what_is_not_kept_any_more_is_said() -> None:
    kept = written(*RUN, fail(S1), 60, claim("s2"))[1:]

    assert [one.what for one in steps(kept)] == ["kept_from", "retried", "claimed"]
    assert "not kept" in steps(kept)[0].why


def test_a_hole_is_no_error() -> None:
    whole = written(*RUN, fail(S1), 60, claim("s2"), succeed(S2))

    assert [one.what for one in steps([whole[0], whole[-1]])] == ["submitted", "succeeded"]


def test_revisions_stay_in_order_when_a_new_leaders_clock_is_behind() -> None:
    first, second, third = written(*RUN, succeed(S1))
    late = [third, Written(second.revision, NOW - 50, second.record), first]

    found = steps(late)

    assert [one.what for one in found] == ["submitted", "claimed", "succeeded"]
    assert found[1].at.timestamp() == NOW - 50, "the time is the server's, whatever it is"


STALE = Refusal(run_id="r1", where="tail", why="a newer generation has the key", who="s1", generation=1, attempt=1)


def told_between(at: float, seen: int = 0) -> list[Step]:
    revisions = written(*RUN, 10, supersede(), 10, c.Confirm(holder=S1))
    refusal = Refusal(**{name: getattr(STALE, name) for name in STALE.__struct_fields__ if name != "seen"}, seen=seen)
    return steps(revisions, [Told(at, refusal)])


def test_a_refusal_is_told_at_its_time() -> None:
    found = told_between(NOW + 15)

    assert [one.what for one in found] == ["submitted", "claimed", "replaced", "refused", "ended"]
    assert (found[3].who, found[3].generation, found[3].attempt, found[3].revision) == ("s1", 1, 1, 0)
    assert found[3].why == "tail: a newer generation has the key"


def test_a_refusal_comes_after_the_revision_that_it_met_whatever_the_clock_of_its_server_says() -> None:
    assert [one.what for one in told_between(NOW + 3, seen=14)] == [
        "submitted",
        "claimed",
        "replaced",
        "refused",
        "ended",
    ]


def test_refusals_of_a_key_that_never_was_are_told_alone() -> None:
    assert [one.what for one in steps([], [Told(NOW, STALE)])] == ["refused"]


def test_a_refusal_is_read_as_it_was_written() -> None:
    assert decode_refusal(encode_refusal(STALE)) == STALE


def test_a_long_reason_is_cut() -> None:
    long = c.Cancel(run_id="r1", reason="x" * 4_000)

    assert len(steps(written(*RUN, long))[-1].why) == MAX_WHY


def test_holders_of_other_attempts_are_told_apart() -> None:
    """Two bodies of one key that were superseded end one by one."""
    one, two = holder("s1", "r1"), holder("s2", "r2")
    found = told(*RUN, supersede("r2", overlap="parallel"), claim("s2", "r2"), supersede("r3"), c.Confirm(holder=two))

    assert found[-1] == ("ended", 2, 1, "s2")
    assert told(*RUN, supersede("r2"), c.Confirm(holder=one))[-1] == ("ended", 1, 1, "s1")


def test_the_mark_that_is_stored_over_what_has_expired_is_no_purge() -> None:
    """In a cluster, a cancel that finds an expired key stores that it is not there."""
    found = steps([*written(*RUN, succeed(S1)), Written(40, NOW + DAY + 60, None)])
    assert [one.what for one in found] == ["submitted", "claimed", "succeeded", "expired"]
