"""A whole application in a test: no server, no network, no waiting.

    async with memory(app) as client:
        run = await client.submit(remind.call("tea"), key="tea", delay=timedelta(days=1))
        (due,) = await client.scheduled()
        assert due.actor == "remind"
        assert await run.result() == "the tea is ready"      # a day later, and at once

``client.publish`` is for what programs without Tenure send to the inbox, ``client.server`` for what a server does to its
clients: ``kill`` and ``start``, ``pause`` and ``resume``, ``disconnect``. Code that connects by itself reaches it with
``app.connect(client.server.url)``; or with ``app.connect()``, where ``$TENURE_NATS_URL`` is set to that url.

Inside, worker and supervisor run as in production, over a server in memory that does what the real one does, and the
loop's time is virtual: delays, retries, ``every=`` and timeouts pass as soon as nothing else is left to be done. Bodies
see the loop's time (``asyncio.sleep``, ``asyncio.timeout``), not the machine's (``time.time``). Plain ``def`` bodies and
``asyncio.to_thread`` are called in the loop and take no time; ``isolation="process"`` has no child process here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import Struct

from tenure.client import Client
from tenure.clock import here, using
from tenure.core.errors import ConfigError, TenureError, Unavailable
from tenure.core.moments import moment_of
from tenure.core.records import Phase, State, read_state
from tenure.core.shares import check_queues
from tenure.core.subjects import decode_key
from tenure.isolation import Home
from tenure.loops import running_loop
from tenure.nats.acks import parse_ack
from tenure.nats.connection import Lost, NotSent
from tenure.nats.memory import MemoryServer
from tenure.nats.scan import STATE, Header
from tenure.service import Service
from tenure.stores import Stores
from tenure.testing.given import check_app, check_count, check_message, check_seed, check_span, check_start
from tenure.testing.virtual import PATIENCE, Stuck, VirtualTime

if TYPE_CHECKING:
    from tenure.app import App
    from tenure.supervisor import Supervisor
    from tenure.worker import Worker

_numbers = itertools.count(1)
_LOOK_SECONDS = 0.05


class Scheduled(Struct, frozen=True, kw_only=True):
    """A run that waits for its time, for a worker, or for its next attempt.

    ``args``: of the call, by name, as JSON has them. ``due``: when it starts, aware (UTC). ``delay``: seconds from now
    until then, 0 if it is due. ``attempt``: how many it has had.
    """

    key: str
    actor: str
    args: dict[str, Any]
    due: datetime
    delay: float
    queue: str
    generation: int
    attempt: int
    failures: int
    run_id: str


class MemoryClient(Client):
    """A client whose application runs, and whose time is virtual. Made by ``memory``."""

    def __init__(
        self,
        app: App,
        *,
        workers: int = 1,
        supervisors: int = 1,
        concurrency: int = 100,
        queues: Iterable[str] | Mapping[str, int] | None = None,
        start: datetime | None = None,
        seed: int = 0,
        patience: int = PATIENCE,
    ) -> None:
        app, workers = check_app(app), check_count("workers", workers, least=0)
        supervisors = check_count("supervisors", supervisors, least=0)
        concurrency = check_count("concurrency", concurrency, least=1)
        self.virtual = VirtualTime(
            start=None if start is None else check_start(start),
            seed=check_seed(seed),
            patience=check_count("patience", patience, least=1),
        )
        self.server = MemoryServer(f"{app.namespace}-{next(_numbers)}", clock=self.virtual.clock)
        """The server: ``kill`` and ``start`` it, ``pause`` and ``resume``, or ``disconnect`` a client."""
        super().__init__(app, self.server.url, {})
        chosen = None if queues is None else check_queues(queues)
        self.workers: list[Worker] = [
            app.worker(self.server.url, queues=chosen, concurrency=concurrency) for _ in range(workers)
        ]
        """What runs the bodies."""
        self.supervisors: list[Supervisor] = [app.supervisor(self.server.url) for _ in range(supervisors)]
        """What looks after every key."""
        self._last = contextlib.AsyncExitStack()
        self._entered = False
        self._newest_peer = 0
        self._troubled_until = 0.0

    async def __aenter__(self) -> Self:
        """Start everything, once. Raises ConfigError for a second time, and in a loop whose time cannot be virtual."""
        if self._entered:
            raise ConfigError(_ENTERED)
        self._entered = True
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self.virtual)
            stack.enter_context(_without_child_processes(self.app))
            stack.enter_context(self.server)
            with using(self.virtual.clock):
                running = [asyncio.create_task(_run(service)) for service in (*self.supervisors, *self.workers)]
                stack.push_async_callback(_stop, [*self.supervisors, *self.workers], running)
                await super().__aenter__()
            stack.push_async_callback(self.close)
            await _until_ready(self._services, running)
            self._last = stack.pop_all()
        self._newest_peer = max(self.server.peers, default=0)
        self.virtual.may_pass_over = self._is_calm
        self.virtual.goes_on = self._goes_on
        self.virtual.stirs()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop everything. Raises what a worker or a supervisor ended with, Stuck if the test waited for ever."""
        self.virtual.may_pass_over = lambda: False
        self.virtual.stirs()
        await self._last.__aexit__(*exc)  # type: ignore[arg-type]  # they are what they are in any such method

    @property
    def stores(self) -> Stores:
        """As any client's. Whoever asks for something does not only wait."""
        if here() is not self.virtual.clock:
            self.virtual.stirs()
        return self._check_entered()

    def _check_entered(self) -> Stores:
        if self._stores is not None and running_loop() not in {None, self._loop}:
            raise TenureError(_TWO_LOOPS)
        return super().stores

    @property
    def _services(self) -> tuple[Worker | Supervisor, ...]:
        return (*self.supervisors, *self.workers)

    def _is_calm(self) -> bool:
        """Whether every wake-up that was delivered is in somebody's hands, and no connection was made lately.

        What was handed back comes again by the server's clock, and whoever has lost its server may have left something to
        be found by sweeps: neither may be passed over.
        """
        newest, now = max(self.server.peers, default=0), self.virtual.clock.now()
        if newest != self._newest_peer:
            self._newest_peer = newest
            self._troubled_until = now + _TROUBLED_SECONDS
        if now < self._troubled_until or not self.server.running:
            return False
        consumers = self.server.jetstream.streams[self.app.names.work_stream].consumers
        in_hand = Counter(
            ack.consumer for worker in self.workers for reply in worker.lease.in_hand if (ack := parse_ack(reply))
        )
        return all(
            len(consumer.pending) == in_hand[name] for name, consumer in consumers.items() if not self._is_paused(name)
        )

    def _goes_on(self) -> list[str]:
        """Keys that live, those first that have had most runs."""
        names, found = self.app.names, []
        stream = self.server.jetstream.streams[names.runs_stream]
        for subject in stream.subjects(f"{names.runs_prefix}*"):
            state = read_state(stream.messages[stream.last_of(subject)].fields.get(STATE, ""))
            if state is not None and (state.phase is Phase.WAITING or state.phase in _RUNNING):
                key, what = decode_key(subject.removeprefix(names.runs_prefix)), state.schedule or state.phase.value
                found.append((-state.generation, f"{key}: {state.actor}, {what}, generation {state.generation}"))
        return [text for _, text in sorted(found)[:_TOLD]]

    def _is_paused(self, consumer: str) -> bool:
        """Whether what its queue has handed back waits for the end of a pause, not for its next delivery."""
        return any(worker.puller.is_paused(consumer.rpartition("-")[0]) for worker in self.workers)

    # -- other programs ----------------------------------------------------------------------------------------------

    async def publish(self, subject: str, data: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Publish as a program without Tenure does, with the whole subject: a command to the inbox, say.

        Once this returns it is stored; it is applied when ``until_idle`` returns, or is kept as rejected. Raises InvalidCall,
        and Unavailable where nobody takes it, or the server does not run.
        """
        check_message(subject, data, headers)
        try:
            ack = await self.stores.conn.put(subject, data, headers)
        except (NotSent, Lost) as error:
            msg = f"{subject!r} was not stored: {error}"
            raise Unavailable(msg) from error
        if ack.error is not None:
            msg = f"{subject!r} was refused: {ack.error.description}"
            raise Unavailable(msg)

    # -- time --------------------------------------------------------------------------------------------------------

    async def advance(self, seconds: float | timedelta) -> None:
        """Let so much time pass, at most ten years: whatever falls due in it happens.

        Raises InvalidCall, and TenureError while it is not entered: that would be real time.
        """
        seconds = check_span(seconds)
        self._check_entered()
        await asyncio.sleep(seconds)

    async def until_idle(self) -> None:
        """Return when nothing is queued, runs or is owed any more. What waits for its time, a retry too, stays so.

        Raises Stuck when there is something to do, but nobody who does it: no worker for its queue, say.
        """
        begun = self.now()
        while busy := await self._busy():
            waited = self.now() - begun
            if not self.workers or waited > _PATIENT_SECONDS:
                raise Stuck(f"these are queued or run, and do not end: {', '.join(sorted(busy)[:20])}")
            await asyncio.sleep(max(_LOOK_SECONDS, waited / 200))  # else a day that nobody uses takes minutes

    async def _busy(self) -> set[str]:
        in_hand = {live.key for worker in self.workers for live in worker.table.all()}
        states = await self._states()
        commands = {
            message.subject for message in self.server.jetstream.streams[self.app.names.inbox_stream].messages.values()
        }
        return (
            in_hand
            | commands
            | {
                key
                for key, state in states.items()
                if (state.phase is Phase.WAITING and state.due <= self.now()) or state.phase in _RUNNING or state.flags
            }
        )

    # -- what is scheduled -------------------------------------------------------------------------------------------

    async def scheduled(self) -> list[Scheduled]:
        """Every run that waits - for its time, for a worker, for its next attempt - the soonest first."""
        now, runs = self.now(), self.stores.runs
        found = []
        for key, state in (await self._states()).items():
            record = (await runs.read(key)).record if state.phase is Phase.WAITING else None
            if record is None or record.phase is not Phase.WAITING:
                continue
            due = record.due or now
            found.append(
                Scheduled(
                    key=key,
                    actor=record.task.actor,
                    args=msgspec.json.decode(await self.stores.get_args(record.task, runs.patience())),
                    due=moment_of(due),
                    delay=max(0.0, due - now),
                    queue=record.task.queue,
                    generation=record.generation,
                    attempt=record.attempt,
                    failures=record.failures,
                    run_id=record.run_id,
                )
            )
        return sorted(found, key=lambda run: (run.due, run.key))

    async def _states(self) -> dict[str, State]:
        found: dict[str, State] = {}

        def on_header(header: Header) -> None:
            state = read_state(header.state)
            if state is not None:
                found[header.key] = state

        await self.stores.runs.scan(on_header)
        return found


_RUNNING = frozenset({Phase.RUNNING, Phase.STOPPING})
_PATIENT_SECONDS = 86_400.0
_TROUBLED_SECONDS = 60.0
_TOLD = 20
_ENTERED = "this client was entered before, and runs its app once: make another with memory(app) for each `async with`"
_TWO_LOOPS = (
    "this client's app runs in another event loop: with pytest-asyncio, that of the fixture, not of the test; "
    "give asyncio_default_fixture_loop_scope and asyncio_default_test_loop_scope the same value"
)


def memory(
    app: App,
    *,
    workers: int = 1,
    supervisors: int = 1,
    concurrency: int = 100,
    queues: Iterable[str] | Mapping[str, int] | None = None,
    start: datetime | None = None,
    seed: int = 0,
    patience: int = PATIENCE,
) -> MemoryClient:
    """A client of ``app`` for ``async with``: inside, the application runs, in memory and in virtual time.

    ``workers``, ``supervisors``: how many of each run; with ``workers=0`` nothing is run, and what was asked for can be
    looked at. ``concurrency``, ``queues``: of each worker. ``start``: the time of day at the beginning, aware; default the
    real one. ``seed``: of jitter and ids. ``patience``: how many moments may pass, some twenty for each tick of a schedule,
    while the test waits with no ``sleep`` or timeout of its own and asks for nothing.

    Raises InvalidCall, ConfigError for ``queues`` and in a loop that is not asyncio's own (uvloop).

    When the test waits for what never happens, or its patience is at an end, what it awaits is cancelled and the
    ``async with`` raises Stuck, which names what waits and what goes on: ``pytest.raises(Stuck)`` belongs around it. Where
    another task entered it, as a fixture does, Stuck ends the loop's run.
    """
    return MemoryClient(
        app,
        workers=workers,
        supervisors=supervisors,
        concurrency=concurrency,
        queues=queues,
        start=start,
        seed=seed,
        patience=patience,
    )


async def _run(service: Service) -> None:
    async with service:
        await service.run()


async def _until_ready(services: Iterable[Worker | Supervisor], running: list[asyncio.Task[None]]) -> None:
    while any(service.why_not_ready for service in services):
        for task in running:
            if task.done():
                task.result()  # raises what it ended with
        await asyncio.sleep(_LOOK_SECONDS)


async def _stop(services: list[Service], running: list[asyncio.Task[None]]) -> None:
    for service, task in zip(services, running, strict=True):
        if not task.done():
            service.stop()
    if running:  # else there is nothing that could be waited for
        await asyncio.wait(running)
    for task in running:
        task.result()


@contextlib.contextmanager
def _without_child_processes(app: App) -> Any:
    """A child process would go by another time."""
    homes: dict[str, Home | None] = {name: actor.home for name, actor in app.actors.items()}
    for actor in app.actors.values():
        actor.home = None
    try:
        yield
    finally:
        for name, home in homes.items():
            app.actors[name].home = home
