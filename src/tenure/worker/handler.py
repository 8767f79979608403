"""One wake-up from delivery to answer: head, body, tail, effects, ack - in that order, ack last.

Every step returns an outcome; the order is the protocol. Counting happens here, by who won or was refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, assert_never

import msgspec

from tenure.context import Context
from tenure.core.errors import NewerSchema, StillOwed, TenureError, UnreadableRecord
from tenure.core.outcomes import Did, Why
from tenure.core.policy import second_look
from tenure.core.records import Phase, Record
from tenure.lease import Lease
from tenure.metrics import Metrics
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed, Found
from tenure.nats.work import Delivery
from tenure.stores import Stores
from tenure.telemetry import get_logger
from tenure.tracing import find_tracing
from tenure.worker.arguments import arguments
from tenure.worker.body import Ended, Halted, run_body
from tenure.worker.brink import rest_of
from tenure.worker.counting import Counting
from tenure.worker.handover import Offers
from tenure.worker.head import Drop, Head, Later, Won
from tenure.worker.holds import Holds
from tenure.worker.isolate import Children, Remote
from tenure.worker.notes import Notes, Spawn
from tenure.worker.places import Places, is_bounded
from tenure.worker.refusals import tell_head, tell_tail
from tenure.worker.spans import RunSpans
from tenure.worker.table import Live, Table
from tenure.worker.tail import Stored, Tail, Void, holder_of

if TYPE_CHECKING:
    from tenure.app import App

_log = get_logger("tenure.run")
_verbose = partial(logging.getLogger("tenure.run").isEnabledFor, logging.DEBUG)
"""A bound log call that is filtered out still costs 2 us, a fiftieth of a task."""
_SWITCHES_SECONDS = 2.0
"""So long a run that was claimed waits for what is paused and blocked to be known again; then it is handed back."""
_MOST_THREADS = 100_000
"""No bound of its own.

