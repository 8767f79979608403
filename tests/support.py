"""Small tools that tests import by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tenure import Config

FAST = Config(
    session_ttl_seconds=2.0,
    ack_wait_seconds=2.0,
    request_timeout_seconds=1.0,
    idle_heartbeat_seconds=0.5,
    pull_expires_seconds=5.0,
    drain_seconds=5.0,
)
"""Every wait of the defaults, scaled down; never the point of a test."""


async def wait_until(predicate: Callable[[], Any], *, description: str, timeout: float = 10.0) -> Any:
    """Wait until ``predicate`` (plain or async) returns something true, and return it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    while True:
        value = predicate()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if loop.time() > end:
            raise AssertionError(f"waited {timeout} s in vain: {description}")
        await asyncio.sleep(0.01)  # paused: between two looks
