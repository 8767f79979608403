"""What a record forgets and the model remembers, and the invariants of DESIGN.md section 6 that every write is held to."""

from __future__ import annotations

from typing import NamedTuple

from tenure.core.dead import DeadLetter, replay_mark
from tenure.core.outcomes import Did
from tenure.core.records import TERMINAL, Holder, Hooks, Phase, Record
from tests.model.cells import NOW, TICK, Broken, Cells, Made, taken_in

_FOR_GOOD = frozenset({"live", "finished", "absent", "stopping"})
"""Why a command may come to nothing."""
STARTS = frozenset({Did.WON, Did.TAKEOVER, Did.RECLAIMED})
TAILS = frozenset({"Succeed", "FailAttempt", "SnoozeRun", "HandBack"})
UNTOLD = -1


class Run(NamedTuple):
    """A run that was accepted: who claimed each attempt and until when it was told to stop, its end.

    ``tick``: the fire of a schedule that it is. ``started``, ``stored``: bit for bit, of which attempts a body began, and of which
    an outcome or retry of its own was stored.
    """

    run_id: str
    key: str
    generation: int
    parallel: bool
    tick: float = 0.0
    claims: tuple[tuple[str, int], ...] = ()
    started: int = 0
    stored: int = 0
    end: str = ""
    cancelled: bool = False


class Books(NamedTuple):
    """Runs in the order in which they were accepted; outbox entries, and commands of the inbox, and how often each was applied.

    And what was counted.
    """

    runs: tuple[Run, ...] = ()
    entries: tuple[tuple[str, int], ...] = ()
    superseded: int = 0
    cancelled: int = 0
    commands: tuple[tuple[str, int], ...] = ()

    def run(self, run_id: str) -> Run | None:
        return next((run for run in self.runs if run.run_id == run_id), None)

    def with_run(self, new: Run) -> Books:
        return self._replace(runs=tuple(new if run.run_id == new.run_id else run for run in self.runs))


class Ledger:
    """Keeps the books; remembers what it found, for most writes come again in many states."""

    def __init__(self, cells: Cells, *, counting: bool) -> None:
        self._cells = cells
        self._counting = counting
        self._known: dict[tuple[Books, str, int, int], Books] = {}

    def stored(self, books: Books, key: str, before: int, made: int) -> Books:
        """The books after a write. Raises Broken."""
        memo = (books, key, before, made)
        after = self._known.get(memo)
        if after is None:
            after = self._known[memo] = self._stored(books, key, before, self._cells.made[made])
        return after

    def gone(self, books: Books, before: int) -> Books:
        """The books after a record was purged or expired."""
        record = self._cells.records[before]
        if record is None:
            raise Broken(0, "what is not there is removed")
        if record.previous or record.outbox or record.seen or record.holder is not None:
            raise Broken(6 if record.outbox else 8, "a record is gone while it owes something [5, 6]")
        run = books.run(record.run_id)
        if run is not None and not run.end:
            books = books.with_run(run._replace(end="purged"))
        superseded, cancelled = owed_counts(record)  # nobody can count them any more
        return books._replace(superseded=books.superseded + superseded, cancelled=books.cancelled + cancelled)

    def _stored(self, books: Books, key: str, before: int, made: Made) -> Books:
        old, new = self._cells.records[before], self._cells.records[made.cell]
        if new is None:
            return self.gone(books, before)
        if made.mark:
            books = _applied(books, made.mark)
        if old is not None:
            _schedule(old, new, made)
        books = _generation(books, key, old, new)
        if made.kind == "KeepAlive" and old is not None and old.attempt:  # the fire that its run has begun goes on
            books = _with_tick(books, old.run_id)
        if made.did is Did.TRIGGERED:  # no tick's fire: that one comes all the same
            books = _with_tick(books, new.run_id)
        books = _holder(books, old, new, made)
        if old is not None:
            books = _outcome(books, old, new, made)
        books = _told(books, new)
        books = _outbox(books, old, new, made)
        if self._counting:
            check_counts(books, key, new)
        return books


