"""What every shell does with a record: ``Runs.commit`` and the effects of ``Stores``, step by step.

Each ``yield`` is one step in which the world may move on before it answers; what is asked with a ``?`` or tells something is
answered at once, for it concerns nobody else. The core decides; nothing of it is repeated here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenure.core import commands as c
from tenure.core import endings
from tenure.core.dead import letter_of
from tenure.core.generations import leaves_trace
from tenure.core.outcomes import Why
from tenure.core.records import Entry, Record, Seen
from tenure.core.upkeep import forgotten
from tests.model.cells import NOTHING, Cells
from tests.model.nodes import GaveUp, Shell


class Done(NamedTuple):
    """``Committed``: decision number ``made`` is stored as ``cell``; ``effects`` are to be carried out."""

    cell: int
    made: int
    effects: tuple[Any, ...]


class No(NamedTuple):
    """``Declined``: refused, on what cell, and whether an earlier write has no known fate."""

    why: str
    cell: int
    unsure: bool


class InInbox(NamedTuple):
    """A check: whether the command that lies there is still stored. ``blind``: not asked the first time."""

    place: int
    blind: bool


class IsThere(NamedTuple):
    """A check: whether this letter of the dead is still there."""

    letter: int


class Commits:
    """Shared by the shells of workers, supervisors and clients. ``without``: rules that a test takes away."""

    def __init__(self, cells: Cells, without: frozenset[str] = frozenset()) -> None:
        self.cells = cells
        self.without = without

    def record(self, cell: int) -> Record | None:
        return self.cells.records[cell]

    # -- nats/runs.py ------------------------------------------------------------------------------------------------

    def commit(
        self,
        key: str,
        command: int,
        at: int | None,
        mine: tuple[Any, ...] = (),
        check: tuple[str, str] | InInbox | IsThere | None = None,
        once: tuple[str, str] | None = None,
    ) -> Shell:
        """``Runs.commit``: read, decide, CAS; repeat the same CAS until its fate is known; then look."""
        unsure = False
        before = (yield ("newest?", key)) if once is not None else None
        found: int = (yield ("read", key)) if at is None else at
        del at
        while True:
            if check is not None and not (yield from self.may_write(check)):
                return No(Why.NOTHING.value, found, unsure)
            check = check._replace(blind=False) if isinstance(check, InInbox) else check
            made = yield ("decide?", key, found, command)
            if not isinstance(made, int):
                return No(made[1], found, unsure)
            yield from self.tell_first(found, made, command)
            answer = yield ("put", key, found, made)
            repeated = answer == "unknown"
            while answer == "unknown":
                if "same CAS" in self.without:
                    raise GaveUp
                answer = yield ("put again", key, found, made)
            if answer == "stored":
                return (yield from self.won(Done(self.cells.made[made].cell, made, self.cells.made[made].effects)))
            unsure = unsure or repeated
            found = yield ("read", key)
            if repeated and mine and (yield from self.is_mine(found, mine)):
                return (yield from self.won(Done(found, made, self.cells.effects[found])))
            untouched = found != NOTHING and found == before
            if unsure and once is not None and not untouched and not self.once(found, once):
                raise GaveUp  # OutcomeUnknown [14]
            del made, answer, repeated, untouched

    def tell_first(self, found: int, made: int, command: int) -> Shell:
        """``Runs._told``: who may still run, and is in no record any more once this is stored."""
        after, asked = self.record(self.cells.made[made].cell), self.cells.commands[command]
        for holder in forgotten(self.record(found), after, asked) if "told first" not in self.without else ():
            yield ("signal", holder)

    def may_write(self, check: tuple[str, str] | InInbox | IsThere) -> Shell:
        """The ``check`` of each caller: asked after the read, before the write."""
        if isinstance(check, IsThere):
            return "letter look" in self.without or check.letter in (yield ("letters",))
        if not isinstance(check, InInbox):
            return (yield from self.still_owed(*check))
        return check.blind or "inbox look" in self.without or (yield ("holds", check.place))

    def won(self, done: Done) -> Shell:
        """``Runs._won``: whoever stores it counts what the record does not owe any more."""
        for what in sorted({count.what for count in self.cells.made[done.made].counts}):
            yield ("count", what, sum(n.number for n in self.cells.made[done.made].counts if n.what == what))
        return done

    def once(self, cell: int, once: tuple[str, str]) -> bool:
        """``client.Client._start`` and ``purge``: what shows that a command of unknown fate was applied."""
        if "once" in self.without:
            return True
        record = self.record(cell)
        return record is None if once[0] == "absent" else record is not None and leaves_trace(record, once[1])

    def is_mine(self, cell: int, mine: tuple[Any, ...]) -> Shell:
        """The ``mine`` of each caller, asked only after a write of unknown fate."""
        record = self.record(cell)
        if record is None:
            return False
        holder = record.holder
        match mine:
            case ("claim", session, run_id, own_lost):  # worker/head.py, Head._claim
                if holder is None or (holder.session, holder.run_id) != (session, run_id) or holder == own_lost:
                    return False
                if "given up" in self.without:
                    return True
                return not (yield ("marked?", "given up", holder))
            case ("tail", by):  # worker/tail.py, Tail.store
                return endings.not_mine(record, by) is Why.ALREADY
            case ("tag", tag):  # nats/runs.py, Runs.take
                return "tag" in self.without or record.taken == tag
        return False

    # -- stores.py ---------------------------------------------------------------------------------------------------

    def complete(self, key: str, cell: int, in_hand: str = "") -> Shell:
        """``Stores.complete``: whatever a record that was found owes; a wake-up only if none is stored."""
        record = self.record(cell)
        if record is None:
            return
        effects = self.cells.effects[cell]
        if ("wake",) in effects and record.run_id != in_hand and (yield ("stored?", key, record.run_id)):
            effects = tuple(effect for effect in effects if effect != ("wake",))
        yield from self.perform(key, cell, effects)

    def perform(self, key: str, cell: int, effects: tuple[Any, ...]) -> Shell:
        """``Stores._perform``: wake-up and signals first, then the outbox."""
        for effect in effects:
            match effect:
                case ("wake",):
                    yield ("wake", key, cell)
                case ("signal", holder, _):
                    yield ("signal", holder)
        owed = tuple(effect[1] for effect in effects if effect[0] == "apply")
        if owed:
            yield from self.apply(key, cell, owed)

    def apply(self, origin: str, cell: int, owed: tuple[str, ...]) -> Shell:
        """``Stores._apply``: each to its target, then clear them at the origin, then forget them at the targets [7]."""
        record = self.record(cell)
        entries = [entry for entry in (record.outbox if record is not None else ()) if entry.id in owed]
        del record, cell, owed
        if "clear first" in self.without:
            yield from self.clear(origin, entries)
        for entry in entries:
            if entry.dead:
                if (yield from self.still_owed(origin, entry.id)):  # Stores._bury
                    yield ("bury", entry.id, self.cells.letter(letter_of(entry)))
            else:
                yield from self.apply_one(origin, entry)
        yield from self.clear(origin, entries)
        for entry in entries:
            if not entry.dead:
                forget = self.cells.command(c.ForgetSeen(ids=frozenset({entry.id})))
                yield from self.commit(entry.key, forget, None)

    def clear(self, origin: str, entries: list[Entry]) -> Shell:
        clear = self.cells.command(c.ClearOutbox(ids=frozenset(entry.id for entry in entries)))
        yield from self.commit(origin, clear, None)

    def apply_one(self, origin: str, entry: Entry) -> Shell:
        """``Stores._apply_one``: target read first, then the origin, then the CAS at the revision read."""
        command = self.cells.command(
            c.Submit(
                key=entry.key,
                run_id=entry.run_id,
                task=entry.task,
                due=entry.due,
                seen=None if "seen" in self.without else Seen(id=entry.id, origin=origin),
            )
        )
        check = None if "origin read" in self.without else (origin, entry.id)
        result = yield from self.commit(entry.key, command, None, check=check)
        if isinstance(result, Done):
            yield from self.perform(entry.key, result.cell, result.effects)
        else:
            yield from self.complete(entry.key, result.cell)

    def lost_holder(self, result: No) -> Shell:
        """``Stores.lost_holder``."""
        record = self.record(result.cell)
        if result.why not in {Why.LIVE.value, Why.DIFFERS.value} or record is None or record.holder is None:
            return None
        if record.failures + 1 < record.task.policy.max_attempts:
            return None
        closed, drained = yield ("sessions", (record.holder.session,))
        return record.holder if closed - drained else None

    def still_owed(self, origin: str, entry: str) -> Shell:
        """``Stores._still_owed``: asked after the target was read."""
        record = self.record((yield ("read", origin)))
        return record is not None and any(owed.id == entry for owed in record.outbox)
