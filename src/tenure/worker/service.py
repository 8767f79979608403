"""The worker service: wires lease, lanes, head, bodies and tail together, and starts and stops them in order.

Start: stores, lease (the session exists before the first claim), lanes. Stop (``stop`` or cancellation of ``run``):
close the lanes, tell every body ``drain``, let them finish for ``drain_seconds``, cancel the rest, hand back what
ended, close the session. No body starts after the drain signal. A session that loses its trust is treated the same way,
with ``lease_lost`` and no time to finish, and then succeeded by a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Self

from tenure.clock import here
from tenure.core.errors import ConfigError, StillOwed, TenureError, Unavailable
from tenure.core.policy import second_look
from tenure.core.sessions import StopSignal
from tenure.core.shares import check_queues
from tenure.crashes import Crashes
from tenure.lease import Lease
from tenure.nats.patience import Patience
from tenure.nats.work import Delivery
from tenure.service import Service
from tenure.switchboard import Switchboard
from tenure.telemetry import get_logger
from tenure.worker.drain import Drain
from tenure.worker.handler import Handler
from tenure.worker.handover import Desk
from tenure.worker.holds import Holds
from tenure.worker.places import Places
from tenure.worker.puller import Puller
from tenure.worker.remnants import Remnants
from tenure.worker.table import Live, Table
from tenure.worker.waits import finish, first_of

if TYPE_CHECKING:
    from tenure.app import App

_log = get_logger("tenure.worker")
_TEND_SECONDS = 1.0
_GAUGE_TICKS = 5
_IDLE_LOOK_SECONDS = 0.05


class Worker(Service):
    """Runs the actors of an app.

    Made by ``app.worker()``; use it as an async context manager, then ``run`` or ``run_until_idle``.
    """

    kind = "worker"
    _already_runs = "the worker already runs: stop it first, or make a second worker"

    def __init__(self, app: App, url: str, *, queues: object, concurrency: int, options: dict[str, Any]) -> None:
        self.weights = check_queues(queues)
        if not isinstance(concurrency, int) or concurrency < 1:
            msg = f"concurrency must be a whole number >= 1, got {concurrency!r}"
            raise ConfigError(msg)
        self.concurrency = concurrency
        self.queues = list(self.weights)
        super().__init__(app, url, queues=self.queues, options=options)
        self.table = Table()
        self._handler: Handler | None = None
        self._puller: Puller | None = None
        self._board: Switchboard | None = None
        self._places: Places | None = None
        self._remnants: Remnants | None = None
        self._changed = asyncio.Event()
        self.ending = Drain(self.table, self._changed, app.config)
        self.cut_off = False
        """Whether the last drain ended without the server: what had not ended before waits for the session's ttl."""
        self._crashes = Crashes(here())
        self._failure: TenureError | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()

    # -- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connect and open a session. Raises Unavailable or ConfigError, TenureError if it is open already."""
        await super().__aenter__()
        self._board = board = Switchboard(self.stores)
        board.on_change(lambda _board: self.puller.refill_soon())
        self._places = places = Places(self.stores, self.app.actors, self.app.deployed_at(self.stores.clock.now()))
        holds = Holds(self.stores, board)
        self._handler = Handler(self.app, self.stores, self.table, self.metrics, holds=holds, places=places)
        self._handler.spawn = self._spawn
        self._puller = Puller(
            self.stores,
            self.weights,
            desk=Desk(self.stores, self.queues, self.app.actors, self.table, lambda: self._unexpected("desk.crashed")),
            slots=self.concurrency,
            is_paused=board.is_paused,
            free=self._free,
            start=self._begin,
            spawn=self._spawn,
            on_crash=lambda: self._unexpected("lane.crashed"),
        )
        self.table.on_change = self._on_change
        self.metrics.stuck = self.table.stuck_by_actor
        return self

    @property
    def puller(self) -> Puller:
        """The worker's lanes. Raises TenureError before it is entered."""
        if self._puller is None:
            raise self._not_open()
        return self._puller

    def stop(self) -> None:
        """Drain: no new bodies; ``run`` returns when what runs has ended or ``drain_seconds`` are over.

        From the worker's loop.
        """
        super().stop()
        if self._puller is not None:
            self._puller.pulling = False
        self.ending.tell("drain")  # now: a claim that is won while the lanes are closed must not start a body

    def stop_now(self) -> None:
        """Drain, but let nothing finish: what does not end within ``stop_seconds`` is given up. From the worker's loop."""
        self.stop()
        self.ending.now()

    async def run_until_idle(self) -> None:
        """Work until no wake-up is left and nothing runs, then drain.

        Does not wait for what is due more than 2 s ahead.
        """
        service = self._start()
        try:
            while not service.done() and not await self._idle():
                await asyncio.wait([service], timeout=_IDLE_LOOK_SECONDS)
        finally:
            self.stop()
            await finish(service)
        await service

    async def _see_out(self, service: asyncio.Task[None]) -> None:
        await finish(service)

    async def _let_go(self) -> None:
        if self._handler is not None:
            await self._handler.close()

    async def _idle(self) -> bool:
        return not len(self.table) and self._puller is not None and await self._puller.idle() and not len(self.table)

    # -- the service -------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        self._context = contextvars.copy_context()
        try:
            if not self.lease.trusted:
                await self._close_lost_lease()
                self._lease = await self._open_lease()
            async with asyncio.TaskGroup() as group:
                loops = [group.create_task(self._follow_switches())]
                await self.puller.open(self._stopping)
                self._remnants = remnants = Remnants(
                    self.stores,
                    self.table,
                    free=lambda: self._free() if self.puller.pulling else 0,
                    start=self._begin,
                )
                loops += [
                    group.create_task(run())
                    for run in (self._tend, self._watch_streams, self._hand_over_more, remnants.run)
                ]
                while not self._stopping.is_set():
                    await first_of(self._stopping, self._lost)
                    if self._lost.is_set() and not self._stopping.is_set():
                        await self._renew_session()
                for loop in loops:
                    loop.cancel()
        except ExceptionGroup as failed:  # one is enough to end it
            raise failed.exceptions[0] from None
        finally:
            await self._drain()
            self._stopping.clear()
            self.ending.reset()
        if self._failure is not None:
            raise self._failure

    async def _tend(self) -> None:
        """Look after the lanes and the gauges."""
        ticks = 0
        while True:
            await asyncio.sleep(_TEND_SECONDS)
            ticks += 1
            await self.puller.tend()
            if ticks % _GAUGE_TICKS == 0 and self.stores.conn.is_connected:
                with contextlib.suppress(Unavailable):
                    for queue, (waiting, _) in (await self.puller.pending()).items():
                        self.metrics.pending[queue] = waiting

    async def _follow_switches(self) -> None:
        if self._board is not None:
            await self._board.run()

    async def _hand_over_more(self) -> None:
        if self._places is not None:
            try:
                await self._places.hand_over_more(Patience(self.stores.clock, self.app.config.patience_seconds))
            except TenureError as error:  # the next start or end under that limit does
                _log.warning("limits.not_looked_at", error=str(error))

    async def _watch_streams(self) -> None:
        """Nothing of what is in hand may be written to a runs bucket that was made anew: give all of it up, and end."""
        try:
            await self.stores.presence.run()
        except ConfigError as error:
            self._failure = error
            self.ending.tell("lease_lost")
            self.ending.give_up_rest()
            self.stop()

    # -- deliveries --------------------------------------------------------------------------------------------------

    def _free(self) -> int:
        usable = self.lease.trusted and not self.stores.presence.missing and not self.ending.crowded
        return self.concurrency - len(self.table) if usable else 0

    def _on_change(self) -> None:
        self._changed.set()
        if self._remnants is not None and self._remnants.overdue:
            self._spawn(self._remnants.start())
        self.puller.refill_soon()

    def _spawn(self, work: Coroutine[Any, Any, None], scope: contextvars.Context | None = None) -> asyncio.Task[None]:
        """Handlers are not in the TaskGroup: a body that swallows its cancellation must not keep the service from ending."""
        task = asyncio.create_task(work, context=scope)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _begin(self, delivery: Delivery) -> None:
        work = self.stores.work
        if delivery.to is None:
            _log.error("message.foreign", subject=delivery.subject)
            self.metrics.claims["", "foreign"] += 1
            await work.term(delivery.reply, "not a wake-up of Tenure")
            return
        live = Live(delivery.to.key, delivery.to.run_id, delivery.reply)
        if not self.table.enter(live):  # another delivery of this run is being worked on here [3]
            if self.table.follow(live.run_id, delivery):
                return
            self.metrics.claims["", "busy"] += 1
            await work.nak(delivery.reply, second_look(delivery.deliveries, self.app.config.ack_wait_seconds))
            return
        lease = self.lease
        lease.in_hand[delivery.reply] = self.stores.clock.steady()
        live.lease = lease
        live.owner = self._service
        # What whoever called `run` has set is seen by bodies, not what was set when its connection was made, whose task calls this.
        live.task = self._spawn(self._handle(live, delivery, lease), self._context.copy())

    async def _handle(self, live: Live, delivery: Delivery, lease: Lease) -> None:
        handler = self._handler
        if handler is None:
            return
        patience = Patience(self.stores.clock, alive=lambda: lease.trusted)
        try:
            await handler.handle(live, delivery, lease, patience)
        except StillOwed as error:  # the rest is done: its message comes again, ever later, and keeps no slot
            self.metrics.errors["server"] += 1
            _log.error("outbox.unpaid", key=live.key, run_id=live.run_id, error=str(error))
            await self.stores.work.nak(live.reply, second_look(delivery.deliveries, self.app.config.ack_wait_seconds))
        except TenureError as error:  # the server is gone and trust is over: the session will be given up, as a rule
            self.metrics.errors["server"] += 1
            self.table.give_up(live)
            if self._remnants is not None:
                self._remnants.gave_up(live.run_id, delivery)
            _log.warning("run.given_up", key=live.key, run_id=live.run_id, error=str(error))
        except Exception:  # noqa: BLE001  (a defect of ours ends this key's handling, not the worker)
            self.table.give_up(live)
            if self._remnants is not None:
                self._remnants.gave_up(live.run_id, delivery, crashed=True)
            self._unexpected("run.crashed", key=live.key, run_id=live.run_id)
        finally:
            live.forget_timers()
            live.put_down()
            self.table.leave(live)
            live.let_go()
            if live.follower is not None and not live.torn_down:
                await self._follow(live.follower)

    async def _follow(self, delivery: Delivery) -> None:
        if self.puller.pulling and self._free() > 0:
            await self._begin(delivery)
        else:
            await self.stores.work.nak(delivery.reply)

    def _unexpected(self, what: str, **about: str) -> None:
        """Counted, logged with its traceback, and after too many a minute the end of the process."""
        self.metrics.errors["handler"] += 1
        _log.exception(what, **about)
        failure = self._crashes.one_more()
        if failure is not None:
            self._failure = failure
            self.stop()

    # -- stop signals and the lease ----------------------------------------------------------------------------------

    def _signalled(self, signal: StopSignal) -> None:
        """In the lease's thread: plain bodies see the reason at once; async ones are cancelled on their loop."""
        live = self.table.get(signal.run_id)
        if live is not None and live.tell_attempt(signal.attempt, signal.reason):
            self._call(self._interrupt, live)

    def _interrupt(self, live: Live) -> None:
        live.interrupt()
        if self._handler is not None:
            self._handler.watch_grace(live)

    def _lease_lost(self, why: str) -> None:
        super()._lease_lost(why)
        self._call(self.ending.lost)

    async def _renew_session(self) -> None:
        """Trust is lost: no new bodies, cancel the running ones, wait for them, then a new session."""
        self.metrics.errors["lease"] += 1
        self.ending.tell("lease_lost")
        await self.puller.close()
        await self.ending.interrupt()
        self.ending.give_up_rest()
        await self._close_lost_lease()
        while not self._stopping.is_set():
            try:
                if not self.lease.trusted:
                    self._lease = await self._open_lease()
                await self.puller.open(self._stopping)
            except Unavailable as error:
                _log.warning("session.not_opened", error=str(error))
                await self.puller.close()
                await first_of(self._stopping, timeout=1.0)
            else:
                return

    # -- drain -------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        _log.info("drain.started", running=len(self.table))
        self.ending.tell("drain")
        await self.puller.close()
        await self.ending.finish(lambda: self._lost.is_set() or not self.lease.trusted)
        if self.lease.trusted and self.stores.conn.is_connected:
            await self.stores.gates.rest(self.app.config.request_timeout_seconds)
        if self.ending.give_up_rest() or not self.lease.trusted:
            await self.lease.close("drain")  # hands back what was given up; another `run` needs a new session
        # A session that is closed, by whomever, is no sign of a server that is gone.
        self.cut_off = not self.stores.conn.is_connected or (not self.lease.trusted and self.lease.left_open)
        if self.cut_off:
            _log.error("drain.cut_off", session=self.lease.id)
        _log.info("drain.ended", given_up=self.ending.given_up)

    # -- health ------------------------------------------------------------------------------------------------------

    @property
    def why_not_ready(self) -> str:
        """Empty while the worker pulls, its session is trusted and its loops run; else what is missing."""
        if self._lease is None or self._puller is None or self._board is None or not self._puller.pulling:
            return "not pulling"
        if self.stores.presence.missing:
            return self.stores.presence.missing
        if not self._lease.trusted:
            return "the session is not trusted"
        if self.ending.crowded or self._board.why_unknown:
            return self.ending.crowded or self._board.why_unknown
        deaf = self._puller.deaf
        return f"the server was not heard on {', '.join(deaf)}" if deaf else ""
