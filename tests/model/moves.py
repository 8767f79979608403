"""Every move that may come next in a state, and what it makes of it. Faults cost of a budget; all else is free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure.core import commands as c
from tenure.core import records, sweeps
from tenure.core.records import TERMINAL, Phase, Task
from tests.model.bounds import KEY, Scenario
from tests.model.cells import NOTHING, NOW, TICK, is_parked, lies_at
from tests.model.doors import Move
from tests.model.second_looks import looked_at
from tests.model.waits import Waits
from tests.model.world import (
    CLOSED,
    DEAD,
    DRAINED,
    DRAINING,
    EXPIRED,
    FROZEN,
    NOBODY,
    OPEN,
    Draft,
    Letter,
    Proc,
    State,
    World,
    plain,
)

BOUNDED = frozenset({"snoozed", "rescheduled"})
"""Ends of bodies that ask for more of the same: without a bound there would be no end to the states."""


class Moves(Waits):
    """The moves of one scenario."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        self._suspicious: dict[tuple[int, int, bool, bool], bool] = {}

    # -- which -------------------------------------------------------------------------------------------------------

    def of(self, state: State) -> Iterator[Move]:
        """Every move that is possible."""
        yield from self._asks(state)
        for number, proc in enumerate(state.procs):
            if number and proc == state.procs[number - 1]:
                continue
            yield from self._steps(state, proc)
        yield from self._deliveries(state)
        yield from self._looks(state)
        yield from self._world(state)
        yield from self.at_the_doors(state)
        yield from self.released(state)
        if state.faults:
            yield from self._faults(state)
            yield from self.faults_at_the_doors(state)

    def _asks(self, state: State) -> Iterator[Move]:
        for number, wish in enumerate(self.scenario.wishes):
            if not state.todo >> number & 1 or any(state.todo >> other & 1 for other in wish.after):
                continue
            if any(proc.owner == f"p{other}" for other in wish.after for proc in state.procs):
                continue
            yield ("ask", number)

    def _steps(self, state: State, proc: Proc) -> Iterator[Move]:
        request = self.world.nodes.requests[proc.node]
        match request[0]:
            case "body":
                ended = self.scenario.bodies
                told = plain(request[2]) in state.signals
                yield from self._evictions(state, proc)
                status = state.sessions[int(proc.owner[1:]) - 1]
                if told or status in {DRAINING, FROZEN}:
                    ended = (*ended, "halted")
                for how in ended:
                    if how == "spawned" and request[1] != KEY:
                        continue
                    if how not in BOUNDED or request[2].attempt + len(state.books.runs) <= self.scenario.most_again:
                        yield ("step", proc, how)
            case "put" | "put again":
                yield from self._puts(state, proc, request)
            case "rate?":
                yield from self.told_of_rate(proc, request[1])
            case "ack command" if state.faults and "stray" in self.scenario.kinds:
                yield ("step", proc, "")
                yield ("step", proc, "lost")
            case _:
                yield ("step", proc, "")

    def _evictions(self, state: State, proc: Proc) -> Iterator[Move]:
        """The worker's own timer: a body over its deadline, or over the grace of its cancel."""
        holder = self.world.nodes.requests[proc.node][2]
        if not state.tick:
            return
        cell = next((cell for key, cell, _ in state.keys if key == proc.key), NOTHING)
        command = self.world.cells.command(c.Evict(holder=holder, next_run_id="", jitter=0.5))
        mine = [other for other in state.procs if other.owner == proc.owner and other.run_id == proc.run_id]
        overdue = isinstance(self.world.cells.decide(cell, command, state.tick, 0), int)
        if overdue and len(mine) == 1 and state.sessions[int(proc.owner[1:]) - 1] in {OPEN, DRAINING}:
            yield ("overstays", proc)

    def _puts(self, state: State, proc: Proc, request: tuple[Any, ...]) -> Iterator[Move]:
        again = request[0] == "put again"
        worker = proc.owner.startswith("s")
        if again and worker and state.sessions[int(proc.owner[1:]) - 1] in CLOSED:
            yield ("give up", proc)  # not trusted any more
            return
        if again and not worker:
            yield ("give up", proc)
        yield ("step", proc, "")
        if not state.faults or "unknown" not in self.scenario.kinds:
            return
        yield ("step", proc, "answer lost")
        _, key, found, made = request
        current = next((cell for name, cell, _ in state.keys if name == key), NOTHING)
        if current == found and (key, found, made) not in state.late:
            yield ("step", proc, "on its way")

    def _deliveries(self, state: State) -> Iterator[Move]:
        living, new = [n for n, status in enumerate(state.sessions, 1) if status == OPEN], len(state.sessions) + 1
        workers = sum(status in {OPEN, DRAINING} for status in state.sessions)
        may_begin = workers < self.scenario.workers and new <= self.scenario.sessions
        done: set[Any] = set()
        for wakeup in state.wakeups:
            if wakeup[3] != NOBODY or wakeup in done or wakeup[0] != KEY:
                continue
            done.add(wakeup)
            for number in living:
                if self.has_room(state, f"s{number}", wakeup[1]):
                    yield ("deliver", wakeup, f"s{number}")
            if may_begin:
                yield ("deliver", wakeup, f"s{new}")

    def _looks(self, state: State) -> Iterator[Move]:
        if not state.looks or sum(proc.owner.startswith("k") for proc in state.procs) >= self.scenario.supervisors:
            return
        for key, cell, _ in state.keys:
            if self.suspicious(state, cell):
                yield ("look", key)

    def suspicious(self, state: State, cell: int) -> bool:
        """Whether a sweep makes a keeper look: the shipped ``deserves_a_look`` on the shipped header."""
        record = self.world.cells.records[cell]
        if record is None:
            return False
        holder = record.holder
        closed = holder is not None and state.sessions[int(holder.session[1:]) - 1] in CLOSED
        has_wakeup = any((w[0], w[1]) == (record.key, record.run_id) for w in state.wakeups)
        about = (cell, state.tick, closed, has_wakeup)
        known = self._suspicious.get(about)
        if known is None:
            header = records.read_state(records.state_of(record))
            known = self._suspicious[about] = header is not None and sweeps.deserves_a_look(
                header,
                age=TICK,
                now=NOW + TICK * state.tick,
                holder_closed=bool(header.session) and closed,
                has_wakeup=has_wakeup,
                has_timer=False,
            )
        return known

    def _world(self, state: State) -> Iterator[Move]:
        if state.ticks:
            yield ("tick",)
        for number, status in enumerate(state.sessions, 1):
            if status == DEAD:
                yield ("close", f"s{number}")
            elif status == DRAINING and not any(proc.owner == f"s{number}" for proc in state.procs):
                yield ("drained", f"s{number}")
            elif status == OPEN and state.drains:
                yield ("drain", f"s{number}")
        for about in self.remnants(state):
            if not any(proc.owner == about[0] and not proc.run_id for proc in state.procs):
                yield ("remnant", *about)
        for look in self.second_looks(state):
            yield ("second look", *look)
        for write in state.late:
            yield ("late", write)
        for key, cell, _ in state.keys:
            record = self.world.cells.records[cell]
            if state.expiries and record is not None and records.ttl_of(record) is not None:
                yield ("expire", key)
            if key != KEY and record is not None and record.phase is Phase.WAITING:
                yield ("child", key)

    def _faults(self, state: State) -> Iterator[Move]:
        kinds = self.scenario.kinds
        owners = sorted({proc.owner for proc in state.procs})
        for owner in owners:
            if owner.startswith("s") and state.sessions[int(owner[1:]) - 1] == OPEN:
                if "freeze" in kinds:
                    yield ("freeze", owner)
                if "fumble" in kinds:
                    for proc in state.procs:
                        if proc.owner == owner:
                            yield ("fumble", proc)
            if "crash" in kinds:
                yield ("crash", owner)
        for number, wakeup in enumerate(state.wakeups):
            if number and wakeup == state.wakeups[number - 1]:
                continue
            if "lose" in kinds:
                yield ("lose", wakeup)
            if "again" in kinds and wakeup[3] != NOBODY and not is_parked(wakeup[3]):
                yield ("again", wakeup)
            if "double" in kinds and wakeup[3] == NOBODY:
                yield ("double", wakeup)

    # -- what comes of it --------------------------------------------------------------------------------------------

    def make(self, state: State, move: Move) -> State:
        """The state after a move. Raises Broken."""
        draft = Draft(self.world, state)
        getattr(self, "_" + move[0].replace(" ", "_"))(draft, *move[1:])
        return draft.freeze()

    def _ask(self, draft: Draft, number: int) -> None:
        wish = self.scenario.wishes[number]
        draft.todo &= ~(1 << number)
        task = wish.task or Task(actor="a")
        match wish.what:
            case "submit":
                due = NOW + TICK * wish.due if wish.due else 0.0
                command: c.Command = c.Submit(key=KEY, run_id=wish.run_id, task=task, due=due, if_live=wish.if_live)
                node = self.world.nodes.start("start", self.world.cells.command(command))
            case "replace":
                command = c.Replace(key=KEY, run_id=wish.run_id, task=task)
                node = self.world.nodes.start("start", self.world.cells.command(command))
            case "pause" | "resume" as what:
                self._switch(draft, on=what == "pause")
                return
            case "publish":
                draft.inbox.append(Letter(lies_at(number)))
                return
            case what:
                node = self.world.nodes.start(what, KEY)
        self.go_on(draft, draft.begin(Proc(f"p{number}", node)))

    def _deliver(self, draft: Draft, wakeup: Any, session: str) -> None:
        key, run_id, snap, _ = wakeup
        if int(session[1:]) > len(draft.sessions):
            draft.sessions.append(OPEN)
        draft.wakeups.remove(wakeup)
        draft.wakeups.append((key, run_id, snap, session))
        draft.marks = looked_at(draft.marks, session, run_id)  # it has come again
        node = self.world.nodes.start("handle", session, key, run_id, snap)
        self.go_on(draft, draft.begin(Proc(session, node, key, run_id, snap)))

    def _overstays(self, draft: Draft, proc: Proc) -> None:
        holder = self.world.nodes.requests[proc.node][2]
        node = self.world.nodes.start("evict", proc.key, holder)
        self.go_on(draft, draft.begin(Proc(proc.owner, node, proc.key, proc.run_id, proc.snap)))

    def _look(self, draft: Draft, key: str) -> None:
        name = f"k{draft.looks}"
        draft.looks -= 1
        self.go_on(draft, draft.begin(Proc(name, self.world.nodes.start("keep", name, key))))

    def go_on(self, draft: Draft, proc: Proc | None) -> None:
        """Nothing of what a shell has done so far can be told from outside: take its first step that can."""
        if proc is not None and draft.sure and self.world.nodes.requests[proc.node][0] in {"read", "put"}:
            self._step(draft, proc, "")

    def _step(self, draft: Draft, proc: Proc, how: str) -> None:
        request = self.world.nodes.requests[proc.node]
        match request[0]:
            case "read":
                draft.answer(proc, draft.cell(request[1]))
            case "put" | "put again":
                draft.answer(proc, self._put(draft, request, how))
            case "wake":
                record = self.world.cells.records[request[2]]
                if record is not None:
                    draft.wakeups.append((request[1], record.run_id, request[2], NOBODY))
                draft.answer(proc, None)
            case "stored?":
                draft.answer(proc, any((w[0], w[1]) == (request[1], request[2]) for w in draft.wakeups))
            case "sessions":
                closed = frozenset(s for s in request[1] if draft.status(s) in CLOSED)
                draft.answer(proc, (closed, frozenset(s for s in closed if draft.status(s) == DRAINED)))
            case "signal":
                draft.tell(request[1])
                draft.answer(proc, None)
            case "bury":
                draft.bury(*request[1:])
                draft.answer(proc, None)
            case "body":
                self.go_on(draft, draft.answer(proc, how))
            case "rate?":
                draft.answer(proc, how or "granted")
            case "ack":
                draft.acknowledge(proc)
                draft.answer(proc, None)
            case "holds":
                draft.answer(proc, any(letter.place == request[1] for letter in draft.inbox))
            case "ack command":
                draft.faults -= bool(how)
                draft.acknowledge_command(request, lost=bool(how))
                draft.answer(proc, None)
            case _:
                self.at_parking(draft, proc, request)

    def _put(self, draft: Draft, request: tuple[Any, ...], how: str) -> str:
        _, key, found, made = request
        draft.faults -= bool(how)
        if how == "on its way":
            draft.late = tuple(sorted({*draft.late, (key, found, made)}))
            return "unknown"
        if draft.cell(key) != found:
            return "unknown" if how else "refused"
        draft.store(key, made)
        return "unknown" if how else "stored"

    def _give_up(self, draft: Draft, proc: Proc) -> None:
        draft.interrupt(proc, "gave up")

    def _late(self, draft: Draft, write: tuple[str, int, int]) -> None:
        draft.late = tuple(other for other in draft.late if other != write)
        draft.store(write[0], write[2])

    def _tick(self, draft: Draft) -> None:
        draft.tick, draft.ticks = draft.tick + 1, draft.ticks - 1

    def _close(self, draft: Draft, session: str) -> None:
        draft.set_status(session, EXPIRED)

    def _drain(self, draft: Draft, session: str) -> None:
        draft.drains -= 1
        draft.set_status(session, DRAINING)

    def _drained(self, draft: Draft, session: str) -> None:
        draft.set_status(session, DRAINED)

    def _expire(self, draft: Draft, key: str) -> None:
        draft.expiries -= 1
        draft.remove(key)

    def _child(self, draft: Draft, key: str) -> None:
        """A child's whole run, in one go: what happens inside it is other scenarios' subject."""
        record = self.world.cells.records[draft.cell(key)]
        life = draft.keys[key][1]
        if record is None:
            return
        claim = c.Claim(session="s0", run_id=record.run_id, next_run_id="")
        for _ in range(2):
            made = self.world.cells.decide(draft.cell(key), self.world.cells.command(claim), draft.tick, life)
            if not isinstance(made, int):
                return
            draft.store(key, made)
            after = self.world.cells.records[draft.cell(key)]
            if after is None or after.holder is None or after.phase in TERMINAL:
                return
            claim = c.Succeed(holder=after.holder, next_run_id="")  # type: ignore[assignment]  # its second command

    # -- faults ------------------------------------------------------------------------------------------------------

    def _crash(self, draft: Draft, owner: str) -> None:
        draft.faults -= 1
        for proc in [proc for proc in draft.procs if proc.owner == owner]:
            draft.drop(proc)
            draft.put_down(proc)
        if owner.startswith("s"):
            draft.set_status(owner, EXPIRED if draft.status(owner) == FROZEN else DEAD)

    def _freeze(self, draft: Draft, owner: str) -> None:
        """Its session is closed while it lives: its trust is over, what it still does may be another's."""
        draft.faults -= 1
        draft.set_status(owner, FROZEN)

    def _fumble(self, draft: Draft, proc: Proc) -> None:
        draft.faults -= 1
        draft.interrupt(proc, "fumbled")

    def _lose(self, draft: Draft, wakeup: Any) -> None:
        draft.faults -= 1
        draft.wakeups.remove(wakeup)

    def _again(self, draft: Draft, wakeup: Any) -> None:
        """``ack_wait`` is over while it is worked on."""
        draft.faults -= 1
        draft.wakeups.remove(wakeup)
        draft.wakeups.append((*wakeup[:3], NOBODY))

    def _double(self, draft: Draft, wakeup: Any) -> None:
        draft.faults -= 1
        draft.wakeups.append(wakeup)
