"""First in, first out: within a lane bodies start in the order in which their wake-ups were stored."""

from __future__ import annotations

import pytest

from tenure import App, Client, Context
from tests.conftest import Workers
from tests.support import wait_until

RUNS = 24


@pytest.mark.parametrize("slots", [1, 5])
async def test_what_was_stored_first_in_a_lane_starts_first(
    slots: int, app: App, client: Client, workers: Workers
) -> None:
    """A backlog of two lanes, and what comes to it while it is worked on. How the lanes share the slots is another matter."""
    started: list[str] = []

    @app.actor(name="normal")
    async def normal(ctx: Context) -> None:
        started.append(ctx.key)

    @app.actor(name="high", priority="high")
    async def high(ctx: Context) -> None:
        started.append(ctx.key)

    async def submit(numbers: range) -> None:
        for number in numbers:
            lane = "high" if number % 3 else "normal"
            await client.submit(app.actors[lane].call(), key=f"{lane}-{number:02}")

    await submit(range(RUNS))
    async with workers.run(app, concurrency=slots):
        await submit(range(RUNS, 2 * RUNS))
        await wait_until(lambda: len(started) == 2 * RUNS, description="each has started")
    for lane in ("high", "normal"):
        assert [key for key in started if key.startswith(lane)] == sorted(
            key for key in started if key.startswith(lane)
        )
