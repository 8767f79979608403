"""One chaos run: servers, processes, a nemesis for so many seconds, then peace, and the evidence of it all.

A run that fails keeps its folder. Whatever ends this process ends everything that it started.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from msgspec import Struct

from tenure.loops import run_loop
from tenure.stores import Stores
from tests.chaos import collect
from tests.chaos.bodies import app
from tests.chaos.counters import Counters
from tests.chaos.journal import Journal, read, steady
from tests.chaos.kinds import COSTS_NO_COUNT
from tests.chaos.nemesis import DRAIN_SECONDS, Nemesis
from tests.chaos.network import Network
from tests.chaos.processes import Child
from tests.chaos.promptness import Crowd, Life, lives_of
from tests.chaos.servers import Servers
from tests.history.evidence import (
    AskLine,
    BodyLine,
    Clocks,
    CommandLine,
    Counts,
    EntryLine,
    Evidence,
    Fault,
    Revision,
)
from tests.history.expiries import with_expiries

_ROOT = Path(__file__).resolve().parents[2]
_LOOK_SECONDS = 0.05
_ASKING = {"producer", "stranger"}
_WITH_SUPERVISOR = "worker0"
_UNAVAILABLE = 3
"""Exit code of a command that found no server."""
_CLOSING_SECONDS = 40.0
"""In which supervisors must have closed every dead session (its ttl is longer where it has to outlive an election)."""
_START_SECONDS = 60.0
"""In which nine processes must have started, on a machine that may have better things to do."""
_READS_BEHIND = 10.0
"""A leader of three that is cut off gives up its office only after so many seconds, and answers reads until then."""


class Settings(Struct, frozen=True, kw_only=True):
    """What a run is asked for: the nemesis works for ``seconds``, and goes on until it has killed ``least_kills``.

    It begins with ``first``, and goes on until it has done each of these. ``only``: such faults of processes, and no others.

    ``quiet_seconds``: in which less must be left to do, until all is at rest.
    """

    seconds: float
    seed: int
    folder: Path
    servers: int = 1
    leave_servers: bool = False
    every: float = 1.0
    own_network: bool = False
    workers: int = 3
    supervisors: int = 2
    producers: int = 2
    strangers: int = 2
    rate: float = 60.0
    least_kills: int = 0
    first: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    keys: int = 20_000
    quiet_seconds: float = 60.0


class Chaos:
    """A run. Use it as a context manager: ``go`` once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = ExitStack()
        self.faults: list[Fault] = []
        self.crowd = Crowd()

    def __enter__(self) -> Self:
        asked = self._settings
        self._logs = asked.folder / "logs"
        self._logs.mkdir(parents=True)
        self._counters = Counters(self._logs)
        try:
            network = self._stack.enter_context(Network()) if asked.own_network else None
            self._servers = Servers(asked.folder, asked.servers, network)
            self._stack.callback(self._servers.stop)
            self._stack.enter_context(self.crowd)
            self._recorder = self._child("recorder", "", "-m", "tests.chaos.recorder")
            self._children = list(self._make_children())
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()
        journal = Journal(self._logs, "faults")
        for fault in self.faults:
            journal.write(fault)

    def go(self) -> Evidence:
        """Do it all and return the evidence."""
        self._servers.start()
        run_loop(self._set_up())
        self._recorder.start()
        self._wait(lambda: self._recorder.said("recording"), "the recorder listens")
        for child in self._children:
            child.start()
        self._wait(lambda: all(c.said(".ready") for c in self._children if c.role not in _ASKING), "all are ready")
        asked = self._settings
        nemesis = Nemesis(
            asked.seed,
            self._servers,
            self._children,
            self._counters.scrape,
            first=asked.first,
            only=asked.only,
            leave_servers=asked.leave_servers,
            every=asked.every,
        )
        self.faults = nemesis.faults
        until = steady() + asked.seconds
        while steady() < until or nemesis.kills < asked.least_kills or nemesis.is_owing:
            nemesis.step()
            self._still_well()
            time.sleep(_LOOK_SECONDS)  # paused: between two steps
        nemesis.rest()
        return self._peace()

    def _peace(self) -> Evidence:
        for producer in (c for c in self._children if c.role in _ASKING):
            producer.end("term", 20.0)
        for child in self._children:
            if child.role not in _ASKING:
                child.start()
        self._servers.wait_healthy()
        return run_loop(self._collect())

    async def _set_up(self) -> None:
        stores = await self._stores()
        try:
            await collect.set_up(stores)
        finally:
            await stores.close()

    async def _stores(self) -> Stores:
        return await Stores.open(self._servers.url, app.names, app.config, name="chaos")

    async def _collect(self) -> Evidence:
        stores = await self._stores()
        try:
            calm = steady()
            left = await collect.wait_until_quiet(stores, self._settings.quiet_seconds, self._still_well)
            rested = steady() - calm
            alive = {c.pid for c in self._children if c.running}
            sessions = await collect.sessions(stores)
            until = steady() + _CLOSING_SECONDS
            while any(s.closed is None and s.pid not in alive for s in sessions) and steady() < until:
                await asyncio.sleep(_LOOK_SECONDS)  # paused: until supervisors have closed the dead
                sessions = await collect.sessions(stores)
            looked_at = stores.clock.now()
            records = await collect.records(stores)
            self._recorder.end("term", 5.0)
            events = {r.seq: r for path in self._logs.glob("events-*") for r in read(path, Revision)}
            lines = (line for path in self._logs.glob("entries-*") for line in read(path, EntryLine))
            entries = {line.seen.seq: line.seen for line in lines}
            revisions, missing = await collect.revisions(stores, events, entries, records)
            clocks = Clocks(reads_behind=_READS_BEHIND if self._settings.servers > 1 else 0.0)
            evidence = Evidence(
                bodies=[],
                asks=[line for path in self._logs.glob("asks-*") for line in read(path, AskLine)],
                revisions=with_expiries(revisions, clocks),
                records=records,
                looked_at=looked_at,
                sessions=sessions,
                deaths=[],
                alive=alive,
                counts=Counts(),
                missing=missing,
                letters=await collect.letters(stores),
                work_left=await collect.work_left(stores),
                quiet=not left,
                rest_seconds=rested,
                clocks=clocks,
                asks_whole=True,
                counted_exactly=(kinds := {fault.kind for fault in self.faults}) <= COSTS_NO_COUNT,
                told_exactly=kinds <= COSTS_NO_COUNT | {"freeze"},
                commands=[line for path in self._logs.glob("commands-*") for line in read(path, CommandLine)],
                rejected=await collect.rejected(stores),
                frozen=[fault for fault in self.faults if fault.pid],
            )
            evidence.take_entries(entries.values())
            self._end_in_order()
            evidence.fenced = await collect.fenced(stores)
            evidence.bodies = [line for path in self._logs.glob("bodies-*") for line in read(path, BodyLine)]
            evidence.deaths = [death for child in self._children for death in child.deaths]
            evidence.counts, evidence.unread = self._counters.sums(evidence.deaths)
            evidence.scraped = self._counters.whole
            return evidence
        finally:
            await stores.close()

    def _end_in_order(self) -> None:
        """Everybody who works, at the same time. Whoever asks has ended."""
        for child in (working := [child for child in self._children if child.running]):
            child.ask_to_end()
        until = steady() + DRAIN_SECONDS
        for child in working:
            child.end("term", max(0.0, until - steady()))

    # -- processes ---------------------------------------------------------------------------------------------------

    def _make_children(self) -> Iterable[Child]:
        asked = self._settings
        for number in range(asked.workers):
            name = f"worker{number}"
            beside = ("--with-supervisor",) if name == _WITH_SUPERVISOR else ()
            yield self._service(name, "worker", "--concurrency", "50", *beside)
        for number in range(asked.supervisors):
            yield self._service(f"supervisor{number}", "supervisor")
        for number in range(asked.producers):
            name, rate = f"producer{number}", str(asked.rate / asked.producers)
            arguments = ("-m", "tests.chaos.producer", str(asked.seed + number), rate, str(asked.keys))
            yield self._child(name, self._place(name)[0], *arguments)
        for number in range(asked.strangers):
            name, rate = f"stranger{number}", str(asked.rate / 10)
            yield self._child(name, self._place(name)[0], "-m", "tests.chaos.stranger", str(asked.seed + number), rate)

    def _service(self, name: str, command: str, *options: str) -> Child:
        space, address = self._place(name)
        port = 9100 if space else _free_port()
        self._counters.expect(name, f"{address}:{port}")
        metrics = ("--metrics-host", address, "--metrics-port", str(port))
        target = "tests.chaos.apart:app"
        return self._child(name, space, "-m", "tests.chaos.service", command, target, "--log-json", *metrics, *options)

    def _place(self, name: str) -> tuple[str, str]:
        """The network namespace of a process ("": ours), and its address."""
        network = self._servers.network
        return network.add(name) if network is not None else ("", "127.0.0.1")

    def _child(self, name: str, space: str, *arguments: str) -> Child:
        child = Child(
            name,
            [sys.executable, *arguments],
            self._logs,
            env={
                "CHAOS_FOLDER": str(self._logs),
                "TENURE_NATS_URL": self._servers.url,
                "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
            },
            netns=space,
        )
        self._stack.callback(child.end, "kill", 0.0)
        return child

    def _still_well(self) -> None:
        """A service that finds no server at its start gives up, and is started again as a platform would.

        One that has run and ends by itself is a fault.
        """
        for child in [*self._children, self._recorder]:
            child.notice()
            code = child.ended_by_itself()
            if code is None:
                continue
            if code != _UNAVAILABLE or child.said(".ready"):
                raise AssertionError(f"{child.name} has ended by itself with {code}: see {child.log}")
            child.end("kill", 0.0)
            child.start()
            self.faults.append(Fault(kind="gave up at its start", target=child.name, at=steady(), until=steady()))

    @property
    def lives(self) -> list[Life]:
        """Of workers and supervisors, and of the one beside a worker."""
        return [
            life
            for child in self._children
            if child.role not in _ASKING
            for life in lives_of(child, self.faults, beside=child.name == _WITH_SUPERVISOR)
        ]

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        until = steady() + _START_SECONDS
        while not ready():
            self._still_well()
            if steady() > until:
                raise AssertionError(f"waited in vain: {what}; see {self._logs}")
            time.sleep(_LOOK_SECONDS)  # paused: between two looks


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
