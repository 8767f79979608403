"""A stop signal is about one attempt; and nobody forgets a body before it is told."""

from __future__ import annotations

import asyncio
import contextlib

from tenure import App, Client, Context, Retry
from tenure.core import commands as c
from tenure.nats.runs import Committed
from tests.conftest import Workers
from tests.proxy import Proxy, record
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


async def test_a_claim_tells_a_body_to_stop_whose_time_is_over_before_it_takes_it_out_of_the_record(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    """[46] A runs, B waits for its end, A is cancelled by its run id, and whoever did that dies before the signal.

    Its grace is over before any sweep: B's claim drops the one trace of A, so it has to tell A first: it may die as well, as
    this one seems to, of which the server hears nothing.
    """
    bodies: dict[int, Context] = {}

    @app.actor(grace=0.3)
    async def waits(ctx: Context) -> None:
        bodies[ctx.generation] = ctx
        if ctx.generation == 1:
            await ctx.stopping.wait()

    async with behind.run(app):
        old = await client.submit(waits.call(), key="k")
        await wait_until(lambda: 1 in bodies, description="the old body runs")
        new = await client.replace(waits.call(), key="k", overlap="wait")
        claims = proxy.lose(record(app, "k", "running"), 1_000)
        told = await client.stores.runs.commit("k", c.Cancel(run_id=old.run_id, reason="enough"))
        assert isinstance(told, Committed)
        await wait_until(lambda: bodies[1].stop_reason, description="the old body is told to stop", timeout=3.0)
        assert bodies[1].stop_reason == "superseded"
        claims.clear()
        assert (await new.wait(5)).phase == "succeeded"
