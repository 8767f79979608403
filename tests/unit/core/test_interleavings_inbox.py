"""Interleavings of commands that come through the inbox, where each may be delivered again at any later time.

The name is the claim; the docstring is the interleaving with its number, the one that ``core/transitions.py`` cites.
"""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.aftermath import ID_FORM
from tenure.core.errors import InvalidCall
from tenure.core.generations import leaves_trace
from tenure.core.marks import COPY_SECONDS, MAX_COPIES, Place, command_id, mark, place_of
from tenure.core.outcomes import Why
from tenure.core.records import Phase, Seen, encode, ttl_of
from tenure.core.subjects import encode_key
from tests.unit.core.histories import (
    COPY,
    MARK,
    NOW,
    ON_B,
    RUN,
    S1,
    SEEN,
    At,
    Step,
    claim,
    holder,
    paid,
    play,
    refused,
    submit,
    succeed,
    supersede,
)


@pytest.mark.parametrize("over", [(), (claim("s2", "r2"),), (claim("s2", "r2"), succeed(ON_B))])
def test_a_cancel_of_the_inbox_does_not_hit_a_later_run(over: tuple[Step, ...]) -> None:
    """[13] a cancel names no run and hits run 1; crash before its ack; run 2 is submitted; redelivery: run 2 cancelled."""
    cancel = c.Cancel(reason="enough", seen=MARK)
    at = play(submit(), cancel)
    assert at.found.phase is Phase.CANCELLED
    at = play(submit("r2"), *over, start=at)
    assert refused(at, cancel) is Why.ALREADY
    at = play(c.ForgetSeen(ids=frozenset({MARK.id})), start=at)
    assert MARK not in at.found.seen


@pytest.mark.parametrize("command", [submit("r1", seen=MARK), supersede("r1", seen=MARK)])
def test_a_run_of_the_inbox_is_not_started_again_after_two_later_ones(command: c.Submit | c.Replace) -> None:
    """[13] applied, crash before its ack; two later runs come and end, so nothing shows its run id; redelivery: run again."""
    at = play(command, claim(), succeed(S1))
    for run in ("r2", "r3"):
        at = play(submit(run), claim("s1", run), succeed(holder("s1", run)), start=at)
    assert not leaves_trace(at.found, "r1")
    assert refused(at, command) is Why.ALREADY


def test_a_record_that_a_command_of_the_inbox_has_marked_does_not_expire() -> None:
    """[13] applied, crash before its ack; the run ends and its record expires; redelivery: run again."""
    at = paid(play(submit(seen=MARK), claim(), succeed(S1)))
    assert ttl_of(at.found) is None
    assert refused(at, c.Purge()) is Why.OWED
    assert ttl_of(play(c.ForgetSeen(ids=frozenset({MARK.id})), start=at).found) is not None


def test_a_copy_of_a_command_is_known_for_as_long_as_the_server_tells_copies() -> None:
    """[13] applied and forgotten; three runs later it is published again to a server that was started anew: applied again."""
    first = mark(Place(7, int(NOW * 1_000_000)), "c1", msg_id=True)
    copy = mark(Place(8, int((NOW + 100) * 1_000_000)), "c1", msg_id=True)
    forget = c.ForgetSeen(ids=frozenset({first.id}))
    at = play(supersede("r1", seen=first), claim(), succeed(S1), forget)
    for run in ("r2", "r3", "r4"):
        at = play(supersede(run, result_ttl=1.0), start=at)
    assert refused(at, supersede("r1", seen=copy)) is Why.ALREADY
    assert not at.found.to_forget
    at = play(c.Cancel(), start=at)
    ttl = ttl_of(at.found)
    assert ttl is not None
    assert at.now + ttl == first.until, "nor does its record expire before"
    later = At(at.record, NOW + COPY_SECONDS + 1)
    assert play(c.ForgetSeen(ids=frozenset()), start=later).found.seen == ()


def test_a_command_that_can_have_no_copies_is_forgotten_for_good() -> None:
    at = play(supersede("r1", seen=MARK), c.ForgetSeen(ids=frozenset({MARK.id})))
    assert at.found.seen == ()


def test_the_copies_of_a_key_do_not_make_its_record_grow() -> None:
    """A thousand commands with message ids in two minutes; and they leave room for those that have a message yet."""
    at = play(submit())
    for number in range(1_000):
        seen = mark(Place(number, int(NOW * 1_000_000) + number), f"{number:026}", msg_id=True)
        at = play(supersede(f"n{number}", seen=seen), c.ForgetSeen(ids=frozenset({seen.id})), start=at)
    assert [entry.gone for entry in at.found.seen] == [True] * MAX_COPIES
    assert at.found.seen[-1].id.endswith("999"), "the newest are known"
    assert len(encode(at.found)) - len(encode(replace(at.found, seen=()))) < 5_000


def test_a_command_of_the_inbox_that_changes_nothing_leaves_nothing() -> None:
    """Told again later it is as good as one that came later; and a key that is submitted often is not written each time."""
    at = play(*RUN)
    assert refused(at, submit("r9", seen=MARK)) is Why.LIVE
    assert refused(play(succeed(S1), start=at), c.Cancel(seen=MARK)) is Why.FINISHED


def test_a_command_without_a_key_names_the_same_key_whenever_it_is_delivered() -> None:
    """[15] a keyless command is delivered twice; each delivery makes up a key: two keys, two runs."""
    subject, place = "tenure.ns.submit.a", Place(7, 1_000)
    one = command_id(subject, None, None, place)
    assert command_id(subject, None, None, Place(7, 1_000)) == one
    assert re.fullmatch(ID_FORM, one)
    others = {
        command_id(subject, None, None, Place(8, 1_000)),
        command_id(subject, None, None, Place(7, 1_001)),  # the stream was made again and counts from 1
        command_id("tenure.ns.submit.b", None, None, place),
        command_id(subject, "", None, place),
        command_id(subject, None, "x", place),
        command_id(subject, "x", None, place),
        command_id(subject, "x", "x", place),
    }
    assert len(others | {one}) == 8


def test_a_copy_with_the_same_message_id_is_the_same_command_wherever_it_lies() -> None:
    """[15] the server's window is over, or it has forgotten the id: the copy lies in another place."""
    subject = "tenure.ns.submit.a"
    assert command_id(subject, None, "x", Place(7, 1)) == command_id(subject, None, "x", Place(900, 5_000))
    at = play(submit("r1", seen=MARK), claim(), succeed(S1))
    for run in ("r2", "r3"):
        at = play(submit(run), claim("s1", run), succeed(holder("s1", run)), start=at)
    assert refused(at, submit("r1", seen=COPY)) is Why.ALREADY


def test_a_mark_tells_where_its_command_lies() -> None:
    assert place_of(MARK) == Place(7, 1_000_000_000)
    assert place_of(SEEN) is None
    assert place_of(Seen(id="inbox.what", origin="")) == Place(0, 0), "a newer Tenure's, or nobody's: to be forgotten"
    with pytest.raises(InvalidCall):
        encode_key(MARK.origin)  # so an older supervisor, which looks for this key, cannot take it for settled