def _generation(books: Books, key: str, old: Record | None, new: Record) -> Books:
    if old is not None and new.run_id == old.run_id:
        if new.generation != old.generation or new.attempt < old.attempt:
            raise Broken(1, f"generation or attempt of {new.run_id} went back")
        return books
    if new.generation != (old.generation + 1 if old is not None else 1):
        raise Broken(1, f"generation {new.generation} of {key} is not the next one")
    if books.run(new.run_id) is not None:
        raise Broken(1, f"run id {new.run_id} is used again")
    if dict(books.commands).get(taken_in(new.run_id)):
        raise Broken(6, f"submit {new.run_id} was taken in by a run that waited, and starts another")
    if new.attempt or new.holder is not None or new.phase is not Phase.WAITING:
        raise Broken(1, f"{new.run_id} does not begin anew")
    tick = new.tick if new.task.policy.cron else 0.0
    run = Run(new.run_id, key, new.generation, new.task.policy.overlap == "parallel", tick)
    return books._replace(runs=(*books.runs, run))


def _applied(books: Books, command: str) -> Books:
    times = dict(books.commands)
    if times.get(command):
        raise Broken(6, f"command {command} is applied twice [13]")
    return books._replace(commands=tuple(sorted({**times, command: 1}.items())))


def acknowledged(books: Books, command: str, fate: str, why: str) -> None:
    """A command that is stored is taken out of the inbox: it was applied, or there was nothing that it could be applied to."""
    if not dict(books.commands).get(command) and (fate == "applied" or why not in _FOR_GOOD):
        raise Broken(7, f"command {command} is acknowledged as {fate} {why}, and was never applied")


def _schedule(old: Record, new: Record, made: Made) -> None:
    """What the newest code says stands, and stops no body; a chain goes on, and where every tick is to fire none is left out."""
    if new.deployed < old.deployed:
        raise Broken(1, f"the schedule of code deployed at {new.deployed} is put over that of {old.deployed}")
    if made.kind in {"KeepAlive", "Retire"} and old.phase in {Phase.RUNNING, Phase.STOPPING}:
        raise Broken(8, f"a body is stopped for a {made.kind}")
    taken = old.phase not in TERMINAL and old.task.actor != new.task.actor
    if made.kind == "KeepAlive" and taken:
        raise Broken(6, f"the schedule takes the key of {old.run_id}, of another actor")
    if made.kind == "KeepAlive" and old.phase is Phase.WAITING and new.tick > old.tick:
        raise Broken(6, f"the fire of {old.tick} is lost by a deploy")
    if not old.task.policy.cron or made.kind in {"KeepAlive", "Retire", "Replace", "Submit"}:
        return
    if new.phase in {Phase.SUCCEEDED, Phase.FAILED} and new.phase is not old.phase:
        raise Broken(6, f"the chain of {new.key} ends")
    if made.did is Did.TRIGGERED and _next_tick(new.tick) != old.tick:
        raise Broken(6, f"the fire of {old.tick} is triggered, and will not come")
    if new.run_id != old.run_id and old.task.policy.catch_up == "all" and new.tick != _next_tick(old.tick):
        raise Broken(6, f"the fire after {old.tick} is {new.tick}")


def _next_tick(tick: float) -> float:
    return tick // TICK * TICK + TICK


def _holder(books: Books, old: Record | None, new: Record, made: Made) -> Books:
    if (new.holder is not None) != (new.phase in {Phase.RUNNING, Phase.STOPPING}):
        raise Broken(4, f"a record that is {new.phase.value} with holder {new.holder}")
    if made.did not in STARTS:
        if new.holder is not None and (old is None or new.holder != old.holder):
            raise Broken(4, "a holder without a claim")
        return books
    run = books.run(new.run_id)
    if old is None or run is None or new.holder is None or new.attempt != old.attempt + 1:
        raise Broken(1, "a claim that is not the next attempt")
    if run.cancelled or old.phase is Phase.STOPPING:
        raise Broken(5, f"cancelled run {run.run_id} starts again [1, 2]")
    if run.end:
        raise Broken(2, f"run {run.run_id} starts after its outcome")
    if new.failures >= new.task.policy.max_attempts:
        raise Broken(7, f"run {run.run_id} starts beyond its budget [22]")
    if run.tick and any(one.tick >= run.tick and one.claims and one.run_id != run.run_id for one in books.runs):
        raise Broken(6, f"tick {run.tick} fires again, or after a later one")
    return books.with_run(run._replace(claims=(*run.claims, (new.holder.session, UNTOLD))))


