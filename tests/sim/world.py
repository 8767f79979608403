"""One simulated world: a server, workers, supervisors and producers, what goes wrong, then peace; and the evidence of it.

Everybody but the observer meets faults. The observer sees every revision as the server stores it, so nothing is missing.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import nats.errors
from msgspec import Struct

from tenure.clock import using
from tenure.core.errors import TenureError, Unavailable
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.memory import Link
from tenure.service import Service
from tenure.stores import Stores
from tenure.supervisor import Supervisor
from tenure.worker import Worker
from tests.chaos import collect, producer, stranger
from tests.chaos.bodies import app
from tests.chaos.journal import Journal
from tests.history.evidence import (
    CHIME,
    AskLine,
    BodyLine,
    Clocks,
    CommandLine,
    Counts,
    Death,
    EntrySeen,
    Evidence,
    Fault,
    Revision,
)
from tests.history.expiries import with_expiries
from tests.sim.faults import FaultyLink, Mixture, mixture_of
from tests.sim.loop import Process, SimLoop, process_here, process_of
from tests.sim.machine import EPOCH, SimClock
from tests.sim.server import FragileServer
from tests.sim.trace import Trace

_LOOK_SECONDS = 0.5
_ASKING = {"producer", "stranger"}
"""Whoever only asks for something: not started again once nothing goes wrong any more."""
_START_AGAIN = (0.05, 3.0)
_CLOCKS = 0.6
"""Processes align their clocks to the server's: to a quarter of a second, and to half of what an answer's way may take."""


class Size(Struct, frozen=True, kw_only=True):
    """How large a world is.

    ``keys``: one of these numbers, so that they are crowded in some worlds and not in others.
    ``every_key``: producers begin with a submit for each.
    ``skew``: how many seconds processes' clocks may be wrong by, in the place of what the seed says.
    """

    seconds: float = 8.0
    workers: int = 3
    supervisors: int = 2
    producers: int = 2
    strangers: int = 1
    rate: float = 15.0
    keys: tuple[int, ...] = (5, 20, 60)
    every_key: bool = False
    concurrency: int = 20
    skew: float | None = None
    quiet_seconds: float = 120.0


class Program(Struct, kw_only=True):
    """What runs again and again under a name: one process after the other."""

    name: str
    role: str
    process: Process
    clock: SimClock
    stopping: bool = False
    service: Service | asyncio.Event | None = None


class _Asking(producer.Producer):
    """Asks as the producers of real runs do, after a submit for each of its ``first`` keys."""

    first: Iterator[int] = iter(())

    async def ask(self) -> None:
        """The next of them."""
        number = next(self.first, None)
        await (super().ask() if number is None else self._submit(f"k{number}"))


class World:
    """A seed's world. ``evidence`` once it has run."""

    def __init__(self, loop: SimLoop, seed: int, size: Size, mixture: Mixture | None = None) -> None:
        self.loop = loop
        self.size = size
        self.chance = random.Random(f"tenure {seed}")
        self.mixture = mixture_of(self.chance) if mixture is None else mixture
        self._skew = self.mixture.skew if size.skew is None else size.skew
        self._keys = self.chance.choice(size.keys)
        self.trace = Trace(loop)
        self.troubled = True
        """Whether things still go wrong."""
        self.programs: dict[str, Program] = {}
        self.starting = 0
        self.failures: list[str] = []
        self._pids = 0
        self._services: list[tuple[int, Service]] = []
        self._bodies: list[BodyLine] = []
        self._asks: list[AskLine] = []
        self._commands: list[CommandLine] = []
        self._revisions: list[Revision] = []
        self._deaths: list[Death] = []
        self._entries: list[EntrySeen] = []
        self.frozen: list[Fault] = []
        gap = self._draw(0.2) if self.mixture.schedule_races else lambda: 0.0
        self.server = FragileServer(
            "sim", clock=self._clock(0.0), link=self._link, schedule_late=self._draw(0.25), schedule_gap=gap
        )

    # -- what is seen ------------------------------------------------------------------------------------------------

    def write(self, line: BodyLine | AskLine | CommandLine) -> None:
        """A journal line of a simulated process."""
        match line:
            case BodyLine():
                self._bodies.append(line)
            case CommandLine():
                self._commands.append(line)
            case AskLine():
                self._asks.append(line)
        self.trace.line(line)

    def _seen(self, seen: Revision | EntrySeen) -> None:
        if not isinstance(seen, Revision):
            self._entries.append(seen)
            return
        self._revisions.append(seen)
        self.trace.revision(seen)

    # -- processes ---------------------------------------------------------------------------------------------------

    def _clock(self, ahead: float) -> SimClock:
        chance = random.Random(self.chance.random())
        return SimClock(self.loop, chance, ahead=ahead, counts_suspension=self.mixture.counts_suspension)

    def _draw(self, most: float) -> Any:
        chance = random.Random(self.chance.random())
        return lambda: most * chance.random()

    def _link(self, client: str) -> Link:
        process = process_here()
        if process is None or process.name == "observer":
            return Link()
        chance = random.Random(self.chance.random())
        del client
        return FaultyLink(self.mixture, chance, lambda: self.troubled, self.trace.note, process.name)

    def launch(self, name: str, role: str) -> None:
        """Start a program, or start it again."""
        before = self.programs.get(name)
        self._pids += 1
        process = Process(self.loop, name, 100 + self._pids)
        clock = self._clock(self._skew * (2 * self.chance.random() - 1)) if before is None else before.clock
        program = self.programs[name] = Program(name=name, role=role, process=process, clock=clock)
        process.on_death = lambda: self._died(program, "kill")
        main = process.start(self._main(program))
        main.add_done_callback(lambda task: self._over(program, task))
        self.trace.note(f"{name} starts as process {process.pid}")

    async def _main(self, program: Program) -> None:
        with using(program.clock):
            if program.role == "producer":
                await self._produce(program)
                return
            if program.role == "stranger":
                await self._publish(program)
                return
            service: Worker | Supervisor = (
                app.worker(self.server.url, concurrency=self.size.concurrency)
                if program.role == "worker"
                else app.supervisor(self.server.url)
            )
            program.service = service
            self._services.append((program.process.pid, service))
            async with service:
                if program.stopping:
                    return
                await service.run()

    async def _produce(self, program: Program) -> None:
        stopping = program.service = asyncio.Event()
        chance = random.Random(self.chance.random())
        async with app.connect(self.server.url) as client:
            asks = _Asking(client, Journal(Path(), "asks"), chance, self._keys)
            if self.size.every_key:
                asks.first = iter(range(int(program.name[len("producer") :]), self._keys, self.size.producers))
            await producer._ask_until(stopping, asks, self.size.rate / self.size.producers)

    async def _publish(self, program: Program) -> None:
        """A program without Tenure's client: all that it has is a connection."""
        stopping = program.service = asyncio.Event()
        chance = random.Random(self.chance.random())
        conn = await Connection.open(self.server.url, app.config, name="stranger")

        async def publish(subject: str, body: bytes, headers: Mapping[str, str]) -> None:
            try:
                ack = await conn.put(subject, body, headers, timeout=1.0)
            except (NotSent, Lost) as error:
                raise nats.errors.Error(str(error)) from error
            if ack.error is not None:
                raise nats.errors.Error(ack.error.description)

        try:
            asks = stranger.Stranger(publish, app.namespace, Path(), chance)
            await stranger.ask_until(stopping, asks, self.size.rate / 5)
        finally:
            await conn.close()

    def stop(self, program: Program) -> None:
        """As SIGTERM."""
        program.stopping = True
        service = program.service
        if isinstance(service, asyncio.Event):
            program.process.call(service.set)
        elif service is not None:
            program.process.call(service.stop)

    def _over(self, program: Program, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if not program.process.alive:
            return
        if _is_unavailable(error) or (error is None and program.stopping):
            program.process.alive = False
            self._died(program, "term")
            return
        self.failures.append(f"{program.name} has ended by itself: {error!r}")
        program.process.kill()

    def _died(self, program: Program, how: str) -> None:
        now = self.loop.time()
        self.trace.note(f"{program.name} is dead ({how})")
        self._deaths.append(
            Death(pid=program.process.pid, role=program.role, how=how, killed_at=now, at=now, wall=EPOCH + now)
        )
        for peer in [peer for peer in self.server.peers.values() if process_of(peer.context) is program.process]:
            peer.cut()
        if program.role not in _ASKING or self.troubled:
            self.starting += 1
            self.loop.call_later(self.chance.uniform(*_START_AGAIN), self._again, program)

    def _again(self, program: Program) -> None:
        self.starting -= 1
        if program.role not in _ASKING or self.troubled:
            self.launch(program.name, program.role)

    # -- a run -------------------------------------------------------------------------------------------------------

    async def run(self, nemesis: Coroutine[Any, Any, None]) -> Evidence:
        """Everything, from the first start to the evidence."""
        self.server.start()
        observer = Process(self.loop, "observer", 99)
        evidence: Evidence = await observer.start(self._observe(nemesis))
        return evidence

    async def _observe(self, nemesis: Coroutine[Any, Any, None]) -> Evidence:
        with using(self._clock(0.0)):
            stores = await Stores.open(self.server.url, app.names, app.config, name="observer")
        self.server.watch(app.names, self._seen)
        for role, number in (
            ("supervisor", self.size.supervisors),
            ("worker", self.size.workers),
            ("producer", self.size.producers),
            ("stranger", self.size.strangers),
        ):
            for index in range(number):
                self._outside(self.launch, f"{role}{index}", role)
        await self._outside(asyncio.ensure_future, nemesis)
        self.trace.note("peace")
        self.troubled = False
        for program in list(self.programs.values()):
            if program.role in _ASKING and program.process.alive:
                self.stop(program)
        return await self._collect(stores)

    def _outside(self, function: Any, *args: Any) -> Any:
        """Call it in no process."""
        return contextvars.Context().run(function, *args)

    async def _collect(self, stores: Stores) -> Evidence:
        calm = self.loop.time()
        left = await self._until_quiet(stores, calm + self.size.quiet_seconds)
        rested = self.loop.time() - calm
        sessions = await collect.sessions(stores)
        until = self.loop.time() + 40.0
        while any(s.closed is None and s.pid not in self._alive() for s in sessions) and self.loop.time() < until:
            await asyncio.sleep(_LOOK_SECONDS)  # paused: until supervisors have closed the dead
            sessions = await collect.sessions(stores)
        clocks = Clocks(observers=0.0, processes=_CLOCKS, in_force=0.0)
        evidence = Evidence(
            bodies=self._bodies,
            asks=self._asks,
            revisions=with_expiries(self._revisions, clocks),
            looked_at=stores.clock.now(),
            records=await collect.records(stores),
            sessions=sessions,
            deaths=self._deaths,
            alive=self._alive(),
            counts=self._counts(),
            letters=await collect.letters(stores),
            work_left=await collect.work_left(stores),
            quiet=not left,
            rest_seconds=rested,
            clocks=clocks,
            asks_whole=True,
            counted_exactly=not self.mixture.costs_counts,
            told_exactly=self.mixture.tells_all,
            answers_known=not (self.mixture.costs_counts or self.mixture.cut),
            commands=self._commands,
            rejected=await collect.rejected(stores),
            frozen=self.frozen,
            fenced=await collect.fenced(stores),
            scraped={pid for pid, _ in self._services},
        )
        evidence.take_entries(self._entries)
        if left:
            self.failures.append(f"not at rest after {rested:.0f} s: {left}")
        return evidence

    async def _until_quiet(self, stores: Stores, until: float) -> dict[str, str]:
        while True:
            busy = self.starting or any(
                program.role in _ASKING and program.process.alive for program in self.programs.values()
            )
            try:
                if not busy:
                    await collect.resume_all(stores)
                left = await collect.owing(stores)
            except TenureError as error:
                left = {"": str(error)}
            if (not left and not busy) or self.loop.time() > until:
                return left
            await asyncio.sleep(_LOOK_SECONDS)  # paused: between two looks

    def _alive(self) -> set[int]:
        return {program.process.pid for program in self.programs.values() if program.process.alive}

    def _counts(self) -> Counts:
        totals, fenced = {family: Counter[str]() for family in ("superseded", "cancelled", "outcomes")}, Counter[int]()
        for pid, service in self._services:
            fenced[pid] += sum(service.metrics.fenced.values())
            for family, total in totals.items():
                for (actor, label), number in getattr(service.metrics, family).items():
                    total[label] += number if actor != CHIME else 0
        return Counts(**{family: dict(total) for family, total in totals.items()}, fenced=dict(fenced))


def _is_unavailable(error: BaseException | None) -> bool:
    """Who finds no server at its start gives up, and is started again as a platform would."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_unavailable, error.exceptions))
    return isinstance(error, Unavailable)


def silence() -> None:
    """No log line is made: most of a run's time would go there."""
    logging.getLogger("tenure").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
