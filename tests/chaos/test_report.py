"""A run that has shown nothing of what it is there to show has failed, however well it went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.chaos.report import too_few
from tests.history.evidence import CHIME, CommandLine, Counts, Death, Evidence, Revision
from tests.history.stories import ran_well


def full() -> Evidence:
    """One of each, and two ticks."""
    evidence = ran_well().evidence
    evidence.bodies[0] = replace(evidence.bodies[0], limit="solo", allowed=1)
    evidence.revisions += [
        Revision(seq=90 + number, before=0, key=CHIME, run_id=f"c{number}", generation=number) for number in (1, 2)
    ]
    evidence.commands = [CommandLine(wall=0.4, verb="submit", key="mail", id="1", acked=True, run_id="m1")]
    evidence.rejected = {"c9"}
    return evidence


def test_what_shows_one_of_each_is_enough() -> None:
    assert too_few(full(), keys=2) == ""
    assert too_few(full(), keys=3) == "only 2 keys"
    assert too_few(ran_well().evidence, keys=0) == ""


@pytest.mark.parametrize(
    ("told", "take_away"),
    [
        ("only 0 bodies under a limit", lambda evidence: evidence.bodies.clear()),
        ("only 1 ticks", lambda evidence: evidence.revisions.pop()),
        ("only 0 commands acknowledged", lambda evidence: evidence.commands.clear()),
        ("only 0 commands rejected", lambda evidence: evidence.rejected.clear()),
    ],
)
def test_what_it_lacks_is_told(told: str, take_away: Callable[[Evidence], object]) -> None:
    evidence = full()
    take_away(evidence)
    assert too_few(evidence, keys=2) == told


def counted() -> Evidence:
    """And one of each of what must be counted exactly; a worker was started again."""
    evidence = full()
    evidence.counts = Counts(superseded={"head": 1}, cancelled={"waiting": 1})
    evidence.counted_exactly = True
    one = Death(pid=1, role="worker", name="worker0", ready=True, how="term", killed_at=1.0, at=1.0, wall=1.0)
    evidence.deaths = [one, replace(one, pid=3)]
    return evidence


def set_to(**values: Any) -> Callable[[Evidence], None]:
    def change(evidence: Evidence) -> None:
        for name, value in values.items():
            setattr(evidence, name, value)

    return change


@pytest.mark.parametrize(
    ("told", "take_away"),
    [
        ("", lambda _evidence: None),
        ("only 0 looks at what was to be counted exactly", set_to(counted_exactly=False)),
        ("only 0 looks at what was to be counted exactly", set_to(missing=1)),
        ("only 0 runs superseded", set_to(counts=Counts(cancelled={"waiting": 1}))),
        ("only 0 runs cancelled", set_to(counts=Counts(superseded={"head": 1}))),
        (
            "only 0 ends of workers and supervisors that are followed by a new start",
            lambda evidence: evidence.deaths.pop(),
        ),
    ],
)
def test_a_run_that_is_to_count_exactly_must_have_something_to_count(
    told: str, take_away: Callable[[Evidence], object]
) -> None:
    evidence = counted()
    take_away(evidence)
    assert too_few(evidence, keys=2, exact="ends") == told
    assert too_few(evidence, keys=2) == ""


def test_a_run_that_is_to_count_what_is_fenced_must_have_some() -> None:
    evidence = full()
    assert too_few(evidence, keys=2, exact="fenced") == "only 0 runs fenced"
    evidence.counts = Counts(fenced={1: 1})
    assert too_few(evidence, keys=2, exact="fenced") == "only 0 runs fenced", "the history was not told of all"
    evidence.told_exactly = True
    assert too_few(evidence, keys=2, exact="fenced") == ""
