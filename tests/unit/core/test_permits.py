"""What is decided on a limit's entry; in brackets the interleavings that broke an earlier text of the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.permits import (
    Answer,
    Asked,
    Bound,
    Decided,
    Entry,
    Give,
    Look,
    Permit,
    Take,
    decide,
    decode_entry,
    encode_entry,
    name_of,
    room_to_hand_over,
)
from tests.unit.core.histories import NOW

GRANTED, PARK, PARKED, BUSY, NEXT = Answer.GRANTED, Answer.PARK, Answer.PARKED, Answer.BUSY, Answer.NEXT


def take(run: str, session: str = "s1", *, attempt: int = 1, n: int = 1, deployed: float = 0.0) -> Take:
    return Take(key=f"k-{run}", run_id=run, attempt=attempt, session=session, n=n, deployed=deployed)


def held(run: str, session: str = "s1", attempt: int = 1) -> Permit:
    return Permit(key=f"k-{run}", run_id=run, attempt=attempt, session=session, at=NOW)


def reserved(run: str) -> Permit:
    return Permit(key=f"k-{run}", run_id=run, at=NOW)


def give(permit: Permit) -> Give:
    return Give(run_id=permit.run_id, attempt=permit.attempt, session=permit.session)


def entry(
    *permits: Permit, n: int = 1, parked: bool = False, deployed: float = 0.0, line: tuple[Permit, ...] = ()
) -> Entry:
    return Entry(n=n, permits=permits, parked=parked, deployed=deployed, line=line)


def ask(found: Entry | None, *asked: Asked, parked: str = "", published: str = "", may_wait: bool = False) -> Decided:
    """``parked``: all that are parked, oldest first. Who calls sees to what ``decide`` is told of them [35]."""
    inside = {permit.run_id for permit in found.names} if found is not None else set()
    eligible = [(f"k-{run}", run) for run in parked.split() if run not in inside]
    room = room_to_hand_over(found, asked, may_wait=may_wait)
    return decide(found, asked, eligible[:room], published.split(), NOW, may_wait=may_wait)


def wait(found: Entry | None, *asked: Asked, parked: str = "", published: str = "") -> Decided:
    """The process gives places back soon."""
    return ask(found, *asked, parked=parked, published=published, may_wait=True)


def test_there_is_room_until_n_have_a_place() -> None:
    first = ask(None, take("a", n=2))
    assert first == Decided(entry(held("a"), n=2), True, (GRANTED,))
    second = ask(first.entry, take("b", n=2))
    assert second.answers == (GRANTED,)
    assert ask(second.entry, take("c", n=2)) == Decided(second.entry, False, (PARK,))


def test_33_a_second_delivery_of_a_run_shares_no_place_and_adds_none() -> None:
    """N = 2: two deliveries of A. Were both let in by one permit, the loser would give it back while the other's body runs."""
    found = entry(held("a", "s1"), n=2)
    assert ask(found, take("a", "s2", n=2)) == Decided(found, False, (BUSY,))
    assert ask(entry(held("a", "s1", attempt=2), n=2), take("a", "s2", n=2)).answers == (BUSY,), "an older look at it"
    assert ask(found, take("a", "s1", n=2)) == Decided(found, False, (GRANTED,)), "my own, whose answer was lost"
    twice = ask(None, take("a", n=2), take("a", n=2))
    assert twice.answers == (GRANTED, BUSY)
    assert twice.entry == entry(held("a"), n=2)


def test_34_who_has_parked_and_finds_room_is_told_to_remove_its_message() -> None:
    """N = 1: B published, then its CAS was refused, for A had left."""
    assert ask(None, take("b"), published="b") == Decided(entry(held("b")), True, (Answer.FROM_PARKED,))
    assert ask(entry(reserved("b")), take("b")) == Decided(entry(held("b")), True, (Answer.FROM_PARKED,))
    at_hand = ask(entry(held("a"), parked=True), give(held("a")), take("b"), parked="b c")
    assert at_hand == Decided(entry(held("b"), parked=True), True, (Answer.DONE, Answer.FROM_PARKED))


def test_35_what_is_in_the_entry_is_not_reserved_again() -> None:
    """N = 2: A and B leave one after the other; the message of C, which A's place was given to, is still there."""
    first = ask(entry(held("a"), held("b"), n=2, parked=True), give(held("a")), parked="c d")
    assert first.entry == entry(held("b"), reserved("c"), n=2, parked=True)
    second = ask(first.entry, give(held("b")), parked="c d")
    assert second.entry == entry(reserved("c"), reserved("d"), n=2, parked=True)


