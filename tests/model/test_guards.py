"""The model is worth something: without a rule it finds a violation, and of the invariant that the rule is for.

Numbers in brackets are those of INTERLEAVINGS.md, which the core cites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from tests.model import removals as r
from tests.model import removals_waits as w
from tests.model.cells import Broken
from tests.model.explore import Explorer
from tests.model.leases import Leases
from tests.model.scenarios import BY_NAME

MOST = 60_000


class Guard(Struct, frozen=True):
    """Rules taken away: from the core by ``patch``, from the modelled shells by ``without``; ``breaks``: any of these invariants.

    Where two are named, each would do what the other is for.

    Without "counting", invariant 10 is not looked at: it notices many a thing before what it leads to happens.
    """

    of: str
    scenario: str
    breaks: tuple[int, ...]
    patch: Callable[[pytest.MonkeyPatch], None] | None = None
    without: str = ""


GUARDS = (
    Guard("[1] stopping is taken over", "cancel and a crash", (5,), r.stopping_is_taken_over),
    Guard("[2] stopping succeeds", "cancel", (5,), r.stopping_succeeds),
    Guard("[2] stopping is retried", "cancel", (5,), r.stopping_is_retried),
    Guard("[2] stopping is handed back", "drain and snooze", (5,), r.stopping_is_handed_back),
    Guard("[3] no table of runs", "one process, two deliveries", (8,), without="table"),
    Guard("[3] a given-up attempt is taken for one's claim", "lost claims of one process", (4,), without="given up"),
    Guard("nobody looks after what was given up", "given up and superseded", (7,), without="remnants, second look"),
    Guard("[47] nobody looks again at what a defect ended", "lost while it was in hand", (7,), without="second look"),
    Guard("[4] previous holds one body", "three generations, wait", (8,), r.previous_is_one, "counting"),
    Guard("[5] a cancel forgets previous", "cancel over an older body", (8,), r.cancel_forgets_previous, "counting"),
    Guard("[5] purged while it owes", "purge over an older body", (8,), r.purged_while_it_owes),
    Guard("[6] expires while it owes", "outbox with expiry", (6,), r.expires_while_it_owes),
    Guard("[6] the outbox is not carried on", "outbox and replace", (6,), r.outbox_is_not_carried_on),
    Guard("[7] no seen in the target", "outbox with expiry", (1, 6), without="seen"),
    Guard("[7] the origin is not read", "outbox with expiry", (1, 6), without="origin read"),
    Guard("[7] cleared before it is applied", "outbox with expiry", (6,), without="clear first"),
    Guard("[9] no run id in the holder", "stuck bodies of one process", (3,), r.no_run_id_in_the_holder),
    Guard("[9] no attempt in the holder", "timeout and eviction", (3,), r.no_attempt_in_the_holder),
    Guard("no tail check", "retry budget and takeover", (3,), r.no_tail_check),
    Guard("[10] a cancel pins nothing", "unknown cancel and a new life", (5,), without="pin"),
    Guard(
        "a cancel says stopping of what is over",
        "cancel beside an older body",
        (5,),
        r.a_cancel_says_stopping_of_what_is_over,
    ),
    Guard("[14] a wish is decided anew", "unknown replace", (1,), without="once"),
    Guard(
        "[19] a claim of unknown fate is given up", "unknown claim, lost wake-up", (7,), without="same CAS, second look"
    ),
    Guard("[20] nobody confirms", "three generations, wait", (7,), without="confirm"),
    Guard("[22] takeovers without a budget", "retry budget and takeover", (7,), r.takeovers_without_a_budget),
    Guard("a claim does not wait for older bodies", "three generations, wait", (8,), r.a_claim_does_not_wait),
    Guard("a live holder is taken over", "retry budget and takeover", (8,), r.a_live_holder_is_taken_over),
    Guard("a takeover does not count its attempt", "retry budget and takeover", (1, 4), r.the_attempt_is_not_counted),
    Guard("deadlines are extended", "grace of a replace", (8,), r.deadlines_are_extended),
    Guard("[46] a body is forgotten untold", "untold", (8,), without="told first"),
    Guard("previous expires untold", "replace and a crash", (8,), r.expiry_takes_the_untold),
    Guard("the successor is dropped", "reschedule against replace", (6,), r.the_successor_is_dropped),
    Guard("[28] a replaced stop owes no hooks", "hooks of a cancelled run", (6,), r.no_hooks),
    Guard("any eviction is taken for one's own", "unknown eviction", (10,), without="tag"),
    Guard("counts stay in the record", "three generations, stop", (10,), r.counts_stay),
    Guard("a replaced stop counts twice", "hooks of a cancelled run", (10,), r.a_replaced_stop_counts_twice),
    Guard("[28] a submit joins a stopping run", "stuck bodies of one process", (7,), r.a_submit_joins_a_stopping_run),
    Guard("[23] last does not tell", "unknown claim and outcome", (10,), r.last_does_not_tell),
    Guard("an eviction does not tell", "timeout and eviction", (3,), r.an_eviction_does_not_tell),
    Guard("[31] no look at closed holders", "lost wake-up", (7,), r.no_look_at_closed_holders),
    Guard("no look at the outbox", "lost wake-up of a spawn", (7,), r.no_look_at_the_outbox),
    Guard("no look at seen", "outbox with expiry", (7,), r.no_look_at_seen),
    Guard("[13] acknowledged before it is applied", "inbox, a submit", (7,), without="ack last"),
    Guard("[13] a cancel leaves no mark", "inbox, a cancel and a later run", (6,), r.a_cancel_leaves_no_mark),
    Guard("[13] marks tell nothing", "inbox, a replace and a later one", (1, 6), r.marks_tell_nothing),
    Guard("[13] marks tell no copies", "inbox, copies", (1, 6), r.marks_tell_no_copies),
    Guard("[13] copies are forgotten", "inbox, copies", (1, 6), r.copies_are_forgotten),
    Guard("[13] expires while it is marked", "inbox and expiry", (8,), r.expires_while_it_owes),
    Guard("[13] purged while it is marked", "inbox and expiry", (8,), r.purged_while_it_owes),
    Guard("[13] no look after the read", "inbox, a replace and a later one", (1, 6), without="inbox look"),
    Guard("[13] a mark is forgotten at once", "inbox, a replace and a later one", (1, 6), without="forget waits"),
    Guard("[13] a sweep forgets marks at once", "inbox, a cancel and a later run", (6,), without="sweep looks"),
    Guard("[15] a stray's time is read in another way", "inbox, without a key", (6,), without="place"),
    Guard("nobody looks for strays", "inbox, a submit", (7,), without="strays"),
    Guard("older code asks too", "schedule, a rolling deploy", (1,), r.older_code_asks_too),
    Guard("older code brings a schedule back", "schedule, gone from the code", (1,), r.older_code_asks_too),
    Guard("older code ends a schedule", "schedule, new in the code", (1,), r.older_code_retires_too),
    Guard("bodies are stopped for new code", "schedule, a rolling deploy", (8,), r.running_bodies_are_replaced),
    Guard("newer code changes nothing", "schedule, a rolling deploy", (7,), r.newer_code_changes_nothing),
    Guard("a deploy loses a fire", "schedule, deployed over a retry", (6,), r.deploys_begin_anew),
    Guard("nobody retires a schedule", "schedule, gone from the code", (7,), r.nobody_retires),
    Guard("a schedule takes a key", "schedule, a key that is taken", (6,), r.keys_are_taken),
    Guard("chains end", "schedule, two supervisors", (6,), r.chains_end),
    Guard("fires are counted from now", "schedule, two supervisors", (6,), r.fires_are_counted_from_now),
    Guard("a trigger takes a fire away", "schedule, triggered", (6,), w.a_trigger_keeps_its_tick),
    Guard("nobody wakes what a gone switch held", "pause and resume", (7,), without="releases"),
    Guard("what has begun is dropped", "dropped by a rate", (6,), w.what_has_begun_is_dropped),
    Guard(
        "[14] a submit that was taken in is decided anew",
        "debounced, lost answers",
        (0, 6),
        w.nothing_was_taken_in,
        "once",
    ),
    Guard("a spawn does not join what cools down", "cooldown of a spawn", (6,), w.spawns_join_nothing),
    Guard("purged while a replay is not settled", "replayed", (8,), w.purged_over_a_mark),
    Guard("no look at the letter", "replayed", (1, 6), without="letter look"),
    Guard("a replay is forgotten before its letter is gone", "replayed and purged", (1, 6), without="letter first"),
    Guard("chains begin at once", "schedule, cancelled by a stranger", (6,), r.chains_begin_at_once),
)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.of)
def test_without_a_rule_the_model_finds_a_violation(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    if guard.patch is not None:
        guard.patch(monkeypatch)
    without = frozenset(filter(None, guard.without.split(", ")))
    report = Explorer(BY_NAME[guard.scenario], without).run(MOST)
    assert report.broken is not None, f"nothing notices that it is gone: {report}"
    assert report.broken.number in guard.breaks, str(report)
    assert report.trace


@pytest.mark.parametrize(
    ("number", "patch"),
    [
        pytest.param(8, r.trust_runs_from_the_answer, id="[17] trust runs from the answer"),
        pytest.param(8, r.closed_before_a_ttl_of_silence, id="closed before a ttl of silence"),
        pytest.param(8, r.closed_while_cut_off, id="[16] closed while cut off, whatever its revision"),
        pytest.param(7, r.nobody_is_closed, id="nobody is closed"),
    ],
)
def test_without_a_rule_a_lease_is_closed_too_early_or_never(
    number: int, patch: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    with pytest.raises(Broken) as broken:
        Leases(8, 2).run()
    assert broken.value.number == number


def test_a_trace_says_who_did_what_and_what_became_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest one: submit, wake-up, delivery, claim, cancel, and an outcome that should not be."""
    r.stopping_succeeds(monkeypatch)
    text: Any = str(Explorer(BY_NAME["cancel"], every=0).run(MOST))
    assert "p1 cancel" in text
    assert "-> " in text
    assert "stopping g1 A a1" in text
    assert "Succeed: succeeded   <- here" in text
