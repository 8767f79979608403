"""Contract of the end of a connection: nothing of it runs on, whatever it was about to do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.errors import Unavailable
from tenure.nats.connection import Lost, NotSent
from tenure.nats.patience import Patience
from tests.contract.support import connect, proxied
from tests.support import wait_until


async def test_closing_while_the_server_is_away_and_something_is_unsent_is_quiet(nats_server: str, namespace: str):
    """The client library then writes to the dead socket, raises, and leaves its tasks behind."""
    async with proxied(nats_server) as proxy:
        before = asyncio.all_tasks()
        async with connect(proxy.url, namespace) as stores, stores.runs.follow("k"):
            await proxy.take_down()
            await wait_until(lambda: not stores.conn.is_connected, description="noticed")
            await stores.conn.raw.publish("anywhere", b"unsent")
        await wait_until(lambda: asyncio.all_tasks() <= before, description="no task is left", timeout=2)
        with pytest.raises(Unavailable):
            await stores.runs.read("k", Patience(stores.clock, 0.1))


async def test_closing_ends_a_reconnect_that_loses_its_cancellation(
    nats_server: str, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    """As Python 3.11's `wait_for` does when a refusal comes at that moment; nats-py then tried on, and came back once it could."""
    async with proxied(nats_server) as proxy:
        before = asyncio.all_tasks()
        async with connect(proxy.url, namespace) as stores, stores.runs.follow("k"):
            lost: list[str] = []
            tries = asyncio.Event()

            async def refused(_server: object) -> None:
                tries.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if lost:
                        raise
                    lost.append("once")
                    raise ConnectionRefusedError from None

            monkeypatch.setattr(stores.conn.raw, "_connect_to_server", refused)
            await proxy.take_down()
            await tries.wait()
            await proxy.bring_up()
        assert lost
        await wait_until(lambda: asyncio.all_tasks() <= before, description="no task is left")


async def test_who_asks_while_a_connection_is_closed_is_told_that_it_is(
    nats_server: str, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    """A reconnect that is ended may have come so far that somebody asks; no answer will come, and no timer is left."""
    async with proxied(nats_server) as proxy:
        asking: list[asyncio.Task[Any]] = []
        async with connect(proxy.url, namespace) as stores:
            await stores.runs.read("k")  # its timer runs
            tries = asyncio.Event()

            async def connects(_server: object) -> None:
                tries.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    stores.conn._connected.set()
                    asking.append(asyncio.create_task(stores.conn.request("anywhere", b"")))
                    await asyncio.sleep(0)  # body: it is asked

            monkeypatch.setattr(stores.conn.raw, "_connect_to_server", connects)
            await proxy.take_down()
            await tries.wait()
        async with asyncio.timeout(5):
            with pytest.raises((Lost, NotSent)):
                await asking[0]


async def test_a_connection_that_breaks_before_the_server_agrees_is_made_anew(
    nats_server: str, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    """nats-py takes it for one; what reads it would take what the server says to the next."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        raw: Any = stores.conn.raw
        agreed, broken = raw._connect_command, list[str]()

        async def nothing() -> bytes:
            del raw._transport.readline
            await asyncio.sleep(0.3)  # paused: so long that the next try is made at once
            hang_up(raw._transport, nats_server)
            return b""

        def breaks() -> bytes:
            if not broken:
                broken.append("once")
                raw._transport.readline = nothing
            return bytes(agreed())

        monkeypatch.setattr(raw, "_connect_command", breaks)
        await proxy.take_down()
        await wait_until(lambda: not stores.conn.is_connected, description="noticed")
        await proxy.bring_up()
        await wait_until(lambda: broken and stores.conn.is_connected, description="connected again", timeout=8)
        assert (await stores.runs.read("k", Patience(stores.clock, 2.0))).record is None


async def test_a_connection_that_breaks_while_it_is_closed_leaves_no_task(nats_server: str, namespace: str):
    before = asyncio.all_tasks()
    async with connect(nats_server, namespace) as stores, stores.runs.follow("k"):
        await stores.conn.raw.publish("anywhere", b"unsent")
        hang_up(stores.conn.raw._transport, nats_server)
        await stores.conn.close()
    await wait_until(lambda: asyncio.all_tasks() <= before, description="no task is left")


def hang_up(transport: Any, url: str) -> None:
    """Break a connection at its client's end."""
    if url.startswith("memory://"):
        transport._hang_up()
    else:
        transport._io_writer.transport.abort()
