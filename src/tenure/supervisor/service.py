"""The supervisor service: wires lease, census, sweep and keepers together, and starts and stops them in order.

Any number of supervisors may run, with no leader: each sweeps the partitions that rendezvous hashing over the live ones
gives it, and every sixth time everything, so that one that is stuck leaves no hole [32]. Nothing here is needed for
safety: a supervisor only makes things happen sooner, or at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

from tenure.clock import SYSTEM
from tenure.core.errors import TenureError, Unavailable
from tenure.core.sessions import Session
from tenure.core.sweeps import owners, partition_of
from tenure.lease import Lease
from tenure.metrics import Metrics
from tenure.stores import Stores
from tenure.supervisor.census import Census
from tenure.supervisor.keepers import Keepers
from tenure.supervisor.sweep import Sweep
from tenure.telemetry import get_logger

if TYPE_CHECKING:
    from tenure.app import App

_log = get_logger("tenure.supervisor")
_EVERYTHING_EVERY = 6
_COALESCE_SECONDS = 0.1
"""Sessions are often closed together (a host, a deployment): one pass for all of them."""
_RETRY_SECONDS = 1.0


class Supervisor:
    """Looks after every key of an app's namespace.

    Made by ``app.supervisor()``; use it as an async context manager, then ``run``. It runs no bodies and needs no
    actor's code.
    """

    def __init__(self, app: App, url: str, *, options: dict[str, Any]) -> None:
        from tenure import __version__

        self.app = app
        self.metrics = Metrics(__version__, app.actors, ())
        self._url = url
        self._options = options
        self._stores: Stores | None = None
        self._lease: Lease | None = None
        self._census: Census | None = None
        self._keepers: Keepers | None = None
        self._lost = asyncio.Event()
        self._stopping = asyncio.Event()
        self._closed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._swept_at: float | None = None
        self._service: asyncio.Task[None] | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connect and open a session. Raises Unavailable or ConfigError, TenureError if it is open already."""
        if self._lease is not None:
            msg = "the supervisor is already open"
            raise TenureError(msg)
        self._loop = asyncio.get_running_loop()
        name = f"tenure-supervisor-{self.app.namespace}"
        self._stores = await Stores.open(self._url, self.app.names, self.app.config, name=name, **self._options)
        self._stores.runs.conflicts = self.metrics.conflict
        self._stores.runs.count = self.metrics.count
        try:
            self._lease = await self._open_lease()
        except BaseException:
            await self._stores.close()
            raise
        self.metrics.trusted_until = lambda: self.lease.trusted_until_epoch
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop if ``run`` still works, then close the session and the connection."""
        if self._service is not None and not self._service.done():
            self.stop()
            await asyncio.wait([self._service])
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.close("drain")
        if self._stores is not None:
            await self._stores.close()

    @property
    def stores(self) -> Stores:
        """The supervisor's stores. Raises TenureError before it is entered."""
        if self._stores is None:
            msg = "the supervisor is not open: use it as `async with app.supervisor() as supervisor`"
            raise TenureError(msg)
        return self._stores

    @property
    def lease(self) -> Lease:
        """The supervisor's session. Raises TenureError before it is entered."""
        if self._lease is None:
            msg = "the supervisor is not open: use it as `async with app.supervisor() as supervisor`"
            raise TenureError(msg)
        return self._lease

    async def _open_lease(self) -> Lease:
        lease = Lease(
            url=self._url,
            names=self.app.names,
            config=self.app.config,
            clock=SYSTEM,
            kind="supervisor",
            ttl=self.stores.session_ttl,
            options=self._options,
            on_stop=lambda _signal: None,
            on_lost=self._lease_lost,
        )
        await lease.open()
        _log.info("session.opened", session=lease.id)
        return lease

    def stop(self) -> None:
        """End ``run``; what is being repaired is left to others, or to the next start. From the supervisor's loop."""
        self._stopping.set()

    async def run(self) -> None:
        """Look after the namespace until ``stop`` is called or this is cancelled.

        Raises what ended an internal loop, TenureError if it is not open or runs already.
        """
        if self._service is not None and not self._service.done():
            msg = "the supervisor already runs"
            raise TenureError(msg)
        session = self.lease.id  # raises if it is not open
        self._service = asyncio.create_task(self._serve(), name=f"tenure-supervisor-{session}")
        try:
            await asyncio.shield(self._service)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait([self._service])
            raise

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
        sweep = Sweep(stores, census, keepers)
        try:
            async with asyncio.TaskGroup() as group:
                loops: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
                    ("watch", census.watch),
                    ("close", lambda: census.close_silent(lambda name: name == self.lease.id)),
                    ("sweep", lambda: self._sweep(sweep)),
                    ("rescue", lambda: self._rescue(sweep)),
                    ("session", self._keep_session),
                    ("presence", stores.presence.run),
                    *[("keeper", keepers.keep)] * config.repairs_at_once,
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

    # -- loops -------------------------------------------------------------------------------------------------------

    async def _sweep(self, sweep: Sweep) -> None:
        """Pass over all records again and again."""
        number = 0
        await self._ready_to_judge()
        while True:
            started = self.stores.clock.steady()
            everything = number % _EVERYTHING_EVERY == 0
            try:
                passed = await sweep.whole((lambda _key: True) if everything else self._mine())
            except Unavailable as error:
                _log.warning("sweep.failed", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            number += 1
            self._swept_at = self.stores.clock.steady()
            self.metrics.swept(passed, self._swept_at - started)
            await asyncio.sleep(self.app.config.sweep_seconds)

    async def _rescue(self, sweep: Sweep) -> None:
        """Whenever a session is closed: find what it held, at once."""
        await self._ready_to_judge()
        while True:
            await self._closed.wait()
            await asyncio.sleep(_COALESCE_SECONDS)
            self._closed.clear()
            try:
                await sweep.held_by(self._known.recently_closed(), self._mine())
            except Unavailable as error:
                _log.warning("sweep.failed", error=str(error))
                self._closed.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _keep_session(self) -> None:
        """A session that was lost is followed by a new one. Nothing else depends on it: bodies do not run here."""
        while True:
            await self._lost.wait()
            self.metrics.errors["lease"] += 1
            await self.lease.close("lease_lost")
            self._lost.clear()
            try:
                self._lease = await self._open_lease()
            except Unavailable as error:
                _log.warning("session.not_opened", error=str(error))
                self._lost.set()
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

    def _on_closed(self, _session: Session) -> None:
        self._closed.set()

    def _lease_lost(self, _why: str) -> None:
        """In the lease's thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: we are gone
                self._loop.call_soon_threadsafe(self._lost.set)

    def _mine(self) -> Callable[[str], bool]:
        """Tells whether this supervisor looks after a key, as far as it knows now who lives."""
        me = self.lease.id
        partitions = owners(self._known.lively_supervisors() | {me})
        return lambda key: partitions[partition_of(key)] == me

    # -- health ------------------------------------------------------------------------------------------------------

    @property
    def why_not_ready(self) -> str:
        """Empty while sessions are watched, keys are swept and the own session is trusted; else what is missing."""
        if self._lease is None or self._census is None or self._service is None or self._service.done():
            return "not running"
        if self.stores.presence.missing:
            return self.stores.presence.missing
        if not self._lease.trusted:
            return "the session is not trusted"
        if not self._census.caught_up.is_set():
            return "sessions are not watched"
        if self._swept_at is None:
            return "the first sweep is not over"
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
