"""Rates in virtual time, where the machine costs none, and nothing lies between a look at the clock and a body."""

from __future__ import annotations

import asyncio

from tenure import App, RateLimit, Run
from tenure.testing import memory
from tests.integration.test_rates import N_SECONDS_TASKS


@N_SECONDS_TASKS
async def test_all_start_in_the_time_that_their_rate_allows(namespace: str, n: int, seconds: float, tasks: int) -> None:
    """Those of ``test_rates`` on three workers: what takes longer are windows that were not used up."""
    app, starts = App(namespace), list[float]()

    @app.actor(limits=[RateLimit(n, seconds)])
    async def paced() -> None:
        starts.append(asyncio.get_running_loop().time())

    async with memory(app, workers=3) as client:
        runs = await client.submit_many([(paced.call(), None) for _ in range(tasks)])
        await asyncio.gather(*(run.result() for run in runs if isinstance(run, Run)))
    took, ideal = max(starts) - min(starts), (-(-tasks // n) - 1) * seconds
    print(f"{n} in {seconds} s: {tasks} started in {took:.3f} s, ideal {ideal:.1f}")
    assert len(starts) == tasks
    assert ideal <= took < 1.2 * ideal