def _with_tick(books: Books, run_id: str) -> Books:
    run = books.run(run_id)
    return books if run is None else books.with_run(run._replace(tick=0.0))


def _outcome(books: Books, old: Record, new: Record, made: Made) -> Books:
    if made.kind in TAILS and made.by != old.holder:
        raise Broken(3, f"{made.kind} of {made.by} is stored over {old.holder}")
    if made.kind in TAILS:
        books = books.with_run(_with_stored(books.run(old.run_id), old.attempt))
    if old.phase is Phase.CANCELLED and new.run_id == old.run_id and new.phase is not Phase.CANCELLED:
        raise Broken(5, "cancelled is not for ever")
    if old.phase is Phase.STOPPING and new.run_id == old.run_id and new.phase not in {Phase.STOPPING, Phase.CANCELLED}:
        raise Broken(5, f"stopping run {old.run_id} becomes {new.phase.value} [1, 2]")
    if made.did is Did.DROPPED and old.attempt:
        raise Broken(6, f"{old.run_id} has begun, and is dropped")
    last = new.last
    if last == old.last or last is None:
        if new.phase in TERMINAL and new.phase is not old.phase:
            raise Broken(2, "an end without an outcome")
        return books
    run = books.run(last.run_id)
    if run is None or last.run_id != old.run_id:
        raise Broken(2, f"outcome of {last.run_id}, which is not the run in the record")
    if run.end:
        raise Broken(2, f"second outcome of {run.run_id}")
    if run.cancelled and last.phase is not Phase.CANCELLED:
        raise Broken(5, f"cancelled run {run.run_id} {last.phase.value}")
    if last.session and made.kind not in TAILS:
        raise Broken(3, "an end by others looks like the holder's own")
    if made.follows and old.phase is Phase.RUNNING and new.generation != old.generation + 1:
        raise Broken(6, f"the successor of {old.run_id} is lost to its outcome")
    return books.with_run(run._replace(end=last.phase.value, cancelled=run.cancelled or last.phase is Phase.CANCELLED))


def _with_stored(run: Run | None, attempt: int) -> Run:
    if run is None:
        raise Broken(2, "an outcome of a run that nobody accepted")
    return run._replace(stored=run.stored | 1 << attempt)


def _told(books: Books, new: Record) -> Books:
    """Deadlines of bodies that were told to stop are kept here, for they leave the record; they are never extended."""
    told = [(entry.holder(), entry.deadline) for entry in new.previous if entry.deadline is not None]
    if new.phase is Phase.STOPPING and new.holder is not None and new.stop is not None:
        told.append((new.holder, new.stop.deadline))
        run = books.run(new.run_id)
        if run is not None and not run.cancelled:
            books = books.with_run(run._replace(cancelled=True))
    for holder, deadline in told:
        run = books.run(holder.run_id)
        if run is None or holder.attempt > len(run.claims):
            raise Broken(4, f"{holder} never claimed")
        session, known = run.claims[holder.attempt - 1]
        tick = round((deadline - NOW) / TICK)
        if known == tick:
            continue
        if known != UNTOLD and tick > known:
            raise Broken(8, f"the deadline of {holder} is extended")
        claims = list(run.claims)
        claims[holder.attempt - 1] = (session, tick)
        books = books.with_run(run._replace(claims=tuple(claims)))
    return books


