"""What a worker and a supervisor have in common: stores and a session that are opened and closed, one service at a time.

``run`` may be cancelled, the service may not: it is a task of its own, told to stop and seen to its end. What a service
does about a session that was lost is its own affair.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tenure.core.errors import TenureError
from tenure.core.sessions import Kind, Session, StopSignal
from tenure.lease import Lease
from tenure.metrics import Metrics
from tenure.stores import Stores
from tenure.telemetry import get_logger

if TYPE_CHECKING:
    from tenure.app import App


class Service(ABC):
    """Use it as an async context manager, then ``run``."""

    kind: ClassVar[Kind]
    _already_runs: ClassVar[str]

    def __init__(self, app: App, url: str, *, queues: Iterable[str], options: dict[str, Any]) -> None:
        from tenure import __version__

        self.app = app
        self._serves = tuple(queues)
        self.metrics = Metrics(__version__, app.actors, self._serves)
        self._url = url
        self._options = options
        self._stores: Stores | None = None
        self._lease: Lease | None = None
        self._unclosed: list[Session] = []
        self._stopping = asyncio.Event()
        self._lost = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect and open a session. Raises Unavailable or ConfigError, TenureError if it is open already."""
        if self._lease is not None:
            msg = f"the {self.kind} is already open"
            raise TenureError(msg)
        self._loop = asyncio.get_running_loop()
        name = f"tenure-{self.kind}-{self.app.namespace}"
        self._stores = await self.app.open_stores(self._url, name, self._options)
        self._stores.runs.conflicts = self._stores.limits.conflicts = self._stores.rates.conflicts = (
            self.metrics.conflict
        )
        self._stores.runs.count = self.metrics.count
        try:
            self._lease = await self._open_lease()
        except BaseException:
            await self._stores.close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop if ``run`` still works, then close the session and the connection."""
        async with contextlib.AsyncExitStack() as last:  # whoever is cancelled on the way leaves nothing open
            if self._stores is not None:
                last.push_async_callback(self._stores.close)
            last.push_async_callback(self._let_go)
            last.push_async_callback(self._end_session)
            if self._service is not None and not self._service.done():
                self.stop()
                with contextlib.suppress(Exception):  # ``run`` raises it
                    await self._see_out(self._service)

    @property
    def stores(self) -> Stores:
        """Its stores. Raises TenureError before it is entered."""
        if self._stores is None:
            raise self._not_open()
        return self._stores

    @property
    def lease(self) -> Lease:
        """Its session. Raises TenureError before it is entered."""
        if self._lease is None:
            raise self._not_open()
        return self._lease

    def stop(self) -> None:
        """End ``run``. From the service's loop."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until ``stop`` is called or this is cancelled, which stops it as well.

        Raises what ended an internal loop, TenureError if it is not open or runs already.
        """
        service = self._start()
        try:
            await asyncio.shield(service)
        except asyncio.CancelledError:
            self.stop()
            await self._see_out(service)
            raise

    def _start(self) -> asyncio.Task[None]:
        """One at a time: two would do everything twice, and the first to end would close what the other needs."""
        if self._service is not None and not self._service.done():
            raise TenureError(self._already_runs)
        session = self.lease.id  # raises if it is not open
        self._service = asyncio.create_task(self._serve(), name=f"tenure-{self.kind}-{session}")
        return self._service

    # -- the session -------------------------------------------------------------------------------------------------

    @property
    def _modules(self) -> tuple[str, ...] | None:
        """Modules of the app's code, for its session."""
        return None

    async def _open_lease(self) -> Lease:
        lease = Lease(
            url=self._url,
            names=self.app.names,
            config=self.app.config,
            clock=self.stores.clock,
            kind=self.kind,
            ttl=self.stores.session_ttl,
            options=self._options,
            on_stop=self._signalled,
            on_lost=self._lease_lost,
            unclosed=self._unclosed,
            queues=self._serves,
            modules=self._modules,
        )
        await lease.open()
        self.metrics.trusted_until = lambda: lease.trusted_until_epoch  # to be asked until another one is open
        get_logger(f"tenure.{self.kind}").info("session.opened", session=lease.id)
        return lease

    async def _end_session(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.close("drain")

    async def _close_lost_lease(self) -> None:
        await self.lease.close("lease_lost")
        self._lost.clear()  # before the next session is opened: that may be lost at once

    def _lease_lost(self, _why: str) -> None:
        """In the lease's thread."""
        self._call(self._lost.set)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        """From another thread: call it in the service's loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: we are gone
                self._loop.call_soon_threadsafe(function, *args)

    def _not_open(self) -> TenureError:
        kind = self.kind
        return TenureError(f"the {kind} is not open: use it as `async with app.{kind}() as {kind}`")

    # -- what each does in its own way -------------------------------------------------------------------------------

    @abstractmethod
    async def _serve(self) -> None:
        """Work until ``_stopping`` is set, and end in order."""

    async def _see_out(self, service: asyncio.Task[None]) -> None:
        """Wait for the end of a service that was told to stop."""
        await asyncio.wait([service])

    def _signalled(self, signal: StopSignal) -> None:  # noqa: B027  (a supervisor has no bodies)
        """A body of this session is to stop. In the lease's thread."""

    async def _let_go(self) -> None:  # noqa: B027  (a supervisor has nothing more)
        """Close what else is open, once the session is closed."""
