"""The head check: from a delivered wake-up to a won claim, or to the reason why there is none.

The claim *is* the check.
"""

from __future__ import annotations

import contextlib

from msgspec import Struct
from msgspec.structs import replace

from tenure.app import App
from tenure.core import commands as c
from tenure.core.errors import EncryptedRecord, NewerSchema, StillOwed, TenureError, UnreadableRecord
from tenure.core.outcomes import Refused, Why
from tenure.core.pace import settled_by
from tenure.core.permits import Answer
from tenure.core.policy import SHORT_DELAY
from tenure.core.records import Phase, Record
from tenure.core.switches import Switch
from tenure.core.transitions import transition
from tenure.gates import LimitFull
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed, Declined, Found
from tenure.nats.work import Delivery
from tenure.stores import Stores
from tenure.telemetry import get_logger
from tenure.worker.handover import readers_of
from tenure.worker.holds import Holds
from tenure.worker.places import Places, Ticket
from tenure.worker.table import Table

_log = get_logger("tenure.worker")


class Won(Struct, frozen=True, tag=True):
    """The run is this process's: run its body, then give back its places under limits."""

    committed: Committed
    ticket: Ticket


class Drop(Struct, frozen=True, tag=True):
    """The wake-up has nothing more to say: acknowledge it.

    ``record``: what was found, at ``revision`` (0: not known); ``decided``: this check ended the run, and what that owes is
    still to be carried out.
    """

    outcome: str
    record: Record | None
    decided: Committed | None = None
    revision: int = 0


class Later(Struct, frozen=True, tag=True):
    """Look again after ``delay`` seconds (None: the usual second look). ``actor``: of a newer schema those who can read it."""

    outcome: str
    actor: str
    delay: float | None = None


Looked = Won | Drop | Later
_LONGEST_WAIT_SECONDS = 2.0
"""For what is paused and blocked to be known again; the wake-up is handed back then."""
_UNREADY_SECONDS = 1.0


