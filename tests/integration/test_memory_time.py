"""Virtual time leaves nothing standing: what may happen at a moment happens at that moment, however far time has leapt."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest

from tenure import App, Context, Limit, RateLimit
from tenure.testing import memory

HOUR = 3_600.0
SOON = 0.3
"""Seconds that those may take who look for what may start now: a worker, a supervisor, who waits in line for a limit."""


def app_of() -> App:
    app = App("shop")

    @app.actor(autostart=True, every=timedelta(hours=1))
    async def hourly(ctx: Context) -> None:
        pass

    return app


@pytest.mark.parametrize("seed", range(12))
async def test_each_run_starts_when_it_is_due_and_ends_when_its_body_does(seed: int) -> None:
    """Whatever time the test itself lets pass, whatever else runs, waits and ticks."""
    app, chance = app_of(), random.Random(seed)
    began, ended, due = dict[int, float](), dict[int, float](), dict[int, float]()
    lasts = {number: chance.choice([0.0, 0.4, 3.0, 100.0, 2 * HOUR]) for number in range(24)}

    @app.actor(retry=None)
    async def work(ctx: Context, number: int) -> None:
        began[number] = client.now()
        await asyncio.sleep(lasts[number])  # body:
        ended[number] = client.now()

    async with memory(app, seed=seed, workers=chance.choice([1, 2])) as client:
        for number in lasts:
            await client.advance(chance.choice([0.0, 0.0, 0.3, 1.1, 30.0, HOUR, 30 * HOUR]))
            delay = chance.choice([0.0, 0.0, 0.5, 20.0, 2 * HOUR])
            due[number] = client.now() + delay
            await client.submit(work.call(number), key=f"k{number}", delay=delay or None)
        await client.advance(5 * HOUR)
    late = {number: began[number] - due[number] for number in lasts}
    assert all(-0.001 <= seconds < SOON for seconds in late.values()), late
    took = {number: ended[number] - began[number] - lasts[number] for number in lasts}
    assert all(abs(seconds) < 0.001 for seconds in took.values()), took


@pytest.mark.parametrize("passed", [0.0, 0.5, 1.0, 30.0, 30 * HOUR])
@pytest.mark.parametrize("apart", [0.0, 0.1, 0.5])
async def test_a_place_under_a_limit_is_never_idle(passed: float, apart: float) -> None:
    """Nor does a wait that is shorter than any clock can tell hold time up: 0.85 is less than 0.55 and 0.3."""
    app, starts = app_of(), list[float]()

    @app.actor(limits=[Limit(2)], retry=None)
    async def work(ctx: Context, number: int) -> int:
        starts.append(client.now() - began)
        await asyncio.sleep(10)  # body:
        return number

    async with memory(app) as client:
        await client.advance(passed)
        began = client.now()
        runs = [await client.submit(work.call(0), key="k0")]
        await client.advance(apart)
        runs += [await client.submit(work.call(number), key=f"k{number}") for number in range(1, 6)]
        assert await asyncio.gather(*(run.result() for run in runs)) == list(range(6))
    assert starts == pytest.approx([0, apart, 10, 10 + apart, 20, 20 + apart], abs=SOON)


@pytest.mark.parametrize("passed", [0.0, 30.0, 30 * HOUR])
async def test_what_waits_for_its_rate_starts_in_order_when_it_may(passed: float) -> None:
    app, starts = app_of(), list[tuple[int, float]]()

    @app.actor(limits=[RateLimit(2, 60.0)], retry=None)
    async def work(ctx: Context, number: int) -> None:
        starts.append((number, client.now() - began))

    async with memory(app) as client:
        await client.advance(passed)
        began = client.now()
        runs = await client.submit_many([(work.call(number), f"k{number}") for number in range(6)])
        await client.advance(130)
        assert len(runs) == len(starts) == 6
    assert [number for number, _ in starts] == list(range(6))
    assert [at for _, at in starts] == pytest.approx([0, 0, 60, 60, 120, 120], abs=2 * SOON)
