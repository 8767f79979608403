"""Small tools that tests import by name."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
from msgspec.structs import replace

from tenure import Client, Config
from tenure.core.records import encode
from tenure.core.sessions import Session
from tenure.stores import Stores

SOAK = os.environ.get("TENURE_SOAK") == "1"
"""`make soak`: the tests that grow with it do all that they can, and take an hour and not minutes."""

SERVERS = int(os.environ.get("TENURE_TEST_SERVERS", "1"))
"""`make test-cluster`: three that replicate in the place of one, and a copy of each stream on each."""

FAST = Config(
    replicas=SERVERS,
    session_ttl_seconds=2.0,
    ack_wait_seconds=2.0,
    request_timeout_seconds=1.0,
    idle_heartbeat_seconds=0.5,
    pull_expires_seconds=5.0,
    drain_seconds=5.0,
)
"""Every wait of the defaults, scaled down; never the point of a test."""


def sized(usual: int, soak: int) -> int:
    """How much a test does: enough to notice what it is there for, or all of it in a soak."""
    return soak if SOAK else usual


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


async def session_that_is_gone(client: Client) -> str:
    """The id of a session that was closed as lost."""
    stores = client.stores
    session = Session(id=stores.clock.new_id(), kind="worker", host="h", pid=1, ttl=1.0, started_at=client.now())
    revision = await stores.sessions.create(session, stores.runs.patience())
    await stores.sessions.write(replace(session, closed="expired"), revision)
    return session.id


async def wake(client: Client, key: str) -> None:
    """Store one more wake-up of a key, as a repairer may at any time."""
    found = await client.stores.runs.read(key)
    assert found.record is not None
    stores = client.stores
    await stores.work.wake(found.record, encode(found.record), found.revision, client.now(), stores.runs.patience())


async def close_session(client: Client, session: str) -> None:
    """Close a session that lives, as a supervisor does that has heard nothing of it."""
    sessions = client.stores.sessions
    while True:
        seen = await sessions.read(session)
        assert seen is not None
        if await sessions.write(replace(seen.session, closed="expired"), seen.revision):
            return


def alive(pid: int) -> bool:
    """Whether this process is there and has not ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


async def lines(path: Path, number: int) -> list[str]:
    """What bodies have marked, once there is so much of it."""

    def read() -> list[str]:
        found = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return found if len(found) >= number else []

    found: list[str] = await wait_until(read, description=f"{number} lines in {path.name}")
    return found


async def until_mirrored(stores: Stores) -> None:
    """A new mirror needs a tenth of a second to begin; what is overwritten before that it never sees."""

    async def live() -> bool:
        info = await stores.conn.api(f"STREAM.INFO.{stores.names.history_stream}", {})
        assert isinstance(info, dict)
        return bool(info.get("mirror", {}).get("active", 0) >= 0)

    await wait_until(live, description="the mirror is live")


async def until_parked(client: Client, number: int) -> None:
    """Wait until so many runs or more wait for a place, a start or a switch."""

    async def parked() -> bool:
        stored = await client.stores.work.stored(client.stores.runs.patience())
        return sum(len(runs) for runs in stored.parked.values()) >= number

    await wait_until(parked, description=f"{number} are parked")


async def no_limit_in_use(client: Client) -> None:
    """No entry and no parked message: an idle limit costs nothing."""
    patience = client.stores.runs.patience()

    async def idle() -> bool:
        names = await client.stores.limits.names(patience)
        entries = [(await client.stores.limits.read(name, patience)).entry for name in names]
        return not any(entries) and not (await client.stores.work.stored(patience)).parked

    await wait_until(idle, description="nothing is left of the limits")
