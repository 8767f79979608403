"""What is due in a moment is in its worker's hand by then, without a slot; and nothing is kept there that others could run.

The moment is made longer here, so that a slow machine does not miss it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tenure.worker import brink
from tenure.worker.service import Worker
from tests.conftest import Workers
from tests.support import FAST, wait_until

MOMENT = 0.6


@pytest.fixture(autouse=True)
def longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brink, "EARLY", MOMENT)


def delivered(worker: Worker) -> Callable[[], int]:
    """How many wake-ups its lanes brought, and it did not hand back: from now on."""
    work, brought = worker.stores.work, 0
    opened, handed_back = work.open, work.nak

    def count(msg: object) -> object:
        nonlocal brought
        brought += 1
        return opened(msg)  # type: ignore[arg-type]  # a message as it came

    async def back(reply: str, delay: float = 0.0) -> None:
        nonlocal brought
        brought -= 1
        await handed_back(reply, delay)

    work.open, work.nak = count, back  # type: ignore[method-assign, assignment]  # counted on their way
    return lambda: brought


async def submit(client: Client, app: App, keys: list[str], due: float) -> None:
    at = datetime.fromtimestamp(due, UTC)
    for key in keys:
        await client.submit(app.actors["work"].call(), key=key, at=at)


@pytest.fixture
def started() -> list[float]:
    return []


@pytest.fixture
async def release() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def app(namespace: str, started: list[float], release: asyncio.Event) -> App:
    app = App(namespace, config=replace(FAST, ack_wait_seconds=20.0))

    @app.actor
    async def work() -> None:
        started.append(time.time())

    @app.actor
    async def hold() -> None:
        await release.wait()

    return app


async def test_what_was_handed_back_comes_again_before_it_is_due_and_waits_without_a_slot(
    app: App, client: Client, workers: Workers, started: list[float]
) -> None:
    async with workers.run(app, concurrency=3) as running:
        worker, in_hand = running.worker, delivered(running.worker)
        due = client.now() + 1.5
        await submit(client, app, ["a", "b", "c", "d"], due)  # more than it has slots
        await wait_until(lambda: in_hand() == 4 and not len(worker.table), description="all wait in hand")
        assert time.time() < due
        assert worker.metrics.claims["work", "not_due"] == 4, "each was looked at once, and handed back for the rest"
        await wait_until(lambda: len(started) == 4, description="all have started")
        assert due <= min(started)
        assert max(started) < due + MOMENT / 2, "who had no slot started as soon as one came free"
        assert worker.metrics.claims["work", "not_due"] == 4
        assert worker.metrics.claims["work", "won"] == 4


async def test_what_becomes_due_between_two_looks_at_the_clock_starts_at_once(
    app: App, client: Client, workers: Workers, started: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer finds it a microsecond early; by the time the next one is set its due is over."""
    due = client.now() + 1.5
    early = iter([due - 1e-6])

    def at_the_edge() -> float:
        now = client.now()
        return now if now < due else next(early, now)

    async with workers.run(app) as running:
        stores = SimpleNamespace(work=running.worker.stores.work, clock=SimpleNamespace(now=at_the_edge))
        monkeypatch.setattr(running.worker.puller._brink, "_stores", stores)
        await submit(client, app, ["k"], due)
        await wait_until(lambda: len(started) == 1, description="it has started")
    assert next(early, None) is None
    assert due <= started[0] < due + MOMENT / 2


async def test_a_drain_hands_back_what_waits_in_hand(
    app: App, client: Client, workers: Workers, started: list[float]
) -> None:
    """At once: what nobody answers for comes again only after ``ack_wait``."""
    async with workers.run(app) as running:
        in_hand = delivered(running.worker)
        due = client.now() + MOMENT - 0.1
        await submit(client, app, ["k"], due)
        await wait_until(lambda: in_hand() == 1, description="it waits in hand")
        await running.stop()
        assert in_hand() == 0
    async with workers.run(app):
        await wait_until(lambda: len(started) == 1, description="the next worker has it")
    assert started[0] < due + 4.0


async def test_what_waits_in_hand_does_not_start_after_the_drain_signal(
    app: App, client: Client, workers: Workers, started: list[float]
) -> None:
    async with workers.run(app) as running:
        in_hand = delivered(running.worker)
        due = client.now() + MOMENT - 0.1
        await submit(client, app, ["k"], due)
        await wait_until(lambda: in_hand() == 1, description="it waits in hand")
        running.worker.puller.pulling = False  # by the signal, before anything is closed: what is closed takes its time
        await asyncio.sleep(due + 0.1 - client.now())  # paused: until it would have started
        await running.stop()
    assert not started


async def test_what_finds_no_slot_goes_to_who_has_one(
    app: App, client: Client, workers: Workers, started: list[float], release: asyncio.Event
) -> None:
    async with workers.run(app, concurrency=1) as running:
        in_hand = delivered(running.worker)
        due = client.now() + 0.5 * MOMENT
        await submit(client, app, ["k"], due)
        await wait_until(lambda: in_hand() == 1, description="it waits in hand")
        await client.submit(app.actors["hold"].call(), key="other")
        await wait_until(lambda: len(running.worker.table) == 1, description="another run has the slot")
        async with workers.run(app):
            await wait_until(lambda: len(started) == 1, description="the other worker has it")
        release.set()
    assert started[0] < due + 4.0
