"""The supervisor service: wires lease, census, sweep and keepers together, and starts and stops them in order.

Any number of supervisors may run, with no leader: each sweeps the partitions that rendezvous hashing over the live ones
gives it, and every sixth time everything, so that one that is stuck leaves no hole [32]. Nothing here is needed for
safety: a supervisor only makes things happen sooner, or at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tenure.actors import module_of
from tenure.core.errors import TenureError, Unavailable
from tenure.core.sessions import Session
from tenure.core.sweeps import owners, partition_of
from tenure.lease import Lease
from tenure.nats.patience import Patience
from tenure.service import Service
from tenure.supervisor.api import AT_ONCE, Api
from tenure.supervisor.blobs import Leftovers
from tenure.supervisor.census import Census
from tenure.supervisor.commands import Commands
from tenure.supervisor.keepers import Keepers
from tenure.supervisor.places import Places
from tenure.supervisor.releases import Releases
from tenure.supervisor.schedules import Schedules
from tenure.supervisor.stillness import LONGEST_SECONDS, Seen, look
from tenure.supervisor.sweep import Sweep
from tenure.switchboard import Switchboard
from tenure.telemetry import get_logger

if TYPE_CHECKING:
    from tenure.app import App

_log = get_logger("tenure.supervisor")
_EVERYTHING_EVERY = 6
_COALESCE_SECONDS = 0.1
"""Sessions are often closed together (a host, a deployment): one pass for all of them."""
_RETRY_SECONDS = 1.0
_MOST_MODULES = 100
"""A session's entry is written every second."""
_REST = 3.0
"""After a pass at least so many times as long as it took: sweeps take a quarter of a core at most, however many records."""
_SWEEPS_MISSED = 3
"""So many times the usual pause and pass without a whole pass, and the sweep is as good as none."""


