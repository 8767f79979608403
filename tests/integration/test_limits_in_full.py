"""A limit that work waits for is used in full: each end of a body brings a start."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import pytest

from tenure import App, Client, Context, Limit
from tests.conftest import Workers
from tests.support import no_limit_in_use, wait_until


def _are(started: list[str], number: int) -> bool:
    return len(started) == number


@pytest.mark.parametrize(("n", "tasks", "workers_"), [(1, 6, 3), (5, 20, 1), (5, 20, 3)])
async def test_scenario_31_one_end_brings_one_start_so_n_run_while_others_wait(
    app: App, client: Client, workers: Workers, n: int, tasks: int, workers_: int
) -> None:
    """No body ends before the test says so: whatever starts, starts for the end before it, with nobody's help and no sweep."""
    inside: dict[str, asyncio.Event] = {}
    started: list[str] = []
    at_once: list[int] = []

    @app.actor(limits=[Limit(n)])
    async def capped(ctx: Context) -> None:
        inside[ctx.key] = asyncio.Event()
        started.append(ctx.key)
        at_once.append(len(inside))
        try:
            await inside[ctx.key].wait()
        finally:
            del inside[ctx.key]

    async with AsyncExitStack() as stack:
        for _ in range(workers_):
            await stack.enter_async_context(workers.run(app))
        runs = [await client.submit(capped.call(), key=f"k{i}") for i in range(tasks)]
        for ends in range(tasks):
            number = min(n + ends, tasks)
            await wait_until(partial(_are, started, number), description=f"{number} starts, {ends} ends")
            inside[started[ends]].set()
        for run in runs:
            await run.result(10)
        await no_limit_in_use(client)
    assert max(at_once) == n
