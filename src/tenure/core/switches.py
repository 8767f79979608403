"""Switches: what is paused and what is blocked. One document, the *board*, holds all of them; ``Rules`` reads it.

A switch keeps bodies from being started, nothing else: what runs goes on, what is submitted is accepted. Four kinds: a queue
or an actor (paused), keys by a pattern or an actor's runs by arguments (blocked). Rules:

1. One document, so that whoever knows a revision of it knows every switch: no worker can have one half of two changes, and
   a change that was missed is in the next. It is changed by compare-and-swap and never removed.
2. Each switch has an id that is never used again. What waits for it is parked under that id: so what lies under an id that
   the board does not hold is to be woken, whoever finds it and whenever; resuming needs no other note of it.
3. The same thing switched off again is the same switch (its id stays), with the new time and reason.
4. ``until`` is compared with the server's time by everybody; whoever's clock differs parks under an id that is about to go.

Pure.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.comparisons import fits_of
from tenure.core.given import UNREADABLE, text_fault

SCHEMA = 1
MAX_SWITCHES = 1_000
MAX_BOARD_BYTES = 512 * 1024
MAX_PATTERN_BYTES = 768
"""As many as the longest key has, each escaped."""

Kind = Literal["queue", "actor", "keys", "arguments"]
_Tests = dict[str, Callable[[Any], bool]]


class Switch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is switched off. ``name``: the queue or actor; ``pattern``: of keys.

    ``args``: by argument, the values that count as equal, or how it compares (``core.comparisons``). ``at``, ``until``: seconds since
    the epoch; 0: until it is switched on.
    """

    id: str
    kind: Kind
    at: float
    name: str = ""
    pattern: str = ""
    args: dict[str, tuple[str, ...]] = {}
    until: float = 0.0
    reason: str = ""

    def is_off(self, now: float) -> bool:
        """Whether it keeps anything back at this time."""
        return not self.until or now < self.until

    def is_same(self, other: Switch) -> bool:
        """Whether both are about the same thing."""
        mine = (self.kind, self.name, self.pattern, self._values)
        return mine == (other.kind, other.name, other.pattern, other._values)

    @property
    def _values(self) -> dict[str, frozenset[str]]:
        return {name: frozenset(values) for name, values in self.args.items()}


