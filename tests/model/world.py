"""The world of one state: bucket, work stream, sessions, processes. Answers what shells ask for, and checks as it does."""

from __future__ import annotations

from typing import Any, NamedTuple

from tenure.core.records import Holder
from tests.model.books import Books, Ledger, acknowledged, begun, buried, check_counts, learned, unburied
from tests.model.cells import NOTHING, Broken, Cells, is_parked, named
from tests.model.nodes import Nodes
from tests.model.second_looks import looked_at, looked_at_again, without_stale
from tests.model.shells import Shells

OPEN, DRAINING, DEAD, FROZEN, EXPIRED, DRAINED = "open", "draining", "dead", "frozen", "expired", "drained"
CLOSED = frozenset({FROZEN, EXPIRED, DRAINED})
ALIVE = frozenset({OPEN, DRAINING, FROZEN})
NOBODY = ""
Wakeup = tuple[str, str, int, str]
"""Key, run id, the cell that it carries, and the session that has it in hand; or, as ``parked`` says, what it waits for."""


Memo = tuple[str, str, int, int]
"""What a forgetter keeps: key, mark, the place of the command that has left it, and the cell that it left."""


class Letter(NamedTuple):
    """A message of the inbox: where it lies, who has it in hand, and whether its consumer takes it for acknowledged."""

    place: int
    hand: str = NOBODY
    stray: bool = False


class Proc(NamedTuple):
    """A shell: whose it is, where it is, and the wake-up that it works on, or (``snap``) the place of its command.

    Owners are sessions, clients ("p..."), and of supervisors keepers ("k..."), hands of the inbox ("i..."), forgetters ("f") and
    those who ask for schedules ("a...").
    """

    owner: str
    node: int
    key: str = ""
    run_id: str = ""
    snap: int = 0


class State(NamedTuple):
    """Everything there is, in canonical order.

    ``todo``: commands not given yet. ``board``: the newest switch, and whether it is on. ``letters``: of the dead.
    """

    keys: tuple[tuple[str, int, int], ...]
    wakeups: tuple[Wakeup, ...]
    sessions: tuple[str, ...]
    procs: tuple[Proc, ...]
    signals: tuple[tuple[str, str, int], ...]
    marks: tuple[tuple[str, str, str, int], ...]
    late: tuple[tuple[str, int, int], ...]
    todo: int
    tick: int
    faults: int
    looks: int
    ticks: int
    expiries: int
    drains: int
    books: Books
    inbox: tuple[Letter, ...] = ()
    memos: tuple[Memo, ...] = ()
    asks: tuple[int, ...] = ()
    board: tuple[int, bool] = (0, False)
    letters: tuple[int, ...] = ()


class World:
    """Programs, cells and books of one exploration."""

    def __init__(
        self,
        without: frozenset[str] = frozenset(),
        *,
        unknowns: bool = True,
        merge: bool = True,
        untold: bool = False,
        pauses: bool = False,
    ) -> None:
        self.cells = Cells()
        self.without = without
        self.unknowns = unknowns
        self.pauses = pauses
        self.merge = merge
        self.untold = untold
        self.shells = Shells(self.cells, without)
        self.nodes = Nodes(self.shells)
        self.ledger = Ledger(self.cells, counting="counting" not in without)


