"""Every state of every small scenario: no invariant of DESIGN.md section 6 is broken, and each state comes to rest.

``python -m tests.model --large`` (`make model`) does the same with larger bounds. That the model would find what is wrong is
shown by `test_guards.py`.
"""

from __future__ import annotations

import pytest

from tests.model.bounds import Scenario
from tests.model.explore import Explorer
from tests.model.leases import Leases
from tests.model.scenarios import BY_NAME, SMALL
from tests.model.scenarios_large import LARGE
from tests.support import sized

MOST = sized(45_000, 1_000_000)
"""States of a scenario: all have fewer. What takes more is for `make model`."""


@pytest.mark.parametrize("scenario", SMALL, ids=lambda scenario: scenario.name)
def test_no_invariant_is_broken_and_every_state_comes_to_rest(scenario: Scenario) -> None:
    report = Explorer(scenario, every=200).run(most=MOST)
    print(report)
    assert report.broken is None, str(report)
    assert report.complete, str(report)


def test_no_session_is_closed_while_its_process_trusts_it() -> None:
    leases = Leases()
    leases.run()
    print(f"leases: {leases.states:,} states, {leases.transitions:,} transitions")


def test_the_larger_scenarios_begin() -> None:
    """That they hold is for `make model`; here, that they can be run."""
    for scenario in LARGE:
        report = Explorer(scenario, every=10).run(most=300)
        assert report.broken is None, str(report)


def test_the_same_exploration_comes_out_the_same() -> None:
    """A trace is found by numbers of moves: their order must not depend on hashing."""
    counts = [(r.states, r.transitions, r.depth) for r in (Explorer(SMALL[0]).run(), Explorer(SMALL[0]).run())]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["cancel and a crash", "outbox with expiry", "purge over an older body"])
def test_merging_steps_hides_nothing_that_is_stored(name: str) -> None:
    """Taken one by one, the steps lead to the very same records, in several times as many states."""
    merged, single = Explorer(BY_NAME[name], every=0), Explorer(BY_NAME[name], every=0, merge=False)
    fewer, all_of_them = merged.run(), single.run()
    assert all_of_them.broken is None, str(all_of_them)
    assert fewer.states < all_of_them.states
    assert merged.records() == single.records()
