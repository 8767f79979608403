"""What supervisors and clients do with one key: mirrors ``supervisor/keepers`` and ``client``."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.dead import replay_mark, replay_of, replayed
from tenure.core.marks import place_of
from tenure.core.outcomes import Why
from tenure.core.pace import took_in
from tenure.core.records import TERMINAL, Holder, Phase
from tenure.status import cancelled_of
from tests.model.cells import NOTHING, NOW, TICK
from tests.model.commits import Done, IsThere, No
from tests.model.nodes import GaveUp, Shell
from tests.model.supervisors import Supervisors


class Shells(Supervisors):
    """Every program of the model."""

    # -- supervisor/keepers.py ---------------------------------------------------------------------------------------

    def keep(self, name: str, key: str) -> Shell:
        """``Keepers._look_after``: everything that one key owes. It never claims."""
        try:
            found = yield ("read", key)
            record = self.record(found)
            if record is None:
                return
            holder = record.holder
            named = {entry.session for entry in record.previous} | ({holder.session} if holder else set())
            gone, _ = yield ("sessions", tuple(sorted(named)))
            del named
            if holder is not None and record.phase is Phase.RUNNING and holder.session in gone:
                yield ("wake", key, found)  # Keepers._take_over [31]
            elif holder is not None:
                found = yield from self.end_overdue(name, key, found, holder, gone)
            del record, holder
            found = yield from self.expire_previous(name, key, found, gone)
            del gone
            found = yield from self.take_counts(name, key, found)
            yield from self.complete(key, found)
            yield from self.forget_seen(key, found)
        except GaveUp:  # the next sweep finds it again
            return

    def end_overdue(self, name: str, key: str, found: int, holder: Holder, gone: frozenset[str]) -> Shell:
        """``Keepers._end_overdue``: a stop whose holder is dead or whose grace is over, a body past its deadline [30]."""
        now = NOW + TICK * (yield ("clock?",))
        record = self.record(found)
        due = None
        if record is not None and record.phase is Phase.STOPPING:
            due = record.stop.deadline if record.stop is not None else 0.0
        elif record is not None and record.deadline is not None:
            due = record.deadline + record.task.policy.grace
        closed = gone & {holder.session}
        if not closed and (due is None or now < due):
            return found
        command = c.Evict(
            holder=holder, next_run_id=f"{holder.run_id}+{name}", jitter=0.5, closed=closed, tag=f"{name}!"
        )
        del due, record, now, closed
        result = yield from self.take(key, command, found)
        if isinstance(result, No):
            return result.cell
        yield from self.count_ended(result)
        yield from self.perform(key, result.cell, result.effects)
        return result.cell

    def expire_previous(self, name: str, key: str, found: int, gone: frozenset[str]) -> Shell:
        """``Keepers._expire_previous``."""
        record = self.record(found)
        if record is None or not record.previous:
            return found
        del record
        result = yield from self.take(key, c.ExpirePrevious(closed=gone, tag=name), found)
        if isinstance(result, Done):
            yield from self.perform(key, result.cell, result.effects)
        return result.cell

    def take_counts(self, name: str, key: str, found: int) -> Shell:
        """``Keepers._take_counts``."""
        record = self.record(found)
        if record is None or not record.uncounted:
            return found
        return (yield from self.take(key, c.TakeCounts(tag=f"{name}#"), found)).cell

    def forget_seen(self, key: str, found: int) -> Shell:
        """``Keepers._forget_seen``: entries that their origins hold no longer [7], commands that the inbox does not."""
        record = self.record(found)
        forget: set[str] = set()
        for seen in record.to_forget if record is not None else ():
            place = place_of(seen)
            if place is not None:
                if "sweep looks" in self.without or not (yield ("holds", place.sequence)):
                    forget |= {seen.id}
                continue
            run_id = replayed(seen)
            if run_id is not None:
                for letter in (yield ("letters",)):
                    if self.cells.letters[letter].run_id == run_id:
                        yield ("remove letter", letter)
                forget |= {seen.id}
                continue
            origin = self.record((yield ("read", seen.origin)))
            if origin is None or not any(entry.id == seen.id for entry in origin.outbox):
                forget |= {seen.id}
            del origin
        if forget:
            yield from self.commit(key, self.cells.command(c.ForgetSeen(ids=frozenset(forget))), found)

    # -- client.py ---------------------------------------------------------------------------------------------------

    def start(self, number: int) -> Shell:
        """``Client._start``: optimistic create; a run whose holder is lost and whose budget is spent is not joined [29]."""
        command = self.cells.commands[number]
        if not isinstance(command, c.Submit | c.Replace):
            raise TypeError(command)
        try:
            return (yield from self.started(command, number))
        except GaveUp:
            return "unknown", command.run_id

    def started(self, command: c.Submit | c.Replace, number: int) -> Shell:
        """The same, until it is certain."""
        key, once = command.key, ("trace", command.run_id)
        result = yield from self.commit(key, number, NOTHING, once=once)
        if isinstance(command, c.Submit) and isinstance(result, No) and not result.unsure:
            lost = yield from self.lost_holder(result)
            if lost is not None:
                again = self.cells.command(replace(command, lost=lost))
                result = yield from self.commit(key, again, result.cell, once=once)
        if isinstance(result, Done):
            yield from self.perform(key, result.cell, result.effects)
            return self.told(command, result.cell)
        if result.why == Why.ALREADY.value:
            yield from self.complete(key, result.cell)
            return self.told(command, result.cell)
        record = self.record(result.cell)
        if record is not None and record.phase is Phase.WAITING:  # Client._help, of one that waits for long
            yield from self.complete(key, result.cell)
        return result.why, record.run_id if record is not None else ""

    def told(self, command: c.Submit | c.Replace, cell: int) -> tuple[str, str]:
        """A submit that is stored: taken in by a run that waits, or a run of its own."""
        record = self.record(cell)
        if record is not None and took_in(record, command.run_id):
            return "kept", record.run_id
        return "accepted", command.run_id

    def trigger(self, key: str) -> Shell:
        """``Client._start_early``: pinned to the run that it saw, as a cancel is [10]."""
        pin = ""
        try:
            while True:
                found = yield ("read", key)
                record = self.record(found)
                if record is None:
                    return "not_found", ""
                pin = record.run_id
                command = c.Trigger(run_id=None if "pin" in self.without else pin)
                del record
                result = yield from self.commit(key, self.cells.command(command), found)
                if isinstance(result, Done):
                    yield from self.perform(key, result.cell, result.effects)
                    return "triggered", pin
                after = self.record(result.cell)
                if (after is None or after.run_id != pin) and not result.unsure:
                    del found, result, after, command
                    continue
                if result.why == Why.ALREADY.value:
                    yield from self.complete(key, result.cell)
                return result.why, pin
        except GaveUp:
            return "unknown", pin

    def replay(self, key: str) -> Shell:
        """``DeadLetters.replay``: of the newest letter, which is looked for again after the key was read; then it is removed."""
        letters = yield ("letters",)
        if not letters:
            return "not_found", ""
        letter = max(letters)
        del letters
        command = replay_of(self.cells.letters[letter])
        once = ("trace", command.run_id)
        try:
            result = yield from self.commit(key, self.cells.command(command), NOTHING, check=IsThere(letter), once=once)
            if isinstance(result, Done):
                yield from self.perform(key, result.cell, result.effects)
            elif result.why == Why.ALREADY.value:
                yield from self.complete(key, result.cell)
            elif result.why != Why.NOTHING.value:
                return result.why, ""
            del result, once
            yield from self.forget_letter(key, letter)
        except GaveUp:
            return "unknown", command.run_id
        return "kept", command.run_id

    def forget_letter(self, key: str, letter: int) -> Shell:
        """``DeadLetters._forget``: the letter, and then the memory of its replay."""
        mark = replay_mark(self.cells.letters[letter])
        if "letter first" not in self.without:
            yield ("remove letter", letter)
        yield from self.commit(key, self.cells.command(c.ForgetSeen(ids=frozenset({mark}))), None)
        if "letter first" in self.without:
            yield ("remove letter", letter)

    def cancel(self, key: str) -> Shell:
        """``Client.cancel``: pinned to the run that it saw first; a pin of unknown fate stays [10]."""
        pin = ""
        try:
            while True:
                found = yield ("read", key)
                record = self.record(found)
                if record is None:
                    return "not_found", ""
                pin = record.run_id
                command = c.Cancel(run_id=None if "pin" in self.without else pin, reason="enough")
                del record
                result = yield from self.commit(key, self.cells.command(command), found)
                if isinstance(result, Done):
                    yield from self.perform(key, result.cell, result.effects)
                    after = self.record(result.cell)
                    return cancelled_of(after, pin).outcome if after is not None else "not_found", pin
                after = self.record(result.cell)
                if after is not None and after.run_id != pin and after.phase not in TERMINAL and not result.unsure:
                    del found, result, after, command
                    continue
                if after is None:
                    return "not_found", pin
                if result.why == Why.STOPPING.value:
                    yield from self.complete(key, result.cell)
                    return "stopping", pin
                mine = result.unsure and after.phase is Phase.CANCELLED and after.run_id == pin
                return "cancelled" if mine else "finished", pin
        except GaveUp:
            return "unknown", pin

    def purge(self, key: str) -> Shell:
        """``Client.purge``."""
        try:
            result = yield from self.commit(key, self.cells.command(c.Purge()), None, once=("absent", ""))
        except GaveUp:
            return "unknown", ""
        if isinstance(result, Done):
            return "purged", ""
        return "not_purged" if self.record(result.cell) is not None or not result.unsure else "purged", ""
