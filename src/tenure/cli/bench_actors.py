"""The app that ``tenure bench`` measures, and its worker as a process of its own.

``python -m tenure.cli.bench_actors URL NAMESPACE FOLDER CONCURRENCY`` works until its standard input ends, which it
also does when the benchmark is killed; then it drains and leaves what it counted in ``FOLDER/counts.json``. With a
concurrency of 0 it is a supervisor, and ``sweep_seconds`` follow. Once it is ready there is a file ``FOLDER/ready-PID``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.actors import Actor
from tenure.app import App
from tenure.cli.bench_probe import Stamps
from tenure.config import Config
from tenure.loops import run_loop, settle_collector
from tenure.rates import RateLimit
from tenure.settings import Limit

if TYPE_CHECKING:
    from tenure.supervisor import Supervisor
    from tenure.worker import Worker

STAMPS, COUNTS, READY = "stamps", "counts.json", "ready-"
LIMIT = 10
VALUES = 10
"""Of the argument that a limit goes by."""
WINDOW, STARTS = 0.1, 300
"""The rate that is full all the time: so many starts in any so many seconds, well below what a worker starts without."""


class BenchApp(NamedTuple):
    """An app and its actors."""

    app: App
    noop: Actor[..., ..., Any, Any]
    stamp: Actor[..., ..., Any, Any]
    hold: Actor[..., ..., Any, Any]
    capped: Actor[..., ..., Any, Any]
    rated: Actor[..., ..., Any, Any]
    shared: Actor[..., ..., Any, Any]
    rated_shared: Actor[..., ..., Any, Any]
    full: Actor[..., ..., Any, Any]


class Counts(msgspec.Struct, frozen=True):
    """What a worker counted: outcomes it stored, by kind, and claims it won."""

    outcomes: dict[str, int]
    won: int


def make_app(namespace: str, stamps: Stamps | None = None, config: Config | None = None) -> BenchApp:
    """The app under one namespace. Only its worker has ``stamps``."""
    app = App(namespace, config=config)

    @app.actor
    async def noop() -> None:
        """Do nothing."""

    @app.actor
    async def stamp(number: int) -> int:
        """Say when the body started, and return something that must come back."""
        if stamps is not None:
            stamps.note(number)
        return number

    @app.actor
    async def hold(number: int, until: float) -> None:
        """Say when the body started, and be there until then (seconds since the epoch)."""
        if stamps is not None:
            stamps.note(number)
        await asyncio.sleep(max(0.0, until - time.time()))

    @app.actor(limits=[Limit(LIMIT)])
    async def capped(number: int) -> None:
        """Say when the body started; so many at once."""
        if stamps is not None:
            stamps.note(number)

    @app.actor(limits=[RateLimit(1_000_000, 1.0)])
    async def rated(number: int) -> None:
        """Say when the body started; under a rate that nothing exceeds."""
        if stamps is not None:
            stamps.note(number)

    @app.actor(limits=[Limit(LIMIT, per="value")])
    async def shared(number: int, value: int) -> None:  # noqa: ARG001  (the limit reads it)
        """Say when the body started; so many at once of each value."""
        if stamps is not None:
            stamps.note(number)

    @app.actor(limits=[RateLimit(1_000_000, 1.0, per="value")])
    async def rated_shared(number: int, value: int) -> None:  # noqa: ARG001  (the rate reads it)
        """Say when the body started; under a rate of each value that nothing exceeds."""
        if stamps is not None:
            stamps.note(number)

    @app.actor(limits=[RateLimit(STARTS, WINDOW)])
    async def full(number: int) -> None:
        """Say when the body started; as often as that may be."""
        if stamps is not None:
            stamps.note(number)

    return BenchApp(app, noop, stamp, hold, capped, rated, shared, rated_shared, full)


async def _say_when_ready(service: Worker | Supervisor, folder: Path) -> None:
    while service.why_not_ready:  # noqa: ASYNC110  (it depends on clocks as well: there is no event to wait for)
        await asyncio.sleep(0.02)
    (folder / f"{READY}{os.getpid()}").touch()


async def _serve(url: str, namespace: str, folder: Path, concurrency: int, config: Config) -> None:
    stamps = Stamps(folder / STAMPS)
    app = make_app(namespace, stamps, config).app
    async with app.worker(url, concurrency=concurrency) if concurrency else app.supervisor(url) as worker:
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(sys.stdin)
            worker.stop()

        loop.add_reader(sys.stdin, ended)
        saying = asyncio.create_task(_say_when_ready(worker, folder))
        await worker.run()
        saying.cancel()
        outcomes: dict[str, int] = {}
        for (_, did), number in worker.metrics.outcomes.items():
            outcomes[did] = outcomes.get(did, 0) + number
        won = sum(number for (_, outcome), number in worker.metrics.claims.items() if outcome == "won")
    (folder / COUNTS).write_bytes(msgspec.json.encode(Counts(outcomes, won)))


if __name__ == "__main__":
    settle_collector()  # as `tenure worker` does
    url, namespace, folder, concurrency, *rest = sys.argv[1:]
    settings = Config(sweep_seconds=float(rest[0])) if rest else Config()
    run_loop(_serve(url, namespace, Path(folder), int(concurrency), settings))
