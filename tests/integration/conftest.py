"""Fixtures of these suites: a proxy between a worker or client and its server, processes, bodies in child processes."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats
import psutil
import pytest
from msgspec.structs import replace

from tenure import App, Client, Context
from tests.conftest import Supervisors, Workers
from tests.processes import Site
from tests.proxy import Proxy
from tests.rows import Ledger
from tests.strangers import Stranger
from tests.support import FAST


@pytest.fixture
async def proxy(nats_server: str) -> AsyncIterator[Proxy]:
    async with Proxy(nats_server) as proxy:
        yield proxy


@pytest.fixture
def behind(proxy: Proxy) -> Workers:
    """Workers behind the proxy."""
    return Workers(proxy.url)


@pytest.fixture
def supervised_behind(proxy: Proxy) -> Supervisors:
    """Supervisors behind the proxy."""
    return Supervisors(proxy.url)


@pytest.fixture
def site(nats_server: str, namespace: str, tmp_path: Path) -> Iterator[Site]:
    """Processes that can be killed and frozen, and what their bodies did."""
    site = Site(tmp_path, nats_server, namespace)
    yield site
    site.close()


@pytest.fixture
def tasks(namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module ``tests.isolated``, imported anew under this test's namespace."""
    monkeypatch.setenv("TENURE_TEST_NAMESPACE", namespace)
    monkeypatch.setenv("TENURE_TEST_WORKER", str(os.getpid()))
    sys.modules.pop("tests.isolated", None)
    yield importlib.import_module("tests.isolated")
    sys.modules.pop("tests.isolated", None)


@pytest.fixture
def nothing_left(tasks: Any) -> Iterator[None]:
    """No child process and no zombie outlives a test's workers."""
    yield
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            assert child.status() != psutil.STATUS_ZOMBIE
            assert "tenure.worker.child" not in " ".join(child.cmdline())


@pytest.fixture
async def stranger(client: Client, nats_server: str, namespace: str) -> AsyncIterator[Stranger]:
    """Who may publish commands; the inbox is there."""
    connected = await nats.connect(nats_server)
    yield Stranger(connected, namespace)
    await connected.close()


@pytest.fixture
def open_app(namespace: str) -> App:
    """An app for strangers, with little patience for what it does not know."""
    app = App(namespace, config=replace(FAST, command_patience_seconds=0.1))

    @app.actor
    async def add(one: int, two: int = 2) -> int:
        return one + two

    @app.actor(grace=1.0)
    async def hold(ctx: Context) -> None:
        await ctx.stopping.wait()

    return app


@pytest.fixture
async def ledger(client: Client) -> AsyncIterator[Ledger]:
    """Every outcome of the test's namespace from now on."""
    ledger = Ledger(client)
    stop = await client.stores.runs.follow_all(ledger.saw)
    yield ledger
    await stop()
