"""A queue that no worker works on, beside others that have one: only supervisors see it, and their metrics tell."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tests.conftest import Supervisors, Workers
from tests.gates import opened_at_last
from tests.support import FAST, wait_until


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=replace(FAST, sweep_seconds=0.1))


async def quick() -> None:
    """Return."""


async def test_what_waits_in_a_queue_without_a_worker_is_told_by_supervisors_until_one_comes(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """One queue has a worker, which is busy; one gets one, one is paused, one is of code that the supervisor lacks."""
    gate = asyncio.Event()

    @app.actor
    async def holds() -> None:
        await gate.wait()

    actors = {queue: app.actor(name=f"of_{queue}", queue=queue)(quick) for queue in ("mail", "paused", "later")}
    await client.pause(queue="paused")
    async with workers.run(app, queues=["default"]), supervisors.run(app) as supervisor, opened_at_last(gate):
        elsewhere = App(app.namespace, config=app.config).actor(name="unknown", queue="unknown")(quick)
        for queue, actor in actors.items():
            await client.submit(actor.call(), key=queue, delay=600 if queue == "later" else None)
        await client.submit(elsewhere.call(), key="unknown")
        await client.submit(holds.call(), key="held")

        def told() -> dict[str, int]:
            return {queue: number for queue, number in supervisor.metrics.unserved.items() if number}

        await wait_until(lambda: told() == {"mail": 1, "other": 1}, description="both queues are told of, and no other")
        async with workers.run(app, queues=["mail"]):
            await wait_until(lambda: told() == {"other": 1}, description="mail is worked on")
        assert set(supervisor.metrics.unserved) == {"default", *actors, "other"}
