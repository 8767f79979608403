"""The client: submit, replace, cancel, look, wait.

Every change is a command decided by the core and stored by one CAS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec.structs import replace

from tenure.actors import Call, check_call
from tenure.afterwards import Afterwards, is_due, is_told
from tenure.bulk import Bulk
from tenure.checks import about_run, check_choice, check_reason, check_run_id, refusal
from tenure.core import commands as c
from tenure.core.errors import InvalidCall, KeyIsLive, OutcomeUnknown, StillOwed, TenureError, Unavailable
from tenure.core.generations import leaves_trace
from tenure.core.history import Step, steps
from tenure.core.outcomes import Why
from tenure.core.pace import took_in
from tenure.core.records import TERMINAL, Overlap, Phase, Record
from tenure.core.subjects import check_key
from tenure.dead import DeadLetters
from tenure.holds import Holding
from tenure.loops import running_loop
from tenure.metrics import ClientMetrics
from tenure.nats.runs import NOTHING, Committed, Declined
from tenure.run import Run
from tenure.status import Cancelled, Status, cancelled_of, status_of
from tenure.stores import Stores
from tenure.telemetry import get_logger
from tenure.times import due_time
from tenure.tracing import Tracing, find_tracing
from tenure.unread import end_stop, forgettable

if TYPE_CHECKING:
    from tenure.app import App

_log = get_logger("tenure.client")
Res = TypeVar("Res")
_ACCEPTED = {True: "accepted", False: "kept"}


class Client(Holding, Bulk):
    """A connection to one namespace.

    Made by ``app.connect()``; use it as an async context manager, from one event loop.
    """

    def __init__(self, app: App, url: str, options: dict[str, Any]) -> None:
        self.app = app
        self._url = url
        self._options = options
        self._stores: Stores | None = None
        self._afterwards = Afterwards()
        self.dead = DeadLetters(self)
        """Runs that failed for good: list, get, replay, purge."""
        self.metrics = ClientMetrics()
        """What it counts; ``client.metrics.registry`` is for prometheus-client, as ``start_http_server(port, registry=...)``."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tracing: Tracing | None = None

    @classmethod
    def over(cls, app: App, stores: Stores) -> Client:
        """A client on stores that somebody else opens and closes, in the loop that runs now."""
        client = cls(app, "", {})
        client._stores, client._loop, client._tracing = stores, asyncio.get_running_loop(), find_tracing()
        return client

    async def __aenter__(self) -> Self:
        """Connect.

        Raises Unavailable if no server answers, ConfigError if it or what is stored there cannot be used.
        """
        if self._stores is None:
            self._loop, self._tracing = asyncio.get_running_loop(), find_tracing()
            name = f"tenure-client-{self.app.namespace}"
            self._stores = await self.app.open_stores(self._url, name, self._options)
            self._stores.runs.conflicts = self.metrics.conflict
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Close the connection."""
        await self.close()

    async def close(self) -> None:
        """Close the connection; closing twice is harmless."""
        stores, self._stores = self._stores, None
        await self._afterwards.close()
        if stores is not None:
            await stores.close()

    @property
    def stores(self) -> Stores:
        """The stores behind this client. Raises TenureError while it is not connected, and in another event loop."""
        if self._stores is None:
            msg = "the client is not connected: use it as `async with app.connect() as client`"
            raise TenureError(msg)
        running = running_loop()
        if running is not self._loop and running is not None:
            msg = "the client belongs to another event loop: connect one client in each loop"
            raise TenureError(msg)
        return self._stores

    def now(self) -> float:
        """The client's wall clock, seconds since the epoch."""
        return self.stores.clock.now()

    # -- start -------------------------------------------------------------------------------------------------------

    async def submit(
        self,
        call: Call[Res],
        *,
        key: str | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        if_live: c.IfLive = "keep",
        if_differs: c.IfDiffers = "keep",
    ) -> Run[Res]:
        """Start a run of ``key`` (None: a new ULID) unless one is live, and return its handle.

        ``delay`` seconds from now or ``at`` an aware datetime. ``if_live``: keep the live run (``run.accepted`` is
        False), replace it, or reject with KeyIsLive. ``if_differs``: what if the live run has another actor or other
        arguments: keep it, replace it, or KeyConflict. Raises InvalidCall, Unavailable (nothing happened: try again),
        OutcomeUnknown (it may be stored, or is stored and may start late: look before you repeat it, or repeat it under
        the same key).
        """
        check_call(call, self.app.namespace)
        check_choice("if_live", if_live, ("keep", "replace", "reject"))
        check_choice("if_differs", if_differs, ("keep", "replace", "error"))
        stores = self.stores
        run_id = stores.clock.new_id()
        key = run_id if key is None else check_key(key)
        due = due_time(delay, at, stores.clock.now())
        command = c.Submit(
            key=key,
            run_id=run_id,
            task=await stores.with_args(call.task, call.args, run_id, key=key),
            due=due,
            if_live=if_live,
            if_differs=if_differs,
        )
        return await self._start(command, call.result_type)

    async def replace(
        self,
        call: Call[Res],
        *,
        key: str,
        overlap: Overlap = "stop",
        delay: float | timedelta | None = None,
        at: datetime | None = None,
    ) -> Run[Res]:
        """Start a new generation of ``key`` whatever it is doing; every older one is void from then on.

        ``overlap``, for bodies of older generations that still run: ``stop`` tells them to stop and starts when they
        have ended (or their grace is over), ``wait`` lets them end by themselves first, ``parallel`` starts beside
        them. Raises as ``submit``.
        """
        check_call(call, self.app.namespace)
        call = call.with_overlap(overlap)
        key = check_key(key)
        stores = self.stores
        run_id = stores.clock.new_id()
        due = due_time(delay, at, stores.clock.now())
        task = await stores.with_args(call.task, call.args, run_id, key=key)
        command = c.Replace(key=key, run_id=run_id, task=task, due=due)
        return await self._start(command, call.result_type)

    async def _start(
        self, command: c.Submit | c.Replace, result_type: Any, check: Callable[[], Awaitable[bool]] | None = None
    ) -> Run[Any]:
        call = type(command).__name__.lower()

        async def start(command: c.Submit | c.Replace) -> Run[Any]:
            work = self._store(command, result_type, check)
            return await self.metrics.tell(call, work, lambda run: _ACCEPTED[run.accepted], self.stores.clock)

        return await (start(command) if self._tracing is None else self._tracing.start(command, start))

    async def _store(
        self, command: c.Submit | c.Replace, result_type: Any, check: Callable[[], Awaitable[bool]] | None
    ) -> Run[Any]:
        stores = self.stores
        runs, patience = stores.runs, stores.runs.patience()

        def once(record: Record | None) -> bool:
            return record is not None and leaves_trace(record, command.run_id)

        try:
            result = await runs.commit(command.key, command, at=NOTHING, check=check, once=once, patience=patience)
            if isinstance(command, c.Submit) and isinstance(result, Declined) and not result.unsure:
                lost = await stores.lost_holder(result)
                if lost is not None:
                    command = replace(command, lost=lost)
                    result = await runs.commit(
                        command.key, command, at=result.found, check=check, once=once, patience=patience
                    )
            if isinstance(result, Declined):
                return await self._declined(command, result, result_type)
            record = result.record
            await self._effected(self.stores.carry_out(result, patience), about_run(record, result.revision))
        except asyncio.CancelledError:
            self._afterwards.finish(stores, command.key, once)
            raise
        own = record.run_id == command.run_id  # else it was taken in by a run that waits
        return Run.of(self, record, record.run_id, result.revision, accepted=own, result_type=result_type)

    async def _effected(self, effects: Awaitable[object], about: dict[str, Any]) -> None:
        """Effects of a write that is stored for ever, whatever becomes of them.

        So their failure is never "nothing happened".
        """
        try:
            await effects
        except StillOwed as error:  # what an older run of the key owes to others is not this caller's affair
            _log.warning("outbox.unpaid", key=about["key"], run_id=about["run_id"], error=str(error))
        except (Unavailable, OutcomeUnknown) as error:  # the latter of a record that this one has to do with
            msg = f"what was asked of {about['key']!r} is stored, but takes effect late: {error}"
            raise OutcomeUnknown(msg, **about) from error

    async def _declined(self, command: c.Submit | c.Replace, result: Declined, result_type: Any) -> Run[Any]:
        record, revision, why = result.found.record, result.found.revision, result.refused.why
        if why is Why.NOTHING:  # ``check`` said no: somebody else has done it
            return Run(self, command.key, run_id=command.run_id, accepted=False, result_type=result_type)
        if record is None:
            msg = f"{command.key!r}: refused ({why})"
            raise TenureError(msg).about(key=command.key, run_id=command.run_id)
        if why is Why.ALREADY:  # this very submit, applied by a write whose answer was lost
            owed = self.stores.complete(result.found, self.stores.runs.patience())
            await self._effected(owed, about_run(record, revision, command.run_id))
            if took_in(record, command.run_id):
                return Run.of(self, record, record.run_id, revision, accepted=False, result_type=result_type)
            return Run.of(self, record, command.run_id, revision, accepted=True, result_type=result_type)
        reject = isinstance(command, c.Submit) and command.if_live == "reject"
        error = refusal(record, revision, why, reject=reject, now=self.now())
        if error is not None:
            raise error
        await self.stores.help(result.found, self.stores.runs.patience())
        return Run.of(self, record, record.run_id, revision, accepted=False, result_type=result_type)

    async def _start_early(self, key: str) -> Run[Any]:
        stores, patience = self.stores, self.stores.runs.patience()
        while True:
            found = await stores.runs.read_for(key, c.Trigger(), patience)
            if found.record is None:
                msg = f"there is no key {key!r}"
                raise InvalidCall(msg, field="key").about(key=key)
            pin = found.record
            try:
                result = await stores.runs.commit(key, c.Trigger(run_id=pin.run_id), at=found, patience=patience)
                if isinstance(result, Committed):
                    await self._effected(stores.carry_out(result, patience), about_run(result.record, result.revision))
                    return Run.of(self, pin, pin.run_id, result.revision, accepted=True, result_type=Any)
                now = result.found.record
                if (now is None or now.run_id != pin.run_id) and not result.unsure:
                    continue  # refused for certain: look again; of unknown fate, the next run is not to start [10]
                due = result.refused.why is Why.ALREADY  # perhaps made so by this very call
                if due:
                    await self._effected(stores.complete(result.found, patience), about_run(pin, result.found.revision))
                return Run.of(self, pin, pin.run_id, result.found.revision, accepted=due, result_type=Any)
            except asyncio.CancelledError:
                self._afterwards.finish(stores, key, partial(is_due, pin.run_id, stores.clock.now))
                raise

    # -- look --------------------------------------------------------------------------------------------------------

    def run(self, key: str) -> Run[Any]:
        """A handle to the current generation of a key: bound when first used, or by ``await client.run(key)``."""
        return Run(self, check_key(key), accepted=False, result_type=Any)

    async def status(self, key: str) -> Status | None:
        """Status of the key's current generation, None if there is no such key. Raises InvalidCall, Unavailable."""
        found = await self.stores.runs.read(check_key(key))
        return None if found.record is None else await self.with_progress(status_of(found.record, self.now()))

    async def with_progress(self, status: Status) -> Status:
        """The status together with the latest progress of its body, where it runs."""
        if status.phase not in {"running", "stopping"}:
            return status
        return replace(status, progress=await self.stores.sessions.progress(status.key, status.run_id))

    async def history(self, key: str) -> list[Step]:
        """What happened to a key, the oldest first: who claimed, who was refused and why, generation by generation.

        Of the last ``history_days``, also of a key that is gone by now. Best effort: under load single steps may be missing.
        Raises InvalidCall, Unavailable, TenureError (no history is kept).
        """
        stores = self.stores
        written, told = await stores.history.read(check_key(key), stores.runs.patience())
        return steps(written, told, self.now())

    # -- end ---------------------------------------------------------------------------------------------------------

    async def cancel(
        self, key: str, *, run_id: str | None = None, reason: str = "", encrypted: bool = False
    ) -> Cancelled:
        """Cancel the run ``run_id`` of ``key``, or, without it, the one that is current when the key is first read.

        Accepted means for ever: a run that is ``stopping`` ends ``cancelled`` whatever its body does. Cancelling an
        absent key stores nothing. A run that the key does not show any more, or never had, is ``finished``. ``reason``: at
        most 4096 bytes. Raises InvalidCall, Unavailable, OutcomeUnknown, EncryptedRecord.

        ``encrypted``: also of a record that does not open, because its key is lost. It is given no reason, its ``on_cancel`` is
        not submitted, and where its process is gone it ends at once (else when this is repeated after its grace).
        """
        key, run_id, reason = check_key(key), check_run_id(run_id), check_reason(reason)
        if encrypted and reason:
            raise InvalidCall("reason cannot be kept with what does not open", field="reason")
        work = self._cancel_unread(key, run_id) if encrypted else self._cancel(key, run_id, reason)
        return await self._ended(key, work)

    async def _cancel_run(self, key: str, run_id: str, reason: str, since: int) -> Cancelled:
        return await self._ended(key, self._cancel(key, run_id, check_reason(reason), since=since))

    async def _ended(self, key: str, work: Awaitable[Cancelled]) -> Cancelled:
        done = self.metrics.tell("cancel", work, lambda out: out.outcome, self.stores.clock)
        return await (done if self._tracing is None else self._tracing.cancel(key, done))

    async def _cancel_unread(self, key: str, run_id: str | None) -> Cancelled:
        told = await self._cancel(key, run_id, "", blind=True)
        return await end_stop(self.stores, told) if told.outcome == "stopping" else told

    async def _cancel(
        self, key: str, run_id: str | None, reason: str, *, blind: bool = False, since: int = 0
    ) -> Cancelled:
        stores, runs = self.stores, self.stores.runs
        while True:
            patience = runs.patience()
            found = await runs.read_for(key, c.Cancel(run_id=run_id), patience, blind=blind, since=since)
            if found.record is None:
                return Cancelled(outcome="not_found", key=key)
            pin = run_id or found.record.run_id
            try:
                command = c.Cancel(run_id=pin, reason=reason)
                result = await runs.commit(key, command, at=found, patience=patience, blind=blind)
                if isinstance(result, Committed):
                    about = about_run(result.record, result.revision, pin)
                    await self._effected(stores.carry_out(result, patience), about)
                    return cancelled_of(result.record, pin)
                record = result.found.record
                moved_on = record is not None and record.run_id != pin and record.phase not in TERMINAL
                if run_id is None and moved_on and not result.unsure:
                    continue  # refused for certain: look again; a pin of unknown fate stays [10]
                return await self._not_cancelled(key, pin, result)
            except asyncio.CancelledError:
                self._afterwards.finish(stores, key, partial(is_told, pin))
                raise

    async def _not_cancelled(self, key: str, pin: str, result: Declined) -> Cancelled:
        record = result.found.record
        if record is None:
            return Cancelled(outcome="not_found", key=key)
        if result.refused.why is Why.STOPPING:
            owed = self.stores.complete(result.found, self.stores.runs.patience())
            await self._effected(owed, about_run(record, result.found.revision, pin))
            return cancelled_of(record, pin, "stopping")
        mine = result.unsure and record.phase is Phase.CANCELLED and record.run_id == pin
        return cancelled_of(record, pin, "cancelled" if mine else "finished")

    async def trigger(self, key: str) -> Run[Any]:
        """Start the waiting run of ``key`` now, whenever it is due, and return its handle: the one that is read first.

        A perpetual key keeps its schedule: the fire that was to come comes all the same. ``run.accepted`` is False where it
        waits no more: it runs already, or is over (where an answer was lost, perhaps because of this call). Raises
        InvalidCall (there is no such key), Unavailable, OutcomeUnknown.
        """
        return await self._start_early(check_key(key))

    async def purge(self, key: str, *, run_id: str | None = None, encrypted: bool = False) -> bool:
        """Forget a key that does not run and owes nothing: the next submit starts a new life at generation 1.

        A run that only waits is forgotten with its key and never starts; who waits for it gets RunSuperseded.

        ``run_id``: only while that run is the key's current one. False if there was nothing. Raises KeyIsLive while a body
        may run or something of it is still owed to another key, OutcomeUnknown if it may be purged and was submitted anew
        since, EncryptedRecord.

        ``encrypted``: also of a record that does not open, because its key is lost; what it owes to others is lost with it.
        """
        key, run_id = check_key(key), check_run_id(run_id)
        command, stores = c.Purge(run_id=run_id or ""), self.stores
        at = await forgettable(stores, key, command, blind=encrypted)
        # After a write of unknown fate a record is the next life, not the one that was to be forgotten.
        result = await stores.runs.commit(key, command, at=at, once=lambda record: record is None, blind=encrypted)
        if isinstance(result, Committed):
            return True
        record = result.found.record
        if record is None or result.refused.why is Why.SUPERSEDED:
            return record is None and result.unsure
        live = result.refused.why is Why.LIVE
        what = "a body of it may still run" if live else "it still owes something to another run"
        msg = f"{key!r} cannot be purged: {what}"
        raise KeyIsLive(msg, **about_run(record, result.found.revision))
