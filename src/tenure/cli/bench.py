"""``tenure bench``: what this copy of Tenure does on this machine, each figure beside what the server alone can do.

One embedded server with file storage, one process that submits and waits, one worker process. Everything is measured
three times in one run, in turns, so that a slow minute of the machine hits all figures alike; the table shows medians.
What takes minutes (an idle worker, many keys, long runs, a long life) is measured once, and the table says so.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tenure.cli import bench_more as more
from tenure.cli import bench_work as work
from tenure.cli.bench_actors import STARTS
from tenure.cli.bench_report import Report
from tenure.cli.bench_stage import Account, Stage
from tenure.clock import SYSTEM
from tenure.config import Config
from tenure.loops import run_loop
from tenure.nats.connection import Connection
from tenure.nats.embedded import EmbeddedServer

_FAILED = 1
_WIDTH = 140
"""Columns of the table where nobody says how wide the output is."""


def run_bench(*, quick: bool, as_json: bool, check: bool = False) -> int:
    """Measure, print, and return the exit code: 0, or 1 if a task was lost, doubled or failed.

    ``quick``: a small part of everything, once, to see that it works. ``check``: 1 if a goal was missed, too.
    Raises ConfigError, Unavailable, TenureError.
    """
    report = measure(quick=quick)
    if as_json:
        print(report.as_json())
    else:
        console = Console()
        report.show(console if console.is_terminal else Console(width=_WIDTH))
    if check and report.missed:
        print("tenure: missed:", ", ".join(report.missed), file=sys.stderr)
    return _FAILED if not report.account.balanced or (check and report.missed) else 0


def measure(*, quick: bool) -> Report:
    """Everything, with a progress bar on standard error. Raises as ``run_bench``."""
    # No thread that redraws the bar: it would take the interpreter from the client that is being measured.
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder,
        EmbeddedServer() as server,
        Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress,
    ):
        return run_loop(_Bench(server, Path(folder), progress, quick=quick).run())


class _Bench:
    """One run."""

    def __init__(self, server: EmbeddedServer, folder: Path, progress: Progress, *, quick: bool) -> None:
        self._server = server
        self._folder = folder
        self._progress = progress
        self._quick = quick
        self._plan = work.QUICK if quick else work.FULL
        self._series: work.Series = {}
        self._account = Account()
        self._bar = progress.add_task("starting", total=self._plan.repeats * 10 + 2 + 1 + 1 + 5)

    def _step(self, text: str, done: float = 1.0) -> None:
        self._progress.update(self._bar, description=text, advance=done, refresh=True)

    async def run(self) -> Report:
        started = time.perf_counter()
        repeats = [await self._repeat(number) for number in range(self._plan.repeats)]
        repeats[-1] |= await self._supervisors() | await self._long_runs() | await self._long_life()
        conn = await Connection.open(self._server.url, Config(), name="tenure-bench")
        version = conn.raw.connected_server_version
        await conn.close()
        return Report.of(
            repeats,
            quick=self._quick,
            server=f"{version.major}.{version.minor}.{version.patch}",
            series=self._series,
            account=self._account,
            seconds=time.perf_counter() - started,
        )

    async def _repeat(self, number: int) -> work.Figures:
        plan, turn = self._plan, f"{number + 1} of {self._plan.repeats}"
        room = 2 * (plan.sequential + 2 * plan.submits + 2 * plan.latencies + 2 * plan.delayed)
        async with self._stage(f"r{number}", room).open() as stage:
            self._step(f"{turn}: raw limits", 0)
            figures = await work.raw_limits(stage.client.stores.conn, plan, stage.cpu)
            self._step(f"{turn}: submit")
            figures |= await work.submits(stage, plan, self._series)
            self._step(f"{turn}: drain")
            plain = await work.drain(stage, figures)
            figures |= plain
            self._step(f"{turn}: submit to result")
            figures |= await work.latency(stage, plan, self._series)
            self._step(f"{turn}: delayed starts")
            figures |= await work.lateness(stage, plan, self._series)
            self._step(f"{turn}: counting")
            await stage.settle(self._account)
        for kind, what in more.LIMITS.items():
            async with self._stage(f"{kind}{number}", 2 * plan.limited).open() as stage:
                self._step(f"{turn}: {what}")
                figures |= await more.limited(stage, plan, plain, kind)
                await stage.settle(self._account)
        async with self._stage(f"full{number}", plan.windows * STARTS + 1).open() as stage:
            self._step(f"{turn}: a rate that is full")
            figures |= await more.full_rate(stage, plan)
            await stage.settle(self._account)
        return figures

    async def _supervisors(self) -> work.Figures:
        async with self._stage("inbox", 100).open() as stage:
            self._step("inbox", 0)
            figures = await more.inbox(stage, self._plan)
            stage.start_worker()
            await stage.warm_up()
            await stage.settle(self._account)
        async with self._stage("scheduled", 100).open() as stage:
            self._step(f"{self._plan.scheduled:,} scheduled keys")
            figures |= await more.scheduled(stage, self._plan)
        self._step("counting")
        return figures

    async def _long_runs(self) -> work.Figures:
        runs = self._plan.long_runs
        async with self._stage("runs", 2 * runs).open() as stage:
            self._step(f"{runs:,} long runs", 0)
            figures = await work.long_runs(stage, self._plan)
            await stage.settle(self._account)
        self._step("counting")
        return figures

    async def _long_life(self) -> work.Figures:
        async with self._stage("long", 100).open() as stage:
            stage.start_worker()
            self._step("idle worker", 0)
            figures = await work.idle(stage, self._plan, self._series)
            tasks = self._plan.memory_tasks
            self._step(f"{tasks:,} tasks")
            figures |= await work.memory(
                stage, self._plan, self._series, lambda done: self._step(f"{tasks:,} tasks", 5 * done / tasks)
            )
            self._step("counting", 0)
            await stage.settle(self._account)
        return figures

    def _stage(self, name: str, room: int) -> Stage:
        folder = self._folder / name
        folder.mkdir()
        namespace = f"bench-{name}-{SYSTEM.new_id()[-6:]}"
        return Stage(self._server.url, namespace, folder, room, self._server.pid)
