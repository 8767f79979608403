"""Switches without a server: what each holds back, how the board changes, what may be given as a pattern."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.core.comparisons import said
from tenure.core.permits import Bound, name_of
from tenure.core.subjects import Names, encode_key
from tenure.core.switches import (
    MAX_SWITCHES,
    Board,
    Kind,
    Rules,
    Switch,
    board_fault,
    decode_board,
    encode_board,
    expired,
    pattern_fault,
    place_of,
    switch_at,
    switched_off,
    switched_on,
)

NOW = 1_000.0


def off(kind: Kind, name: str = "", *, id: str = "i1", at: float = NOW, **more: Any) -> Switch:  # noqa: A002  (the field's name)
    if kind == "keys":
        return Switch(id=id, kind=kind, pattern=name, at=at, **more)
    return Switch(id=id, kind=kind, name=name, at=at, **more)


def rules(*switches: Switch) -> Rules:
    return Rules(Board(switches=switches))


def test_each_kind_holds_back_what_it_names_and_nothing_else() -> None:
    queue, actor, keys = off("queue", "mail"), off("actor", "extract"), off("keys", "doc-*")
    args = off("arguments", "send", args={"customer": ('"acme"',), "n": ("1",)})
    all_ = rules(queue, actor, keys, args)
    assert all_.queue("mail", NOW) is queue
    assert all_.queue("default", NOW) is None
    assert all_.run("k", "extract", b"{}", NOW) is actor
    assert all_.run("doc-1", "other", b"{}", NOW) is keys
    assert all_.run("Doc-1", "other", b"{}", NOW) is None, "as keys are: case counts"
    assert all_.run("k", "send", b'{"customer":"acme","n":1.0}', NOW) is args
    assert all_.run("k", "send", b'{"customer":"acme","n":2}', NOW) is None, "all arguments must fit"
    assert all_.run("k", "send", b'{"customer":"acme"}', NOW) is None
    assert all_.run("k", "other", b'{"customer":"acme","n":1}', NOW) is None
    assert all_.run("k", "mail", b"{}", NOW) is None, "an actor of a queue's name"
    assert all_.needs_arguments("send")
    assert not all_.needs_arguments("extract")
    assert not all_.idle
    assert rules().idle


@pytest.mark.parametrize("args", [b"", b"[1]", b"null", b"{", b"\xff"])
def test_arguments_that_cannot_be_read_meet_no_block(args: bytes) -> None:
    assert rules(off("arguments", "send", args={"n": ("1",)})).run("k", "send", args, NOW) is None


def test_a_time_that_is_over_holds_nothing_back() -> None:
    for switch in (off("queue", "x"), off("actor", "x"), off("keys", "x"), off("arguments", "x", args={"n": ("1",)})):
        told = rules(replace(switch, until=NOW + 5))
        for at, held in ((NOW, True), (NOW + 4.9, True), (NOW + 5, False)):
            found = told.queue("x", at) if switch.kind == "queue" else told.run("x", "x", b'{"n":1}', at)
            assert (found is not None) is held
            assert told.holds("i1", at) is held
        assert told.next_end(NOW) == NOW + 5
        assert told.next_end(NOW + 5) is None
        assert expired(told.board, NOW + 4) == told.board
        assert expired(told.board, NOW + 5) == Board()


def test_what_is_switched_off_again_is_the_same_switch_with_the_new_time_and_reason() -> None:
    first = off("actor", "extract", id="i1")
    board = switched_off(Board(), first)
    again = off("actor", "extract", id="i2", at=NOW + 9, until=NOW + 60, reason="why")
    board = switched_off(board, again)
    assert board.switches == (replace(again, id="i1", at=NOW),)
    assert switched_off(board, again) == board, "and asked once more, after an answer that was lost, it is that still"
    assert switched_on(board, off("queue", "extract")) == board, "a queue of the same name is another thing"
    assert switched_on(board, off("actor", "extract", id="")) == Board()


def test_what_is_over_is_another_switch_when_it_is_switched_off_again() -> None:
    """What was parked for the one that is over is to be woken: its id must be gone."""
    board = switched_off(Board(), off("actor", "extract", id="i1", until=NOW + 1))
    board = switched_off(board, off("actor", "extract", id="i2", at=NOW + 2))
    assert [switch.id for switch in board.switches] == ["i2"]


def test_a_board_is_read_back_as_what_it_was_and_cannot_grow_for_ever() -> None:
    board = Board(switches=(off("arguments", "a", args={"n": ("1", '"1"')}), off("keys", "ü*", until=5.0, reason="r")))
    assert decode_board(encode_board(board)) == board
    full = Board(switches=tuple(off("keys", f"k{i}-*", id=str(i)) for i in range(MAX_SWITCHES)))
    assert not board_fault(full)
    assert "take some away" in board_fault(switched_off(full, off("keys", "one-more-*", id="x")))
    wide = Board(switches=tuple(off("keys", f"k{i}-*", id=str(i), reason="r" * 4_000) for i in range(200)))
    assert "take some away" in board_fault(wide)


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=3), st.lists))
def test_a_value_blocks_what_a_limit_takes_for_the_same(value: Any) -> None:
    """Blocks and limits agree on which values are equal."""
    for other in (value, json.loads(json.dumps(value))):
        assert said(value) == said(other)
        name = name_of("a", Bound(n=1, per="v"), json.dumps({"v": value}).encode())
        assert name == name_of("a", Bound(n=1, per="v"), json.dumps({"v": other}).encode())


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "*",
        "**",
        "?*",
        "$KV.*",
        "$JS.>",
        "tenure.*",
        "TENURE_docs*",
        "KV_TENURE_*",
        "limit.*",
        "rate.*",
        "switch.*",
        "_INBOX.*",
    ],
)
def test_a_pattern_that_would_match_system_names_is_refused(pattern: str) -> None:
    assert pattern_fault(pattern)


@pytest.mark.parametrize("pattern", [7, None, b"doc-*", "\ud800*", "x" * 769])
def test_what_is_no_pattern_is_refused(pattern: object) -> None:
    assert pattern_fault(pattern)


@pytest.mark.parametrize("pattern", ["doc-*", "*-report", "a?c", "[ab]*", "one", "doc.*", "tenure-*", "*.pdf", "ü*"])
def test_patterns_of_keys_are_taken(pattern: str) -> None:
    assert not pattern_fault(pattern)


@given(st.text(min_size=1, max_size=20))
def test_no_key_is_stored_where_the_board_is(key: str) -> None:
    names = Names("docs")
    try:
        token = encode_key(key)
    except Exception:  # noqa: BLE001  (no key at all)
        return
    assert names.record(key) != names.board
    assert "." not in token


def test_the_places_of_switches_are_told_from_those_of_limits() -> None:
    assert switch_at(place_of("01ABC")) == "01ABC"
    for name in (name_of("a", Bound(n=1), b"{}"), name_of("-a", Bound(n=1, per="x"), b'{"x":1}')):
        assert not switch_at(name)


def test_a_block_is_found_in_whatever_order_its_values_were_written() -> None:
    """An older Tenure keeps them as they were given."""
    older = Switch(id="s", kind="arguments", at=1.0, name="a", args={"size": ("5", '"5"')})
    newer = Switch(id="", kind="arguments", at=2.0, name="a", args={"size": ('"5"', "5")})
    assert Board(switches=(older,)).find(newer) == older
    assert (
        Board(switches=(older,)).find(Switch(id="", kind="arguments", at=2.0, name="a", args={"size": ("5",)})) is None
    )
