"""Pauses when something breaks: workers cut off or killed, supervisors that die while they wake what waited, stale views."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, Retry, RunFailed
from tenure.core.records import encode
from tenure.core.switches import place_of
from tenure.nats.parking import Parked, Parking
from tenure.switchboard import Switchboard
from tests.conftest import Supervisors, Workers
from tests.integration.test_pause import BOUND_SECONDS, Seen, quick, until_held
from tests.processes import WITHIN_SECONDS, Site
from tests.proxy import Proxy, record
from tests.support import sized, wait_until


async def test_thousands_that_wait_are_resumed_in_order_and_once_each(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    seen, number = Seen(), sized(1_500, 10_000)

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    async with workers.run(app, concurrency=100), supervisors.run(app):
        await client.pause(actor="work")
        runs: Any = await client.submit_many([(work.call(), f"k{i:05}") for i in range(number)])
        await until_held(client, number, 60.0)
        began = time.monotonic()
        hold = await client.resume(actor="work")
        assert hold is not None
        assert hold.waiting == number
        for run in runs:
            await run.result(60)
        print(
            f"{number:,} resumed: the first after {seen.at[0] - began:.2f} s, the last after {seen.at[-1] - began:.2f} s"
        )
        await until_held(client, 0)
    assert len(seen.keys) == len(set(seen.keys)) == number
    assert max(seen.attempts) == 1
    late = max(abs(place - int(key[1:])) for place, key in enumerate(seen.keys))
    assert late < 500, "about in the order of submits: so many are woken and run at once"


@pytest.mark.parametrize("after", ["the wake-up", "nothing"])
async def test_a_supervisor_that_dies_while_it_wakes_what_waited_is_followed_by_another(
    namespace: str,
    client: Client,
    workers: Workers,
    supervisors: Supervisors,
    monkeypatch: pytest.MonkeyPatch,
    after: str,
) -> None:
    """It has woken 100 of 300, and stored a wake-up without having removed the message; the sweep of a fresh one goes on."""
    app, seen = quick(namespace), Seen()
    release, put = Parking.release, Parking._put
    woken: list[str] = []

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    async def dying(self: Parking, parked: Parked, patience: Any) -> None:
        woken.append(parked.run_id)
        if len(woken) > 100:
            if after == "the wake-up":
                await put(self, self._wakeup(parked), parked.payload, None, patience)
            await asyncio.Event().wait()
        await release(self, parked, patience)

    async with workers.run(app):
        async with supervisors.run(app):
            await client.pause(actor="work")
            runs: Any = await client.submit_many([(work.call(), None) for _ in range(300)])
            await until_held(client, 300)
            monkeypatch.setattr(Parking, "release", dying)
            await client.resume(actor="work")
            await wait_until(lambda: len(woken) > 100, description="it is in the middle")
        monkeypatch.setattr(Parking, "release", release)
        async with supervisors.run(app):
            for run in runs:
                await run.result(20)
            await until_held(client, 0)
    assert sorted(seen.keys) == sorted(run.key for run in runs), "once each"


async def test_a_wake_up_is_stored_before_the_message_is_removed(app: App, client: Client) -> None:
    """Whoever dies in between leaves both. The other way round nothing would be left until a sweep misses it."""

    @app.actor
    async def work() -> None:
        return

    stores, patience = client.stores, client.stores.runs.patience()
    await client.submit(work.call(), key="k", delay=3600)
    found = await stores.runs.read("k")
    assert found.record is not None
    place, data = place_of("01GONE"), encode(found.record)
    await stores.parking.park(place, found.record, data, found.revision, patience, reserves=False)
    parked = await stores.parking.get(place, "k", found.record.run_id, patience)
    assert parked is not None
    there: list[bool] = []

    async def drop(_seq: int, _patience: Any) -> None:
        there.append(await stores.work.is_awake(found.record))  # type: ignore[arg-type]  # it is there

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores.parking, "drop", drop)
        await stores.parking.release(parked, patience)
    assert there == [True]


async def test_a_supervisor_that_is_killed_in_mid_resume_is_followed_by_another(site: Site) -> None:
    """The same with kill -9 of a process, and another one that was there all the time."""
    first = await site.start_supervisor()
    await site.start_worker()
    async with site.app.connect(site.url) as client:
        await client.pause(actor="quick")
        call = site.app.actors["quick"].call
        runs: Any = await client.submit_many([(call(), None) for _ in range(3_000)])
        await until_held(client, 3_000, 40.0)
        second = await site.start_supervisor()
        await client.resume(actor="quick")
        await wait_until(lambda: len(site.events("started")) > 50, description="some have started")
        at = len(site.events("started"))
        await first.kill()
        for run in runs:
            await run.result(40)
        print(f"one of two supervisors was killed when {at} had started")
        await until_held(client, 0)
        assert await second.end() == 0
    assert len({event.key for event in site.events("started")}) == len(site.events("started")) == 3_000


async def test_a_takeover_of_a_paused_actor_waits_and_an_end_does_not(site: Site) -> None:
    """Killed with two in hand: the one that may be tried again waits for the resume, the other one fails as ever."""
    await site.start_supervisor()
    doomed = await site.start_worker()
    async with site.app.connect(site.url) as client:
        again = await client.submit(site.app.actors["hold"].call(), key="again")
        spent = await client.submit(site.app.actors["once"].call(), key="spent")
        await site.wait_for("started", "again")
        await site.wait_for("started", "spent")
        await site.start_worker()
        for actor in ("hold", "once"):
            await client.pause(actor=actor)
        await doomed.kill()
        with pytest.raises(RunFailed, match="Worker"):
            await spent.result(WITHIN_SECONDS + 4)
        await until_held(client, 1)
        site.open("again")
        await asyncio.sleep(2.0)  # paused: sweeps change nothing
        assert len(site.events("started", "again")) == 1
        await client.resume(actor="hold")
        assert await again.result(10) == "attempt 2"


async def test_a_takeover_that_waits_can_be_cancelled(site: Site) -> None:
    await site.start_supervisor()
    doomed = await site.start_worker()
    async with site.app.connect(site.url) as client:
        run = await client.submit(site.app.actors["hold"].call(), key="again")
        await site.wait_for("started", "again")
        await client.pause(actor="hold")
        await site.start_worker()
        await doomed.kill()
        await until_held(client, 1, WITHIN_SECONDS + 4)
        assert (await run.cancel()).outcome == "stopping"
        assert (await run.wait(WITHIN_SECONDS)).phase == "cancelled"
        await until_held(client, 0)


@pytest.mark.parametrize("what", ["queue", "actor"])
async def test_a_worker_that_was_cut_off_during_the_pause_starts_nothing_when_it_is_back(
    app: App, nats_server: str, proxy: Proxy, behind: Workers, what: str
) -> None:
    seen = Seen()

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)
        await asyncio.sleep(0.05)  # body:

    async with app.connect(nats_server) as client, behind.run(app, concurrency=5):
        await client.submit_many([(work.call(), None) for _ in range(200)])
        await wait_until(lambda: len(seen.at) > 20, description="it works")
        await proxy.take_down()
        await (client.pause(queue="default") if what == "queue" else client.pause(actor="work"))
        paused = time.monotonic()
        await asyncio.sleep(0.5)  # paused: what it had claimed has started by now
        number = len(seen.at)
        await proxy.bring_up()
        await asyncio.sleep(3.0)  # paused: it is back, and starts nothing
        assert len(seen.at) == number
        assert max(seen.at) - paused < BOUND_SECONDS


async def test_a_claim_that_is_repeated_after_a_reconnect_starts_no_body_that_is_paused_by_then(
    app: App, nats_server: str, proxy: Proxy, behind: Workers
) -> None:
    """Its first answer is lost with the connection; the actor is paused; the claim is found, and its run handed back."""
    seen = Seen()

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    async with app.connect(nats_server) as client, behind.run(app) as running:
        fault = proxy.lose_answer(record(app, "k", "running"))
        run = await client.submit(work.call(), key="k")
        await wait_until(lambda: fault.hits, description="the claim is stored, and its answer lost")
        await proxy.take_down()
        await client.pause(actor="work")
        await proxy.bring_up()
        await until_held(client, 1)
        assert not seen.at
        assert running.worker.metrics.outcomes["work", "handed_back"] == 1
        status = await run.status()
        assert status is not None
        assert (status.phase, status.attempt, status.failures) == ("queued", 1, 0)


async def test_a_body_does_not_start_while_its_worker_is_cut_off(
    app: App, nats_server: str, proxy: Proxy, behind: Workers
) -> None:
    """It is claimed and about to start when the connection breaks: what is paused meanwhile is not known there."""
    seen, claimed, gate = Seen(), asyncio.Event(), asyncio.Event()

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    async with app.connect(nats_server) as client, behind.run(app) as running:
        stores = running.worker.stores
        get_args = stores.get_args

        async def slowly(*args: Any) -> bytes:
            claimed.set()
            await gate.wait()
            return await get_args(*args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stores, "get_args", slowly)
            await client.submit(work.call())
            await claimed.wait()
        await proxy.take_down()
        await client.pause(actor="work")
        gate.set()
        await asyncio.sleep(0.5)  # paused: it would have started
        assert not seen.at
        await proxy.bring_up()
        await until_held(client, 1)
        assert not seen.at
        assert running.worker.metrics.outcomes["work", "handed_back"] == 1


@pytest.mark.long
async def test_a_watch_that_is_silent_lets_bodies_start_until_that_is_noticed_and_no_longer(
    app: App, nats_server: str, proxy: Proxy, behind: Workers
) -> None:
    """The worst that can happen to a worker that is connected: the message is lost, and so are the heartbeats after it.

    Noticed after 2.5 to 3.5 s; from then on nothing starts until the board is read again.
    """
    seen = Seen()

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)
        await asyncio.sleep(0.05)  # body:

    async with app.connect(nats_server) as client, behind.run(app, concurrency=2):
        runs: Any = await client.submit_many([(work.call(), None) for _ in range(400)])
        await wait_until(lambda: len(seen.at) > 20, description="it works")
        proxy.mute(app.names.runs_stream)
        await client.pause(actor="work")
        paused = time.monotonic()
        await asyncio.sleep(6.0)  # paused: it is noticed
        last, number = max(seen.at) - paused, len(seen.at)
        print(f"the last body started {last:.2f} s after the pause, {number} of {len(runs)} had")
        assert number < 400, "the test needs some left"
        assert last < 3.5 + BOUND_SECONDS
        proxy.unmute()
        await asyncio.sleep(2.0)  # paused: it is known again, and holds
        assert len(seen.at) == number


async def test_what_is_parked_for_a_switch_that_is_gone_is_asked_for_again_by_its_worker(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed between the worker's look and its message: supervisors have looked already, and here there is none at all."""
    seen, park = Seen(), Parking.park

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    async with workers.run(app) as running:
        board = running.worker._board
        assert board is not None
        await client.pause(actor="work")
        await wait_until(lambda: not board.rules.idle, description="the worker knows")

        async def late(self: Parking, *args: Any, **kwargs: Any) -> int:
            await client.resume(actor="work")
            await wait_until(lambda: board.rules.idle, description="the worker knows")
            return await park(self, *args, **kwargs)

        monkeypatch.setattr(Parking, "park", late)
        await (await client.submit(work.call())).result(10)
        await until_held(client, 0)