class Supervisor(Service):
    """Looks after every key of an app's namespace.

    Made by ``app.supervisor()``; use it as an async context manager, then ``run``. It runs no bodies; actors' code
    it needs for the schedules that start by themselves and for the commands of the inbox. What it is repairing when it is
    told to stop is left to others, or to the next start.
    """

    kind = "supervisor"
    _already_runs = "the supervisor already runs"

    def __init__(self, app: App, url: str, *, options: dict[str, Any]) -> None:
        super().__init__(app, url, queues=(), options=options)
        self.metrics.look_after({actor.task.queue for actor in app.actors.values()})
        self._census: Census | None = None
        self._keepers: Keepers | None = None
        self._closed = asyncio.Event()
        self._to_rescue: set[str] = set()
        self.cut_off = False
        """Whether it ended without its server: its session is open, and its share of the keys nobody's until others close it."""
        self._swept_at: float | None = None
        self._sweep_by = 0.0

    # -- the service -------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        stores, config = self.stores, self.app.config
        self._census = census = Census(
            stores.conn,
            stores.sessions,
            stores.clock,
            self.metrics,
            confirmed_at=lambda: self.lease.confirmed_at,
            ttl=stores.session_ttl,
            on_closed=self._on_closed,
        )
        self._keepers = keepers = Keepers(stores, census, self.metrics)
        deployed = self.app.deployed_at(stores.clock.now())
        schedules = Schedules(stores, self.metrics, self.app.actors, deployed, census.modules)
        api = Api(self.app, stores, self.metrics)
        commands = Commands(stores, self.metrics, self.app.actors)
        board = Switchboard(stores)
        places = Places(stores, census, self.metrics, board)
        releases = Releases(stores, board, self.metrics, self._mine)
        sweep = Sweep(
            stores,
            census,
            self.metrics,
            keepers=keepers,
            schedules=schedules,
            places=places,
            releases=releases,
            is_paused=board.is_paused,
        )
        try:
            async with asyncio.TaskGroup() as group:
                loops: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
                    ("watch", census.watch),
                    ("close", lambda: census.close_silent(lambda name: name == self.lease.id)),
                    ("sweep", lambda: self._sweep(sweep)),
                    ("schedules", schedules.keep),
                    ("rescue", lambda: self._rescue(sweep)),
                    ("session", self._keep_session),
                    ("presence", stores.presence.run),
                    ("switches", board.run),
                    ("releases", releases.keep),
                    *[("keeper", keepers.keep)] * config.repairs_at_once,
                    ("inbox", commands.pull),
                    ("strays", commands.find_strays),
                    ("marks", commands.forgetter.forget),
                    ("blobs", Leftovers(stores, self.metrics, self._mine).look),
                    *[("command", commands.apply)] * config.commands_at_once,
                    ("api", api.listen),
                    *[("answer", api.answer)] * AT_ONCE,
                ]
                tasks = [group.create_task(_without_end(name, loop)) for name, loop in loops]
                await self._stopping.wait()
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as failed:  # one is enough to end it: what is broken must not look alive
            raise failed.exceptions[0] from None
        finally:
            self._stopping.clear()
            self._swept_at = None

    @property
    def _modules(self) -> tuple[str, ...] | None:
        modules = {module_of(actor.function) for actor in self.app.actors.values()}
        return tuple(sorted(modules)) if len(modules) <= _MOST_MODULES else None

    async def _end_session(self) -> None:
        lease = self._lease
        await super()._end_session()
        self.cut_off = lease is not None and lease.left_open
        if lease is not None and self.cut_off:
            _log.error("drain.cut_off", session=lease.id)

    # -- loops -------------------------------------------------------------------------------------------------------

    async def _sweep(self, sweep: Sweep) -> None:
        """Pass over all records again and again."""
        number = 0
        await self._ready_to_judge()
        while True:
            started = self.stores.clock.steady()
            everything = number % _EVERYTHING_EVERY == 0
            try:
                before = await look(self.stores, self._patience())
                passed = await sweep.whole((lambda _key: True) if everything else self._mine())
            except Unavailable as error:
                _log.warning("sweep.failed", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            number += 1
            self._swept_at = self.stores.clock.steady()
            self.metrics.swept(passed, self._swept_at - started, self.stores.clock.now())
            config, took = self.app.config, self._swept_at - started
            pause = max(config.sweep_seconds, _REST * took)
            self._sweep_by = self._swept_at + _SWEEPS_MISSED * (took + pause) + config.patience_seconds
            await asyncio.sleep(pause)
            due = self.stores.clock.steady() + sweep.soonest - self.stores.clock.now()
            await self._while_still(sweep, before, min(started + LONGEST_SECONDS, due))

    async def _while_still(self, sweep: Sweep, before: Seen, until: float) -> None:
        """Wait for as long as a pass would find what the last one has found."""
        config, clock = self.app.config, self.stores.clock
        try:
            while sweep.calm and clock.steady() < until and (await look(self.stores, self._patience())).is_as(before):
                self._swept_at = clock.steady()
                self.metrics.swept_at = clock.now()
                self._sweep_by = max(self._sweep_by, self._swept_at + config.sweep_seconds + config.patience_seconds)
                await asyncio.sleep(config.sweep_seconds)
        except Unavailable as error:
            _log.warning("sweep.failed", error=str(error))

    def _patience(self) -> Patience:
        return Patience(self.stores.clock, self.app.config.patience_seconds)

    async def _rescue(self, sweep: Sweep) -> None:
        """Whenever a session is closed: find what it held, at once."""
        await self._ready_to_judge()
        while True:
            await self._closed.wait()
            await asyncio.sleep(_COALESCE_SECONDS)
            self._closed.clear()
            sessions = self._known.recently_closed() | self._to_rescue  # the pass before may have taken long
            self._to_rescue.clear()
            try:
                await sweep.held_by(sessions, self._mine())
            except Unavailable as error:
                _log.warning("sweep.failed", error=str(error))
                self._to_rescue |= sessions
                self._closed.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _keep_session(self) -> None:
        """A session that was lost is followed by a new one. Nothing else depends on it: bodies do not run here."""
        while True:
            await self._lost.wait()
            self.metrics.errors["lease"] += 1
            await self._close_lost_lease()
            self._lease = await self._open_next_lease()

    async def _open_next_lease(self) -> Lease:
        while True:
            try:
                return await self._open_lease()
            except Unavailable as error:
                _log.warning("session.not_opened", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _ready_to_judge(self) -> None:
        await self._known.caught_up.wait()

    @property
    def _known(self) -> Census:
        if self._census is None:
            msg = "the supervisor does not run"
            raise TenureError(msg)
        return self._census

    # -- news --------------------------------------------------------------------------------------------------------

    def _on_closed(self, session: Session) -> None:
        self._to_rescue.add(session.id)
        self._closed.set()

    def _mine(self) -> Callable[[str], bool]:
        """Tells whether this supervisor looks after a key, as far as it knows now who lives."""
        me = self.lease.id
        partitions = owners(self._known.lively_supervisors() | {me})
        return lambda key: partitions[partition_of(key)] == me

    # -- health ------------------------------------------------------------------------------------------------------

    @property
    def why_not_ready(self) -> str:
        """Empty while it is connected, sessions are watched, keys are swept and the own session is trusted; else what is missing."""
        if self._lease is None or self._census is None or self._service is None or self._service.done():
            return "not running"
        if self.stores.presence.missing:
            return self.stores.presence.missing
        if not self.stores.conn.is_connected:
            return "not connected to the server"
        if not self._lease.trusted:
            return "the session is not trusted"
        if not self._census.caught_up.is_set():
            return "sessions are not watched"
        if self._swept_at is None:
            return "the first sweep is not over"
        now = self.stores.clock.steady()
        if now > self._sweep_by:
            return f"no sweep was finished for {now - self._swept_at:.0f} seconds"
        return ""

    @property
    def report(self) -> str:
        """What was repaired so far, for people."""
        done = ", ".join(f"{kind} {number}" for kind, number in sorted(self.metrics.repairs.items()) if number)
        return f"repaired: {done or 'nothing yet'}"


async def _without_end(name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a loop that must not end by itself: returning, or being cancelled by nobody, is a failure like any other."""
    try:
        await loop()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
    msg = f"the supervisor's loop {name!r} ended by itself"
    raise TenureError(msg)
