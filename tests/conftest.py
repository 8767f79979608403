"""Fixtures that every suite shares: one real server per process, one namespace per test, and no leaks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import nats
import pytest

from tenure import App, Client
from tenure.supervisor import Supervisor
from tenure.testing import nats_cluster
from tenure.worker import Worker
from tests import logged
from tests.support import FAST, SERVERS, wait_until

_numbers = itertools.count()
hypothesis.settings.register_profile("tenure", deadline=None)  # how long an example takes says how busy the machine is
hypothesis.settings.load_profile("tenure")

_LASTING_THREADS = ("tenure-embedded-server", "asyncio_", "tenure-body", "pytest")


def pytest_configure() -> None:
    """Let Ctrl-C reach the commands that tests start.

    A shell that runs `make test &` has it ignored, which every child inherits; a test that interrupts one would hang.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out, on a cluster, what is about one server."""
    for item in items:
        if SERVERS > 1 and (mark := item.get_closest_marker("one_server")) is not None:
            item.add_marker(pytest.mark.skip(reason=f"for one server: {mark.args[0]}"))


if SERVERS > 1:

    @pytest.fixture(scope="session")
    def one_of_three() -> Iterator[str]:
        """Url of one of three servers; the others are told to nobody, for what is to go through a proxy would go past it."""
        with nats_cluster(advertise=False) as cluster:
            yield cluster.nodes[0].url

    @pytest.fixture(scope="session")
    def nats_server(one_of_three: str) -> str:
        return one_of_three

    @pytest.fixture
    def namespace(one_of_three: str) -> Iterator[str]:
        """A namespace whose streams are gone after the test: each is a raft group on every server, which costs time for ever."""
        name = f"t{os.getpid()}-{next(_numbers)}"
        yield name
        asyncio.run(_delete_streams(one_of_three, name))

else:

    @pytest.fixture
    def namespace() -> str:
        return f"t{os.getpid()}-{next(_numbers)}"


async def _delete_streams(url: str, namespace: str) -> None:
    """Of a namespace."""
    async with await nats.connect(url) as connected:
        js = connected.jetstream(timeout=30.0)
        for stream in [info.config.name or "" for info in await js.streams_info_iterator()]:
            if f"_{namespace}_" in stream or stream.endswith(f"_{namespace}"):
                await js.delete_stream(stream)


@pytest.fixture
def app(namespace: str) -> App:
    """An app of its own namespace, with every wait scaled down."""
    return App(namespace, config=FAST)


@pytest.fixture
async def client(app: App, nats_server: str) -> AsyncIterator[Client]:
    async with app.connect(nats_server) as client:
        yield client


@dataclass
class Running:
    """A worker and the task that runs it."""

    worker: Worker
    task: asyncio.Task[None]
    told: bool = False
    """Whether what ended the worker was raised where a test expected it."""

    async def ended(self) -> None:
        """Raise what ends the worker."""
        self.told = True
        await self.task

    async def stop(self) -> None:
        self.worker.stop()
        await self.task


@dataclass
class Workers:
    """Starts workers in this process; all are drained when the test ends."""

    url: str
    running: list[Running] = field(default_factory=list)

    @asynccontextmanager
    async def run(self, app: App, **options: Any) -> AsyncIterator[Running]:
        options.setdefault("concurrency", 20)
        async with app.worker(self.url, **options) as worker:
            running = Running(worker, asyncio.create_task(worker.run()))
            self.running.append(running)
            await wait_until(lambda: not worker.why_not_ready or running.task.done(), description="the worker is ready")
            try:
                yield running
            finally:
                worker.stop()
                with contextlib.suppress(asyncio.CancelledError, *([Exception] if running.told else [])):
                    await running.task


@pytest.fixture
def workers(nats_server: str) -> Workers:
    """For ``async with workers.run(app) as running: ...``."""
    return Workers(nats_server)


@pytest.fixture
async def worker(app: App, workers: Workers) -> AsyncIterator[Worker]:
    """A running worker of ``app``.

    Register actors before asking for it by ``request.getfixturevalue``, or use ``workers``.
    """
    async with workers.run(app) as running:
        yield running.worker


@dataclass
class Supervisors:
    """Starts supervisors in this process; all are stopped when the test ends, and none may have failed."""

    url: str

    @asynccontextmanager
    async def run(self, app: App) -> AsyncIterator[Supervisor]:
        async with app.supervisor(self.url) as supervisor:
            task = asyncio.create_task(supervisor.run())
            await wait_until(
                lambda: not supervisor.why_not_ready or task.done(), description="the supervisor has swept once"
            )
            try:
                yield supervisor
            finally:
                supervisor.stop()
                await task


@pytest.fixture
def supervisors(nats_server: str) -> Supervisors:
    """For ``async with supervisors.run(app) as supervisor: ...``."""
    return Supervisors(nats_server)


_passed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell fixtures whether their test has passed."""
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that runs in this process has its log events written to a standard error that is closed after its test."""
    logger = logging.getLogger("tenure")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.fixture(autouse=True)
def log_events(request: pytest.FixtureRequest, logging_as_it_was: None) -> Iterator[logged.Heard]:
    """What is logged is as the log table says, and where a test is named for an event, it has seen that (``logged``)."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    with logged.listening() as heard:
        yield heard
    for log in folder.glob("*.log") if folder is not None else ():
        heard.read(log)
    assert not heard.wrong, "\n".join(heard.wrong)
    missing = logged.wanted(request.node.nodeid) - heard.events
    assert not (missing and request.node.stash.get(_passed, False)), f"it was to show {missing}"


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """No thread outlives its test (asyncio tasks are checked by their loop's end.

    Connections by the server's own tests).
    """
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and not t.name.startswith(_LASTING_THREADS)]
    for thread in left:
        thread.join(2.0)
    still = [thread.name for thread in left if thread.is_alive()]
    assert not still, f"threads left running: {still}"
