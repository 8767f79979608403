"""Somebody else wrote into the bucket: what is there is no record."""

from __future__ import annotations

import asyncio

import pytest

from tenure import App, Client, UnreadableRecord
from tenure.core.records import encode
from tests.conftest import Workers
from tests.support import wait_until


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
