"""Rates, what is debounced and what cools down, while two submit at once and everything is restarted in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, Cooldown, Debounce, RateLimit, Run
from tenure.nats.embedded import EmbeddedServer
from tenure.testing import memory
from tests import looks
from tests.conftest import Supervisors, Workers
from tests.integration.test_rates import closest
from tests.support import FAST, wait_until

pytestmark = pytest.mark.one_server("its own server is restarted with its store")


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def workers(server: EmbeddedServer) -> Workers:
    return Workers(server.url)


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=replace(FAST, session_ttl_seconds=5.0))


@pytest.fixture
async def two(app: App, server: EmbeddedServer) -> AsyncIterator[tuple[Client, Client]]:
    """Two who submit."""
    async with app.connect(server.url) as one, app.connect(server.url) as other:
        yield one, other


async def killed(server: EmbeddedServer) -> None:
    """Kill -9, and started again with what it has stored."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def test_a_rate_is_kept_to_while_two_submit_and_server_and_workers_are_restarted(
    app: App, two: tuple[Client, Client], workers: Workers, server: EmbeddedServer
) -> None:
    """What has started is in the entry alone: neither new workers nor a server that was killed give more than n to a window.

    All the others may be parked when the first worker ends, and no new one knows of the rate then: a supervisor looks.
    """
    starts: list[float] = []

    @app.actor(limits=[RateLimit(4, 0.3)])
    async def paced() -> None:
        starts.append(looks.started())

    async def submit(client: Client, name: str) -> list[Run[None]]:
        return [await client.submit(paced.call(), key=f"{name}{i}") for i in range(12)]

    submitting = [asyncio.create_task(submit(client, name)) for client, name in zip(two, "ab", strict=True)]
    async with workers.run(app):
        await wait_until(lambda: len(starts) >= 5, description="it is full, and some wait")
    await killed(server)
    async with Supervisors(server.url).run(app), workers.run(app), workers.run(app):
        for runs in await asyncio.gather(*submitting):
            for run in runs:
                await run.result(20)
    assert len(starts) == 24
    assert closest(starts, 4) >= 0.3


async def test_what_is_debounced_makes_one_run_though_two_submit_over_a_restart(
    app: App, two: tuple[Client, Client], workers: Workers, server: EmbeddedServer
) -> None:
    ran: list[int] = []

    @app.actor(limits=[Debounce(1.0, 30.0)])
    async def settles(number: int) -> None:
        ran.append(number)

    async def submit(start: int) -> list[Run[Any]]:
        calls = (who.submit(settles.call(start + i), key="k") for i in range(10) for who in two)
        return list(await asyncio.gather(*calls))

    async with workers.run(app):
        runs = await submit(0)
    await killed(server)
    runs += await submit(100)
    last = await two[0].submit(settles.call(1_000), key="k")
    async with workers.run(app), workers.run(app):
        await last.result(10)
    assert sum(run.accepted for run in runs) == 1
    assert {run.run_id for run in runs} == {last.run_id}
    assert ran == [1_000]


async def test_a_key_stays_cool_though_two_submit_over_a_restart(
    app: App, two: tuple[Client, Client], workers: Workers, server: EmbeddedServer
) -> None:
    ran: list[float] = []

    @app.actor(limits=[Cooldown(2.0)], result_ttl=0)
    async def cools() -> None:
        ran.append(time.time())

    async def submit() -> list[Run[None]]:
        return list(await asyncio.gather(*(who.submit(cools.call(), key="k") for _ in range(5) for who in two)))

    async with workers.run(app):
        assert sum(run.accepted for run in await submit()) == 1
        await wait_until(lambda: ran, description="it has run")
        await submit()
    await killed(server)
    async with workers.run(app):
        while len(ran) < 2:
            accepted = sum(run.accepted for run in await submit())
            assert accepted <= 1
            if accepted:
                await wait_until(lambda: len(ran) == 2, description="it runs again")
    assert ran[1] - ran[0] >= 2.0


async def test_a_long_debounce_is_one_timer_and_nobody_looks_meanwhile(namespace: str) -> None:
    """Moved on by submits for minutes, in virtual time: the wake-ups that come too soon are exchanged for timers."""
    app, ran = App(namespace), []

    @app.actor(limits=[Debounce(60.0, 3_600.0)])
    async def index(ctx: Context, number: int) -> int:
        ran.append(number)
        return number

    async with memory(app) as client:
        claims = client.workers[0].metrics.claims
        for number in range(100):
            run = await client.submit(index.call(number), key="doc")
            await client.advance(10.0)
        began = client.now() - 10.0
        assert await run.result() == 99
        assert 59.0 <= client.now() - began < 62.0
        assert ran == [99]
        assert claims["index", "not_due"] <= 2 * 100 * 10 / 60 + 4, "two looks a minute, however often it is moved on"
