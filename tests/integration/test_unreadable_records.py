"""Somebody else wrote into the bucket: what is there is no record."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure import App, Client, UnreadableRecord
from tenure.core import commands as c
from tenure.core.records import Seen, encode, state_of
from tenure.nats.scan import STATE
from tests.conftest import Supervisors, Workers
from tests.support import FAST, wait_until


async def test_an_unreadable_record_is_left_alone_and_stops_nobody_else(
    app: App, client: Client, workers: Workers
) -> None:
    """Its wake-up comes again and again: each time it is given back and counted, never an unexpected error.

    The client says what is there; the worker goes on with others, and with this run once its record is back.
    """

    @app.actor
    async def work(text: str) -> str:
        return text

    runs = await asyncio.gather(*(client.submit(work.call(f"{n}"), key=f"k{n}") for n in range(12)))
    kept = {run.key: await client.stores.runs.read(run.key) for run in runs}
    for key in kept:
        await client.stores.conn.put(app.names.record(key), b"\xff not a record")
    for door in (client.status, client.cancel, client.purge):
        with pytest.raises(UnreadableRecord, match="no record of Tenure"):
            await door("k0")
    async with workers.run(app) as running:
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["", "unreadable"] >= 12, description="each was looked at")
        assert await (await client.submit(work.call("fine"))).result(timeout=5) == "fine"
        for key, found in kept.items():
            assert found.record is not None
            await client.stores.conn.put(app.names.record(key), encode(found.record))
        assert [await run.result(timeout=10) for run in runs] == [f"{n}" for n in range(12)]
        assert running.worker.metrics.errors["handler"] == 0


async def test_a_record_that_another_actor_was_written_into_goes_to_those_who_know_it(
    app: App, client: Client, workers: Workers
) -> None:
    """Its wake-up names one that is known here, so the claim is sent, is refused, and is made again on what there is now."""

    @app.actor
    async def known(text: str) -> str:
        return text

    run = await client.submit(known.call("x"), key="k")
    record = (await client.stores.runs.read("k")).record
    assert record is not None
    changed = replace(record, task=replace(record.task, actor="nobody"))
    await client.stores.conn.put(app.names.record("k"), encode(changed), {STATE: state_of(changed)})
    async with workers.run(app) as running:
        metrics = running.worker.metrics
        await wait_until(lambda: metrics.outcomes["nobody", "handed_back"], description="it goes back")
        status = await run.status()
        assert status is not None
        assert (status.phase, status.actor, status.failures) == ("queued", "nobody", 0)
        assert await (await client.submit(known.call("fine"))).result(timeout=5) == "fine"
        assert metrics.errors["handler"] == 0


@pytest.mark.parametrize(
    "data",
    [b"\xff not a record", b'{"schema":1,"key":"\xff"}', b'{"schema": 99}'],
    ids=["unreadable", "no text", "newer"],
)
async def test_an_origin_that_cannot_be_read_stops_no_repair_of_its_target(
    namespace: str, workers: Workers, supervisors: Supervisors, data: bytes
) -> None:
    """A run that two others spawned, whose wake-up was lost: it is repaired; only what the bad origin owes stays."""
    app = App(namespace, config=replace(FAST, sweep_seconds=0.3))
    ran = asyncio.Event()

    @app.actor
    async def child() -> None:
        ran.set()

    async with app.connect(workers.url) as client:
        stores = client.stores
        await stores.conn.put(app.names.record("bad"), data)
        for origin in ("bad", "gone"):  # as a payment stores it; then its process dies
            spawn = c.Submit(key="k", run_id=stores.clock.new_id(), task=child.call().task)
            await stores.runs.commit("k", replace(spawn, seen=Seen(id=f"{origin}.1.0", origin=origin)))
        async with workers.run(app), supervisors.run(app):
            await asyncio.wait_for(ran.wait(), 10)

            async def forgotten() -> bool:
                found = await stores.runs.read("k")
                return found.record is not None and [seen.origin for seen in found.record.seen] == ["bad"]

            await wait_until(forgotten, description="what can be forgotten is")
