"""``worker``: a worker as a process. Owns signals, the ready line, the HTTP endpoint and a certain end.

SIGTERM and the first SIGINT drain; a second SIGINT ends the process at once. A body that never ends (a thread cannot be
stopped, a task may swallow its cancellation) has lost its run by then, so it must not keep the process: ``os._exit``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from msgspec import Struct

from tenure import telemetry
from tenure.app import App
from tenure.cli import options as o
from tenure.cli.output import print_json
from tenure.cli.parsing import load_app
from tenure.cli.problems import Exit, complain, explain
from tenure.loops import run_loop, settle_collector

if TYPE_CHECKING:
    from tenure.worker import Worker

READY = "worker.ready"
_THREADS = "tenure-body-helper"
_LEAVE_SECONDS = 1.0
_LOOK_SECONDS = 0.02


class Settings(Struct, frozen=True, kw_only=True):
    """What a worker process was asked for."""

    url: str | None = None
    queues: list[str] | None = None
    concurrency: int = 100
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    as_json: bool = False
    with_stdin: bool = False


def worker(
    target: o.Target,
    *,
    queue: o.Queues = None,
    concurrency: o.Concurrency = 100,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65_535,
            help="Serve /metrics, /health and /ready; 0: a free port, printed.",
            show_default=False,
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option("--metrics-host", help="Address to serve them on: this machine alone unless you say 0.0.0.0."),
    ] = "127.0.0.1",
    url: o.Url = None,
    log_level: o.Level = o.LogLevel.INFO,
    log_json: o.LogJson = False,
    stop_with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> int:
    """Run an app's actors until SIGTERM or Ctrl-C, then drain; a second Ctrl-C ends it at once."""
    telemetry.configure(log_level.value, as_json=log_json)
    settings = Settings(
        url=url,
        queues=queue,
        concurrency=concurrency,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        as_json=log_json,
        with_stdin=stop_with_stdin,
    )
    app = load_app(target)
    settle_collector()
    return run_loop(_main(app, settings))


async def _main(app: App, settings: Settings) -> int:
    helpers = ThreadPoolExecutor(thread_name_prefix=_THREADS)
    asyncio.get_running_loop().set_default_executor(helpers)
    code = Exit.OK
    try:
        await _serve(app, settings)
    except Exception as error:  # noqa: BLE001  (whatever ends a worker is told as every other error, and then it must end)
        code, text = explain(error)
        complain(text)
    helpers.shutdown(wait=False)
    if not await _alone():
        leave(code)
    return code


async def _serve(app: App, settings: Settings) -> None:
    worker = app.worker(settings.url, queues=settings.queues, concurrency=settings.concurrency)
    with _http(worker, settings) as address, stopped_by_signals(worker.stop):
        if settings.with_stdin:
            _stop_at_end_of_stdin(worker.stop)
        async with worker:
            announcing = asyncio.create_task(_announce(worker, settings, address))
            try:
                await worker.run()
            finally:
                announcing.cancel()


@contextlib.contextmanager
def _http(worker: Worker, settings: Settings) -> Iterator[str | None]:
    if settings.metrics_port is None:
        yield None
        return
    from tenure.health import HealthServer

    server = HealthServer(
        worker.metrics.registry,
        lambda: worker.why_not_ready,
        host=settings.metrics_host,
        port=settings.metrics_port,
    )
    server.start()
    try:
        yield f"http://{settings.metrics_host}:{server.port}"
    finally:
        server.close()


async def _announce(worker: Worker, settings: Settings, address: str | None) -> None:
    """One line on standard output once the worker pulls: people see it, parents and scripts wait for it."""
    while worker.why_not_ready:  # noqa: ASYNC110  (what it says depends on clocks as well: there is no event to wait for)
        await asyncio.sleep(_LOOK_SECONDS)
    said = {
        "namespace": worker.app.namespace,
        "queues": worker.queues,
        "concurrency": worker.concurrency,
        "pid": os.getpid(),
        "metrics": address,
    }
    if settings.as_json:
        print_json({"event": READY} | said)
    else:
        metrics = f", metrics at {address}/metrics" if address else ""
        print(
            f"tenure worker ready: namespace {worker.app.namespace}, queues {', '.join(worker.queues)},"
            f" concurrency {worker.concurrency}, pid {os.getpid()}{metrics}",
            flush=True,
        )


# -- the end ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call ``stop`` on the running loop.

    A second SIGINT ends the process, also when the loop is blocked.
    """
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and number in seen:
            leave(Exit.INTERRUPTED)
        seen.append(number)
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_at_end_of_stdin(stop: Callable[[], None]) -> None:
    """A parent that holds our standard input takes us along, however it ends."""
    loop = asyncio.get_running_loop()

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1024):  # not sys.stdin: its lock must not be held when the interpreter ends
                pass
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            loop.call_soon_threadsafe(stop)

    threading.Thread(target=watch, name="tenure-stdin", daemon=True).start()


async def _alone() -> bool:
    """Whether nothing of a body is left that would keep the interpreter from ending."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _LEAVE_SECONDS
    while True:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("tenure-body")]
        if not tasks and not threads:
            return True
        if loop.time() > until:
            return False
        await asyncio.sleep(_LOOK_SECONDS)


def leave(code: int) -> NoReturn:
    """End the process here and now, whatever still runs in it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
