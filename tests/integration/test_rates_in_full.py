"""Rates in virtual time, where the machine costs none, and nothing lies between a look at the clock and a body."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import App, RateLimit, Run
from tenure.core.rates import Start
from tenure.pacing import Paces
from tenure.testing import memory
from tenure.worker.head import Head
from tests.integration.test_rates import N_SECONDS_TASKS, closest


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


async def test_after_one_rate_has_let_a_late_body_start_the_others_are_asked_again(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rates. The claim is late for the mark of the short one, and moving that takes longer than the long one's allows."""
    app, starts = App(namespace), list[float]()
    plain_claim, plain_start, slow = Head._claim, Paces.start, [0.4]

    async def claim(self: Head, key: str, command: Any, *more: Any) -> Any:
        won = await plain_claim(self, key, command, *more)
        await asyncio.sleep(0.02)  # work: on its way
        return won

    async def start(self: Paces, name: str, asked: Start, *more: Any, **options: Any) -> Any:
        told = await plain_start(self, name, asked, *more, **options)
        if asked.old and slow:
            await asyncio.sleep(slow.pop())  # work: on its way
        return told

    monkeypatch.setattr(Head, "_claim", claim)
    monkeypatch.setattr(Paces, "start", start)

    @app.actor(limits=[RateLimit(1, 10.0), RateLimit(1, 0.25)])
    async def paced() -> None:
        starts.append(asyncio.get_running_loop().time())

    async with memory(app) as client:
        runs = await client.submit_many([(paced.call(), None) for _ in range(2)])
        await asyncio.gather(*(run.result() for run in runs if isinstance(run, Run)))
    assert not slow, "a mark was moved"
    assert closest(starts, 1) >= 10.0
