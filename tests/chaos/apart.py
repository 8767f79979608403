"""Actors whose bodies run in child processes, beside the others of the app: what chaos' workers run.

A module of its own, for a simulation has no child processes. Whoever kills a child asks nobody, so bodies beat.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tenure import Context, Retry
from tests.chaos.bodies import GRACE, QUICK, app, by_chance, line, nap, tag, told

if TYPE_CHECKING:
    from tests.chaos.producer import Choice

__all__ = ["app"]
_WORKER = os.getppid()
"""In a child, whose module this is imported anew in: its worker."""
_BEAT_SECONDS = 0.05


@app.actor(retry=QUICK, grace=GRACE, isolation="process")
async def apart(ctx: Context, seconds: float) -> str:
    """Asks for a child run, but for every second attempt."""
    with told(ctx, "apart", _WORKER) as asked:
        if by_chance(ctx, 2):
            key = f"child-{ctx.run_id}-{ctx.attempt}-apart"
            ctx.spawn(nap.call(0.05), key=key)
            asked.spawned.append(key)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(_BEAT_SECONDS)  # body:
            line(ctx, "apart", "beat", worker=_WORKER)
        return tag(ctx)


@app.actor(retry=Retry(max_attempts=4, initial=0.1, maximum=0.2), timeout=0.5, grace=0.3, isolation="process")
def mule(ctx: Context) -> str:
    """Its first two attempts hear nothing, and go on for seconds: they have to be killed."""
    with told(ctx, "mule", _WORKER):
        until = time.monotonic() + (5.0 if ctx.attempt < 3 else 0.1)
        while time.monotonic() < until:
            time.sleep(_BEAT_SECONDS)  # body:
            line(ctx, "mule", "beat", worker=_WORKER)
        return tag(ctx)


@app.actor(retry=QUICK, grace=GRACE, isolation="process")
def crash(ctx: Context, seconds: float) -> str:
    """Every second attempt takes its process along."""
    with told(ctx, "crash", _WORKER):
        time.sleep(seconds)  # body:
        if by_chance(ctx, 2):
            os.kill(os.getpid(), signal.SIGKILL)
        return tag(ctx)


def calls(chance: Random) -> list[Choice]:
    """What a producer may ask for beside its own."""
    return [
        (6, partial(apart.call, round(0.2 + 1.8 * chance.random() ** 2, 3))),
        (2, mule.call),
        (2, partial(crash.call, 0.05)),
    ]
