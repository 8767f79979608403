"""The stores of a fresh namespace, on a real server and on the one in memory: what holds for one holds for the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure import Config
from tenure.core.commands import Submit
from tenure.core.records import Policy, Task
from tenure.core.subjects import Names
from tenure.nats.connection import Connection
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.memory import MemoryServer
from tenure.stores import Stores
from tests.contract.asked import Asked, Puller
from tests.contract.support import OwnServer
from tests.support import FAST


@pytest.fixture(params=["nats", "memory"])
async def nats_server(request: pytest.FixtureRequest, nats_server: str, namespace: str) -> AsyncIterator[str]:
    """Url of the server under test: the real one that all tests share, or one in memory that is the test's own."""
    if request.param == "nats":
        yield nats_server
        return
    with MemoryServer(namespace) as server:
        yield server.url


@pytest.fixture(params=[pytest.param("nats", marks=pytest.mark.one_server("its own server is killed")), "memory"])
async def own_server(request: pytest.FixtureRequest, namespace: str) -> AsyncIterator[OwnServer]:
    """A server for this test alone, to be killed and frozen."""
    with EmbeddedServer() if request.param == "nats" else MemoryServer(f"{namespace}-own") as server:
        yield OwnServer(server)


@pytest.fixture
async def stores(namespace: str, nats_server: str) -> AsyncIterator[Stores]:
    stores = await Stores.open(nats_server, Names(namespace), FAST, name="contract")
    try:
        yield stores
    finally:
        await stores.close()


@pytest.fixture
async def conn(nats_server: str) -> AsyncIterator[Connection]:
    conn = await Connection.open(nats_server, Config(request_timeout_seconds=1.0), name="jetstream")
    yield conn
    await conn.close()


@pytest.fixture
async def js(conn: Connection, namespace: str) -> AsyncIterator[Asked]:
    asked = Asked(conn, namespace.replace("-", "_"))
    yield asked
    for stream in asked.made:
        await conn.api(f"STREAM.DELETE.{stream}", {})


@pytest.fixture
async def puller(conn: Connection) -> Puller:
    puller = Puller(conn)
    await conn.subscribe(puller.inbox, puller.received)
    return puller


def submit(key: str, run_id: str, **policy: Any) -> Submit:
    """A submit of an actor that nobody runs."""
    return Submit(key=key, run_id=run_id, task=Task(actor="nobody", policy=Policy(**policy)))