Threads are bounded by the worker's slots; a body that never ends must not take another's thread.
"""


class Handler:
    """Handles deliveries for one worker."""

    def __init__(
        self, app: App, stores: Stores, table: Table, metrics: Metrics, *, holds: Holds, places: Places
    ) -> None:
        self._app = app
        self._stores = stores
        self._table = table
        self._metrics = metrics
        self._counting = Counting(metrics, stores.clock)
        self._holds = holds
        self._tracing = find_tracing()
        self._head = Head(app, stores, table, holds, places)
        self._tail = Tail(stores)
        self._offers = Offers(stores, metrics)
        self.spawn: Spawn | None = None
        """Starts a task that the service looks after; None while it does not run."""
        self._notes = Notes(stores, lambda: self.spawn)
        self._children = Children(stores.config, stores.clock)
        self._isolates = any(actor.home is not None for actor in app.actors.values())
        self._pool = ThreadPoolExecutor(max_workers=_MOST_THREADS, thread_name_prefix="tenure-body")

    async def close(self) -> None:
        """Let the threads go, a plain body that still runs keeps its own until it ends; end the child processes."""
        await self._children.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def handle(self, live: Live, delivery: Delivery, lease: Lease, patience: Patience) -> None:
        """Do everything that a wake-up asks for.

        Raises Unavailable or OutcomeUnknown once the session is not trusted any more.
        """
        work = self._stores.work
        if self._tracing is not None:
            live.spans = RunSpans(self._tracing)
        if live.told is not None:  # the drain signal came first
            await work.nak(live.reply)
            return
        if not self._isolates:
            await self._claim_and_run(live, delivery, lease, patience)
            return
        try:
            delivery = await self._with_record(delivery, live.key, patience)
            try:
                ready = await self._make_ready(live, delivery.found)
            except OSError as error:  # no process can be started now: no reason to spend an attempt
                _log.error("child.not_started", key=live.key, run_id=live.run_id, error=str(error))
                await work.nak(live.reply, second_look(delivery.deliveries, self._stores.config.ack_wait_seconds))
                return
            if ready:
                await self._claim_and_run(live, delivery, lease, patience)
            else:
                await work.nak(live.reply)
        finally:
            if isinstance(live.remote, Remote):
                await live.remote.release()

    async def _claim_and_run(self, live: Live, delivery: Delivery, lease: Lease, patience: Patience) -> None:
        work = self._stores.work
        looked = await self._head.look(delivery, live.run_id, live.key, lease.id, patience)
        if live.spans is not None:
            live.spans.woken(live, delivery, looked)
        match looked:
            case Won(committed, ticket):
                self._counting.claim(committed)
                live.ticket = ticket if ticket.is_used or is_bounded(committed.record.task) else None
                await self._run(live, committed, lease, patience)
            case Drop(outcome, record, decided):
                self._counting.drop(outcome, record, decided=decided is not None)
                await tell_head(self._stores.history, live, delivery, looked, lease.id)
                if decided is not None:
                    await self._stores.carry_out(decided, patience)
                await work.ack(live.reply)
            case Later("unknown_actor", actor):
                await self._offers.place(delivery, actor)
            case Later("newer_schema", readers):
                await tell_head(self._stores.history, live, delivery, looked, lease.id)
                await self._offers.place(delivery, readers, "newer_schema")
            case Later(outcome, actor, delay):
                self._metrics.claims[actor, outcome] += 1
                await tell_head(self._stores.history, live, delivery, looked, lease.id)
                longest = self._stores.config.ack_wait_seconds  # nobody else sees it meanwhile, and we may be wrong
                if outcome == "unreadable":
                    _log.error("record.unreadable", key=live.key, run_id=live.run_id)
                ceiling = longest if outcome == "not_due" else second_look(delivery.deliveries, longest)
                if delay is not None and outcome == "not_due":
                    delay = rest_of(delivery, delay)
                await work.nak(live.reply, ceiling if delay is None else min(ceiling, delay))
            case _:
                assert_never(looked)

    # -- child processes ---------------------------------------------------------------------------------------------

    async def _with_record(self, delivery: Delivery, key: str, patience: Patience) -> Delivery:
        """The record is too large for its wake-up: read it now, to know whether its body needs a child process."""
        if delivery.found is not None:
            return delivery
        with contextlib.suppress(NewerSchema, UnreadableRecord):  # the head check says what becomes of it
            since = delivery.since(self._stores.clock.now())
            return msgspec.structs.replace(delivery, found=await self._stores.runs.read_on(key, since, patience))
        return delivery

    async def _make_ready(self, live: Live, found: Found | None) -> bool:
        """A child process for the run, if its actor wants one, before it is claimed. False: told to stop meanwhile."""
        record = found.record if found is not None else None
        actor = self._app.actors.get(record.task.actor) if record is not None else None
        if actor is None or actor.home is None or live.remote is not None:
            return True
        live.remote = remote = Remote(self._children, live, actor, actor.home)
        return await remote.make_ready()

    # -- body and tail -----------------------------------------------------------------------------------------------

    async def _run(self, live: Live, committed: Committed, lease: Lease, patience: Patience) -> None:
        try:
            await self._run_claimed(live, committed, lease, patience)
        except (
            TenureError
        ):  # trust is over, if only for a moment: a supervisor finds its places, if its process does not go on
            if live.ticket is not None and not live.in_body and not live.in_thread:
                live.ticket.leave()
            raise
        except Exception:  # a defect of ours ends this run's handling, and not its limits
            if not live.in_body and not live.in_thread:
                await self._give_back_unhurt(live)
            raise

    async def _run_claimed(self, live: Live, committed: Committed, lease: Lease, patience: Patience) -> None:
        record = committed.record
        context = self._context(live, record, committed.revision, lease)
        if not lease.trusted:  # since the claim was sent: it may be another's already
            live.tell("lease_lost")
        if record.phase is Phase.STOPPING:  # a cancel overtook the answer to the claim, and its signal may never come
            live.tell("cancel")
        if committed.decision.effects:
            try:
                await self._stores.carry_out(committed, patience)
            except StillOwed as error:  # an old debt to another key: no reason not to run
                _log.error("outbox.unpaid", key=live.key, run_id=live.run_id, error=str(error))
        metrics, actor = self._metrics, record.task.actor
        known = actor in self._app.actors  # still: somebody may have written over the record since it was looked at
        placed = known and (live.ticket is None or await live.ticket.place())
        metrics.in_progress[actor] += 1
        started = self._stores.clock.steady()
        try:
            ended = await self._body(live, context, record, patience) if placed else Halted()
        finally:
            metrics.in_progress[actor] -= 1
            metrics.run_seconds[actor].observe(self._stores.clock.steady() - started)
            live.forget_timers()
        if live.ticket is None and len(self._table) > 1:  # other bodies that may start do so first
            await asyncio.sleep(0)
        if live.abandoned:
            return
        if live.evicted:
            with contextlib.suppress(StillOwed):  # the message is not ours any more
                await self._tail.confirm(live.key, holder_of(context), patience)
            return
        giving = None
        if live.ticket is not None and live.ticket.pass_on(patience):
            live.ticket = None
        elif live.ticket is not None:
            giving = asyncio.create_task(self._give_back(live, patience))
        try:
            done = await self._tail.store(context, record.task, ended, Found(record, committed.revision), patience)
        finally:
            if giving is not None:  # the body has ended, whatever comes of its outcome
                await giving
        if live.spans is not None:
            live.spans.tell(done)
        if isinstance(done, Void):
            await self._void(live, context, actor, done, patience)
            live.answered = True
            return
        live.answered = True
        self._counting.stored(actor, done.did)
        self._tell_end(live, context, done)
        try:
            await self._tail.settle(done, live.run_id, patience)
        except StillOwed as error:
            if done.is_last:
                raise
            # The key goes on by a wake-up of its own, which is stored: this one would be one more, for each attempt.
            _log.error("outbox.unpaid", key=live.key, run_id=live.run_id, error=str(error))
        await self._stores.work.ack(live.reply)

    async def _give_back(self, live: Live, patience: Patience) -> None:
        """The body has ended, or is void and past its grace: others may have its places under limits."""
        ticket, live.ticket = live.ticket, None
        if ticket is not None:
            await ticket.give_back(patience)

    async def _give_back_unhurt(self, live: Live) -> None:
        try:
            await self._give_back(live, Patience(self._stores.clock, self._stores.config.patience_seconds))
        except TenureError as error:  # a supervisor finds a place whose attempt is over
            _log.warning("place.not_given_back", key=live.key, run_id=live.run_id, error=str(error))

    def _tell_end(self, live: Live, context: Context, done: Stored) -> None:
        about = {"key": live.key, "run_id": live.run_id, "attempt": context.attempt}
        if done.failure is not None:
            _log.info("attempt.failed", **about, error=done.failure.type, retried=done.did == Did.RETRIED.value)
        elif _verbose():
            _log.debug("run.ended", **about, outcome=done.did)

    async def _body(self, live: Live, context: Context, record: Record, patience: Patience) -> Ended:
        actor = self._app.actors[record.task.actor]
        args = await arguments(self._stores, live, record, patience)
        if not isinstance(args, bytes):
            return args
        limit = self._stores.config.traceback_limit_bytes
        if actor.home is not None:
            await self._make_ready(live, Found(record, 0))  # unless it is: what was read before the claim may be stale
        board = self._holds.board
        if not board.idle and (not await board.until_known(_SWITCHES_SECONDS) or board.now(record, args)):
            live.tell("drain")  # switched off while the claim was under way: it goes back, and is held there
        self._start_timers(live, record)
        if live.ticket is not None and live.told is None and not await live.ticket.slots.begin(patience):
            return Halted()
        if not board.idle and (not board.known or board.now(record, args)):  # that may have taken its time
            live.tell("drain")
        body = (
            live.remote.run(context, args, partial(self._notes.note, live), limit)
            if isinstance(live.remote, Remote)
            else run_body(actor, context, live, args, self._pool, limit)
        )
        return await (body if live.spans is None else live.spans.around(body, record, context))

    async def _void(self, live: Live, context: Context, actor: str, void: Void, patience: Patience) -> None:
        about = {"key": live.key, "generation": context.generation, "attempt": context.attempt, "run_id": live.run_id}
        fenced = void.why is Why.FENCED
        if fenced:
            self._metrics.fenced[actor] += 1
            _log.warning("run.fenced", **about)
        else:
            _log.info("run.superseded", where=void.where, **about)
        await tell_tail(self._stores.history, context, void)
        # Fenced, neither ack nor nak: it is the later attempt's message too, and may be its only wake-up [24].
        with contextlib.suppress(*((StillOwed,) if fenced else ())):
            await self._tail.confirm(live.key, holder_of(context), patience, where=void.where, since=void.revision)
        if not fenced:
            await self._stores.work.ack(live.reply)

    def _context(self, live: Live, record: Record, revision: int, lease: Lease) -> Context:
        context = Context(
            app=self._app,
            record=record,
            fence=revision,
            session=lease.id,
            now=self._stores.clock.now,
            progress=lambda ctx, done, total, note: self._notes.note(live, ctx, done, total, note),
        )
        live.actor = record.task.actor
        live.grace = record.task.policy.grace
        live.context = context
        if live.told is not None:
            context.tell(live.told)
        early = live.early.get(record.attempt)
        if early is not None:  # a stop signal that overtook the answer to the claim
            live.tell(early)
        return context

    # -- timeouts and graces -----------------------------------------------------------------------------------------

    def _start_timers(self, live: Live, record: Record) -> None:
        if record.deadline is not None:
            left = max(0.0, record.deadline - self._stores.clock.now())
            if not left:  # what is done before a body took all of its time: by now it may be another attempt's
                live.tell("timeout")
            live.timers.append(asyncio.get_running_loop().call_later(left, self._timed_out, live))

    def _timed_out(self, live: Live) -> None:
        if live.tell("timeout"):
            live.interrupt()
            live.timers.append(asyncio.get_running_loop().call_later(live.grace, self._overstayed, live))

    def watch_grace(self, live: Live) -> None:
        """The body was told to stop: if it is still there after its grace, its slot is for others."""
        if live.told in {"cancel", "timeout", "superseded"}:
            live.timers.append(asyncio.get_running_loop().call_later(live.grace, self._overstayed, live))

    def _overstayed(self, live: Live) -> None:
        if not live.in_body or live.evicted:
            return
        if live.told == "superseded":
            self._displace(live)
        elif self.spawn is not None:
            self.spawn(self._evict(live))

    def _displace(self, live: Live) -> None:
        """The record has a newer generation already: nothing to write before the body ends, and then its confirm."""
        self._table.displace(live)
        if self.spawn is not None:
            self.spawn(self._give_back_unhurt(live))
        _log.error("run.stuck", key=live.key, run_id=live.run_id, told=live.told)

    async def _evict(self, live: Live) -> None:
        context, lease, clock = live.context, live.lease, self._stores.clock
        if context is None or lease is None:
            return
        try:
            # As for every outcome: an eviction of unknown fate is not decided anew, and its end not forgotten.
            result = await self._tail.evict(context, Patience(clock, alive=lambda: lease.trusted))
        except TenureError as error:
            _log.warning("run.not_evicted", key=live.key, run_id=live.run_id, error=str(error))
            result = clock.now() + 1.0
        if isinstance(result, float):
            wait = max(0.01, result - clock.now())
            live.timers.append(asyncio.get_running_loop().call_later(wait, self._overstayed, live))
        elif result is not None:
            await self._evicted(live, context, result)
        elif live.in_body:  # not the holder any more: superseded after it was told to stop
            self._displace(live)

    async def _evicted(self, live: Live, context: Context, stored: Committed) -> None:
        self._counting.stored(stored.record.task.actor, stored.decision.did.value)
        _log.error("run.stuck", key=live.key, run_id=live.run_id, attempt=context.attempt, told=live.told)
        try:
            await self._stores.carry_out(stored, Patience(self._stores.clock, self._stores.config.patience_seconds))
        except TenureError as error:  # its wake-up comes again after ``ack_wait``: the head check does the rest
            _log.warning("run.effects_owed", key=live.key, run_id=live.run_id, error=str(error))
        else:
            await self._stores.work.ack(live.reply)
        if live.in_body:  # else it has ended meanwhile, and its outcome is fenced
            self._table.evict(live)
        await self._give_back_unhurt(live)
