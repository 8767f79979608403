"""What is asked of the server, and when: no read for a claim, nothing during a wait, the ack last, the next pull at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context
from tests.conftest import Workers
from tests.contract.support import depth
from tests.counted import QUICK
from tests.proxy import Proxy, Publish, record
from tests.support import wait_until


def overheard(proxy: Proxy) -> list[str]:
    """The subject of everything that clients of the proxy publish from now on, requests too."""
    subjects: list[str] = []

    def note(publish: Publish) -> bool:
        subjects.append(publish.subject)
        return False

    proxy.lose(note)
    return subjects


async def test_a_claim_needs_no_read(app: App, client: Client, behind: Workers, proxy: Proxy) -> None:
    """Twenty tasks, from wake-up to outcome: each wake-up carries the record and its revision, so nothing is read of the bucket."""

    @app.actor
    async def work(ctx: Context) -> str:
        return ctx.key

    async with behind.run(app) as running:
        subjects = overheard(proxy)
        runs = await client.submit_many([(work.call(), f"k{number}") for number in range(20)])
        assert [await run.result(10) for run in runs if not isinstance(run, Exception)] == [f"k{n}" for n in range(20)]
        await wait_until(lambda: not len(running.worker.table), description="all are answered")
    assert subjects.count(app.names.record("k0")) >= 2, "a claim and an outcome"
    gets = ("$JS.API.STREAM.MSG.GET.", "$JS.API.DIRECT.GET.")
    assert [s for s in subjects if s.startswith(gets) and app.names.runs_stream in s] == []


@pytest.mark.one_server("in a cluster who waits reads again after 0.5 and 2 s")
async def test_waiting_for_a_result_costs_no_request(app: App, client: Client, workers: Workers, proxy: Proxy) -> None:
    """Once it has subscribed and read, a client sends nothing until the result is there; and that comes as an event."""
    gate, started = asyncio.Event(), asyncio.Event()

    @app.actor
    async def work(ctx: Context) -> str:
        started.set()
        await gate.wait()
        return "value"

    patient = replace(app.config, reread_seconds=3_600.0, request_timeout_seconds=10.0, ack_wait_seconds=20.0)
    waits = App(app.namespace, config=patient)
    async with workers.run(app), waits.connect(proxy.url) as waiting:
        run = await client.submit(work.call(), key="k")
        await started.wait()
        subjects = overheard(proxy)
        result = asyncio.create_task(waiting.run("k").result(10))
        await wait_until(lambda: subjects, description="it has read")
        await asyncio.sleep(0.5)  # paused: this is the wait that must cost nothing
        gate.set()
        assert await result == "value"
        assert await run.result(5) == "value"
        assert len(subjects) == 1, "one read, and nothing after it"


async def test_the_ack_comes_last(namespace: str, nats_server: str, behind: Workers, proxy: Proxy) -> None:
    """The outcome is under way, and sent again: its wake-up is still in the stream, for whoever would have to take over."""
    app = App(namespace, config=QUICK)

    @app.actor
    async def work(ctx: Context) -> int:
        return ctx.attempt

    async with app.connect(nats_server) as client, behind.run(app):
        held = proxy.hold(record(app, "k", "succeeded"), times=2)
        run = await client.submit(work.call(), key="k")
        await wait_until(lambda: len(held.hits) == 2, description="the outcome is on its way for the second time")
        assert await depth(client.stores) == 1
        await proxy.release(held)
        assert await run.result(5) == 1

        async def acknowledged() -> bool:
            return await depth(client.stores) == 0

        await wait_until(acknowledged, description="and then it is acknowledged")


async def test_a_freed_slot_is_refilled_at_once(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slot, five tasks, and a worker that never looks after its lanes: only the end of a body can ask for the next."""
    monkeypatch.setattr("tenure.worker.service._TEND_SECONDS", 3_600.0)

    @app.actor
    async def work(ctx: Context) -> str:
        return ctx.key

    async with workers.run(app, concurrency=1):
        runs: list[Any] = await client.submit_many([(work.call(), f"k{number}") for number in range(5)])
        assert [await run.result(4) for run in runs] == [f"k{number}" for number in range(5)]
