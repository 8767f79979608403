"""An app for worker processes that are shut down; its namespace, log, drain and ttl come from the environment."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from msgspec.structs import replace

from tenure import App, Context, Retry, Stopped
from tests.support import FAST

app = App(
    os.environ.get("TENURE_TEST_NAMESPACE", "unset"),
    config=replace(
        FAST,
        session_ttl_seconds=float(os.environ.get("TENURE_TEST_TTL", "0.6")),
        request_timeout_seconds=0.6,
        drain_seconds=float(os.environ.get("TENURE_TEST_DRAIN", "10")),
    ),
)


WORKER = os.getppid() if sys.argv[:1] == ["-c"] else os.getpid()
"""The worker's process id, in the worker and in its children."""


def note(*words: object) -> None:
    """A line in the log of all worker processes of a test: written at once, never torn."""
    log = os.open(os.environ["TENURE_TEST_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, (" ".join(map(str, (os.getpid(), *words))) + "\n").encode())
    os.close(log)


async def asleep(ctx: Context, seconds: float) -> int:
    note("start", ctx.key, ctx.attempt, WORKER)
    try:
        await asyncio.sleep(seconds)  # body:
    except asyncio.CancelledError:
        note("stopped", ctx.key, ctx.stop_reason)
        raise
    note("end", ctx.key, ctx.attempt)
    return ctx.attempt


@app.actor(retry=Retry(max_attempts=1))
async def work(ctx: Context, seconds: float) -> int:
    return await asleep(ctx, seconds)


@app.actor(retry=Retry(max_attempts=1))
def plain(ctx: Context, seconds: float) -> int:
    note("start", ctx.key, ctx.attempt, WORKER)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            time.sleep(0.01)  # body:
            ctx.check()
    except Stopped as stopped:
        note("stopped", ctx.key, stopped.reason)
        raise
    note("end", ctx.key, ctx.attempt)
    return ctx.attempt


@app.actor(isolation="process", retry=Retry(max_attempts=1))
async def isolated(ctx: Context, seconds: float) -> int:
    return await asleep(ctx, seconds)