def test_36_what_was_parked_since_the_entry_was_read_moves_its_revision() -> None:
    """A decides on an entry without the flag and leaves. Who parks in between must write, so A's CAS is refused."""
    before = entry(held("a"))
    leaves = ask(before, give(held("a")))
    assert leaves == Decided(None, True, (Answer.DONE,))
    assert room_to_hand_over(before, [give(held("a"))]) == 0
    parks = ask(before, take("b"), published="b")
    assert parks.write
    assert ask(parks.entry, give(held("a")), parked="b").entry == entry(reserved("b"), parked=True)


def test_37_who_parks_writes_also_where_the_flag_is_set() -> None:
    """Else the one who leaves has searched before, finds nobody, and clears the flag by a CAS that nothing refuses."""
    found = entry(held("a"), parked=True)
    assert ask(found, take("b"), published="b") == Decided(found, True, (PARKED,))


def test_who_is_parked_comes_before_who_asks_now() -> None:
    found = entry(held("a"), parked=True)
    after = ask(found, give(held("a")), take("c"), parked="b")
    assert (after.entry, after.answers, after.reserved) == (
        entry(reserved("b"), parked=True),
        (Answer.DONE, PARK),
        ("b",),
    )


def test_the_flag_is_cleared_by_whoever_finds_nobody_and_what_is_left_goes_to_who_asks() -> None:
    found = entry(held("a"), held("b"), n=2, parked=True)
    after = ask(found, give(held("a")), give(held("b")), take("d", n=2), parked="c")
    assert after.entry == entry(reserved("c"), held("d"), n=2)
    assert ask(found, give(held("a")), give(held("b"))) == Decided(None, True, (Answer.DONE, Answer.DONE))


def test_an_attempt_that_is_over_leaves_its_place_to_the_next_one() -> None:
    """A takeover, or a retry whose forerunner has not given back yet: one CAS, and never two places for one run."""
    found = entry(held("a", "dead"), parked=True)
    after = ask(found, take("a", "s2", attempt=2), parked="b")
    assert after == Decided(entry(held("a", "s2", 2), parked=True), True, (GRANTED,))
    assert ask(after.entry, give(held("a", "dead")), parked="b") == Decided(after.entry, False, (Answer.DONE,))


@pytest.mark.parametrize(
    "nothing", [give(held("b")), give(reserved("a")), give(held("a", "s2")), give(held("a", attempt=2))]
)
def test_a_zombie_gives_back_nothing_that_is_anothers(nothing: Give) -> None:
    found = entry(held("a"))
    assert ask(found, nothing) == Decided(found, False, (Answer.DONE,))
    assert ask(None, nothing) == Decided(None, False, (Answer.DONE,))


def test_a_place_is_handed_over_as_often_as_there_is_room() -> None:
    found = entry(held("a"), n=3, parked=True)
    after = ask(found, Look(), parked="b c d")
    assert (after.entry, after.reserved) == (
        entry(held("a"), reserved("b"), reserved("c"), n=3, parked=True),
        ("b", "c"),
    )


def test_n_is_what_the_process_says_that_was_started_last() -> None:
    found = entry(held("a"), n=1, parked=True, deployed=5.0)
    newer = ask(found, take("x", n=3, deployed=6.0), parked="b c d")
    assert newer.entry == entry(held("a"), reserved("b"), reserved("c"), n=3, parked=True, deployed=6.0)
    assert ask(found, Look(n=3, deployed=6.0), parked="b c").entry == newer.entry, "which asks for none of them itself"
    assert not ask(found, Look(n=3, deployed=4.0)).write
    assert ask(newer.entry, take("y", n=9, deployed=5.5)).answers == (PARK,), "an older process changes nothing"
    assert ask(newer.entry, take("y", n=9, deployed=6.0)).answers == (PARK,), "of two of one time the smaller counts"
    same = ask(newer.entry, Look(n=2, deployed=6.0))
    assert same.entry is not None
    assert same.entry.n == 2
    full = entry(held("a"), held("b"), held("c"), n=3, parked=True, deployed=6.0)
    lowered = ask(full, take("x", n=1, deployed=7.0), give(held("a")), parked="d", published="x")
    assert lowered.entry == entry(held("b"), held("c"), n=1, parked=True, deployed=7.0), "who is inside stays"
    assert lowered.reserved == ()


