"""Liveness: from a state, with the faults off, a fair schedule comes to rest with everything ended (invariant 7).

Two ways on from each state: *alone*, every process is gone and only bucket and work stream are left to a fresh worker and a fresh
supervisor; and *together*, the processes of the state go on, step by step in turn, and only then the fresh ones come.
"""

from __future__ import annotations

from typing import Any

from tenure.core.records import TERMINAL, Phase, Record
from tests.model.books import Books, due_counts, owed_counts
from tests.model.bounds import KEY, Scenario
from tests.model.cells import NOW, TICK, Broken, is_parked
from tests.model.moves import Moves
from tests.model.strangers import asked
from tests.model.world import CLOSED, DEAD, DRAINED, DRAINING, EXPIRED, FROZEN, NOBODY, OPEN, Draft, Proc, State, World

MOST_ROUNDS, MOST_STEPS = 24, 400


class Rest:
    """Brings states of one scenario to rest."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world = world
        self.scenario = scenario
        self.moves = Moves(world, scenario)
        self._rested: set[Any] = set()
        self.alone_checked = self.together_checked = 0

    def alone(self, state: State) -> None:
        """Raises Broken if what is stored does not lead to an end by itself."""
        wakeups = tuple(sorted((*w[:3], w[3] if is_parked(w[3]) else NOBODY) for w in state.wakeups))
        inbox = tuple(sorted(letter._replace(hand=NOBODY) for letter in state.inbox))
        books = (state.books.runs, state.books.entries, state.books.commands)
        memo = (state.keys, wakeups, inbox, state.late, books, state.tick, state.board, state.letters)
        if memo in self._rested:
            return
        for late in (False, True) if state.late else (False,):
            draft = Draft(self.world, state)
            draft.procs, draft.memos = [], ()
            draft.wakeups, draft.inbox = list(wakeups), list(inbox)
            draft.sessions = [status if status == DRAINED else EXPIRED for status in state.sessions]
            self._come_to_rest(draft, state, apply_late=late, exact=False)
        self._rested.add(memo)
        self.alone_checked += 1

    def together(self, state: State) -> None:
        """Raises Broken if the processes that there are stand in each other's way."""
        draft = Draft(self.world, state)
        draft.sessions = [EXPIRED if status == DEAD else status for status in state.sessions]
        for _ in range(MOST_STEPS):
            if not draft.procs:
                break
            for proc in list(draft.procs):
                if proc in draft.procs:
                    self._one_step(draft, proc)
        else:
            raise Broken(7, "processes do not come to an end")
        draft.sessions = [DRAINED if status == DRAINING else status for status in draft.sessions]
        draft.sessions = [EXPIRED if status == FROZEN else status for status in draft.sessions]
        unharmed = state.faults == self.scenario.faults and not state.late
        self._come_to_rest(draft, state, apply_late=False, exact=unharmed)
        self.together_checked += 1

    # -- the fair schedule -------------------------------------------------------------------------------------------

    def _come_to_rest(self, draft: Draft, state: State, *, apply_late: bool, exact: bool) -> None:
        if apply_late:
            for write in state.late:
                if write in draft.late:
                    self.moves._late(draft, write)
        draft.late = ()
        draft.board = (draft.board[0], False)  # whoever has paused resumes
        begin = draft.freeze()
        stored = (begin.keys, begin.wakeups, begin.inbox, begin.board, begin.letters)
        memo = (*stored, begin.sessions, begin.marks, begin.books, begin.tick, exact)
        if memo in self._rested:
            return
        self._rested.add(memo)
        for _ in range(MOST_ROUNDS):
            before = draft.freeze()
            self._one_round(draft)
            early = all(self._is_early(draft, *wakeup) for wakeup in draft.wakeups)
            if early and not draft.inbox and not self._suspicious(draft) and not self._would_ask(draft):
                self._check(draft, exact=exact)
                self._fires(draft)
                return
            if draft.freeze()._replace(books=before.books, looks=0) == before._replace(looks=0):
                draft.tick += 1
        raise Broken(7, f"no rest: {self._shown(draft)}")

    def _one_round(self, draft: Draft) -> None:
        fresh = f"s{len(draft.sessions) + 1}"
        draft.sessions.append(OPEN)
        for session in [f"s{n}" for n, status in enumerate(draft.sessions, 1) if status == OPEN]:
            for wakeup in sorted(set(draft.wakeups)):
                if wakeup in draft.wakeups and not is_parked(wakeup[3]):
                    self.moves._deliver(draft, wakeup, session)
                    self._run_out(draft)
        for wakeup in list(filter(self.moves.may_go_on, draft.wakeups)):
            self.moves._release(draft, wakeup)
            self._run_out(draft)
        for about in list(self.moves.remnants(draft.freeze())):
            self.moves._remnant(draft, *about)
            self._run_out(draft)
        for look in list(self.moves.second_looks(draft.freeze())):
            self.moves._second_look(draft, *look)
            self._run_out(draft)
        for letter in filter(self.moves.is_delivered, list(draft.inbox)):
            self.moves._take_in(draft, letter, "i0")
            self._run_out(draft)
        self._newest_asks(draft)
        named = {s for key in draft.keys for s in self._named(draft.cell(key))}
        if fresh not in named and draft.sessions[-1] == OPEN:
            draft.sessions.pop()  # it left no trace
        for key in sorted(draft.keys):
            if self.moves.suspicious(draft.freeze(), draft.cell(key)):
                draft.looks += 100
                self.moves._look(draft, key)
                draft.looks += 1
                self._run_out(draft)
                draft.looks -= 99

    def _newest_asks(self, draft: Draft) -> None:
        """The release that was deployed last is the one that stays."""
        newest = self._newest()
        if newest is not None and self.moves.may_ask(draft.freeze(), newest):
            kept, draft.asks = draft.asks, (len(draft.books.runs) + 10,) * len(draft.asks)  # for a run id of its own
            self.moves._ask_for(draft, newest)
            draft.asks = kept
            self._run_out(draft)

    def _would_ask(self, draft: Draft) -> bool:
        """Whether the release that stays would change something yet."""
        newest = self._newest()
        if newest is None or not self.moves.may_ask(draft.freeze(), newest):
            return False
        command = self.world.cells.command(asked(self.scenario.releases[newest], KEY, "S"))
        return isinstance(self.world.cells.decide(draft.cell(KEY), command, draft.tick, 0), int)

    def _newest(self) -> int | None:
        releases = self.scenario.releases
        return max(range(len(releases)), key=lambda number: releases[number].deployed, default=None)

    def _fires(self, draft: Draft) -> None:
        """At rest the schedule is the newest code's, and its next tick fires."""
        newest = self._newest()
        if newest is None:
            return
        task, record = self.scenario.releases[newest].task, self.world.cells.records[draft.cell(KEY)]
        waits = record is not None and record.phase is Phase.WAITING
        if (
            record is None
            or task is None
            or not waits
            or (record.task.policy, record.task.priority) != (task.policy, task.priority)
        ):
            if task is not None or waits:
                raise Broken(7, f"the newest code has {task}, and at rest there is {shown(record)}")
            return
        draft.tick = round((record.due - NOW) / TICK)
        for _ in range(MOST_ROUNDS):
            self._one_round(draft)
            run = draft.books.run(record.run_id)
            if run is not None and run.end == "succeeded":
                return
        raise Broken(7, f"the tick of {record.due} does not fire: {self._shown(draft)}")

    def _is_early(self, draft: Draft, key: str, run_id: str, *_: object) -> bool:
        """Whether a wake-up waits for a fire that is to come: a schedule never ends."""
        record = self.world.cells.records[draft.cell(key)]
        return record is not None and record.run_id == run_id and _is_to_come(record, draft.tick)

    def _named(self, cell: int) -> set[str]:
        record = self.world.cells.records[cell]
        if record is None:
            return set()
        return {e.session for e in record.previous} | ({record.holder.session} if record.holder else set())

    def _run_out(self, draft: Draft) -> None:
        for _ in range(MOST_STEPS):
            if not draft.procs:
                return
            self._one_step(draft, draft.procs[0])
        raise Broken(7, "a shell does not come to an end")

    def _one_step(self, draft: Draft, proc: Proc) -> None:
        request = self.world.nodes.requests[proc.node]
        how = ""
        closed = proc.owner.startswith("s") and draft.status(proc.owner) in CLOSED
        if request[0] == "body":
            told = (request[2].session, request[2].run_id, request[2].attempt) in draft.signals
            how = "halted" if told or draft.status(proc.owner) in {DRAINING, FROZEN} else "returned"
        elif request[0] == "put again" and closed:
            draft.interrupt(proc, "gave up")
            return
        self.moves._step(draft, proc, how)

    # -- at rest -----------------------------------------------------------------------------------------------------

    def _suspicious(self, draft: Draft) -> bool:
        state = draft.freeze()
        return any(self.moves.suspicious(state, cell) for _, cell, _ in state.keys)

    def _check(self, draft: Draft, *, exact: bool) -> None:
        current = {}
        for key in draft.keys:
            record = self.world.cells.records[draft.cell(key)]
            if record is not None:
                self._check_record(draft, record)
                current[key] = record
        ends = {record.run_id for record in current.values() if not _is_to_come(record, draft.tick)}
        _check_books(draft.books, ends)
        if exact and "counting" not in self.world.without and all(run.key == KEY for run in draft.books.runs):
            self._check_counts(draft.books, current.get(KEY))

    def _check_record(self, draft: Draft, record: Record) -> None:
        if record.phase not in TERMINAL and not _is_to_come(record, draft.tick):
            raise Broken(7, f"{record.run_id} rests {record.phase.value}: {shown(record)}")
        if record.previous or record.outbox or record.to_forget or record.uncounted:
            raise Broken(7, f"at rest, still owing: {shown(record)}")

    def _check_counts(self, books: Books, record: Record | None) -> None:
        """Without faults everything is counted, not only nothing twice."""
        due = due_counts(books, frozenset({record.run_id}) if record is not None else frozenset())
        owed = owed_counts(record) if record is not None else (0, 0)
        if (books.superseded + owed[0], books.cancelled + owed[1]) != due:
            raise Broken(10, f"counted {books[2:]} and still to count {owed}, there were {due}")

    def _shown(self, draft: Draft) -> str:
        records = [self.world.cells.records[draft.cell(key)] for key in sorted(draft.keys)]
        return f"{[shown(record) for record in records]}, wake-ups {draft.wakeups}"


