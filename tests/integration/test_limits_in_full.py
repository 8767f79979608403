"""A limit that work waits for is used in full: each end of a body brings a start."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import pytest

from tenure import App, Client, Context, Limit
from tenure.testing import memory
from tests.conftest import Workers
from tests.integration.test_limits_crashes import most_at_once
from tests.processes import Site
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


@pytest.mark.parametrize("n", [1, 2, 5])
async def test_scenario_31_a_hundred_tasks_on_three_workers_take_the_time_that_n_at_once_need(
    namespace: str, n: int
) -> None:
    """The same workers in virtual time, where the machine costs none: what is longer is a place that lay idle."""
    app, seconds, now, most = App(namespace), 0.2, 0, 0

    @app.actor(limits=[Limit(n)])
    async def capped() -> None:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(seconds)  # body: takes its time
        now -= 1

    async with memory(app, workers=3) as client:
        runs = await client.submit_many([(capped.call(), f"k{i}") for i in range(100)])
        began = asyncio.get_running_loop().time()
        for run in runs:
            assert not isinstance(run, Exception)
            await run.result()
        took = asyncio.get_running_loop().time() - began
    assert most == n
    assert 100 * seconds / n <= took + 0.01
    assert took < 1.06 * 100 * seconds / n, "one body's time more at most"


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2, 5])
async def test_scenario_31_of_a_hundred_tasks_on_three_worker_processes_n_run_all_the_time(site: Site, n: int) -> None:
    """N at once, never more, and n in four fifths of the time and more, what it takes from process to process included."""
    for _ in range(3):
        await site.start_worker()
    async with site.app.connect(site.url) as client:
        call = site.app.actors[f"bounded_{n}"].call
        runs = await client.submit_many([(call(seconds=0.1 * n), f"k{i}") for i in range(100)])
        for run in runs:
            assert not isinstance(run, Exception)
            await run.result(60)
        await no_limit_in_use(client)
    events = site.events()
    assert most_at_once(events, {}) == n
    assert len({event.key for event in events}) == 100
    assert len({event.pid for event in events}) == 3
    took = max(event.at for event in events) - min(event.at for event in events)
    print(f"n = {n}: {took:.2f} s, 10 s are what n at once need")
    assert 10.0 / took >= 0.8