class Draft:
    """A state that is being changed."""

    def __init__(self, world: World, state: State) -> None:
        self.world = world
        self.nodes = world.nodes
        self.keys = {key: (cell, life) for key, cell, life in state.keys}
        self.wakeups = list(state.wakeups)
        self.sessions = list(state.sessions)
        self.procs = list(state.procs)
        self.signals = state.signals
        self.marks = state.marks
        self.late = state.late
        self.todo, self.tick = state.todo, state.tick
        self.faults, self.looks, self.ticks = state.faults, state.looks, state.ticks
        self.expiries, self.drains = state.expiries, state.drains
        self.books = state.books
        self.inbox, self.memos, self.asks = list(state.inbox), state.memos, state.asks
        self.board, self.letters = state.board, state.letters

    @property
    def sure(self) -> bool:
        """Whether no answer can be lost any more: then steps that nobody else can tell apart are taken as one."""
        return self.world.merge and (not self.world.unknowns or not self.faults)

    def freeze(self) -> State:
        """The state that it has become."""
        if self.sure:
            self._refuse_stale()
        self.wakeups.sort()
        self.procs.sort()
        self.inbox.sort()
        return State(
            tuple(sorted((key, cell, life) for key, (cell, life) in self.keys.items())), tuple(self.wakeups),
            tuple(self.sessions), tuple(self.procs), self.signals, self.marks, self.late, self.todo, self.tick,
            self.faults, self.looks, self.ticks, self.expiries, self.drains, self.books, tuple(self.inbox), self.memos,
            self.asks, self.board, self.letters,
        )  # fmt: skip

    def _refuse_stale(self) -> None:
        """A revision never comes back: a CAS at an old one is refused whenever it comes, and a wake-up that carries one is read."""
        stale = True
        while stale:
            stale = False
            for proc in self.procs:
                request = self.nodes.requests[proc.node]
                if request[0] == "put" and self.cell(request[1]) != request[2]:
                    self.answer(proc, "refused")
                    stale = True
                    break
        for number, (key, run_id, snap, hand) in enumerate(self.wakeups):
            if snap != NOTHING and (hand == NOBODY or is_parked(hand)) and self.cell(key) != snap:
                self.wakeups[number] = (key, run_id, NOTHING, hand)
        self.marks = without_stale(self.marks, {cell for cell, _ in self.keys.values()})

    # -- bucket ------------------------------------------------------------------------------------------------------

    def cell(self, key: str) -> int:
        return self.keys[key][0] if key in self.keys else NOTHING

    def store(self, key: str, made: int) -> None:
        """A CAS that was taken."""
        before, life = self.keys.get(key, (NOTHING, 0))
        self._nobody_is_forgotten_untold(before, self.world.cells.made[made].cell)
        self.books = self.world.ledger.stored(self.books, key, before, made)
        after = self.world.cells.made[made].cell
        self._becomes(key, after, life if self.world.cells.records[after] is not None else life + 1)

    def _nobody_is_forgotten_untold(self, before: int, after: int) -> None:
        """A body that a record does not show any more, and that nobody told to stop, would run on for as long as it likes."""
        old, new = self.world.cells.records[before], self.world.cells.records[after]
        if old is None or not old.previous:
            return
        kept = {entry.holder() for entry in new.previous} if new is not None else set()
        for holder in {entry.holder() for entry in old.previous} - kept:
            runs = any(self.nodes.requests[proc.node][:3:2] == ("body", holder) for proc in self.procs)
            if runs and self.status(holder.session) in {OPEN, DRAINING} and plain(holder) not in self.signals:
                raise Broken(8, f"{holder} still runs, is forgotten, and was never told to stop")

    def remove(self, key: str) -> None:
        """The record's time is over: the server leaves a marker."""
        before, life = self.keys[key]
        self.books = self.world.ledger.gone(self.books, before)
        self._becomes(key, self.world.cells.marker(life + 1), life + 1)

    def _becomes(self, key: str, cell: int, life: int) -> None:
        self.keys[key] = (cell, life)
        if self.late:  # what expects another revision is refused whenever it comes
            self.late = tuple(write for write in self.late if write[0] != key or write[1] == cell)

    def bury(self, entry: str, letter: int) -> None:
        """Into the stream of dead letters, which takes none that it lately had."""
        known = dict(self.books.entries).get(entry)
        self.books = buried(self.books, entry)
        if not known:
            self.letters = tuple(sorted({*self.letters, letter}))

    def remove_letter(self, letter: int) -> None:
        """It was replayed."""
        unburied(self.books, self.world.cells.letters[letter])
        self.letters = tuple(other for other in self.letters if other != letter)

    # -- processes ---------------------------------------------------------------------------------------------------

    def status(self, session: str) -> str:
        return self.sessions[int(session[1:]) - 1]

    def set_status(self, session: str, status: str) -> None:
        self.sessions[int(session[1:]) - 1] = status
        self.marks = looked_at(self.marks, session)

    def drop(self, proc: Proc) -> None:
        self.procs.remove(proc)

    def put_down(self, proc: Proc) -> None:
        """What it works on is in nobody's hands any more: it comes again after ``ack_wait``."""
        if proc.owner.startswith("i"):
            self.inbox = [one._replace(hand=NOBODY) if one.hand == proc.owner else one for one in self.inbox]
            return
        held = (proc.key, proc.run_id, proc.snap, proc.owner)
        if held in self.wakeups:
            self.wakeups.remove(held)
            self.wakeups.append((proc.key, proc.run_id, proc.snap, NOBODY))

    def acknowledge(self, proc: Proc) -> None:
        """Not fenced: the ack of a delivery that was repeated elsewhere counts too."""
        others = {w[3] for w in self.wakeups if not is_parked(w[3])} - {proc.owner}
        for hand in (proc.owner, *sorted(others)):
            held = (proc.key, proc.run_id, proc.snap, hand)
            if held in self.wakeups:
                self.wakeups.remove(held)
                return

    def acknowledge_command(self, request: tuple[Any, ...], *, lost: bool) -> None:
        """``lost``: the server forgets to remove it, and takes it for acknowledged all the same."""
        _, place, mark, fate, why = request
        for letter in [one for one in self.inbox if one.place == place]:
            acknowledged(self.books, named(mark), fate, why)
            self.inbox.remove(letter)
            if lost:
                self.inbox.append(Letter(place, NOBODY, stray=True))

    def begin(self, proc: Proc) -> Proc | None:
        """A new shell: come to the first step that concerns others."""
        return self._settle(proc)

    def answer(self, proc: Proc, answer: Any) -> Proc | None:
        """A shell's step is taken; where it is then, None if it has ended."""
        self.procs.remove(proc)
        return self._settle(Proc(proc.owner, self.nodes.send(proc.node, answer), *proc[2:]))

    def interrupt(self, proc: Proc, what: str) -> None:
        self.procs.remove(proc)
        self._settle(proc._replace(node=self.nodes.throw(proc.node, what)))

    def _settle(self, proc: Proc) -> Proc | None:
        """Answer at once what concerns nobody else."""
        while True:
            request = self.nodes.requests[proc.node]
            match request[0]:
                case "end":
                    self._ended(proc, request[1])
                    return None
                case "decide?":
                    _, key, found, command = request
                    life = self.keys[key][1] if key in self.keys else 0
                    answer: Any = self.world.cells.decide(found, command, self.tick, life)
                case "newest?":
                    answer = self.cell(request[1])
                case "clock?":
                    answer = self.tick
                case "held?" if not self.world.pauses:
                    answer = 0
                case "marked?":
                    answer = (request[1], *plain(request[2])) in self.marks
                case "has body?":
                    answer = self._has_body(proc, request[1], request[2])
                case "mark":
                    self._mark(request[1], request[2])
                    answer = None
                case "look again":
                    if self.status(proc.owner) == OPEN and "second look" not in self.world.without:
                        self.marks = looked_at_again(self.marks, proc.owner, proc.run_id, proc.snap)
                    answer = None
                case "learned":
                    learned(self.books, request[1], self.world.cells.records[request[3]], own=request[2])
                    answer = None
                case "count":
                    self._count(request[1], request[2])
                    answer = None
                case "signal" if not self.world.untold:  # all that hangs on it is that a body may be halted
                    self.tell(request[1])
                    answer = None
                case "nak" | "put off":
                    self.put_down(proc)
                    answer = None
                case "body":
                    self._body_begins(request[2], request[3])
                    self.procs.append(proc)
                    return proc
                case _:
                    self.procs.append(proc)
                    return proc
            proc = Proc(proc.owner, self.nodes.send(proc.node, answer), *proc[2:])

    def tell(self, holder: Holder) -> None:
        """A stop signal is stored."""
        self.signals = tuple(sorted({*self.signals, plain(holder)}))

    def _mark(self, what: str, holder: Holder) -> None:
        """``Table.give_up``; ``Table.evict``, of a body that still runs."""
        runs = any(self.nodes.requests[proc.node][:3:2] == ("body", holder) for proc in self.procs)
        if what != "evicted" or runs:
            self.marks = tuple(sorted({*self.marks, (what, *plain(holder))}))

    def _has_body(self, proc: Proc, holder: Holder, at_hand: str) -> bool:
        """``Head._has_body``: another delivery of this process works on that run, or that very body is stuck."""
        mine = [other for other in self.procs if other.owner == proc.owner and other.run_id == holder.run_id]
        if holder.run_id != at_hand and any(not self.is_stuck(other) for other in mine):
            return True
        return any(self.nodes.requests[other.node][2] == holder for other in mine if self.is_stuck(other))

    def is_stuck(self, proc: Proc) -> bool:
        """Whether its body is over its grace: its place in the table is free (``Table.evict`` and ``displace``)."""
        return is_stuck(self.world, self.books, self.tick, proc, self.cell(proc.key))

    def _count(self, what: str, number: int) -> None:
        if what == "superseded":
            self.books = self.books._replace(superseded=self.books.superseded + number)
        else:
            self.books = self.books._replace(cancelled=self.books.cancelled + number)
        for key, (cell, _) in self.keys.items() if "counting" not in self.world.without else ():
            check_counts(self.books, key, self.world.cells.records[cell])

    def _ended(self, proc: Proc, value: Any) -> None:
        if proc.owner.startswith("s"):
            self.put_down(proc)
        elif proc.owner.startswith("p") and value is not None:
            self._told_client(*value)
        elif proc.owner.startswith("i") and value is not None:
            _, key, mark, place, cell = value
            self.memos = tuple(sorted({*self.memos, (key, mark.id, place, cell)}))

    def _told_client(self, answer: str, run_id: str) -> None:
        """What a caller is told must be so."""
        run = self.books.run(run_id)
        if answer == "accepted" and run is None:
            raise Broken(7, f"accepted {run_id}, which nobody stored")
        if answer in {"cancelled", "stopping"} and (run is None or (run.end and run.end != "cancelled")):
            raise Broken(5, f"told {answer} of {run_id}, which is {run}")

    # -- bodies ------------------------------------------------------------------------------------------------------

    def bodies(self, key: str) -> list[tuple[Holder, bool]]:
        """Bodies of a key that run now, and whether they were started under overlap ``parallel``."""
        found = []
        for proc in self.procs:
            request = self.nodes.requests[proc.node]
            if request[0] == "body" and request[1] == key:
                record = self.world.cells.records[request[3]]
                found.append((request[2], record is not None and record.task.policy.overlap == "parallel"))
        return found

    def _body_begins(self, holder: Holder, cell: int) -> None:
        self.books = begun(self.books, holder)
        record = self.world.cells.records[cell]
        if record is None:
            raise Broken(4, "a body without a record")
        mine = (record.generation, holder.attempt, record.task.policy.overlap == "parallel")
        if self.status(holder.session) not in {OPEN, DRAINING}:
            return
        for other, parallel in self.bodies(record.key):
            run = self.books.run(other.run_id)
            if run is None or self.status(other.session) not in {OPEN, DRAINING}:
                continue
            theirs = (run.generation, other.attempt, parallel)
            older = other if theirs[:2] < mine[:2] else holder
            run = self.books.run(older.run_id)
            told = run.claims[older.attempt - 1][1] if run is not None else -1
            if not max(mine, theirs)[2] and not 0 <= told <= self.tick:
                raise Broken(8, f"{holder} runs beside {other}")


def is_stuck(world: World, books: Books, tick: int, proc: Proc, cell: int) -> bool:
    """Whether a shell is in a body that is over its grace and not the holder any more."""
    request = world.nodes.requests[proc.node]
    run = books.run(proc.run_id) if request[0] == "body" else None
    if run is None or not 0 <= run.claims[request[2].attempt - 1][1] <= tick:
        return False
    record = world.cells.records[cell]
    return record is None or record.holder != request[2]


def plain(holder: Holder) -> tuple[str, str, int]:
    """A holder that can be sorted."""
    return holder.session, holder.run_id, holder.attempt