class Head:
    """Claims for one session."""

    def __init__(self, app: App, stores: Stores, table: Table, holds: Holds, places: Places) -> None:
        self._app = app
        self._stores = stores
        self._table = table
        self._holds = holds
        self._places = places

    async def look(self, delivery: Delivery, run_id: str, key: str, session: str, patience: Patience) -> Looked:
        """Claim the run, or say what became of it. The caller holds the run's place in the table.

        Whatever it is, only a run that was won, or waits for somebody who knows its actor, keeps a place under a limit.
        """
        ticket = Ticket(self._places, run_id, session, again=delivery.deliveries > 1, woken=delivery.was_parked)
        try:
            looked = await self._look(delivery, key, ticket, patience)
        except Exception:  # no body will run
            with contextlib.suppress(TenureError):
                await ticket.give_back(patience)
            raise
        if not isinstance(looked, Won) and looked.outcome not in {"parked", "unknown_actor"}:
            await ticket.give_back(patience)
        return looked

    async def _look(
        self, delivery: Delivery, key: str, ticket: Ticket, patience: Patience, *, fresh: bool = False
    ) -> Looked:
        """``fresh``: what the delivery holds was read just now."""
        found, run_id, session = delivery.found, ticket.run_id, ticket.session
        if found is not None:
            ticket.met(found.record)
        try:
            if found is None or found.record is None or found.record.previous:
                found = await self._read(key, delivery, patience)
            switch, board = None, self._holds.board
            if not board.idle:
                if not board.known and not await board.until_known(_LONGEST_WAIT_SECONDS):
                    return Later("unready", "", _UNREADY_SECONDS)
                switch = None if found.record is None else await board.of(found.record, patience)
            if switch is None and found.record is not None and found.record.task.actor not in self._app.actors:
                return await self._unknown_actor(delivery, key, run_id, session, patience)
            command = c.Claim(session=session, run_id=run_id, next_run_id="", held=switch is not None)
            while True:
                result = self._limited(found, command) or await self._claim(key, command, found, patience)
                if isinstance(result, Committed):
                    return _decided(result, ticket)
                ticket.met(result.found.record)
                if switch is not None and result.refused.why is Why.HELD:
                    stale = found is delivery.found and not fresh
                    return await self._held(switch, delivery, result, ticket, patience, stale=stale)
                if result.refused.why is Why.LIMITED and result.found.record is not None:
                    if delivery.deliveries > 1 and found is delivery.found:  # what is over must not take a place
                        found = await self._read(key, delivery, patience)
                        continue
                    found, record = result.found, result.found.record
                    answer = await ticket.take(found, record, patience)
                    if answer is Answer.PARKED:
                        return Drop("parked", record, revision=found.revision)
                    if answer is Answer.BUSY:
                        return Later("busy", record.task.actor)
                    excess = ticket.slots.reason if answer is Answer.EXCESS else ""
                    permit, settled = record.attempt + 1, settled_by(record)
                    command = replace(command, permit=permit, excess=excess, settled=settled)
                    continue
                if result.refused.why is not Why.BUSY:
                    return await self._refused(result, run_id, session, patience)
                again = await self._knowing_more(command, result.found, patience)
                if again is None:
                    return self._busy(result)
                command, found = again, await self._stores.runs.read_on(key, result.found.revision, patience)
        except EncryptedRecord as error:  # another process may have the key
            _log.error("record.encrypted", key=key, run_id=run_id, key_id=error.key_id, error=str(error))
            return Later("encrypted", "", self._stores.config.ack_wait_seconds)
        except UnreadableRecord:
            return Later("unreadable", "", self._stores.config.ack_wait_seconds)
        except NewerSchema as error:
            return Later("newer_schema", readers_of(error.schema))
        except LimitFull as error:
            _log.warning("limit.full", key=key, run_id=run_id, error=str(error))
            return Later("busy", "", self._stores.config.ack_wait_seconds)

    async def _held(
        self, switch: Switch, delivery: Delivery, declined: Declined, ticket: Ticket, patience: Patience, *, stale: bool
    ) -> Looked:
        """Have the run wait for a switch; ask once more if that is gone meanwhile, or what was found is not the latest."""
        found, record = declined.found, declined.found.record
        if record is None or switch.kind == "queue":  # nobody pulls there: it goes back
            return Later("paused", record.task.actor if record is not None else "", 0.0)
        if stale:  # what is over must not wait
            found = await self._read(record.key, delivery, patience)
        elif await self._holds.park(switch, found, record, patience):
            return Drop("held", record)
        return await self._look(replace(delivery, found=found), record.key, ticket, patience, fresh=True)

    async def _read(self, key: str, delivery: Delivery, patience: Patience) -> Found:
        """What is stored, and nothing older than what was delivered: its run would be taken for over, and waits [49]."""
        return await self._stores.runs.read_on(key, delivery.since(self._stores.clock.now()), patience)

    def _limited(self, found: Found | None, command: c.Claim) -> Declined | None:
        """That the claim lacks a place, as ``_claim`` would say, at a third of the cost; else None."""
        if command.permit or found is None or found.record is None or not found.record.task.policy.limits:
            return None
        result = transition(found.record, command, self._stores.clock.now())
        return Declined(result, found) if isinstance(result, Refused) and result.why is Why.LIMITED else None

    async def _claim(self, key: str, command: c.Claim, found: Found | None, patience: Patience) -> Committed | Declined:
        def mine(record: Record) -> bool:
            """Only this delivery works on the run in this process.

            So a new holder under this session is its own claim, unless its attempt was given up here.
            """
            holder = record.holder
            return (
                holder is not None
                and (holder.session, holder.run_id) == (command.session, command.run_id)
                and holder != command.own_lost
                and not self._table.gave_up(holder)
            )

        return await self._stores.runs.commit(key, command, at=found, mine=mine, patience=patience)

    async def _refused(self, declined: Declined, run_id: str, session: str, patience: Patience) -> Looked:
        why, record = declined.refused.why, declined.found.record
        actor = record.task.actor if record else ""
        if why is Why.NOT_DUE:
            due = declined.refused.retry_at or 0.0
            if record is not None and record.settling is not None and await self._put_off(record, patience):
                return Drop("not_due", record)
            return Later("not_due", actor, max(0.0, due - self._stores.clock.now()))
        if why is Why.SUPERSEDED and record is not None and record.last is not None and record.last.run_id == run_id:
            # A second copy of its wake-up: the run had its outcome, and only then the key moved on.
            why = Why.CANCELLED if record.last.phase is Phase.CANCELLED else Why.FINISHED
        confirmed = await self._confirm_gone(declined.found, run_id, session, patience)
        try:
            if confirmed and isinstance(confirmed[-1], Committed):
                await self._stores.carry_out(confirmed[-1], patience)
            else:
                await self._stores.complete(declined.found, patience)
        except StillOwed:
            # Of an older run the key keeps no message: it has that of the newest, and would have one of each.
            if record is None or record.run_id == run_id:
                raise
        if record is not None and record.uncounted:
            await self._stores.runs.take(record.key, c.TakeCounts(tag=self._stores.clock.new_id()), patience)
        return Drop(why.value, record, revision=declined.found.revision)

    async def _put_off(self, record: Record, patience: Patience) -> bool:
        """Whether a run that was moved on by later submits has got a timer for its due, so that nobody needs look till then."""
        found, now = await self._stores.runs.read(record.key, patience), self._stores.clock.now()
        newest = found.record
        if newest is None or newest.run_id != record.run_id or newest.phase is not Phase.WAITING:
            return False
        if newest.due - now <= SHORT_DELAY:
            return False
        await self._stores.work.wake(newest, self._stores.codec.encode(newest), found.revision, now, patience)
        return True

    def _busy(self, declined: Declined) -> Looked:
        record = declined.found.record
        delay = None
        if declined.refused.retry_at is not None:
            delay = max(0.0, declined.refused.retry_at - self._stores.clock.now())
        return Later("busy", record.task.actor if record else "", delay)

    async def _unknown_actor(
        self, delivery: Delivery, key: str, run_id: str, session: str, patience: Patience
    ) -> Looked:
        """Never poison: another worker may know it. But what is void anyway is dropped here too."""
        found = await self._read(key, delivery, patience)
        result = transition(
            found.record, c.Claim(session=session, run_id=run_id, next_run_id=""), self._stores.clock.now()
        )
        refused = isinstance(getattr(result, "why", None), Why)
        if refused and result.why not in {Why.BUSY, Why.NOT_DUE}:  # type: ignore[union-attr]  # told apart one line above
            return await self._refused(Declined(result, found), run_id, session, patience)  # type: ignore[arg-type]  # a refusal
        return Later("unknown_actor", found.record.task.actor if found.record else "", None)

    async def _knowing_more(self, command: c.Claim, found: Found, patience: Patience) -> c.Claim | None:
        """The claim again, with what can be found out about those who are in its way; None if that changes nothing.

        A session without an entry is *not* closed here: only a supervisor that has watched for a ttl may conclude that.
        Bodies of this very process that are gone are confirmed.
        """
        record = found.record
        if record is None:
            return None
        gone = await self._confirm_gone(found, command.run_id, command.session, patience)
        holder = record.holder
        own = holder is not None and holder.session == command.session and not self._table.goes_on(holder)
        own_lost = holder if own else None
        named = {entry.session for entry in record.previous} | ({record.holder.session} if record.holder else set())
        closed: set[str] = set()
        drained: set[str] = set()
        for name in named - {command.session}:
            seen = await self._stores.sessions.read(name, patience)
            if seen is not None and seen.session.closed is not None:
                closed.add(name)
                if seen.session.closed == "drain":
                    drained.add(name)
        if not gone and command.closed == closed and command.own_lost == own_lost:
            return None
        return replace(
            command,
            closed=frozenset(closed),
            drained=frozenset(drained),
            own_lost=own_lost,
            next_run_id=self._stores.clock.new_id(),
        )

    async def _confirm_gone(
        self, found: Found, run_id: str, session: str, patience: Patience
    ) -> list[Committed | Declined]:
        """Take bodies of this very process that are gone out of ``previous``: what came of each attempt to.

        ``run_id`` is that of the delivery at hand, which has its run's place in the table and no body yet.
        """
        record, runs = found.record, self._stores.runs
        if record is None:
            return []
        return [
            await runs.take(
                record.key,
                c.Confirm(holder=entry.holder(), tag=self._stores.clock.new_id()),
                patience,
                since=found.revision,
            )
            for entry in record.previous
            if entry.session == session and not self._has_body(entry.run_id, entry.attempt, run_id)
        ]

    def _has_body(self, run_id: str, attempt: int, at_hand: str) -> bool:
        if run_id != at_hand and self._table.get(run_id) is not None:
            return True
        return any(
            stuck.run_id == run_id and stuck.context is not None and stuck.context.attempt == attempt
            for stuck in self._table.stuck
        )


def _decided(committed: Committed, ticket: Ticket) -> Looked:
    record = committed.record
    if record.holder is not None:  # running, or stopping if a cancel overtook the answer: ours to end either way
        return Won(committed, ticket)
    return Drop(committed.decision.did.value, record, committed)  # exhausted, or a stop whose holder is gone
