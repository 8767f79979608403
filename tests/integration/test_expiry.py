"""A key that expires takes no run with it that is submitted at that moment, and refuses late copies of the old one's submit."""

from __future__ import annotations

import asyncio
import contextlib
import math

import pytest

from tenure import App, Client, Config, Context, OutcomeUnknown, Unavailable
from tenure.cli.look import row_of
from tenure.core.records import Phase
from tenure.nats.scan import Header
from tenure.testing import nats_cluster
from tests.support import wait_until

KEYS = [f"k{number}" for number in range(60)]
STILL_SECONDS = 2.0
"""Longer than what has ended is kept, and less than an election takes: the leader stays one."""


@pytest.mark.timeout(90)
async def test_submits_that_reach_a_leader_while_their_records_are_removed_are_all_run(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still meanwhile, so it learns of both at once.

    A server that leaves a mark of its own decides first, stores it last, and takes what was accepted in between with it.
    Judged by what has run: a result is there for a second only, and on a busy machine nobody may have looked by then. Nor
    is one that runs twice judged: what keeps a late copy of a submit out is the mark that this test has taken away.
    """
    monkeypatch.setattr("tenure.nats.swaps.MARK_SECONDS", 0)  # else it removes them an hour later
    app, ran = App(namespace, config=Config(replicas=3)), set[tuple[str, str]]()

    @app.actor(result_ttl=1)
    async def work(ctx: Context, name: str) -> None:
        ran.add((ctx.key, name))

    async def submitted(client: Client, key: str) -> None:
        """As a producer that is told that the server is away: the same key again."""
        while True:
            with contextlib.suppress(Unavailable, OutcomeUnknown):
                await client.submit(work.call("second"), key=key)
                return

    with nats_cluster() as cluster:
        async with app.connect(cluster.url) as client, app.worker(cluster.url) as worker:
            working = asyncio.create_task(worker.run())
            began = asyncio.get_running_loop().time()
            for key in KEYS:
                await client.submit(work.call("first"), key=key)
            ended = worker.metrics.outcomes
            await wait_until(
                lambda: ended["work", "succeeded"] >= len(KEYS), description="all have ended", timeout=math.inf
            )
            needed = asyncio.get_running_loop().time() - began
            node = await asyncio.to_thread(cluster.leader_of, app.names.runs_stream)
            async with app.connect(cluster.url) as other:
                node.suspend()
                asking = [asyncio.create_task(submitted(other, key)) for key in KEYS]
                await asyncio.sleep(STILL_SECONDS)  # paused: they expire
                node.resume()
                await asyncio.gather(*asking)
            second = {(key, "second") for key in KEYS}
            await wait_until(lambda: ran >= second, description="all have run", timeout=20 + 3 * needed)
            worker.stop()
            await working


async def test_a_list_names_no_key_that_has_expired(app: App, nats_server: str) -> None:
    @app.actor(result_ttl=1)
    async def work(ctx: Context) -> str:
        return ctx.key

    async with app.connect(nats_server) as client, app.worker(nats_server) as worker:
        working = asyncio.create_task(worker.run())
        await (await client.submit(work.call(), key="k")).result(5)
        rows: list[str] = []

        async def listed() -> list[str]:
            rows.clear()

            def on_header(header: Header) -> None:
                row = row_of(header.key, header.state, client.now())
                rows.extend([] if row is None else [f"{row.key} {row.phase}"])

            await client.stores.runs.scan(on_header)
            return rows

        assert await listed() == [f"k {Phase.SUCCEEDED}"]

        async def none() -> bool:
            return not await listed()

        await wait_until(none, description="it is listed no more", timeout=3)
        assert await client.status("k") is None
        worker.stop()
        await working
