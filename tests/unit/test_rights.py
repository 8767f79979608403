"""Which subjects a permission reaches: the rules of NATS, as ``doctor`` reads them."""

import pytest

from tenure.core.subjects import Names
from tenure.nats.rights import Rights, covers, meet
from tenure.nats.roles import ROLES, needs


@pytest.mark.parametrize(
    ("allowed", "subject", "yes"),
    [
        ("a.b", "a.b", True),
        (">", "a.b.>", True),
        ("a.>", "a.b.*", True),
        ("a.*", "a.*", True),
        ("a.*", "a.>", False),
        ("a.b", "a.*", False),
        ("a.>", "a", False),
        ("a.*.c", "a.b", False),
        ("a.b", "a.b.c", False),
    ],
)
def test_a_permission_covers_what_it_is_at_least_as_wide_as(allowed: str, subject: str, yes: bool) -> None:
    assert covers(allowed, subject) is yes


@pytest.mark.parametrize(
    ("one", "other", "yes"),
    [("a.*", "*.b", True), ("a.>", "a.b.c", True), ("a", "a.>", False), ("a.b", "a.c", False), ("a.*", "a.b.c", False)],
)
def test_two_patterns_meet_if_one_subject_fits_both(one: str, other: str, yes: bool) -> None:
    assert meet(one, other) is yes
    assert meet(other, one) is yes


def test_who_has_no_permissions_written_down_may_do_everything() -> None:
    assert all(Rights().may(need.verb, need.subject) for need in needs(Names("docs"), "_INBOX.x"))
    assert {need.role for need in needs(Names("docs"), "_INBOX.x")} == set(ROLES)
