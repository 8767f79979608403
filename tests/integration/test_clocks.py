"""Machines whose time of day is wrong: due times and deadlines are the server's, so one of them harms nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tenure.clock import SYSTEM, AlignedClock, SystemClock
from tenure.core.records import encode
from tests.conftest import Workers
from tests.processes import Site
from tests.proxy import Proxy, Publish
from tests.support import FAST, wait_until

HOUR = 3_600.0


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
async def test_a_worker_whose_clock_is_wrong_starts_runs_when_they_are_due(
    site: Site, client: Client, ahead: float
) -> None:
    """Behind, it would put off every due run that it gets by an hour, for all; ahead, it would start them at once."""
    site.clock_ahead = ahead
    await site.start_worker()
    submitted = time.time()
    await client.submit(site.app.actors["quick"].call(), key="k", delay=2)
    started = await site.wait_for("started", "k")
    assert 1.9 < started.at - submitted < 6


async def test_a_client_whose_clock_is_wrong_asks_for_the_right_due_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.start_worker()
    monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: time.time() + HOUR))
    async with site.app.connect(site.url) as client:
        submitted = time.time()
        await client.submit(site.app.actors["quick"].call(), key="k", delay=1)
        started = await site.wait_for("started", "k")
        assert 0.9 < started.at - submitted < 5


async def test_a_client_whose_clock_is_wrong_does_not_start_before_it_knows_the_time(
    site: Site, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one answer that tells it gets lost, while everything else is answered: it asks again."""
    looks = f"$JS.API.STREAM.INFO.{site.app.names.runs_stream}"
    number = 0

    def is_number(wanted: int) -> Callable[[Publish], bool]:
        def matches(publish: Publish) -> bool:
            nonlocal number
            number += publish.subject == looks
            return publish.subject == looks and number == wanted

        return matches

    counting = proxy.lose_answer(is_number(0))  # it loses nothing
    async with site.app.connect(proxy.url):
        counting.clear()
    last, number = number, 0
    lost = proxy.lose_answer(is_number(last))
    monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: time.time() + HOUR))
    async with site.app.connect(proxy.url) as client:
        assert lost.done.is_set()
        assert abs(client.now() - time.time()) < 1.0


async def test_a_supervisor_whose_clock_is_ahead_ends_no_body_within_its_grace(site: Site, client: Client) -> None:
    """It would take each deadline for long past: end the attempt, count a failure, and let the next run beside it."""
    await site.start_worker()
    site.clock_ahead = HOUR
    supervisor = await site.start_supervisor("--metrics-port", "0")
    await client.submit(site.app.actors["lingers"].call(), key="k")
    await site.wait_for("told:timeout", "k")
    for _ in range(3):
        await asyncio.sleep(0.5)  # paused: it sweeps every 0.3 s
        status = await client.status("k")
        assert status is not None
        assert (status.attempt, status.phase) == (1, "running")
    assert 'tenure_repairs_total{kind="evicted"} 0.0' in await supervisor.metrics()


@pytest.mark.parametrize("counts", [True, False])
async def test_a_clock_that_is_set_while_the_process_runs_moves_nothing_for_long(
    namespace: str, nats_server: str, monkeypatch: pytest.MonkeyPatch, counts: bool
) -> None:
    """At once where a clock tells the seconds since boot; else once it looks again."""
    monkeypatch.setattr(SystemClock, "counts_suspension", counts)
    async with App(namespace, config=FAST).connect(nats_server) as client:
        stores = client.stores
        monkeypatch.setattr(SystemClock, "now", staticmethod(lambda: time.time() - HOUR))
        right = pytest.approx(time.time(), abs=0.3)
        if not counts:
            await stores.presence.look()
        assert stores.clock.now() == right


async def test_a_run_that_is_not_due_is_looked_at_again_within_ack_wait(
    app: App, client: Client, workers: Workers
) -> None:
    """Whatever a worker believes of the time: a wake-up that it puts off for an hour is kept from everybody."""

    @app.actor
    async def work() -> None: ...

    await client.submit(work.call(), key="k", delay=HOUR)
    stores = client.stores
    found = await stores.runs.read("k")
    assert found.record is not None
    await stores.work.wake(found.record, encode(found.record), found.revision, found.record.due, stores.runs.patience())
    async with workers.run(app) as running:
        await wait_until(lambda: running.worker.metrics.claims["work", "not_due"] > 1, description="it looks again")


@pytest.mark.parametrize("ways", [(1.2, 0.01), (1.2, 2.0, 0.9, 0.01), (0.01,)])
async def test_a_slow_answer_is_not_the_last_word_on_the_time(
    client: Client, monkeypatch: pytest.MonkeyPatch, ways: tuple[float, ...]
) -> None:
    """Where on its way it took so long nobody can tell: half of that may be wrong, and the next answer may be quicker."""
    stores, clock = client.stores, AlignedClock(SYSTEM)
    coming = iter(ways)

    async def look() -> None:
        clock.align(time.time() - HOUR, clock.steady() - next(coming))  # all of its way before it was stamped

    monkeypatch.setattr(stores, "clock", clock)
    monkeypatch.setattr(stores.presence, "look", look)
    await stores.know_the_time()
    assert abs(clock.now() - (time.time() - HOUR)) < 0.3
    assert next(coming, None) is None, "a quick one is enough"


async def test_who_stood_still_on_the_first_answer_asks_once_more(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its time is over then, and half of nine seconds may be wrong."""
    stores, clock = client.stores, AlignedClock(SYSTEM)
    coming = iter((9.0, 0.01))
    monkeypatch.setattr(stores, "config", replace(stores.config, connect_timeout_seconds=1e-9))

    async def look() -> None:
        clock.align(time.time() - HOUR, clock.steady() - next(coming))

    monkeypatch.setattr(stores, "clock", clock)
    monkeypatch.setattr(stores.presence, "look", look)
    await stores.know_the_time()
    assert abs(clock.now() - (time.time() - HOUR)) < 0.3


async def test_who_has_only_slow_answers_starts_all_the_same(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stores, clock = client.stores, AlignedClock(SYSTEM)
    looks: list[float] = []

    async def look() -> None:
        looks.append(time.time())
        clock.align(time.time() - HOUR, clock.steady() - 1.2)

    monkeypatch.setattr(stores, "clock", clock)
    monkeypatch.setattr(stores.presence, "look", look)
    await stores.know_the_time()
    assert len(looks) == 5
