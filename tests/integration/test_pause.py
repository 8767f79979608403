"""Pause and resume on a real server: what starts, what waits, and that nothing is lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, Limit, Retry, Snooze
from tenure.core.switches import switch_at
from tenure.supervisor.keepers import Keepers
from tests.conftest import Supervisors, Workers
from tests.support import FAST, no_limit_in_use, sized, wait_until

BOUND_SECONDS = 0.3
"""So long after the return of ``pause`` no body starts any more: milliseconds as a rule, and two cores are often busy."""


@dataclass
class Seen:
    """When bodies have started, by key."""

    at: list[float] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)

    def note(self, ctx: Context) -> None:
        self.at.append(time.monotonic())
        self.keys.append(ctx.key)
        self.attempts.append(ctx.attempt)


async def held(client: Client) -> int:
    """How many runs are parked for a switch."""
    stored = await client.stores.work.stored(client.stores.runs.patience())
    return sum(len(runs) for place, runs in stored.parked.items() if switch_at(place))


async def until_held(client: Client, number: int, timeout: float = 20.0) -> None:
    async def enough() -> bool:
        return await held(client) == number

    await wait_until(enough, description=f"{number} runs wait for a switch", timeout=timeout)


def quick(namespace: str) -> App:
    """An app whose supervisors sweep often."""
    return App(namespace, config=replace(FAST, sweep_seconds=0.3))


@pytest.mark.parametrize("what", ["queue", "actor"])
async def test_nothing_starts_after_a_pause_under_load_and_nothing_is_lost(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, what: str
) -> None:
    """Two workers in full swing. After the bound no body starts, those that run end well; resumed, all is done, once each."""
    seen, other, number = Seen(), Seen(), sized(600, 2_000)

    @app.actor(queue="loaded")
    async def work(ctx: Context) -> None:
        seen.note(ctx)
        await asyncio.sleep(0.02)  # body:

    @app.actor(queue="free" if what == "queue" else "loaded")
    async def beside(ctx: Context) -> None:
        other.note(ctx)

    name = "loaded" if what == "queue" else "work"
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(workers.run(app)) for _ in range(2)]
        await stack.enter_async_context(supervisors.run(app))
        runs: Any = await client.submit_many([(work.call(), f"k{i}") for i in range(number)])
        await wait_until(lambda: len(seen.at) > 100, description="they are in full swing")
        hold = await (client.pause(queue=name) if what == "queue" else client.pause(actor=name))
        paused = time.monotonic()
        assert (hold.kind, hold.name, hold.until) == (what, name, None)
        more = await client.submit(work.call(), key="later")
        assert more.accepted, "what is submitted meanwhile is accepted"
        await (await client.submit(beside.call(), key="beside")).result(10)
        await asyncio.sleep(BOUND_SECONDS + 0.5)  # paused: the time in which nothing may start
        last, started_by_now = max(seen.at) - paused, len(seen.at)
        print(f"{what}: {started_by_now} had started; the last one {last * 1000:.1f} ms after the pause had returned")
        assert last < BOUND_SECONDS
        assert all(not len(running.worker.table) for running in started), "who is held keeps no slot"
        await asyncio.sleep(1.0)  # paused: sweeps and redeliveries change nothing
        assert len(seen.at) == started_by_now
        ended = await client.resume(**{what: name})
        assert ended is not None
        assert ended.id == hold.id
        for run in [*runs, more]:
            await run.result(30)
        failures = [(await client.status(key)).failures for key in ("k0", f"k{number - 1}", "later")]  # type: ignore[union-attr]  # they are there
    assert sorted(seen.keys) == sorted([*(f"k{i}" for i in range(number)), "later"]), "once each"
    assert failures == [0, 0, 0]


async def test_running_bodies_go_on_and_their_retries_and_snoozes_wait(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    seen, gate = Seen(), asyncio.Event()

    @app.actor(retry=Retry(max_attempts=3, initial=0.01, jitter=0.0))
    async def work(ctx: Context) -> str:
        seen.note(ctx)
        await gate.wait()
        if ctx.attempt == 1 and ctx.key == "fails":
            raise RuntimeError
        if ctx.attempt == 1 and ctx.key == "snoozes":
            raise Snooze(0.01)
        return ctx.key

    async with workers.run(app), supervisors.run(app):
        runs = [await client.submit(work.call(), key=key) for key in ("ends", "fails", "snoozes")]
        await wait_until(lambda: len(seen.at) == 3, description="all run")
        await client.pause(actor="work")
        gate.set()
        assert await runs[0].result(10) == "ends"
        await until_held(client, 2)
        assert len(seen.at) == 3
        assert (await client.blocks())[0].waiting == 2
        await client.resume(actor="work")
        assert [await run.result(10) for run in runs[1:]] == ["fails", "snoozes"]
    assert len(seen.at) == 5


async def test_cancel_and_replace_of_what_waits_for_a_switch_work_at_once(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """The record decides; the parked message of a run that is over is removed by a sweep, though nobody resumes."""
    seen = Seen()
    app = quick(namespace)

    @app.actor
    async def work(ctx: Context, n: int) -> int:
        seen.note(ctx)
        return n

    async with workers.run(app), supervisors.run(app):
        await client.pause(actor="work")
        cancelled = await client.submit(work.call(1), key="cancelled")
        replaced = await client.submit(work.call(1), key="replaced")
        await until_held(client, 2)
        assert (await cancelled.cancel(reason="not now")).outcome == "cancelled"
        status = await cancelled.wait(1)
        assert (status.phase, status.reason) == ("cancelled", "not now")
        newer = await client.replace(work.call(2), key="replaced")
        assert (newer.generation, replaced.generation) == (2, 1)
        await until_held(client, 1)
        assert not seen.at
        await client.resume(actor="work")
        assert await newer.result(10) == 2
        await until_held(client, 0)
    assert seen.keys == ["replaced"]


async def test_a_pause_of_an_actor_until_a_time_ends_with_no_traffic(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    seen = Seen()

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    async with workers.run(app), supervisors.run(app):
        began = time.monotonic()
        hold = await client.pause(actor="work", duration=1.5)
        assert hold.until is not None
        assert 1.4 < (hold.until - hold.since).total_seconds() < 1.6
        run = await client.submit(work.call())
        await until_held(client, 1)
        await run.result(10)
        late = seen.at[0] - began - 1.5
        print(f"started {late * 1000:.0f} ms after the end of the pause")
        assert -0.3 < late < 1.5
        assert await client.blocks() == []
        assert await client.resume(actor="work") is None


async def test_a_pause_of_a_queue_until_a_time_needs_no_supervisor(app: App, client: Client, workers: Workers) -> None:
    seen = Seen()

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    async with workers.run(app):
        began = time.monotonic()
        await client.pause(queue="default", duration=1.0)
        runs = [await client.submit(work.call()) for _ in range(20)]
        for run in runs:
            await run.result(10)
        assert -0.3 < seen.at[0] - began - 1.0 < 1.5


async def test_a_worker_that_starts_later_knows_what_is_paused(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """A backlog of a paused queue and a paused actor: a fresh worker starts none of it, and is idle."""
    seen = Seen()

    @app.actor(queue="mail")
    async def send(ctx: Context) -> None:
        seen.note(ctx)

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    await client.pause(queue="mail")
    await client.pause(actor="work")
    runs = [await client.submit(call, key=key) for key, call in (("a", send.call()), ("b", work.call()))]
    async with app.worker(workers.url) as worker:
        await worker.run_until_idle()
    assert not seen.at
    await client.resume(queue="mail")
    await client.resume(actor="work")
    async with workers.run(app), supervisors.run(app):
        for run in runs:
            await run.result(10)


async def test_a_sweep_takes_what_waits_for_a_switch_for_a_wake_up(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[38] It is not woken again and again, not looked at, and not taken for a limit's."""
    app = quick(namespace)

    @app.actor
    async def work() -> None:
        return

    async with workers.run(app) as running, supervisors.run(app) as supervisor:
        await client.pause(actor="work")
        runs = [await client.submit(work.call()) for _ in range(3)]
        await until_held(client, 3)
        sweeps: list[int] = []
        asked: list[str] = []
        monkeypatch.setattr(supervisor.metrics, "swept", lambda records, *_: sweeps.append(records))
        monkeypatch.setattr(Keepers, "ask", lambda _, key, *__, **___: asked.append(key))
        await wait_until(lambda: len(sweeps) >= 12, description="a dozen sweeps")
        assert running.worker.metrics.claims["work", "held"] == 3
        assert not asked, "nobody even looks"
        assert supervisor.metrics.repairs["parked"] == 0
        await client.resume(actor="work")
        for run in runs:
            await run.result(10)