async def test_what_a_worker_parks_that_does_not_know_yet_is_woken_a_little_later(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns of the resume a second late, and parks meanwhile: supervisors look again, long before the next sweep."""
    seen, take = Seen(), Switchboard._take
    slow: list[Switchboard] = []

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    def maybe_late(self: Switchboard, told: Any) -> None:
        if self in slow:
            asyncio.get_running_loop().call_later(0.7, take, self, told)
        else:
            take(self, told)

    monkeypatch.setattr(Switchboard, "_take", maybe_late)
    async with workers.run(app) as running, supervisors.run(app):
        board = running.worker._board
        assert board is not None
        await client.pause(actor="work")
        await wait_until(lambda: not board.rules.idle, description="the worker knows")
        slow.append(board)
        await client.resume(actor="work")
        began = time.monotonic()
        await (await client.submit(work.call())).result(10)
        assert running.worker.metrics.claims["work", "held"] == 1
        assert 0.3 < seen.at[0] - began < 5.0


async def test_a_sweep_wakes_what_lies_under_a_switch_that_nobody_knows(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """What the crash of every supervisor leaves: the switch is gone, its runs are parked, and have no wake-up."""
    app, seen = quick(namespace), Seen()

    @app.actor
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    stores, patience = client.stores, client.stores.runs.patience()
    async with workers.run(app):
        run = await client.submit(work.call(), key="k", delay=3600)
        found = await stores.runs.read("k")
        assert found.record is not None
        record = replace(found.record, due=0.0)
        await stores.runs._store("k", record, encode(record), found.revision, patience)
        found = await stores.runs.read("k")
        await stores.parking.park(place_of("01GONE"), record, encode(record), found.revision, patience, reserves=False)
        async with supervisors.run(app) as supervisor:
            await run.result(10)
            assert supervisor.metrics.repairs["resumed"] == 1


@pytest.mark.long
async def test_to_pause_and_resume_again_and_again_loses_and_doubles_nothing(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Paused and resumed twenty times under load: all run, once each."""
    seen, number = Seen(), 2_000

    @app.actor(retry=Retry(max_attempts=2))
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    async def switch() -> None:
        for _ in range(20):
            await client.pause(actor="work")
            await client.block("0*")
            await asyncio.sleep(0.03)  # paused: some are parked
            await client.resume(actor="work")
            await client.unblock("0*")

    async with workers.run(app), workers.run(app), supervisors.run(app):
        runs: Any = (await asyncio.gather(client.submit_many([(work.call(), None)] * number), switch()))[0]
        await asyncio.gather(*(run.result(30) for run in runs))
        await until_held(client, 0)
    assert len(seen.keys) == len(set(seen.keys)) == number
