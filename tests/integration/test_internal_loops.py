"""Scenario 30 (prefect#22436): an internal loop that ends, ends the process or its readiness; a crash is never silent."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from tenure import App, Client, Context, TenureError, crashes
from tenure.core.records import Holder
from tenure.lease import Lease
from tenure.nats import presence
from tenure.nats.lane import Lane
from tenure.nats.patience import Patience
from tenure.nats.presence import Presence
from tenure.nats.work import Work
from tenure.switchboard import Switchboard
from tenure.worker import Worker
from tenure.worker.places import Places
from tenure.worker.puller import Puller
from tenure.worker.remnants import Remnants
from tests.conftest import Workers
from tests.support import wait_until


class Broken(Exception):
    """A defect."""


class Once:
    """Raises from a method until ``mended``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.hits = 0
        self.mended = False
        original = getattr(owner, name)

        async def broken(this: Any, *args: Any) -> Any:
            if self.mended:
                return await original(this, *args)
            self.hits += 1
            await asyncio.sleep(0.2)  # paused: it fails on its way, not before whoever started it has looked
            raise Broken(name)

        monkeypatch.setattr(owner, name, broken)


def register(app: App) -> Callable[[], Any]:
    @app.actor(name="quick")
    async def quick(ctx: Context) -> str:
        return ctx.session

    return quick.call


LOOPS: dict[str, list[tuple[Any, str]]] = {
    "_follow_switches": [(Switchboard, "_tell")],
    "_tend": [(Puller, "tend"), (Lane, "tend")],
    "_watch_streams": [(Presence, "look")],
    "_hand_over_more": [(Places, "hand_over_more")],
    "remnants.run": [(Remnants, "look")],
}
AT_ITS_START = {"hand_over_more"}
"""It does so once."""


def test_each_loop_of_the_worker_is_broken_here() -> None:
    """As the service starts them."""
    source = inspect.getsource(Worker._serve)
    listed = re.findall(r"for run in \(([^)]*)\)", source)[0].split(", ")
    started = [*listed, *re.findall(r"create_task\(self\.(\w+)\(\)\)", source)]
    assert {name.removeprefix("self.") for name in started} == set(LOOPS)


@pytest.mark.parametrize(("owner", "method"), [broken for loop in LOOPS.values() for broken in loop])
async def test_a_loop_of_the_worker_that_fails_ends_the_worker(
    owner: Any, method: str, app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_args: Any) -> None:
        raise Broken(method)

    monkeypatch.setattr(presence, "_LOOK_SECONDS", 0.1)
    if method in AT_ITS_START:
        Once(monkeypatch, owner, method)
    async with workers.run(app) as running:
        if not inspect.iscoroutinefunction(getattr(owner, method)):
            monkeypatch.setattr(owner, method, broken)
            await client.pause(queue="default")
        elif method not in AT_ITS_START:
            Once(monkeypatch, owner, method)
        with pytest.raises(Broken):
            await running.ended()
        assert running.worker.why_not_ready


async def test_renewals_that_fail_end_the_session_and_readiness(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
):
    """Its thread ends, and with it the trust; while the defect lasts, no session does. Mended, the worker goes on."""
    call = register(app)
    once = Once(monkeypatch, Lease, "_renew")
    async with app.worker(workers.url) as worker:
        running = asyncio.create_task(worker.run())
        await wait_until(lambda: worker.metrics.errors["lease"] >= 2, description="sessions end as soon as they begin")
        assert once.hits >= 2
        once.mended = True
        await wait_until(lambda: not worker.why_not_ready, description="ready once it is mended")
        run = await client.submit(call(), key="k")
        assert await run.result(5) == worker.lease.id
        worker.stop()
        await running


async def test_in_progress_acks_that_fail_end_the_session(app: App, workers: Workers):
    """Without them what runs would be delivered again."""
    async with workers.run(app) as running:
        session = running.worker.lease.id
        running.worker.lease.in_hand = None  # type: ignore[assignment]  # the loop trips over it
        await wait_until(lambda: running.worker.metrics.errors["lease"], description="the session is lost")
        await wait_until(lambda: not running.worker.why_not_ready, description="ready again")
        assert running.worker.lease.id != session


async def test_a_stop_signal_that_makes_the_watch_fail_ends_the_session(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
):
    """nats-py keeps what a callback raises to itself; the signal would be lost in silence."""

    def broken(_worker: Worker, _signal: object) -> None:
        raise Broken

    monkeypatch.setattr(Worker, "_signalled", broken)
    async with workers.run(app) as running:
        session = running.worker.lease.id
        await signal(client, Holder(session=session, run_id="r", attempt=1))
        await wait_until(lambda: running.worker.lease.id != session, description="another session")
        await wait_until(lambda: not running.worker.why_not_ready, description="ready again")


async def signal(client: Client, holder: Holder) -> None:
    await client.stores.sessions.signal(holder, "cancel", Patience(client.stores.clock, 5.0))


async def test_what_is_no_stop_signal_stops_nobody(app: App, client: Client, workers: Workers):
    """Somebody else writes where stop signals lie: passed over and logged; the next one is obeyed."""
    stopped = asyncio.Event()
    started: list[Holder] = []

    @app.actor
    async def waits(ctx: Context) -> None:
        started.append(Holder(session=ctx.session, run_id=ctx.run_id, attempt=ctx.attempt))
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with workers.run(app) as running:
        session = running.worker.lease.id
        await client.stores.conn.put(app.names.stop(session, "junk", 1), b"\xff junk")
        await client.submit(waits.call(), key="k")
        await wait_until(lambda: started, description="the body runs")
        await client.cancel("k")
        await wait_until(stopped.is_set, description="it is stopped")
        assert running.worker.lease.id == session


async def test_a_lane_that_crashes_is_counted_and_starts_afresh(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
):
    """Its message is delivered again after ``ack_wait``, others at once: one wake-up must not make a worker deaf."""
    call = register(app)
    open_ = Work.open
    crashes: list[str] = []

    def broken(work: Work, msg: Any) -> Any:
        if not crashes:
            crashes.append(msg.subject)
            raise Broken
        return open_(work, msg)

    monkeypatch.setattr(Work, "open", broken)
    async with workers.run(app, concurrency=1) as running:
        first = await client.submit(call(), key="first")
        await wait_until(lambda: crashes, description="the lane crashes")
        assert "default/normal" in running.worker.why_not_ready
        second = await client.submit(call(), key="second")
        assert await second.result(1.9) == running.worker.lease.id
        assert await first.result(10) == running.worker.lease.id
        assert running.worker.metrics.errors["handler"] == 1


async def test_a_lane_that_crashes_again_and_again_ends_the_worker(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
):
    def broken(_work: Work, _msg: Any) -> Any:
        raise Broken

    call = register(app)
    monkeypatch.setattr(Work, "open", broken)
    monkeypatch.setattr(crashes, "_MOST_A_MINUTE", 3)
    await client.submit_many([(call(), f"k{number}") for number in range(9)])
    async with workers.run(app, concurrency=100) as running:
        with pytest.raises(TenureError, match="unexpected errors within a minute"):
            await running.ended()