def test_runs_of_a_session_stand_in_line_for_its_places() -> None:
    first = wait(None, take("a"), take("b"), take("c"))
    assert first == Decided(entry(held("a"), line=(held("b"), held("c"))), True, (GRANTED, NEXT, NEXT))
    assert wait(first.entry, take("b")) == Decided(first.entry, False, (NEXT,)), "its answer was lost"
    assert wait(first.entry, take("b", "s2")).answers == (BUSY,), "another delivery of it [33]"
    assert wait(first.entry, take("d", "s2")).answers == (PARK,), "none of this session's runs gives a place back"
    assert wait(entry(held("a"), parked=True), take("b"), parked="x").answers == (PARK,), "who is parked comes first"
    assert wait(entry(held("a")), take("x", "s2"), take("b"), published="x").answers == (PARKED, PARK)
    assert wait(entry(held("a")), take("b"), published="b").answers == (PARKED,), "what it has parked would be left"
    assert wait(entry(held("a"), held("x"), n=1), take("b")).answers == (PARK,), "n was lowered: a place goes"


def test_a_place_that_was_passed_on_is_named_after_whom_it_was_passed_to() -> None:
    """A has gone, B too, C runs: three names, one place, one write."""
    found = entry(held("a"), line=(held("b"), held("c"), held("d")))
    after = wait(found, give(held("a")), give(held("b")), take("e"))
    assert after.entry == entry(held("c"), line=(held("d"), held("e")))
    last = wait(after.entry, give(held("c")), give(held("d")))
    assert last.entry == entry(held("e"))


@pytest.mark.parametrize("asked", [give(held("a")), take("a", "s2", attempt=2, n=2), take("a", attempt=2, n=2)])
def test_45_what_is_taken_from_a_session_is_left_to_its_next_in_line(asked: Asked) -> None:
    """A is over, its place was passed on to B. A sweep gives A's place back, or A's next attempt would take it over."""
    found = entry(held("a"), held("x", "s3"), n=2, line=(held("b"),))
    after = ask(found, asked)
    assert after.entry == entry(held("b"), held("x", "s3"), n=2)
    assert after.answers[0] in {Answer.DONE, PARK}


def test_who_is_in_line_gets_what_room_there_is_before_who_parked_later() -> None:
    found = entry(held("a"), held("x", "s3"), n=2, line=(held("b"), held("c")), parked=True)
    after = ask(found, give(held("x", "s3")), take("d", n=2), parked="p")
    assert after.entry == entry(held("a"), held("b"), n=2, line=(held("c"),), parked=True)
    assert ask(found, give(held("x", "s3")), parked="p").reserved == ("p",), "whose process does not write now: soon"


def test_who_has_waited_in_line_for_too_long_parks() -> None:
    found = entry(held("a"), line=(held("b"), held("c")))
    assert ask(found, take("b"), take("c")).answers == (PARK, PARK)
    after = ask(found, take("b"), take("c"), published="b c")
    assert after == Decided(entry(held("a"), parked=True), True, (PARKED, PARKED))
    gone = ask(found, give(held("a")), take("b"), take("c"), published="b c")
    assert (gone.entry, gone.answers) == (entry(held("b"), parked=True), (Answer.DONE, Answer.FROM_PARKED, PARKED))


def test_an_attempt_in_line_that_is_over_gives_way_to_the_next_one() -> None:
    found = entry(held("a"), line=(held("b"),))
    assert wait(found, take("b", "s2", attempt=2)).answers == (PARK,)
    parks = wait(found, take("b", "s2", attempt=2), published="b")
    assert parks.entry == entry(held("a"), parked=True)


def test_an_entry_is_read_back_as_it_was() -> None:
    whole = entry(held("a"), reserved("ü"), n=3, parked=True, deployed=1.5, line=(held("b"),))
    assert decode_entry(encode_entry(whole)) == whole
    assert decode_entry(b'{"n":1,"of a newer Tenure":2}') == Entry(n=1)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"1", b"1.0", True),
        (b'{"a":1,"b":2}', b'{"b":2, "a":1}', True),
        (b"1", b'"1"', False),
        (b"null", b'"null"', False),
        (b'"a"', b'"A"', False),
        (b"[1]", b"[1,1]", False),
        (b"true", b"1", False),
        (b"1.5", b"1", False),
    ],
)
def test_equal_values_have_one_name(one: bytes, other: bytes, same: bool) -> None:
    names = [name_of("actor", Bound(n=1, per="x"), b'{"y":0,"x":' + value + b"}") for value in (one, other)]
    assert (names[0] == names[1]) is same


@pytest.mark.parametrize("value", ["", "a.b", "*", ">", "ü\n", "x" * 10_000, {"a": [None]}])
def test_a_name_is_one_token_whatever_the_value(value: Any) -> None:
    import msgspec

    name = name_of("my-actor", Bound(n=1, per="größe"), msgspec.json.encode({"größe": value}))
    assert name.isascii()
    assert not set(name) & set(".*> \n")
    assert len(name) < 110
    assert name_of("my-actor", Bound(n=1), b"{}") == "my-actor"