class Board(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All switches of a namespace."""

    schema: int = SCHEMA
    switches: tuple[Switch, ...] = ()

    def find(self, wanted: Switch) -> Switch | None:
        """The switch about the same thing."""
        return next((switch for switch in self.switches if switch.is_same(wanted)), None)


encode_board = msgspec.json.Encoder().encode
decode_board = msgspec.json.Decoder(Board).decode


# -- changes ---------------------------------------------------------------------------------------------------------


def switched_off(board: Board, wanted: Switch) -> Board:
    """With this switch; one about the same thing keeps its id and its time, unless that is over."""
    known = board.find(wanted)
    if known is None:
        return replace(board, switches=(*board.switches, wanted))
    if known.is_off(wanted.at):
        wanted = replace(wanted, id=known.id, at=known.at)
    return replace(board, switches=tuple(wanted if switch is known else switch for switch in board.switches))


def switched_on(board: Board, wanted: Switch) -> Board:
    """Without the switch about this thing."""
    return replace(board, switches=tuple(switch for switch in board.switches if not switch.is_same(wanted)))


def expired(board: Board, now: float) -> Board:
    """Without those whose time is over."""
    return replace(board, switches=tuple(switch for switch in board.switches if switch.is_off(now)))


def board_fault(board: Board) -> str:
    """Why this must not be stored; empty if it may."""
    if len(board.switches) > MAX_SWITCHES or len(encode_board(board)) > MAX_BOARD_BYTES:
        return f"{len(board.switches)} queues, actors and patterns are paused or blocked: take some away first"
    return ""


# -- what they mean --------------------------------------------------------------------------------------------------


class Rules:
    """A board, made quick to ask. With nothing on it, ``idle``, nothing else need be asked."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.idle = not board.switches
        self._queues = {switch.name: switch for switch in board.switches if switch.kind == "queue"}
        self._actors = {switch.name: switch for switch in board.switches if switch.kind == "actor"}
        self._keys: list[tuple[Callable[[str], object], Switch]] = [
            (re.compile(fnmatch.translate(switch.pattern)).match, switch)
            for switch in board.switches
            if switch.kind == "keys"
        ]
        self._arguments: dict[str, list[tuple[Switch, _Tests]]] = {}
        for switch in board.switches:
            if switch.kind == "arguments":
                tests = {name: fits_of(values) for name, values in switch.args.items()}
                self._arguments.setdefault(switch.name, []).append((switch, tests))

    def queue(self, queue: str, now: float) -> Switch | None:
        """Why nothing of this queue is to be started."""
        switch = self._queues.get(queue)
        return switch if switch is not None and switch.is_off(now) else None

    def needs_arguments(self, actor: str) -> bool:
        """Whether it depends on the arguments of this actor's runs."""
        return actor in self._arguments

    def run(self, key: str, actor: str, args: bytes, now: float) -> Switch | None:
        """Why a run is not to be started, whatever its queue. ``args``: what nobody can read meets no switch."""
        switch = self._actors.get(actor)
        if switch is not None and switch.is_off(now):
            return switch
        for matches, switch in self._keys:
            if matches(key) and switch.is_off(now):
                return switch
        wanted = self._arguments.get(actor)
        return None if wanted is None else _with_arguments(wanted, args, now)

    def holds(self, switch_id: str, now: float) -> bool:
        """Whether the switch of this id keeps anything back."""
        return any(switch.id == switch_id and switch.is_off(now) for switch in self.board.switches)

    def next_end(self, now: float) -> float | None:
        """When the next switch is over by itself."""
        return min((switch.until for switch in self.board.switches if switch.until > now), default=None)


def _with_arguments(switches: list[tuple[Switch, _Tests]], args: bytes, now: float) -> Switch | None:
    try:
        given = msgspec.json.decode(args)
    except UNREADABLE:
        return None
    if not isinstance(given, dict):
        return None
    for switch, tests in switches:
        if switch.is_off(now) and all(name in given and fits(given[name]) for name, fits in tests.items()):
            return switch
    return None


# -- what may be given -----------------------------------------------------------------------------------------------

_SYSTEM = re.compile(r"\$|_INBOX\.|tenure\.|(?:KV_|OBJ_)?TENURE_|limit\.|rate\.|switch\.")
"""How the names begin that Tenure and the server keep for themselves."""
_WILD = re.compile(r"[*?\[]")


def pattern_fault(pattern: object) -> str:
    """What is wrong with a pattern of keys; empty if nothing is.

    Keys are encoded, so no pattern can reach an entry of the system. One that names such an entry is a mistake all the
    same, and so is one that fits whatever there is.
    """
    fault = text_fault(pattern, MAX_PATTERN_BYTES)
    if fault or not isinstance(pattern, str):
        return fault
    if not pattern:
        return "is empty: give one such as 'doc-*'"
    if not pattern.strip("*?"):
        return f"{pattern!r} fits every key, and the names that Tenure keeps for itself: say more, such as 'doc-*'"
    head = pattern[: wild.start()] if (wild := _WILD.search(pattern)) else pattern
    if _SYSTEM.match(head):
        return f"{pattern!r} would match names that Tenure and NATS keep for themselves: patterns are of keys, such as 'doc-*'"
    return ""


# -- where runs wait -------------------------------------------------------------------------------------------------

_PARKED = "="
"""Begins the place in the parking of what waits for a switch. No limit is named so: an actor's name does not begin with it."""


def place_of(switch_id: str) -> str:
    """Under which name the runs are parked that wait for this switch."""
    return _PARKED + switch_id


def switch_at(place: str) -> str:
    """The id of the switch whose runs are parked under this name; empty: it is a limit's."""
    return place[1:] if place.startswith(_PARKED) else ""
