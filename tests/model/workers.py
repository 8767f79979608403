"""One wake-up in a worker: head check, body, tail check, effects, ack; mirrors ``worker/handler``, ``head`` and ``tail``."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.outcomes import Did, Why
from tenure.core.pace import settled_by
from tenure.core.records import Entry, Holder, Phase, Task
from tests.model.cells import BOOM, NOW, TICK, parked
from tests.model.commits import Commits, Done, No
from tests.model.nodes import Fumbled, GaveUp, Shell

CHILD = "child"


class Won(NamedTuple):
    """The run is this process's."""

    done: Done


class Drop(NamedTuple):
    """Acknowledge it; ``decided``: this check ended the run."""

    decided: Done | None


class Held(NamedTuple):
    """A switch keeps its body from being started."""

    cell: int


class Workers(Commits):
    """Programs of a worker process whose session is ``session``."""

    def handle(self, session: str, key: str, run_id: str, snap: int) -> Shell:
        """``Handler._claim_and_run`` and ``Handler._run``."""
        holder: Holder | None = None
        answered = False
        try:
            looked = yield from self.look(session, key, run_id, snap)
            match looked:
                case "later":
                    yield ("nak",)
                    return
                case Drop(decided):
                    if decided is not None:
                        yield from self.count_ended(decided)
                        yield from self.perform(key, decided.cell, decided.effects)
                    yield ("ack",)
                    return
                case Won(done):
                    pass
            record = self.record(done.cell)
            holder = record.holder if record is not None else None
            if record is None or holder is None:
                return
            task, cell = record.task, done.cell
            yield from self.perform(key, cell, done.effects)
            del looked, done, record, snap
            if (yield ("held?",)):  # Handler._body: switched off while the claim was under way
                ended = "halted"
            else:
                ended = yield ("body", key, holder, cell)
            if (yield ("marked?", "evicted", holder)):
                yield from self.confirm_and_tell(key, holder)
                return
            result = yield from self.store(key, holder, task, ended, cell)
            del cell
            own = isinstance(result, Done) or result.why == Why.ALREADY.value
            yield ("learned", holder, own, result.cell)
            if not own:
                yield from self.void(key, holder, result)
                answered = True
                return
            answered = True
            del task, ended
            yield from self.count_stored(holder, result)
            if isinstance(result, Done):  # Tail.settle
                yield from self.perform(key, result.cell, result.effects)
            else:
                yield from self.complete(key, result.cell, in_hand=run_id)
            yield ("ack",)
        except (GaveUp, Fumbled):  # Worker._handle: the entry leaves the table, the wake-up is put down unanswered
            yield ("look again",)
            if holder is not None and not answered:
                yield ("mark", "given up", holder)

    # -- worker/head.py ----------------------------------------------------------------------------------------------

    def look(self, session: str, key: str, run_id: str, snap: int) -> Shell:
        """``Head.look``: the usual claim is one CAS on what the wake-up carries, with no read."""
        found = snap
        known = self.record(found)
        fresh = known is None or bool(known.previous)
        if fresh:
            found = yield ("read", key)
        del known, snap
        while True:
            switch = yield ("held?",)
            looked = yield from self.ask(session, key, run_id, found, held=bool(switch))
            if not isinstance(looked, Held):
                return looked
            found = looked.cell
            if fresh:
                if (yield from self.park(key, run_id, found, switch)):
                    return Drop(None)
            else:
                found = yield ("read", key)
            fresh = True
            del looked, switch

    def park(self, key: str, run_id: str, cell: int, switch: int) -> Shell:
        """``Holds.park``: who wakes those that wait may have looked before this was stored."""
        yield ("park", key, run_id, cell, switch)
        if "park look" not in self.without and (yield ("gone?", switch)):
            yield ("unpark", key, run_id, parked(str(switch)))
            return False
        return True

    def ask(self, session: str, key: str, run_id: str, found: int, *, held: bool) -> Shell:
        """``Head._look`` from here on: claim, and find out about what is in the way."""
        claim = c.Claim(session=session, run_id=run_id, next_run_id="", held=held)
        while True:
            mine = ("claim", session, run_id, claim.own_lost)
            result = yield from self.commit(key, self.cells.command(claim), found, mine)
            if isinstance(result, Done):
                record = self.record(result.cell)
                return Won(result) if record is not None and record.holder is not None else Drop(result)
            if result.why == Why.HELD.value:
                return Held(result.cell)
            if result.why == Why.LIMITED.value:
                found = result.cell
                answer = yield ("rate?", found)
                if answer == "parked":
                    yield ("park", key, run_id, found, "rate")
                    return Drop(None)
                record = self.record(found)
                attempt = record.attempt + 1 if record is not None else 0
                excess = "full" if answer == "excess" else ""
                claim = replace(claim, permit=attempt, excess=excess, settled=settled_by(record))
                del result, record, answer, attempt, excess
                continue
            if result.why != Why.BUSY.value:
                return (yield from self.refused(session, key, run_id, result))
            again = yield from self.knowing_more(key, claim, result.cell)
            if again is None:
                return "later"
            claim = again
            del result, again
            found = yield ("read", key)

    def refused(self, session: str, key: str, run_id: str, result: No) -> Shell:
        """``Head._refused``: what is void derives the record's missing effects before it is dropped."""
        record = self.record(result.cell)
        if result.why == Why.NOT_DUE.value:
            settles = record is not None and record.settling is not None
            return Drop(None) if settles and (yield from self.put_off(key, run_id)) else "later"
        if record is not None:
            confirmed = yield from self.confirm_gone(session, key, run_id, result.cell)
            if isinstance(confirmed, Done):
                yield from self.perform(key, confirmed.cell, confirmed.effects)
            else:
                yield from self.complete(key, result.cell)
            if record.uncounted:
                yield from self.take(key, c.TakeCounts(tag=f"{session}/{run_id}"), None)
        return Drop(None)

    def put_off(self, key: str, run_id: str) -> Shell:
        """``Head._put_off``: a timer for what later submits have moved on."""
        found = yield ("read", key)
        newest = self.record(found)
        if newest is None or newest.run_id != run_id or newest.phase is not Phase.WAITING:
            return False
        if newest.due <= NOW + TICK * (yield ("clock?",)):
            return False
        yield ("wake", key, found)
        return True

    def knowing_more(self, key: str, claim: c.Claim, cell: int) -> Shell:
        """``Head._knowing_more``: find out about those who are in the way, and claim again."""
        record = self.record(cell)
        if record is None:
            return None
        session, holder = claim.session, record.holder
        gone = yield from self.confirm_gone(session, key, claim.run_id, cell)
        own_lost = holder if holder is not None and holder.session == session else None
        named = {entry.session for entry in record.previous} | ({holder.session} if holder else set())
        closed, drained = yield ("sessions", tuple(sorted(named - {session})))
        if gone is None and claim.closed == closed and claim.own_lost == own_lost:
            return None
        return replace(
            claim, closed=closed, drained=drained, own_lost=own_lost, next_run_id=f"{claim.run_id}+{session}"
        )

    def confirm_gone(self, session: str, key: str, run_id: str, cell: int) -> Shell:
        """``Head._confirm_gone``: bodies of this very process that are gone leave ``previous`` [20]."""
        confirmed = None
        record = self.record(cell)
        for entry in record.previous if record is not None else ():
            if (
                "confirm" not in self.without
                and entry.session == session
                and not (yield ("has body?", entry.holder(), run_id))
            ):
                confirmed = yield from self.confirm(session, key, entry.holder(), f"/{run_id}")
        return confirmed

    # -- worker/tail.py ----------------------------------------------------------------------------------------------

    def store(self, key: str, holder: Holder, task: Task, ended: str, cell: int) -> Shell:
        """``Tail.store``: the CAS at the claim's own revision is the tail check."""
        command = self.cells.command(tail_command(holder, task, ended))
        del task, ended
        return (yield from self.commit(key, command, cell, ("tail", holder)))

    def void(self, key: str, holder: Holder, result: No) -> Shell:
        """``Handler._void``: one confirm; a fenced attempt neither acks nor naks [24]."""
        if "confirm" not in self.without:
            yield from self.confirm_and_tell(key, holder)
        if result.why != Why.FENCED.value or "fenced" in self.without:
            yield ("ack",)

    def confirm_and_tell(self, key: str, holder: Holder) -> Shell:
        """``Tail.confirm``: the one write of a superseded body's process."""
        confirmed = yield from self.confirm(holder.session, key, holder)
        if isinstance(confirmed, Done):
            yield from self.perform(key, confirmed.cell, confirmed.effects)

    def evict(self, key: str, holder: Holder) -> Shell:
        """``Handler._evict`` and ``_evicted``: a body of this process overstays, its attempt is ended for it [30]."""
        following = f"{holder.run_id}+{holder.session}!"
        command = c.Evict(holder=holder, next_run_id=following, jitter=0.5, tag=following)
        try:
            result = yield from self.take(key, command, None)
            if isinstance(result, Done):
                yield from self.count_ended(result)
                yield from self.perform(key, result.cell, result.effects)
                yield ("ack",)
                yield ("mark", "evicted", holder)
        except GaveUp:  # it is tried again a little later, or a supervisor does it
            return

    def remnant(self, key: str, holder: Holder) -> Shell:
        """``Remnants._is_over``: its process looks after an attempt that it gave up."""
        try:
            record = self.record((yield ("read", key)))
            if record is not None and any(entry.holder() == holder for entry in record.previous):
                yield from self.confirm_and_tell(key, holder)
        except (GaveUp, Fumbled):  # it looks again
            return

    def confirm(self, session: str, key: str, holder: Holder, by: str = "") -> Shell:
        """``by`` makes the tag one's own: a body's end, and another delivery's head check, may confirm it at once."""
        tag = f"{session}/{holder.run_id}/{holder.attempt}{by}"
        return (yield from self.take(key, c.Confirm(holder=holder, tag=tag), None))

    def take(self, key: str, command: c.Confirm | c.ExpirePrevious | c.TakeCounts | c.Evict, at: int | None) -> Shell:
        """``Runs.take``: its tag tells this very write."""
        return (yield from self.commit(key, self.cells.command(command), at, ("tag", command.tag)))

    # -- counting ----------------------------------------------------------------------------------------------------

    def count_ended(self, done: Done) -> Shell:
        """``Counting.drop`` and ``Keepers._count_ended``: by whoever stored the end."""
        if self.cells.made[done.made].did in {Did.CANCELLED, Did.FORCED}:
            yield ("count", "cancelled", 1)

    def count_stored(self, holder: Holder, result: Done | No) -> Shell:
        """``Counting.stored``: what was done, or what the record shows of one's own write (``tail._did``)."""
        if isinstance(result, Done):
            yield from self.count_ended(result)
            return
        record = self.record(result.cell)
        last = record.last if record is not None else None
        if last is not None and last.run_id == holder.run_id and last.phase is Phase.CANCELLED:
            yield ("count", "cancelled", 1)


def tail_command(holder: Holder, task: Task, ended: str) -> Any:
    """``Tail._command``: what a body's end asks for."""
    following = f"{holder.run_id}+{holder.session}"
    match ended:
        case "halted":
            return c.HandBack(holder=holder)
        case "snoozed":
            return c.SnoozeRun(holder=holder, due=NOW)
        case "failed" | "given up":
            final = ended == "given up"
            return c.FailAttempt(holder=holder, next_run_id=following, failure=BOOM, jitter=0.5, final=final)
        case "rescheduled":
            return c.Succeed(holder=holder, next_run_id=following, successor=c.Successor(due=NOW))
        case "spawned":
            entry = Entry(
                id=f"{holder.run_id}.{holder.attempt}.0",
                key=CHILD,
                run_id=f"{holder.run_id}.{holder.attempt}.{CHILD}",
                task=replace(task, policy=replace(task.policy, hooks=None)),
            )
            return c.Succeed(holder=holder, next_run_id=following, outbox=(entry,))
    return c.Succeed(holder=holder, next_run_id=following)
