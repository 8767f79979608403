"""``worker``: a worker as a process. Owns signals, the ready line, the HTTP endpoint and a certain end.

The first SIGTERM or SIGINT drains; the second cancels what still runs and waits ``stop_seconds`` for it; the third ends the
process at once. A body that never ends (a thread cannot be stopped, a task may swallow its cancellation) has lost its run by
then, so it must not keep the process: ``os._exit``, with a code that tells of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from msgspec import Struct

from tenure import telemetry
from tenure.app import App
from tenure.cli import options as o
from tenure.cli.output import print_json
from tenure.cli.parsing import load_app, weighted
from tenure.cli.problems import Exit, complain, tell
from tenure.core.errors import ConfigError
from tenure.loops import in_own_thread, serve_loop, settle_collector
from tenure.supervisor.beside import Beside
from tenure.telemetry import get_logger

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tenure.worker import Worker

_log = get_logger("tenure.worker")
READY = {"worker": "worker.ready", "supervisor": "supervisor.ready"}
"""What each says, as JSON, once it is ready."""
_THREADS = "tenure-body-helper"
_LEAVE_SECONDS = 1.0
_LOOK_SECONDS = 0.02


class Settings(Struct, frozen=True, kw_only=True):
    """What a worker process was asked for."""

    url: str | None = None
    queues: dict[str, int] | None = None
    concurrency: int = 100
    with_supervisor: bool = False
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    as_json: bool = False
    with_stdin: bool = False


def worker(
    target: o.Target,
    *,
    queue: o.Queues = None,
    concurrency: o.Concurrency = 100,
    with_supervisor: Annotated[
        bool,
        typer.Option("--with-supervisor", help="Run a supervisor in this process too.", show_default=False),
    ] = False,
    metrics_port: o.MetricsPort = None,
    metrics_host: o.MetricsHost = "127.0.0.1",
    killed_after: Annotated[
        float | None,
        typer.Option(
            "--killed-after",
            metavar="SECONDS",
            help="How long after SIGTERM whoever runs this kills it (terminationGracePeriodSeconds, TimeoutStopSec)."
            " Refused if the app's drain_seconds and graces may take longer.",
            show_default=False,
        ),
    ] = None,
    url: o.Url = None,
    log_level: o.Level = o.LogLevel.INFO,
    log_json: o.LogJson = False,
    stop_with_stdin: o.StopWithStdin = False,
) -> int:
    """Run an app's actors until SIGTERM or Ctrl-C, then drain; a second one lets nothing finish.

    Exit codes: 0 every body had ended, 1 an internal failure, 2 usage or configuration, 3 no server at the start or at the end,
    4 bodies did not end and were given up (other workers run them again), 130 a third signal.
    """
    telemetry.configure(log_level.value, as_json=log_json)
    queues = weighted(queue)
    settings = Settings(
        url=url,
        queues=queues,
        concurrency=concurrency,
        with_supervisor=with_supervisor,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        as_json=log_json,
        with_stdin=stop_with_stdin,
    )
    app = load_app(target)
    _doubt(queues or {}, app)
    if killed_after is not None:
        _must_end_within(killed_after, app)
    settle_collector()
    return serve_loop(_main(app, settings), _ignore_exit)


def _ignore_exit(error: SystemExit) -> None:
    _log.error("exit.ignored", code=str(error.code), exc_info=error)


def _doubt(queues: Iterable[str], app: App) -> None:
    """A mistyped queue would be worked on in silence for ever. It is no error: other apps' runs may wait there.

    Nor is an app whose actors are in modules that nobody imports.
    """
    if not app.actors:
        complain(
            f"app {app.namespace!r} has no actors, so this worker runs nothing: import the modules that define them"
        )
        return
    used = sorted({actor.task.queue for actor in app.actors.values()})
    for name in queues:
        if name not in used:
            complain(f"no actor of {app.namespace!r} uses the queue {name!r}; its queues: {', '.join(used) or 'none'}")


def _must_end_within(seconds: float, app: App) -> None:
    """Killed before the end of its drain a worker hands nothing back: that must show when it starts, not at a deploy."""
    from tenure.worker.drain import longest

    if not longest(app) <= seconds:
        msg = (
            f"a drain of {app.namespace!r} may take {longest(app):g} s (drain_seconds {app.config.drain_seconds:g}, the longest"
            f" grace of its actors, and its end), and this worker would be killed after {seconds:g} s"
        )
        raise ConfigError(msg)


async def _main(app: App, settings: Settings) -> int:
    helpers = ThreadPoolExecutor(thread_name_prefix=_THREADS)
    asyncio.get_running_loop().set_default_executor(helpers)
    code = Exit.OK
    try:
        code = await _serve(app, settings)
    except Exception as error:  # noqa: BLE001  (whatever ends a worker is told as every other error, and then it must end)
        code = tell(error)
    helpers.shutdown(wait=False)
    if not await _alone():
        leave(code)
    return code


async def _serve(app: App, settings: Settings) -> Exit:
    worker = app.worker(settings.url, queues=settings.queues, concurrency=settings.concurrency)
    loop = asyncio.get_running_loop()
    beside = (
        Beside(app.supervisor(settings.url), on_end=lambda: loop.call_soon_threadsafe(worker.stop))
        if settings.with_supervisor
        else None
    )

    def why_not_ready() -> str:
        return worker.why_not_ready or (beside.why_not_ready if beside is not None else "")

    def report() -> str:
        return beside.supervisor.report if beside is not None else ""

    where = (settings.metrics_host, settings.metrics_port, report)
    with health(worker.metrics.registry, why_not_ready, *where) as address, _stopped_twice(worker, beside):
        if settings.with_stdin:
            stop_at_end_of_stdin(worker.stop)
        said = {
            "namespace": app.namespace,
            "queues": worker.queues,
            "concurrency": worker.concurrency,
            "pid": os.getpid(),
            "metrics": address,
        }
        ready = announced("worker", why_not_ready, said, as_json=settings.as_json)
        async with worker, _started(beside, worker), ready:
            await worker.run()
    return _farewell(worker)


def _farewell(worker: Worker) -> Exit:
    """What a person must know about the end of a worker, and its exit code."""
    if worker.cut_off:
        ttl = worker.stores.session_ttl
        complain(
            f"the server was not reached while draining: what had not ended is run elsewhere once {ttl:g} s are over"
        )
        return Exit.UNAVAILABLE
    if worker.ending.given_up:
        complain(f"{worker.ending.given_up} bodies did not end in time and were given up: other workers run them again")
        return Exit.GIVEN_UP
    return Exit.OK


@contextlib.asynccontextmanager
async def _started(beside: Beside | None, worker: Worker) -> AsyncIterator[None]:
    """The supervisor that runs in this process too; what ended it, if it was not us, is raised at the end."""
    if beside is None:
        yield
        return
    await asyncio.to_thread(beside.start)
    worker.metrics.beside = beside.supervisor.metrics
    try:
        yield
    finally:
        await in_own_thread(beside.stop)
    if beside.error is not None:
        raise beside.error


@contextlib.contextmanager
def health(
    registry: CollectorRegistry,
    why_not_ready: Callable[[], str],
    host: str,
    port: int | None,
    report: Callable[[], str] = str,
) -> Iterator[str | None]:
    """Serve metrics and health if a port is given; the address."""
    if port is None:
        yield None
        return
    from tenure.health import HealthServer

    server = HealthServer(registry, why_not_ready, report, host=host, port=port)
    server.start()
    try:
        yield f"http://{host}:{server.port}"
    finally:
        server.close()


@contextlib.asynccontextmanager
async def announced(
    kind: str, why_not_ready: Callable[[], str], said: dict[str, Any], *, as_json: bool
) -> AsyncIterator[None]:
    """One line on standard output once a service is ready: people see it, parents and scripts wait for it."""
    announcing = asyncio.create_task(_announce(kind, why_not_ready, said, as_json=as_json))
    try:
        yield
    finally:
        announcing.cancel()


async def _announce(kind: str, why_not_ready: Callable[[], str], said: dict[str, Any], *, as_json: bool) -> None:
    while why_not_ready():  # noqa: ASYNC110  (what it says depends on clocks as well: there is no event to wait for)
        await asyncio.sleep(_LOOK_SECONDS)
    if as_json:
        print_json({"event": READY[kind]} | said)
        return
    told = {name: ", ".join(value) if isinstance(value, list) else value for name, value in said.items()}
    address = told.pop("metrics")
    words = [f"{name} {value}" for name, value in told.items()] + ([f"metrics at {address}/metrics"] if address else [])
    print(f"tenure {kind} ready: {', '.join(words)}", flush=True)


# -- the end ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None], hurry: Callable[[], None] | None = None) -> Iterator[None]:
    """SIGTERM and SIGINT call ``stop`` on the running loop.

    A second SIGINT ends the process, also when the loop is blocked. With ``hurry`` the second of either calls that, in the
    signal's handler, and the third ends the process.
    """
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if len(seen) > 1 if hurry is not None else number == signal.SIGINT and number in seen:
            leave(Exit.INTERRUPTED)
        seen.append(number)
        if hurry is not None and len(seen) > 1:
            hurry()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _stopped_twice(worker: Worker, beside: Beside | None) -> Iterator[None]:
    """The first signal drains, the second lets nothing finish: that comes to an end even where a body blocks the loop.

    The supervisor ends beside the worker, then: without a server each takes its time to close its session in vain.
    """
    config = worker.app.config
    seconds = config.stop_seconds + 3 * config.request_timeout_seconds + _LEAVE_SECONDS
    loop = asyncio.get_running_loop()

    def give_up() -> None:
        complain(f"the worker did not end within {seconds:g} s of its second signal: what runs is given up")
        leave(Exit.GIVEN_UP)

    def end_supervisor() -> None:
        if beside is not None:
            with contextlib.suppress(RuntimeError):  # it was not started yet: it will end at once
                beside.stop()

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True

    def hurry() -> None:
        timer.start()
        threading.Thread(target=end_supervisor, name="tenure-waiting", daemon=True).start()
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            loop.call_soon_threadsafe(worker.stop_now)

    with stopped_by_signals(worker.stop, hurry):
        try:
            yield
        finally:
            timer.cancel()


def stop_at_end_of_stdin(stop: Callable[[], None]) -> None:
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
