"""What supervisors do about limits: they keep away from who is parked, and put right what crashes leave."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, Limit
from tenure.core.permits import Bound, Entry, Permit, name_of
from tenure.core.records import Phase, encode
from tenure.supervisor.keepers import Keepers
from tests.conftest import Supervisors, Workers
from tests.support import FAST, no_limit_in_use, wait_until


async def test_a_sweep_takes_a_parked_message_for_a_wake_up(
    namespace: str,
    client: Client,
    workers: Workers,
    supervisors: Supervisors,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[38] A run is parked for longer than a sweep waits for what was written lately: it is not woken again and again."""
    gate = asyncio.Event()
    app = App(namespace, config=replace(FAST, sweep_seconds=0.3))

    @app.actor(limits=[Limit(1)])
    async def capped() -> None:
        await gate.wait()

    async with workers.run(app) as running, supervisors.run(app) as supervisor:
        runs = [await client.submit(capped.call()) for _ in range(3)]
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["capped", "parked"] == 2, description="two are parked")
        sweeps: list[int] = []
        asked: list[str] = []
        monkeypatch.setattr(supervisor.metrics, "swept", lambda records, *_: sweeps.append(records))
        monkeypatch.setattr(Keepers, "ask", lambda _, key, *__, **___: asked.append(key))
        await wait_until(lambda: len(sweeps) >= 12, description="a dozen sweeps")
        assert claims["capped", "parked"] == 2
        assert not asked, "nobody even looks"
        gate.set()
        for run in runs:
            await run.result(10)


async def test_what_a_cancelled_run_has_parked_is_removed_though_its_turn_does_not_come(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """N = 1: a long body; of two parked runs one is cancelled. Its message goes, the other one's stays."""
    gate = asyncio.Event()
    app = App(namespace, config=replace(FAST, sweep_seconds=0.3))

    @app.actor(limits=[Limit(1)])
    async def capped() -> None:
        await gate.wait()

    async def parked() -> int:
        listed = await client.stores.work.stored(client.stores.runs.patience())
        return len(listed.parked.get("capped", ()))

    async def left(number: int) -> bool:
        return await parked() == number

    async with workers.run(app) as running, supervisors.run(app):
        runs = [await client.submit(capped.call()) for _ in range(3)]
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["capped", "parked"] == 2, description="two are parked")
        first = next(iter(running.worker.table.all())).key
        cancelled, other = (run for run in runs if run.key != first)
        await cancelled.cancel()
        await wait_until(lambda: left(1), description="its message is removed")
        gate.set()
        await other.result(10)


async def test_a_place_is_not_kept_for_a_run_in_a_queue_that_is_paused(
    namespace: str, workers: Workers, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N = 1, and the actor has moved to another queue. One run waits in the old one, which is paused, and its turn comes."""
    monkeypatch.setattr("tenure.supervisor.places._SETTLE_SECONDS", 0.1)
    config = replace(FAST, sweep_seconds=0.2)
    old, new = App(namespace, config=config), App(namespace, config=config)
    gate = asyncio.Event()

    async def capped(ctx: Context) -> None:
        if ctx.key == "first":
            await gate.wait()

    before = old.actor(limits=[Limit(1)], queue="old")(capped)
    after = new.actor(limits=[Limit(1)], queue="new")(capped)
    async with (
        new.connect(workers.url) as client,
        workers.run(new, queues=["old", "new"]) as running,
        supervisors.run(new),
    ):
        claims = running.worker.metrics.claims

        async def parked(number: int) -> None:
            await wait_until(lambda: claims["capped", "parked"] == number, description=f"{number} are parked")

        await client.submit(before.call(), key="first")
        await wait_until(lambda: claims["capped", "won"] == 1, description="the place is taken")
        held = await client.submit(before.call(), key="held")
        await parked(1)
        moved = await client.submit(after.call(), key="moved")
        await parked(2)
        await client.pause(queue="old")
        gate.set()
        assert (await moved.wait(10)).phase == "succeeded"
        await client.resume(queue="old")
        assert (await held.wait(10)).phase == "succeeded"


async def test_what_crashes_leave_is_put_right_without_new_traffic(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Every gap by hand.

    A dead session's place; a reserved place with no wake-up, and one for a run that is over; a place whose attempt is over
    under a session that lives; a parked message with no flag, and one of a run that is over.
    """

    @app.actor(limits=[Limit(1, per="case")])
    async def capped(case: str) -> str:
        return case

    stores, patience = client.stores, client.stores.runs.patience()
    over = await client.submit(capped.call("over"), key="over")
    async with workers.run(app) as running:
        await over.result(10)
        session = running.worker.lease.id
        waiting = {}
        for case in ("dead", "reserved", "stale", "leaked", "flagless"):
            run = await client.submit(capped.call(case), key=case, delay=3600)
            found = await stores.runs.read(case)
            assert found.record is not None
            record = replace(found.record, due=0.0)
            name = _name(case)
            places = {
                "dead": (Permit(key="x", run_id="x", attempt=1, session="gone"),),
                "reserved": (Permit(key=case, run_id=run.run_id),),
                "stale": (Permit(key="over", run_id=over.run_id),),
                "leaked": (Permit(key="over", run_id=over.run_id, attempt=1, session=session),),
                "flagless": (),
            }[case]
            if places:
                await stores.limits.write(name, Entry(n=1, permits=places, parked=case != "reserved"), 0, patience)
            waiting[case] = (run, record, name)
        for case, (_, record, name) in waiting.items():
            found = await stores.runs.read(case)
            await stores.runs._store(case, record, encode(record), found.revision, patience)
            found = await stores.runs.read(case)
            if case != "reserved":
                await stores.parking.park(name, record, encode(record), found.revision, patience)
        overs = (await stores.runs.read("over")).record
        assert overs is not None
        assert overs.phase is Phase.SUCCEEDED
        await stores.parking.park("capped=none", overs, b"", 1, patience)
        async with supervisors.run(app) as supervisor:
            for case, (run, _, _) in waiting.items():
                assert await run.result(20) == case
            await no_limit_in_use(client)
            repairs = supervisor.metrics.repairs
    assert repairs["place"] >= 3
    assert repairs["reserved"] >= 1


def _name(case: str) -> str:
    return name_of("capped", Bound(n=1, per="case"), b'{"case":"%s"}' % case.encode())
