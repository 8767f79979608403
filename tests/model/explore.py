"""Every state of a scenario, breadth first: the first violation that is found has the shortest trace."""

from __future__ import annotations

import re
import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from tests.model.bounds import Scenario
from tests.model.cells import NOTHING, Broken
from tests.model.doors import Move
from tests.model.moves import Moves
from tests.model.rest import Rest, shown
from tests.model.world import State, World

_encode = msgspec.msgpack.Encoder().encode


@dataclass
class Report:
    """What an exploration found. ``complete``: every state within the scenario's bounds was seen."""

    name: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    rests: int = 0
    seconds: float = 0.0
    complete: bool = True
    broken: Broken | None = None
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = (
            f"{self.name}: {self.states:,} states, {self.transitions:,} transitions, depth {self.depth},"
            f" {self.rests:,} rests, {self.seconds:.1f} s{'' if self.complete else ' (not complete)'}"
        )
        if self.broken is None:
            return head
        return "\n".join([head, f"  BROKEN {self.broken}", *(f"  {line}" for line in self.trace)])


class Explorer:
    """Explores one scenario. ``without``: rules taken away from the modelled shells.

    ``every``: of so many states one is brought to rest together, and all alone; 0: none.
    ``merge``: steps that nobody else can tell apart are taken as one.
    """

    def __init__(
        self, scenario: Scenario, without: frozenset[str] = frozenset(), *, every: int = 1, merge: bool = True
    ) -> None:
        self.every = every
        self.stored: set[tuple[tuple[str, int, int], ...]] = set()
        self.scenario = scenario
        kinds, pauses = scenario.kinds, any(wish.what == "pause" for wish in scenario.wishes)
        self.world = World(without, unknowns="unknown" in kinds, merge=merge, untold="untold" in kinds, pauses=pauses)
        self.moves = Moves(self.world, scenario)
        self.rest = Rest(self.world, scenario)
        self._parents = array("q", [-1])
        self._move = array("i", [-1])

    def run(self, most: int | None = None) -> Report:
        """Explore until nothing is new, something is broken, or ``most`` states are seen."""
        report = Report(self.scenario.name)
        started = time.process_time()
        begin = self.scenario.begins()
        seen = {_digest(begin)}
        queue: deque[tuple[int, int, State]] = deque([(0, 0, begin)])
        while queue and report.broken is None:
            index, report.depth, state = queue.popleft()
            number = -1
            self.stored.add(state.keys)
            try:
                if self.every:
                    self._comes_to_rest(index, state)
                for number, move in enumerate(self.moves.of(state)):
                    report.transitions += 1
                    after = self.moves.make(state, move)
                    digest = _digest(after)
                    if digest not in seen:
                        seen.add(digest)
                        queue.append((len(self._parents), report.depth + 1, after))
                        self._parents.append(index)
                        self._move.append(number)
                number = -1
            except Broken as broken:
                report.broken = broken
                report.trace = self.trace(index, number)
            if most is not None and len(seen) >= most and queue:
                report.complete = False
                break
        report.states, report.seconds = len(seen), time.process_time() - started
        report.rests = self.rest.alone_checked + self.rest.together_checked
        return report

    def _comes_to_rest(self, index: int, state: State) -> None:
        self.rest.alone(state)
        if index % self.every == 0:
            self.rest.together(state)

    def records(self) -> set[str]:
        """All that the bucket held in any state, in words. Sessions without their numbers, which tell who came first."""
        cells = self.world.cells.records
        texts = (
            "; ".join(f"{key} {shown(cells[cell])} life {life}" for key, cell, life in keys) for keys in self.stored
        )
        return {re.sub(r"\bs\d", "s", text) for text in texts}

    # -- traces ------------------------------------------------------------------------------------------------------

    def trace(self, index: int, last: int) -> list[str]:
        """The way to a state, and one move on: a line for each step."""
        numbers = [last] if last >= 0 else []
        while index > 0:
            numbers.append(self._move[index])
            index = self._parents[index]
        state = self.scenario.begins()
        lines: list[str] = []
        for number in reversed(numbers):
            move = next(m for n, m in enumerate(self.moves.of(state)) if n == number)
            try:
                after = self.moves.make(state, move)
            except Broken:
                lines.append(f"{len(lines) + 1:2} {self._who(move)}   <- here")
                return lines
            lines.append(f"{len(lines) + 1:2} {self._who(move)}{self._changed(state, after)}")
            state = after
        lines.append(f"   and then, without faults: {state.wakeups} {state.sessions}")
        return lines

    def _who(self, move: Move) -> str:
        if move[0] in {"step", "give up", "fumble"}:
            proc = move[1]
            what = [proc.owner, proc.run_id, self._what(proc.node), *move[2:], "" if move[0] == "step" else move[0]]
            return " ".join(filter(None, what))
        if move[0] == "ask":
            wish = self.scenario.wishes[move[1]]
            return f"p{move[1]} {wish.what} {wish.run_id}"
        if move[0] == "late":
            made = self.world.cells.made[move[1][2]]
            return f"late write: {made.kind} {made.did}"
        return " ".join(str(part) for part in move)

    def _what(self, node: int) -> str:
        request = self.world.nodes.requests[node]
        match request:
            case ("put" | "put again", key, found, made):
                decided = self.world.cells.made[made]
                return f"{request[0]} {key}#{found} {decided.kind}: {decided.did.value}"
            case ("body", _, holder, _):
                return f"body of {holder.run_id}/{holder.attempt}"
            case ("signal", holder):
                return f"signal {holder.session}/{holder.run_id}/{holder.attempt}"
        return " ".join(str(part) for part in request)

    def _changed(self, before: State, after: State) -> str:
        old = {key: cell for key, cell, _ in before.keys}
        records = self.world.cells.records
        return "".join(
            f"\n      {key}: {shown(records[old.get(key, NOTHING)])}\n        -> #{cell} {shown(records[cell])}"
            for key, cell, _ in after.keys
            if old.get(key, NOTHING) != cell
        )


def _digest(state: State) -> bytes:
    return blake2b(_encode(state), digest_size=12).digest()
