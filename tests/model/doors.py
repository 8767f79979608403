"""Moves of the inbox and of schedules: what strangers publish, and what supervisors make of it and of their code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.core import records, sweeps
from tests.model.bounds import KEY, Scenario
from tests.model.cells import lies_at, number_of
from tests.model.strangers import ACTOR, MODULE, asked, command_of
from tests.model.world import NOBODY, Draft, Letter, Memo, Proc, State, World

Move = tuple[Any, ...]


class Doors:
    """The moves of one scenario that concern its inbox and its schedule."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world = world
        self.scenario = scenario

    def go_on(self, draft: Draft, proc: Proc | None) -> None:
        """Take the first step that others can tell."""
        raise NotImplementedError

    # -- which -------------------------------------------------------------------------------------------------------

    def at_the_doors(self, state: State) -> Iterator[Move]:
        """Commands taken in, marks forgotten, schedules asked for."""
        busy = {proc.owner for proc in state.procs}
        hand = next((f"i{n}" for n in range(self.scenario.hands) if f"i{n}" not in busy), NOBODY)
        for letter in state.inbox if hand else ():
            if letter.hand == NOBODY and self.is_delivered(letter):
                yield ("take_in", letter, hand)
        for memo in state.memos if "f" not in busy else ():
            yield ("forget", memo)
        for number, left in enumerate(state.asks):
            if left and f"a{number}" not in busy and self.may_ask(state, number):
                yield ("ask_for", number)

    def is_delivered(self, letter: Letter) -> bool:
        """What the server takes for acknowledged is looked for (``Inbox.strays``)."""
        return not letter.stray or "strays" not in self.world.without

    def may_ask(self, state: State, number: int) -> bool:
        """Every supervisor asks for what its code has; to what it has no more the sweep leads it (``Schedules.saw``)."""
        if self.scenario.releases[number].task is not None:
            return True
        record = next((self.world.cells.records[cell] for key, cell, _ in state.keys if key == KEY), None)
        header = records.read_state(records.state_of(record)) if record is not None else None
        return header is not None and sweeps.is_orphan(ACTOR, header, {MODULE}, ())

    def faults_at_the_doors(self, state: State) -> Iterator[Move]:
        """A message is delivered while it is in hand, or is published again to a server that has forgotten its id."""
        kinds = self.scenario.kinds
        for letter in state.inbox if "again" in kinds else ():
            if letter.hand != NOBODY:
                yield ("again_in", letter)
        for number, wish in enumerate(self.scenario.wishes if "copy" in kinds else ()):
            copied = any(letter.place == lies_at(number, copy=True) for letter in state.inbox)
            if not copied and not state.todo >> number & 1 and wish.message is not None and wish.message.msg_id:
                yield ("copy", number)

    # -- what comes of it --------------------------------------------------------------------------------------------

    def _take_in(self, draft: Draft, letter: Letter, hand: str) -> None:
        draft.inbox.remove(letter)
        draft.inbox.append(letter._replace(hand=hand))
        message = self.scenario.wishes[number_of(letter.place)].message
        if message is None:
            raise TypeError(letter)
        rounded = letter.stray and "place" in self.world.without
        wish = command_of(message, letter.place, rounded=rounded)
        command = self.world.cells.command(wish.command)
        node = self.world.nodes.start("apply_command", wish.key, command, letter.place)
        self.go_on(draft, draft.begin(Proc(hand, node, snap=letter.place)))

    def _forget(self, draft: Draft, memo: Memo) -> None:
        draft.memos = tuple(other for other in draft.memos if other != memo)
        self.go_on(draft, draft.begin(Proc("f", self.world.nodes.start("forget", *memo))))

    def _ask_for(self, draft: Draft, number: int) -> None:
        left = draft.asks[number]
        draft.asks = (*draft.asks[:number], left - 1, *draft.asks[number + 1 :])
        command = self.world.cells.command(asked(self.scenario.releases[number], KEY, f"S{number}{left}"))
        self.go_on(draft, draft.begin(Proc(f"a{number}", self.world.nodes.start("ask_for", KEY, command))))

    def _again_in(self, draft: Draft, letter: Letter) -> None:
        draft.faults -= 1
        draft.inbox.remove(letter)
        draft.inbox.append(letter._replace(hand=NOBODY))

    def _copy(self, draft: Draft, number: int) -> None:
        draft.faults -= 1
        draft.inbox.append(Letter(lies_at(number, copy=True)))