def _outbox(books: Books, old: Record | None, new: Record, made: Made) -> Books:
    entries = dict(books.entries)
    kept = {entry.id for entry in new.outbox}
    had = {entry.id for entry in old.outbox} if old is not None else set()
    for lost in had - kept:
        if not entries.get(lost):
            raise Broken(6, f"outbox entry {lost} is lost before it was applied [6]")
    for fresh in kept - had:
        if fresh in entries:
            raise Broken(6, f"outbox entry {fresh} is owed twice")
        if old is None or new.last == old.last:
            raise Broken(6, f"outbox entry {fresh} without an outcome")
        entries[fresh] = 0
    due = _due(old, new, made) if old is not None and new.last != old.last else 0
    if len(kept - had) != due:
        raise Broken(6, f"{len(kept - had)} things are owed and not {due}")
    if made.entry:
        if made.entry not in entries:
            raise Broken(6, f"{made.entry} is applied and was never owed")
        entries[made.entry] += 1
        if entries[made.entry] > 1:
            raise Broken(6, f"{made.entry} is applied twice [7]")
    return books._replace(entries=tuple(sorted(entries.items())))


def _due(old: Record, new: Record, made: Made) -> int:
    """How many entries an outcome owes: its hooks, a dead letter, what its body spawned."""
    hooks = old.task.policy.hooks or Hooks()
    match new.last.phase if new.last is not None else None:
        case Phase.SUCCEEDED:
            return len(hooks.success) + made.spawns
        case Phase.FAILED:
            return len(hooks.failure) + 1
        case Phase.CANCELLED:
            return len(hooks.cancel)
    return 0


def owed_counts(record: Record) -> tuple[int, int]:
    """What a record says has still to be counted: superseded, cancelled."""
    superseded = sum(not entry.counted for entry in record.previous)
    superseded += sum(count.number for count in record.uncounted if count.what == "superseded")
    return superseded, sum(count.number for count in record.uncounted if count.what == "cancelled")


def due_counts(books: Books, current: frozenset[str]) -> tuple[int, int]:
    """What there is to count: superseded, cancelled."""
    superseded = sum(not run.end and run.run_id not in current for run in books.runs)
    return superseded, sum(run.end == "cancelled" for run in books.runs)


def check_counts(books: Books, key: str, new: Record | None) -> None:
    """Invariant 10, of one key: counted and still to be counted, together, are never more than there were."""
    if any(run.key != key for run in books.runs):
        return
    due = due_counts(books, frozenset({new.run_id}) if new is not None else frozenset())
    owed = owed_counts(new) if new is not None else (0, 0)
    if books.superseded + owed[0] > due[0] or books.cancelled + owed[1] > due[1]:
        raise Broken(10, f"counted {books[2:]}, still to count {owed}, there were {due}")


def begun(books: Books, holder: Holder) -> Books:
    """The books after a body began: invariant 4."""
    run = books.run(holder.run_id)
    if run is None or holder.attempt > len(run.claims) or run.claims[holder.attempt - 1][0] != holder.session:
        raise Broken(4, f"a body of {holder} without a claim")
    bit = 1 << holder.attempt
    if run.started & bit:
        raise Broken(4, f"attempt {holder.attempt} of {holder.run_id} starts twice [3]")
    return books.with_run(run._replace(started=run.started | bit))


def learned(books: Books, holder: Holder, record: Record | None, *, own: bool) -> None:
    """What a body's process makes of ``record``: its outcome is stored by itself, or it is refused. Raises Broken.

    An outcome that was stored and left no trace since (the key was purged, or ``last`` is a later run's) may pass for refused.
    """
    run = books.run(holder.run_id)
    if own and (run is None or not run.stored >> holder.attempt & 1):
        raise Broken(3, f"{holder} takes another's write for its own")
    last = record.last if record is not None else None
    shown = last is not None and (last.run_id, last.attempt, last.session) == (
        holder.run_id,
        holder.attempt,
        holder.session,
    )
    if shown and not own:
        raise Broken(10, f"{holder} takes its own outcome for refused [23]")


def unburied(books: Books, letter: DeadLetter) -> None:
    """A letter goes for good: its run was replayed."""
    if not dict(books.commands).get(replay_mark(letter)):
        raise Broken(6, f"the dead letter of {letter.run_id} is removed, and was not replayed")


def buried(books: Books, entry: str) -> Books:
    """The books after a dead letter was stored; the stream itself refuses a second copy."""
    entries = dict(books.entries)
    if entry not in entries:
        raise Broken(6, f"dead letter {entry} was never owed")
    entries[entry] = 1
    return books._replace(entries=tuple(sorted(entries.items())))
