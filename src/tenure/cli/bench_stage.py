"""One stage of the benchmark.

A namespace of its own, its client, its worker process, and the account of what was submitted.

When a stage ends, every key must have exactly one stored outcome: the records say which keys have one, the worker says
how many it stored. Then the stage's streams are deleted, so that later stages meet an empty server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from tenure.actors import Call
from tenure.cli.bench_actors import COUNTS, READY, STAMPS, Counts, make_app
from tenure.cli.bench_probe import Stamps, cpu_seconds
from tenure.client import Client
from tenure.config import Config
from tenure.core.errors import TenureError
from tenure.core.records import read_state
from tenure.core.subjects import PRIORITIES
from tenure.nats.scan import Header

CONCURRENCY = 100
_START_SECONDS = 30.0
_STOP_SECONDS = 60.0
_QUEUE = "default"


class Account(msgspec.Struct):
    """Tasks of the whole run.

    Submitted, with a stored outcome, outcomes stored by workers; and what is wrong with them.
    """

    submitted: int = 0
    finished: int = 0
    outcomes: int = 0
    wrong: list[str] = []

    @property
    def balanced(self) -> bool:
        """Whether every task has exactly one outcome and all succeeded."""
        return not self.wrong and self.submitted == self.finished == self.outcomes


class WorkerProcess:
    """A worker, or a supervisor, in a process of its own. ``arguments``: see ``bench_actors``."""

    def __init__(self, url: str, namespace: str, folder: Path, *arguments: float) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "tenure.cli.bench_actors", url, namespace, str(folder), *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)  # noqa: S603  (our own module)
        self.pid = self._process.pid

    def check(self) -> None:
        """Raise TenureError if it has ended by itself."""
        if self._process.poll() is not None:
            msg = f"the benchmark's worker ended by itself with exit code {self._process.returncode}"
            raise TenureError(msg)

    @property
    def is_ready(self) -> bool:
        """Whether it has said so."""
        return (self._folder / f"{READY}{self.pid}").exists()

    async def stop(self) -> Counts:
        """Have it drain, and return what it counted."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            msg = f"the benchmark's worker did not drain within {_STOP_SECONDS:g} s"
            raise TenureError(msg) from error
        return msgspec.json.decode((self._folder / COUNTS).read_bytes(), type=Counts)

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.kill()
        self._process.wait()


class Stage:
    """A namespace being measured. ``worker`` is None until ``start_worker``."""

    def __init__(self, url: str, namespace: str, folder: Path, room: int, server_pid: int) -> None:
        self.bench = make_app(namespace)
        self.server_pid = server_pid
        self.submitted = 0
        self.stamps = Stamps.create(folder / STAMPS, room)
        self._url = url
        self._folder = folder
        self._client: Client | None = None
        self._worker: WorkerProcess | None = None
        self._others: list[WorkerProcess] = []

    @property
    def client(self) -> Client:
        """The stage's client, while it is open."""
        if self._client is None:
            msg = "the stage is not open"
            raise TenureError(msg)
        return self._client

    @property
    def worker(self) -> WorkerProcess:
        """The stage's worker, once it was started."""
        if self._worker is None:
            msg = "the stage has no worker yet"
            raise TenureError(msg)
        return self._worker

    def start_worker(self, concurrency: int = CONCURRENCY) -> WorkerProcess:
        """Start the worker's process; returns before it is ready."""
        self._worker = WorkerProcess(self._url, self.bench.app.namespace, self._folder, concurrency)
        return self._worker

    def start_supervisor(self, sweep_seconds: float = Config().sweep_seconds) -> WorkerProcess:
        """Start a supervisor's process; returns before it is ready. It is not the stage's worker."""
        supervisor = WorkerProcess(self._url, self.bench.app.namespace, self._folder, 0, sweep_seconds)
        self._others.append(supervisor)
        return supervisor

    async def warm_up(self, number: int = 20) -> None:
        """Return once the worker has run a few tasks."""
        for _ in range(number):
            await self.result(self.bench.noop.call())

    async def result(self, call: Call[Any]) -> Any:
        """Submit and wait for the value."""
        self.submitted += 1
        run = await self.client.submit(call)
        return await run.result(_START_SECONDS)

    def numbers(self, count: int) -> range:
        """Numbers for the next ``count`` tasks, which are thereby accounted for."""
        first = self.submitted
        self.submitted += count
        return range(first, first + count)

    async def until(self, done: Callable[[], bool], seconds: float, what: str, every: float = 0.01) -> None:
        """Wait without a word to the server. Raises TenureError if it takes too long or the worker ends."""
        end = time.monotonic() + seconds
        while not done():
            self.worker.check()
            if time.monotonic() > end:
                msg = f"after {seconds:g} s still waiting: {what}"
                raise TenureError(msg)
            await asyncio.sleep(every)

    async def until_idle(self, seconds: float = 300.0, every: float = 0.01) -> None:
        """Wait until every wake-up is acknowledged, which is after its outcome was stored."""
        end = time.monotonic() + seconds
        work = self.client.stores.work
        while any([sum(await work.pending(_QUEUE, priority)) for priority in PRIORITIES]):
            self.worker.check()
            if time.monotonic() > end:
                msg = f"after {seconds:g} s there are still unfinished tasks"
                raise TenureError(msg)
            await asyncio.sleep(every)

    def cpu(self) -> tuple[float, float, float]:
        """CPU seconds of this process, the worker and the server so far."""
        worker = cpu_seconds(self._worker.pid) if self._worker is not None else 0.0
        return cpu_seconds(os.getpid()), worker, cpu_seconds(self.server_pid)

    async def settle(self, account: Account) -> None:
        """Stop the worker and check that each task has exactly one outcome."""
        await self.until_idle()
        worker, self._worker = self.worker, None
        try:
            counts = await worker.stop()
        finally:
            worker.kill()
        phases: dict[str, int] = {}
        again = 0

        def seen(header: Header) -> None:
            nonlocal again
            state = read_state(header.state)
            phase = state.phase.value if state is not None else "unreadable"
            phases[phase] = phases.get(phase, 0) + 1
            again += state is None or state.generation != 1

        await self.client.stores.runs.scan(seen)
        finished = phases.get("succeeded", 0)
        outcomes = sum(counts.outcomes.values())
        account.submitted += self.submitted
        account.finished += finished
        account.outcomes += outcomes
        if again or not self.submitted == finished == sum(phases.values()) == outcomes == counts.won:
            account.wrong.append(
                f"{self.bench.app.namespace}: {self.submitted} submitted; records {phases}, {again} beyond generation 1; "
                f"the worker won {counts.won} claims and stored {counts.outcomes}"
            )

    async def _delete(self) -> None:
        names = self.bench.app.names
        for stream in (names.work_stream, names.runs_stream, names.sessions_stream, names.blobs_stream):
            await self.client.stores.conn.api(f"STREAM.DELETE.{stream}", {}, timeout=30.0)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        """Connect; at the end kill what still runs and delete the stage's streams."""
        async with self.bench.app.connect(self._url) as self._client:
            try:
                yield self
                await self._delete()
            finally:
                for process in [*self._others, *([self._worker] if self._worker is not None else [])]:
                    process.kill()
                self.stamps.close()