def _is_to_come(record: Record, tick: int) -> bool:
    return bool(record.task.policy.cron) and record.phase is Phase.WAITING and record.due > NOW + TICK * tick


def _check_books(books: Books, current: set[str]) -> None:
    for run in books.runs:
        if not run.end and run.run_id in current:
            raise Broken(7, f"{run.run_id} has no end")
    for entry, times in books.entries:
        if times != 1:
            raise Broken(6, f"{entry} was applied {times} times")


def shown(record: Record | None) -> str:
    """A record in one line."""
    if record is None:
        return "nothing"
    parts = [f"{record.phase.value} g{record.generation} {record.run_id} a{record.attempt} f{record.failures}"]
    if record.holder is not None:
        parts.append(f"holder {record.holder.session}/{record.holder.attempt}")
    parts += [
        f"previous {[f'{e.session}/{e.run_id}/{e.attempt}' + ('' if e.deadline is None else '!') for e in record.previous]}"
    ] * bool(record.previous)
    parts += [f"outbox {[entry.id for entry in record.outbox]}"] * bool(record.outbox)
    parts += [f"seen {[seen.id for seen in record.seen]}"] * bool(record.seen)
    if record.last is not None:
        parts.append(f"last {record.last.run_id} {record.last.phase.value}")
    return " ".join(parts)
