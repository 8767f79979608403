"""The model is worth something: without a rule it finds a violation, and of the invariant that the rule is for.

Numbers in brackets are those of INTERLEAVINGS.md, which the core cites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from tests.model import removals as r
from tests.model.cells import Broken
from tests.model.explore import Explorer
from tests.model.leases import Leases
from tests.model.scenarios import BY_NAME

MOST = 60_000


class Guard(Struct, frozen=True, kw_only=True):
    """A rule taken away: from the core by ``patch``, from the modelled shells by ``without``; ``breaks``: any of these."""

    of: str
    scenario: str
    breaks: tuple[int, ...]
    patch: Callable[[pytest.MonkeyPatch], None] | None = None
    without: str = ""


GUARDS = (
    Guard(of="[1] stopping is taken over", scenario="cancel and a crash", breaks=(5,), patch=r.stopping_is_taken_over),
    Guard(of="[2] stopping succeeds", scenario="cancel", breaks=(5,), patch=r.stopping_succeeds),
    Guard(of="[2] stopping is retried", scenario="cancel", breaks=(5,), patch=r.stopping_is_retried),
    Guard(of="[2] stopping is handed back", scenario="drain and snooze", breaks=(5,), patch=r.stopping_is_handed_back),
    Guard(of="[3] no table of runs", scenario="one process, two deliveries", breaks=(8,), without="table"),
    Guard(of="[3] a given-up attempt is taken for one's claim", scenario="lost claims of one process", breaks=(4,), without="given up"),
    Guard(of="[4] previous holds one body", scenario="three generations, wait", breaks=(8,), patch=r.previous_is_one, without="counting"),
    Guard(of="[5] a cancel forgets previous", scenario="cancel over an older body", breaks=(8,), patch=r.cancel_forgets_previous, without="counting"),
    Guard(of="[5] purged while it owes", scenario="purge over an older body", breaks=(8,), patch=r.purged_while_it_owes),
    Guard(of="[6] expires while it owes", scenario="outbox with expiry", breaks=(6,), patch=r.expires_while_it_owes),
    Guard(of="[6] the outbox is not carried on", scenario="outbox and replace", breaks=(6,), patch=r.outbox_is_not_carried_on),
    Guard(of="[7] no seen in the target", scenario="outbox with expiry", breaks=(1, 6), without="seen"),
    Guard(of="[7] the origin is not read", scenario="outbox with expiry", breaks=(1, 6), without="origin read"),
    Guard(of="[7] cleared before it is applied", scenario="outbox with expiry", breaks=(6,), without="clear first"),
    Guard(of="[9] no run id in the holder", scenario="stuck bodies of one process", breaks=(3,), patch=r.no_run_id_in_the_holder),
    Guard(of="[9] no attempt in the holder", scenario="timeout and eviction", breaks=(3,), patch=r.no_attempt_in_the_holder),
    Guard(of="no tail check", scenario="retry budget and takeover", breaks=(3,), patch=r.no_tail_check),
    Guard(of="[10] a cancel pins nothing", scenario="unknown cancel and a new life", breaks=(5,), without="pin"),
    Guard(of="[14] a wish is decided anew", scenario="unknown replace", breaks=(1,), without="once"),
    Guard(of="[20] nobody confirms", scenario="three generations, wait", breaks=(7,), without="confirm"),
    Guard(of="[22] takeovers without a budget", scenario="retry budget and takeover", breaks=(7,), patch=r.takeovers_without_a_budget),
    Guard(of="a claim does not wait for older bodies", scenario="three generations, wait", breaks=(8,), patch=r.a_claim_does_not_wait),
    Guard(of="a live holder is taken over", scenario="retry budget and takeover", breaks=(8,), patch=r.a_live_holder_is_taken_over),
    Guard(of="a takeover does not count its attempt", scenario="retry budget and takeover", breaks=(1, 4), patch=r.the_attempt_is_not_counted),
    Guard(of="deadlines are extended", scenario="grace of a replace", breaks=(8,), patch=r.deadlines_are_extended),
    Guard(of="previous expires untold", scenario="replace and a crash", breaks=(8,), patch=r.expiry_takes_the_untold),
    Guard(of="the successor is dropped", scenario="reschedule against replace", breaks=(6,), patch=r.the_successor_is_dropped),
    Guard(of="[28] a replaced stop owes no hooks", scenario="hooks of a cancelled run", breaks=(6,), patch=r.no_hooks),
    Guard(of="counts stay in the record", scenario="three generations, stop", breaks=(10,), patch=r.counts_stay),
    Guard(of="a replaced stop counts twice", scenario="hooks of a cancelled run", breaks=(10,), patch=r.a_replaced_stop_counts_twice),
    Guard(of="[31] no look at closed holders", scenario="lost wake-up", breaks=(7,), patch=r.no_look_at_closed_holders),
    Guard(of="no look at the outbox", scenario="lost wake-up of a spawn", breaks=(7,), patch=r.no_look_at_the_outbox),
    Guard(of="no look at seen", scenario="outbox with expiry", breaks=(7,), patch=r.no_look_at_seen),
)  # fmt: skip


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.of)
def test_without_a_rule_the_model_finds_a_violation(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    if guard.patch is not None:
        guard.patch(monkeypatch)
    without = frozenset({guard.without} - {""})
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
        Leases(10, 2).run()
    assert broken.value.number == number


def test_a_trace_says_who_did_what_and_what_became_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest one: submit, wake-up, delivery, claim, cancel, and an outcome that should not be."""
    r.stopping_succeeds(monkeypatch)
    text: Any = str(Explorer(BY_NAME["cancel"], every=0).run(MOST))
    assert "p1 cancel" in text
    assert "-> " in text
    assert "stopping g1 A a1" in text
    assert "Succeed: succeeded   <- here" in text
