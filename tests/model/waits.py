"""Moves of what waits elsewhere: runs that a switch or a rate keeps back, attempts that were given up, letters of the dead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.core.records import Holder
from tests.model.cells import NOTHING, is_parked, parked
from tests.model.doors import Doors, Move
from tests.model.second_looks import LOOK, looked_at
from tests.model.world import NOBODY, OPEN, Draft, Proc, State, Wakeup, is_stuck, plain


class Waits(Doors):
    """The moves of one scenario that concern these."""

    def released(self, state: State) -> Iterator[Move]:
        """Supervisors wake what waits for a switch that is gone; whoever looks after a rate has room for who waits."""
        if any(proc.owner == "r" for proc in state.procs):
            return
        for wakeup in dict.fromkeys(filter(self.may_go_on, state.wakeups)):
            if not self._is_held(state.board, wakeup):
                yield ("release", wakeup)

    def told_of_rate(self, proc: Proc, cell: int) -> Iterator[Move]:
        """Whatever a rate may say; but what was begun is finished (``Slots._ask``)."""
        record = self.world.cells.records[cell]
        for how in self.scenario.rate:
            if how != "excess" or (record is not None and not record.attempt):
                yield ("step", proc, how)

    def may_go_on(self, wakeup: Wakeup) -> bool:
        """What lies under the id of a switch that the board does not hold is to be woken, whoever finds it (``core.switches``)."""
        return is_parked(wakeup[3]) and "releases" not in self.world.without

    def _is_held(self, board: tuple[int, bool], wakeup: Wakeup) -> bool:
        return board[1] and wakeup[3] == parked(str(board[0]))

    def remnants(self, state: State) -> Iterator[tuple[str, str, Holder]]:
        """Session, key and attempt where a process finds one that it gave up in ``previous``."""
        if "remnants" in self.world.without:
            return
        given_up = {mark[1:] for mark in state.marks if mark[0] == "given up"}
        for key, cell, _ in state.keys if given_up else ():
            record = self.world.cells.records[cell]
            for entry in record.previous if record is not None else ():
                if plain(entry.holder()) in given_up and state.sessions[int(entry.session[1:]) - 1] == OPEN:
                    yield (entry.session, key, entry.holder())

    def second_looks(self, state: State) -> Iterator[tuple[str, str, int]]:
        """Session, run and wake-up (what that carried) of a handling that ended in the middle, if its process has room for it."""
        for what, session, run_id, snap in state.marks:
            if what == LOOK and self.has_room(state, session, run_id):
                yield (session, run_id, snap)

    def has_room(self, state: State, session: str, run_id: str) -> bool:
        """Whether a process can take a run in hand."""
        cells = {key: cell for key, cell, _ in state.keys}
        mine = [
            proc
            for proc in state.procs
            if proc.owner == session
            and proc.run_id
            and not is_stuck(self.world, state.books, state.tick, proc, cells.get(proc.key, NOTHING))
        ]
        in_table = "table" not in self.world.without and any(proc.run_id == run_id for proc in mine)
        return len(mine) < self.scenario.slots and not in_table

    # -- what comes of it --------------------------------------------------------------------------------------------

    def _release(self, draft: Draft, wakeup: Wakeup) -> None:
        key, run_id, snap, place = wakeup
        node = self.world.nodes.start("release", key, run_id, snap, place)
        self.go_on(draft, draft.begin(Proc("r", node)))

    def _remnant(self, draft: Draft, session: str, key: str, holder: Holder) -> None:
        node = self.world.nodes.start("remnant", key, holder)
        self.go_on(draft, draft.begin(Proc(session, node, key)))  # it has no place in the table

    def _second_look(self, draft: Draft, session: str, run_id: str, snap: int) -> None:
        """It knows nothing of the record any more, and answers the wake-up that it had, if that is still stored."""
        draft.marks = looked_at(draft.marks, session, run_id)
        run = draft.books.run(run_id)
        if run is not None:
            node = self.world.nodes.start("handle", session, run.key, run_id, NOTHING)
            self.go_on(draft, draft.begin(Proc(session, node, run.key, run_id, snap)))

    def _switch(self, draft: Draft, *, on: bool) -> None:
        """One CAS on the board. A switch that is set again has an id of its own."""
        draft.board = (draft.board[0] + on, on)

    def at_parking(self, draft: Draft, proc: Proc, request: tuple[Any, ...]) -> None:
        """A step that asks the board or the parking."""
        match request:
            case ("held?",):
                draft.answer(proc, draft.board[0] if draft.board[1] else 0)
            case ("gone?", switch):
                draft.answer(proc, draft.board != (switch, True))
            case ("park", key, run_id, cell, what):
                place = parked(str(what))
                if not any((w[0], w[1], w[3]) == (key, run_id, place) for w in draft.wakeups):
                    draft.wakeups.append((key, run_id, cell, place))
                draft.answer(proc, None)
            case ("unpark", key, run_id, place):
                draft.wakeups = [w for w in draft.wakeups if (w[0], w[1], w[3]) != (key, run_id, place)]
                draft.answer(proc, None)
            case ("wake parked", key, run_id, cell):
                draft.wakeups.append((key, run_id, cell, NOBODY))
                draft.answer(proc, None)
            case ("letters",):
                draft.answer(proc, draft.letters)
            case ("remove letter", letter):
                draft.remove_letter(letter)
                draft.answer(proc, None)
            case _:
                raise TypeError(request)
