"""``ctx.fence`` rises with every claim of a key, whatever led to it."""

from __future__ import annotations

import asyncio

from tenure import App, Client, Context, Retry
from tenure.core import commands as c
from tenure.nats.runs import Committed
from tests.conftest import Workers
from tests.support import session_that_is_gone


async def test_the_fence_rises_over_retry_replace_reschedule_takeover_and_a_new_life(
    app: App, client: Client, workers: Workers
) -> None:
    """One key: three bodies of a run, its replacement, a takeover of a claim that died, then purged and submitted again.

    Other keys are written in between, and what is written of the key itself (outcomes, a purge) raises its revision too.
    """
    fences: list[tuple[str, int]] = []
    held = asyncio.Event()

    @app.actor(retry=Retry(max_attempts=2, initial=0.01, jitter=0.0))
    async def work(ctx: Context, what: str) -> None:
        fences.append((what, ctx.fence))
        if what == "old":
            if ctx.attempt == 1:
                raise ValueError("again")
            if ctx.generation == 1:
                ctx.reschedule(delay=0.0)
                return
            held.set()
            await ctx.stopping.wait()

    async with workers.run(app):
        await client.submit(work.call("old"), key="k")
        async with asyncio.timeout(5):
            await held.wait()
        await client.submit(work.call("another's"), key="other")
        run = await client.replace(work.call("replaced"), key="k")
        await run.result(5)
    run = await client.submit(work.call("taken over"), key="k")
    claim = c.Claim(session=await session_that_is_gone(client), run_id=run.run_id, next_run_id="")
    dead = await client.stores.runs.commit("k", claim)
    assert isinstance(dead, Committed)
    fences.append(("dead", dead.revision))
    async with workers.run(app):
        await run.result(5)
        assert await client.purge("k")
        run = await client.submit(work.call("anew"), key="k")
        await run.result(5)
        status = await run.status()
    assert status is not None
    assert status.generation == 1
    assert [what for what, _ in fences if what != "another's"] == [
        *["old"] * 4,
        "replaced",
        "dead",
        "taken over",
        "anew",
    ]
    of_the_key = [fence for what, fence in fences if what != "another's"]
    assert of_the_key == sorted(set(of_the_key))