async def test_a_wake_up_of_a_run_that_is_over_is_not_parked(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Cancelled before a worker sees its wake-up, which shows it waiting: dropped and counted at once, not after a resume."""

    @app.actor
    async def work() -> None:
        return

    await client.pause(actor="work")
    run = await client.submit(work.call())
    await run.cancel()
    async with workers.run(app) as running:
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["work", "cancelled"] == 1, description="its wake-up is dropped")
        assert running.worker.metrics.cancelled["work", "waiting"] == 1
        assert claims["work", "held"] == 0
        assert await held(client) == 0


async def test_a_paused_queue_is_left_alone(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for before comes and goes back; after that nothing of it is delivered, let alone again and again."""

    @app.actor
    async def work() -> None:
        return

    async with workers.run(app, concurrency=50) as running:
        await (await client.submit(work.call())).result(10)
        await client.pause(queue="default")
        await client.submit_many([(work.call(), None) for _ in range(500)])
        await asyncio.sleep(1.0)  # paused: what was asked for has come
        lanes = running.worker.puller._lanes
        await wait_until(
            lambda: not any(lane.outstanding for lane in lanes), description="nothing is asked for any more"
        )
        come: list[object] = []
        monkeypatch.setattr(running.worker.stores.work, "open", come.append)
        await asyncio.sleep(2.5)  # paused: nothing is asked for
        assert not come
        assert sum((await running.worker.puller.pending())["default"]) == 500
        await wait_until(lambda: not running.worker.why_not_ready, description="it is ready, as before")
        monkeypatch.undo()
        await client.resume(queue="default")
        await wait_until(lambda: running.worker.metrics.claims["work", "won"] == 501, description="all run")


async def test_a_place_under_a_limit_that_a_held_run_got_goes_to_others(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """N = 1: one runs, others are parked for its place; the actor is paused, the place is handed over to one after the other."""
    seen, gate = Seen(), asyncio.Event()

    @app.actor(limits=[Limit(1)])
    async def capped(ctx: Context) -> None:
        seen.note(ctx)
        if ctx.key == "first":
            await gate.wait()

    async with workers.run(app) as running, supervisors.run(app):
        runs = [await client.submit(capped.call(), key="first")]
        await wait_until(lambda: seen.at, description="it runs")
        runs += [await client.submit(capped.call()) for _ in range(5)]
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["capped", "parked"] == 5, description="all others are parked")
        await client.pause(actor="capped")
        gate.set()
        await until_held(client, 5)
        patience = client.stores.runs.patience()

        async def no_place_is_kept() -> bool:  # the last one gives its back right after it says that it waits
            names = await client.stores.limits.names(patience)
            return not any([(await client.stores.limits.read(name, patience)).entry for name in names])

        await wait_until(no_place_is_kept, description="no place is kept")
        await client.resume(actor="capped")
        for run in runs:
            await run.result(10)
        await no_limit_in_use(client)
    assert len(seen.at) == 6
