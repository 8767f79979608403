"""What a key's entry in the bucket may be, as small numbers, and what the shipped core decides on it, remembered.

A cell stands for both a record and its revision: a compare-and-swap succeeds exactly if the cell is still the one that was
read. The same record stored twice is one cell; what is decided on it is the same, so nothing is lost by that. Times that no
decision looks at (when something was queued, ended or cancelled) and texts of failures are left out: they only multiply states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core import transitions
from tenure.core.dead import DeadLetter, replayed
from tenure.core.errors import IllegalTransition
from tenure.core.marks import place_of
from tenure.core.outcomes import Apply, Did, Effect, Refused, Signal, Wake, Why, effects_of
from tenure.core.records import NULL, Count, Entry, Failure, Holder, Phase, Record, Seen, decode, encode

NOTHING = 0
"""The cell of a key that never was: a create expects it."""
NOW, TICK = 1_000_000.0, 10.0
_COPIES_FROM = 100
BOOM = Failure(type="Boom", message="")


class Broken(Exception):
    """An invariant does not hold: ``number`` of DESIGN.md section 6, or 0 for a defect that has none."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"invariant {number}: {text}")
        self.number = number
        self.text = text


class Made(NamedTuple):
    """A decision of the core: ``cell`` is to be stored.

    ``entry``, ``mark``: the outbox entry, or the command of the inbox, the replay, the submit taken in, that it applies.
    """

    cell: int
    did: Did
    kind: str
    by: Holder | None
    effects: tuple[Any, ...]
    counts: tuple[Count, ...]
    entry: str
    follows: bool
    spawns: int
    mark: str = ""


class Cells:
    """Every cell, command and decision of one exploration."""

    def __init__(self) -> None:
        self.records: list[Record | None] = [None]
        self.effects: list[tuple[Any, ...]] = [()]
        self.made: list[Made] = []
        self.commands: list[c.Command] = []
        self.letters: list[DeadLetter] = []
        self._cell_of: dict[bytes | int, int] = {}
        self._made_of: dict[Made, int] = {}
        self._command_of: dict[tuple[str, bytes], int] = {}
        self._decided: dict[tuple[int, int, int], int | tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self.records)

    def of(self, record: Record) -> int:
        """The cell of a record."""
        plain = _plain(record)
        data = encode(plain)
        cell = self._cell_of.get(data)
        if cell is None:
            if decode(data) != plain:
                raise Broken(0, "a record is not read back as what was stored")
            cell = self._cell_of[data] = self._add(plain)
        return cell

    def marker(self, life: int) -> int:
        """The cell of the delete marker that ended a key's life number ``life``."""
        cell = self._cell_of.get(life)
        if cell is None:
            cell = self._cell_of[life] = self._add(None)
        return cell

    def _add(self, record: Record | None) -> int:
        self.records.append(record)
        self.effects.append(plain_effects(effects_of(record)) if record is not None else ())
        return len(self.records) - 1

    def command(self, command: c.Command) -> int:
        """The number of a command."""
        key = (type(command).__name__, msgspec.json.encode(command, order="deterministic"))
        number = self._command_of.get(key)
        if number is None:
            number = self._command_of[key] = len(self.commands)
            self.commands.append(command)
        return number

    def letter(self, letter: DeadLetter) -> int:
        """The number of a dead letter."""
        if letter not in self.letters:
            self.letters.append(letter)
        return self.letters.index(letter)

    def decide(self, cell: int, command: int, tick: int, life: int) -> int | tuple[str, str]:
        """What the core says: the number of what it made, or ("refused", why)."""
        key = (cell, command, tick)
        result = self._decided.get(key)
        if result is None:
            result = self._decided[key] = self._ask(cell, command, tick, life)
        return result

    def _ask(self, cell: int, number: int, tick: int, life: int) -> int | tuple[str, str]:
        command = self.commands[number]
        before = self.records[cell]
        try:
            result = transitions.transition(before, command, NOW + TICK * tick)
        except IllegalTransition as error:
            raise Broken(0, str(error)) from error
        if isinstance(result, Refused):
            stopping = before is not None and before.phase is Phase.STOPPING
            if stopping and isinstance(command, c.Submit) and result.why is Why.LIVE:
                raise Broken(7, "a submit is swallowed by a run that can only end cancelled [28]")
            return "refused", result.why.value
        seen = command.seen if isinstance(command, c.Submit | c.Replace | c.Cancel) else None
        once = named(seen) if seen is not None else ""
        if isinstance(command, c.Submit) and result.did is Did.SETTLED:
            once = taken_in(command.run_id)
        made = Made(
            cell=self.marker(life + 1) if result.record is None else self.of(result.record),
            did=result.did,
            kind=type(command).__name__,
            by=getattr(command, "holder", None),
            effects=plain_effects(result.effects),
            counts=result.counts,
            entry=seen.id if seen is not None and not once else "",
            follows=getattr(command, "successor", None) is not None,
            spawns=len(command.outbox) if isinstance(command, c.Succeed) else 0,
            mark=once,
        )
        if made.cell == cell:
            raise Broken(0, f"{made.kind} stores what is there already")
        index = self._made_of.get(made)
        if index is None:
            index = self._made_of[made] = len(self.made)
            self.made.append(made)
        return index


def named(mark: Seen) -> str:
    """The command or the replay that has left this mark; a command by what a stranger has sent, not by the id that it was given."""
    place = place_of(mark)
    if place is None:
        return mark.id if replayed(mark) is not None else ""
    return f"c{number_of(place.sequence)}"


def taken_in(run_id: str) -> str:
    """A submit that a run which waits has taken in."""
    return f"submit {run_id}"


def lies_at(number: int, *, copy: bool = False) -> int:
    """Where message number ``number`` lies in the stream, or its copy. Commands have no order, so that is all there is to it."""
    return number + 1 + (_COPIES_FROM if copy else 0)


def number_of(place: int) -> int:
    """The message that lies there."""
    return place % _COPIES_FROM - 1


def parked(what: str) -> str:
    """In whose hands a message is that no consumer reads: it waits for a switch to be gone, or for room under a rate."""
    return f"@{what}"


def is_parked(hand: str) -> bool:
    """Whether a message waits so."""
    return hand.startswith("@")


def plain_effects(effects: tuple[Effect, ...]) -> tuple[Any, ...]:
    """Effects as tuples that can be hashed."""
    out: list[tuple[Any, ...]] = []
    for effect in effects:
        match effect:
            case Wake():
                out.append(("wake",))
            case Signal(holder, reason):
                out.append(("signal", holder, reason))
            case Apply(entry):
                out.append(("apply", entry.id))
    return tuple(out)


def _plain(record: Record) -> Record:
    last, stop, pace = record.last, record.stop, record.task.policy.pace
    cools = pace is not None and pace.cooldown
    return replace(
        record,
        queued_at=record.queued_at if record.settling is not None else 0.0,
        failure=None,
        last=replace(last, at=last.at if cools else 0.0, failure=None, result=NULL) if last is not None else None,
        stop=replace(stop, at=0.0) if stop is not None else None,
        outbox=tuple(map(_plain_entry, record.outbox)),
    )


def _plain_entry(entry: Entry) -> Entry:
    if not entry.dead:
        return entry
    return replace(entry, dead=tuple(replace(d, at=0.0, queued_at=0.0, failure=BOOM) for d in entry.dead))
