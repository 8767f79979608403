"""Scenario 41 (nats-server#5564): nothing is stuck in the work stream for ever."""

from __future__ import annotations

import sys

from msgspec.structs import replace

from tenure import App, Client, Context, Retry
from tests.conftest import Workers
from tests.support import wait_until


async def test_poison_of_every_kind_leaves_only_what_somebody_can_see(app: App, client: Client, workers: Workers):
    """Bodies that crash in every way, junk, a ghost: the depth goes back to what an actor still to come waits for.

    That one message is counted, shown as queued, and runs as soon as somebody knows its actor. Others never wait for it.
    """
    app.config = replace(app.config, ack_wait_seconds=2.0)

    @app.actor(retry=Retry(max_attempts=2, initial=0.02))
    async def crashes(ctx: Context, how: str) -> None:
        if how == "exit":
            sys.exit(3)
        if how == "recursion":
            return await crashes.function(ctx, how)
        if how == "group":
            raise BaseExceptionGroup("several", [ValueError(), KeyError()])
        raise OSError(how)

    stranger = App(app.namespace, config=app.config)

    @stranger.actor(name="to_come", retry=None)
    async def to_come() -> str:
        return "here"

    work = f"{app.names.work_prefix}default.normal."
    async with stranger.connect(workers.url) as other, workers.run(app, concurrency=2) as running:
        waiting = await other.submit(to_come.call(), key="stranger")
        for number, tail in enumerate(["x", "x.y.z", "=zz.01JRUN", "ghost.01JRUN"] * 3):
            await client.stores.conn.put(work + tail, b"junk %d" % number)
        runs = [
            await client.submit(crashes.call(how), key=f"{how} {number}")
            for how in ("exit", "recursion", "group", "error")
            for number in range(3)
        ]
        for run in runs:
            assert (await run.wait(20)).phase == "failed"

        async def only_the_stranger() -> bool:
            info = await client.stores.conn.api(f"STREAM.INFO.{app.names.work_stream}", {})
            return isinstance(info, dict) and info["state"]["messages"] == 1

        await wait_until(only_the_stranger, description="one message is left")
        status = await waiting.status()
        assert status is not None
        assert status.phase == "queued"
        assert (
            running.worker.metrics.claims["", "unknown_actor"]
            or running.worker.metrics.claims["to_come", "unknown_actor"]
        )
        async with Workers(workers.url).run(stranger):
            assert await waiting.result(10) == "here"
