"""How an argument compares with what a switch says of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from tenure.core.comparisons import fits_of, in_words
from tenure.core.switches import Board, Rules, Switch, decode_board, encode_board

HUGE = 10**400
"""JSON has it, a float has not."""
VALUES: list[Any] = [None, True, 1, 1.0, 99, 100, 100.0, 101, HUGE, "100", "", "acme", "zeta", [100], {"n": 100}]


@pytest.mark.parametrize(
    ("compared", "fit"),
    [
        ((">=100",), [100, 100.0, 101, HUGE]),
        ((">100",), [101, HUGE]),
        (("<100",), [1, 1.0, 99]),
        (("<=100.0",), [1, 1.0, 99, 100, 100.0]),
        (("!=100",), [None, True, 1, 1.0, 99, 101, HUGE, "100", "", "acme", "zeta", [100], {"n": 100}]),
        (("!=null", "!=true"), [1, 1.0, 99, 100, 100.0, 101, HUGE, "100", "", "acme", "zeta", [100], {"n": 100}]),
        (("<=101", ">=100"), [100, 100.0, 101]),
        (('>="acme"',), ["acme", "zeta"]),
        (('<"acme"',), ["100", ""]),
        (("100", '"acme"'), [100, 100.0, "acme"]),
        (("100", "99", "<100"), [99]),
        ((">=true",), []),
        ((">=[100]",), []),
        ((">=100", '<="zeta"'), []),
        ((">=",), []),
        (("<>100",), []),
        (("!~7",), []),
        ((), []),
    ],
)
def test_values_fit_by_their_kind_and_order(compared: tuple[str, ...], fit: list[Any]) -> None:
    """Numbers with numbers, texts with texts; what has no order, and what a newer Tenure may compare by, fits nothing."""
    fits = fits_of(compared)
    assert [(type(value), value) for value in VALUES if fits(value)] == [(type(value), value) for value in fit]


def test_a_switch_holds_back_whom_its_comparisons_fit() -> None:
    switch = Switch(id="i", at=0.0, kind="arguments", name="send", args={"size": (">=100",), "to": ('"acme"',)})
    rules = Rules(Board(switches=(switch,)))

    def held(args: object) -> bool:
        return rules.run("k", "send", msgspec.json.encode(args), 0.0) is switch

    assert held({"size": 100, "to": "acme", "more": 1})
    assert not held({"size": 99, "to": "acme"})
    assert not held({"size": 100, "to": "other"})
    assert not held({"size": None, "to": "acme"})
    assert not held({"to": "acme"}), "without the argument there is nothing to compare"
    assert in_words("size", (">=100", "!=105")) == "size >= 100 and size != 105"
    assert in_words("size", ("1", "2", "<5")) == "size=1 and size < 5"


class OldSwitch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As the Tenure had it that knew of no comparison."""

    id: str
    kind: str
    at: float
    name: str = ""
    args: dict[str, tuple[str, ...]] = {}


class OldBoard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    schema: int = 1
    switches: tuple[OldSwitch, ...] = ()


def test_an_older_process_reads_a_board_with_comparisons_and_writes_it_back_as_it_was() -> None:
    """In a rolling upgrade an older command line may pause something else meanwhile: the block must not be lost."""
    board = Board(switches=(Switch(id="i", at=1.0, kind="arguments", name="send", args={"size": (">=100",)}),))
    old = msgspec.json.decode(encode_board(board), type=OldBoard)
    assert msgspec.json.encode(100).decode() not in old.switches[0].args["size"], "it takes it for a value nobody has"
    assert decode_board(msgspec.json.encode(old)) == board
