"""The checker finds every violation in a hand-made history, and nothing in one that went well."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.history.checker import check
from tests.history.expiries import with_expiries
from tests.history.stories import Story, ran_well
from tests.history.stories_added import BAD_ADDED, GOOD_ADDED
from tests.history.stories_answers import GOOD_ANSWERS
from tests.history.stories_apart import BAD_APART, GOOD_APART
from tests.history.stories_bad import BAD, two_outcomes
from tests.history.stories_budget import BAD_BUDGET, GOOD_BUDGET
from tests.history.stories_counts import BAD_COUNTS, GOOD_COUNTS
from tests.history.stories_early import BAD_EARLY, GOOD_EARLY
from tests.history.stories_exact import BAD_EXACT, GOOD_EXACT
from tests.history.stories_good import GOOD
from tests.history.stories_holds import BAD_HOLDS, GOOD_HOLDS
from tests.history.stories_paced import BAD_PACED, GOOD_PACED
from tests.history.stories_rules import BAD_RULES, GOOD_RULES
from tests.history.stories_wrong import BAD_WRONG, GOOD_WRONG

EVERY_GOOD = [
    *GOOD,
    *GOOD_RULES,
    *GOOD_ADDED,
    *GOOD_PACED,
    *GOOD_APART,
    *GOOD_COUNTS,
    *GOOD_EARLY,
    *GOOD_EXACT,
    *GOOD_HOLDS,
    *GOOD_WRONG,
    *GOOD_BUDGET,
]
EVERY_BAD = (
    BAD
    | BAD_RULES
    | BAD_ADDED
    | BAD_PACED
    | BAD_APART
    | BAD_COUNTS
    | BAD_EARLY
    | BAD_EXACT
    | BAD_HOLDS
    | BAD_WRONG
    | BAD_BUDGET
)


def found(story: Story) -> set[str]:
    """Names of the invariants that did not hold."""
    return {violation.invariant for violation in check(story.evidence)}


@pytest.mark.parametrize(
    "story",
    EVERY_GOOD,
    ids=lambda story: story.__name__,
)
def test_nothing_is_found_in_a_run_that_went_well(story: Callable[[], Story]) -> None:
    assert check(story().evidence) == []


@pytest.mark.parametrize(
    ("story", "invariant"),
    EVERY_BAD.items(),
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_violation_is_found(story: Callable[[], Story], invariant: str) -> None:
    assert invariant in found(story())


def test_a_fault_is_found_also_where_revisions_are_missing() -> None:
    """A leader that dies takes events and history with it: what is left must still tell two outcomes apart."""
    story = two_outcomes()
    story.evidence.revisions = [r for r in story.evidence.revisions if r.seq % 2 == 0 or r.last]
    story.evidence.missing = 3
    assert "one outcome" in found(story)


def test_nothing_is_found_only_because_revisions_are_missing() -> None:
    for made in (*EVERY_GOOD, *GOOD_ANSWERS):
        story = made()
        for cut in range(len(story.evidence.revisions)):
            seen = story.evidence.revisions
            story.evidence.revisions = seen[:cut] + seen[cut + 1 :]
            story.evidence.missing = 1
            assert check(story.evidence) == [], f"without {seen[cut]}"
            story.evidence.revisions = seen


def test_a_life_whose_purge_and_first_generation_nobody_saw_is_another_life() -> None:
    """Replaced twice, purged, and submitted and replaced anew while the server was away from those who look."""
    story = ran_well()
    for number in (2, 3):
        story.submit(f"r{number}", generation=number, last=story.newest.last)
    seen = len(story.evidence.revisions)
    story.write(gone=True)
    story.submit("r4", last=None)
    story.submit("r5", generation=2, last=None)
    story.claim(at=4.0)
    story.end(4.1, generation=2, run_id="r5")
    story.finish(at=4.1)
    assert check(story.evidence) == []
    del story.evidence.revisions[seen : seen + 2]
    story.evidence.missing = 2
    assert check(story.evidence) == []


def test_a_lost_submit_is_found_though_revisions_of_other_keys_are_missing() -> None:
    story = ran_well()
    story.asked("submit", "accepted", "r9", 2)
    story.evidence.missing = 5
    assert "nothing lost" in found(story)


@pytest.mark.parametrize(("late", "found"), [(0.1, []), (-0.3, ["linearizable"])])
def test_a_new_life_begins_when_the_one_before_has_expired_and_no_sooner(late: float, found: list[str]) -> None:
    story = ran_well()
    over = story.newest
    story.evidence.revisions[-1] = replace(over, until=6.0)
    story.submit("r2", 1, last=None, stored=6.0 + late)
    story.asked("submit", "accepted", "r2", 1, asked=5.5, wall=6.05 + late)
    story.claim(at=6.5 + late)
    story.end(6.6 + late, run_id="r2")
    story.finish(at=6.6 + late)
    story.evidence.revisions = with_expiries(story.evidence.revisions, story.evidence.clocks)
    assert [one.invariant for one in check(story.evidence)] == found


def test_who_is_told_that_a_key_is_not_there_before_it_has_expired_was_told_wrong() -> None:
    story = ran_well()
    story.evidence.revisions[-1] = replace(story.newest, until=6.0)
    story.evidence.revisions = with_expiries(story.evidence.revisions, story.evidence.clocks)
    story.asked("status", "none", wall=7.0)
    assert check(story.evidence) == []
    story.asked("status", "none", wall=5.0)
    assert [one.invariant for one in check(story.evidence)] == ["linearizable"]


@pytest.mark.parametrize(("stored", "found"), [(6.5, []), (5.5, ["linearizable"])])
def test_a_key_may_be_told_absent_while_a_purge_of_it_is_under_way_if_it_expires_meanwhile(
    stored: float, found: list[str]
) -> None:
    story = ran_well()
    story.evidence.revisions[-1] = replace(story.newest, until=6.0)
    story.write(gone=True, run_id="", last=None, until=0.0, stored=stored)
    story.asked("purge", "purged", asked=5.0, wall=stored + 0.1)
    story.asked("status", "none", wall=min(6.2, stored - 0.2))
    story.evidence.revisions = with_expiries(story.evidence.revisions, story.evidence.clocks)
    assert [one.invariant for one in check(story.evidence)] == found


def test_a_key_may_be_told_absent_while_a_replace_is_under_way_if_it_expires_meanwhile() -> None:
    story = ran_well()
    story.evidence.revisions[-1] = replace(story.newest, until=6.0)
    story.submit("r2", 2, stored=6.5)
    story.asked("replace", "accepted", "r2", 2, asked=5.0, wall=6.6)
    story.asked("status", "none", wall=6.2)
    story.claim(at=7.0)
    story.end(7.1)
    story.finish(at=7.1)
    story.evidence.revisions = with_expiries(story.evidence.revisions, story.evidence.clocks)
    assert check(story.evidence) == []


@pytest.mark.parametrize(("told", "found"), [(5.95, []), (4.0, ["linearizable"])])
def test_a_key_may_be_told_absent_under_a_replace_no_sooner_than_it_has_expired(told: float, found: list[str]) -> None:
    story = ran_well()
    story.evidence.revisions[-1] = replace(story.newest, until=5.9)
    story.submit("r2", 2, stored=6.5)
    story.asked("replace", "accepted", "r2", 2, asked=3.0, wall=6.6)
    story.asked("status", "none", wall=told)
    story.claim(at=7.0)
    story.end(7.1)
    story.finish(at=7.1)
    story.evidence.revisions = with_expiries(story.evidence.revisions, story.evidence.clocks)
    assert {one.invariant for one in check(story.evidence)} == set(found)
