"""Fixtures of the suites that put a proxy between a worker or client and its server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conftest import Workers
from tests.proxy import Proxy


@pytest.fixture
async def proxy(nats_server: str) -> AsyncIterator[Proxy]:
    async with Proxy(nats_server) as proxy:
        yield proxy


@pytest.fixture
def behind(proxy: Proxy) -> Workers:
    """Workers behind the proxy."""
    return Workers(proxy.url)
