"""What supervisors do about the inbox and about schedules: mirrors ``supervisor/commands``, ``marks`` and ``schedules``."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.inbox import expects_nothing, fate_of, was_cut_off
from tenure.core.outcomes import Why
from tenure.core.records import Phase
from tests.model.cells import NOTHING
from tests.model.commits import Done, InInbox, No
from tests.model.nodes import GaveUp, Shell
from tests.model.workers import Workers


class Supervisors(Workers):
    """Programs of a supervisor but for its keepers."""

    # -- supervisor/commands.py --------------------------------------------------------------------------------------

    def apply_command(self, key: str, number: int, place: int) -> Shell:
        """``Commands._take`` of one delivery; what the forgetter is told, if anything."""
        command = self.cells.commands[number]
        if not isinstance(command, c.Submit | c.Replace | c.Cancel) or command.seen is None:
            raise TypeError(command)
        if "ack last" in self.without:
            yield ("ack command", place, command.seen, "applied", "")
        try:
            result = yield from self.commit_command(key, number, place)
            why = None if isinstance(result, Done) else Why(result.why)
            if isinstance(result, Done):
                yield from self.perform(key, result.cell, result.effects)
            elif was_cut_off(why or Why.NOTHING):
                yield from self.complete(key, result.cell)
            record, fate = self.record(result.cell), fate_of(command, why)
            if fate == "crowded":
                yield ("put off",)
                return None
            if why is Why.LIVE and fate == "kept" and record is not None and record.phase is Phase.WAITING:
                yield from self.complete(key, result.cell)  # Stores.help, of one that waits for long
            cell = result.cell if isinstance(result, Done) else NOTHING
            del result, record, number
            yield ("ack command", place, command.seen, fate, why.value if why is not None else "")
        except GaveUp:  # Commands._put_off: whoever has it next finds out what happened
            yield ("put off",)
            return None
        return ("forget", key, command.seen, place, cell) if fate == "applied" else None

    def commit_command(self, key: str, number: int, place: int) -> Shell:
        """``Commands._commit``."""
        command = self.cells.commands[number]
        if not isinstance(command, c.Submit | c.Replace | c.Cancel):
            raise TypeError(command)
        blind = expects_nothing(command)
        at = NOTHING if blind else None
        result = yield from self.commit(key, number, at, check=InInbox(place, blind))
        if isinstance(command, c.Submit) and isinstance(result, No):
            lost = yield from self.lost_holder(result)
            if lost is not None:
                again = self.cells.command(replace(command, lost=lost))
                return (yield from self.commit(key, again, None, check=InInbox(place, blind=False)))
        return result

    # -- supervisor/marks.py -----------------------------------------------------------------------------------------

    def forget(self, key: str, mark: str, place: int, cell: int) -> Shell:
        """``Forgetter._lane``: once the message is gone; at what is remembered of the record, where that is something."""
        try:
            if "forget waits" not in self.without and (yield ("holds", place)):
                return
            command = self.cells.command(c.ForgetSeen(ids=frozenset({mark})))
            yield from self.commit(key, command, cell if cell != NOTHING else None)
        except GaveUp:  # the sweep finds it
            return

    # -- supervisor/releases.py --------------------------------------------------------------------------------------

    def release(self, key: str, run_id: str, cell: int, place: str) -> Shell:
        """``Parking.release``: the wake-up first, then its message is removed."""
        yield ("wake parked", key, run_id, cell)
        yield ("unpark", key, run_id, place)

    # -- supervisor/schedules.py -------------------------------------------------------------------------------------

    def ask_for(self, key: str, number: int) -> Shell:
        """``Schedules._commit``."""
        try:
            result = yield from self.commit(key, number, None)
            if isinstance(result, Done):
                yield from self.perform(key, result.cell, result.effects)
        except GaveUp:  # the next round asks again
            return
