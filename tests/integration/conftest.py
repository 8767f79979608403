"""Fixtures of the suites that put a proxy between a worker or client and its server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conftest import Supervisors, Workers
from tests.processes import Site
from tests.proxy import Proxy


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
