"""A lease's thread ends with whoever wanted it, whatever the server does meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure import Client
from tenure.clock import SYSTEM
from tenure.config import Config
from tenure.core.subjects import Names
from tenure.lease import Lease
from tenure.nats.sessions import Sessions
from tests import logged
from tests.proxy import Proxy
from tests.support import wait_until

PATIENT = Config(connect_timeout_seconds=60, patience_seconds=60)
"""Who gives up here is the caller."""


def lease_at(url: str, namespace: str) -> Lease:
    return Lease(
        url=url,
        names=Names(namespace),
        config=PATIENT,
        clock=SYSTEM,
        kind="worker",
        ttl=5.0,
        options={},
        on_stop=lambda _signal: None,
        on_lost=lambda _why: None,
    )


def lease_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tenure-lease")]


async def give_up(opening: asyncio.Task[None]) -> None:
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(opening, 5)
    await wait_until(lambda: not lease_threads(), description="its thread has ended", timeout=2)


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The URL of something that takes connections and says nothing."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_an_opening_that_is_given_up_before_the_server_greets_leaves_no_thread(silent: str, namespace: str):
    """As when a supervisor stops while it opens a new session, the old one having been lost with its server."""
    opening = asyncio.create_task(lease_at(silent, namespace).open())
    await wait_until(lease_threads, description="its thread runs")
    await give_up(opening)


async def test_an_opening_that_is_given_up_while_its_entry_cannot_be_stored_leaves_no_thread(
    proxy: Proxy, namespace: str
):
    names = Names(namespace)
    lost = proxy.lose_answer(lambda p: p.subject.startswith(names.session("")))
    opening = asyncio.create_task(lease_at(proxy.url, namespace).open())
    await wait_until(lambda: lost.hits, description="it creates its entry")
    await give_up(opening)


async def test_an_outage_is_logged_once_and_so_is_its_end(
    proxy: Proxy,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    log_events: logged.Heard,
):
    """It is tried again many times a second; the first failure is told at once, more of them now and again."""
    caplog.set_level(logging.INFO, "tenure.lease")
    monkeypatch.setattr("tenure.lease._RETRY_SECONDS", 0.01)
    tries: list[str] = []
    write = Sessions.write

    async def counting(sessions: Sessions, *args: Any, **options: Any) -> int:
        tries.append("")
        return await write(sessions, *args, **options)

    monkeypatch.setattr(Sessions, "write", counting)

    def told(what: str) -> int:
        return sum(record.getMessage().startswith(what) for record in caplog.records)

    lease = lease_at(proxy.url, client.app.namespace)
    await lease.open()
    try:
        await proxy.take_down()
        await wait_until(lambda: told("lease.not_renewed"), description="told")
        seen = len(tries)
        await wait_until(lambda: len(tries) >= seen + 10, description="tried again and again")
        assert told("lease.not_renewed") == 1
        monkeypatch.setattr("tenure.lease._COMPLAIN_SECONDS", 0.0)
        await wait_until(lambda: told("lease.not_renewed") >= 3, description="told again")
        await wait_until(lambda: "watch.not_started" in log_events.events, description="a watch was tried meanwhile")
        await proxy.bring_up()
        await wait_until(lambda: told("lease.renewed"), description="its end is told")
        assert told("lease.renewed") == 1
    finally:
        await lease.close("drain")


async def test_trust_is_counted_from_the_send_of_a_renewal_not_from_its_answer(proxy: Proxy, client: Client):
    """[17] A supervisor counts from what was stored: trust from a slow answer on would outlast the close."""
    names = client.app.names
    lease = lease_at(proxy.url, names.namespace)
    await lease.open()
    try:
        held = proxy.hold(lambda p: p.subject == names.session(lease.id))
        await wait_until(lambda: held.hits, description="it renews")
        sent_before, confirmed = SYSTEM.steady(), lease.confirmed_at
        await wait_until(lambda: SYSTEM.steady() > sent_before + 0.3, description="the renewal takes its time")
        await proxy.release(held)
        await wait_until(lambda: lease.confirmed_at != confirmed, description="it is confirmed")
        assert lease.confirmed_at <= sent_before
    finally:
        await lease.close("drain")
