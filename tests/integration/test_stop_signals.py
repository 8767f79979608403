"""A stop signal is about one attempt."""

from __future__ import annotations

import asyncio
import contextlib

from tenure import App, Client, Context, Retry
from tests.conftest import Workers
from tests.support import wait_until


async def test_the_signal_to_an_evicted_body_neither_stops_nor_shields_the_next_attempt(
    app: App, client: Client, workers: Workers
) -> None:
    """Attempt 1 overstays and is evicted; its signal is stored under the session that then claims attempt 2.

    Attempt 2 must not take it for its own, and a cancel of attempt 2 must still reach it: signals are final, so a
    second one under the same name would be refused as "exists".
    """
    attempts: list[Context] = []
    release = asyncio.Event()

    @app.actor(timeout=1.0, grace=0.1, retry=Retry(max_attempts=3, initial=0.01))
    async def stubborn(ctx: Context) -> str:
        attempts.append(ctx)
        if ctx.attempt == 1:
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()
            return "too late"
        await ctx.stopping.wait()
        return "stopped"

    async with workers.run(app):
        run = await client.submit(stubborn.call(), key="k")
        try:
            await wait_until(lambda: len(attempts) == 2, description="attempt 2 starts")
            second = attempts[1]
            assert not second.stop_reason
            out = await run.cancel(reason="enough")
            assert out.outcome == "stopping"
            await wait_until(lambda: second.stop_reason is not None, description="attempt 2 is told", timeout=1.0)
            assert str(second.stop_reason) == "cancel"
            assert (await run.wait(5)).phase == "cancelled"
        finally:
            release.set()
