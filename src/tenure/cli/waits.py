"""Who waits at a terminal for a run is told if nobody is there to run it, or if it is held back: else it would look like a hang."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.cli.output import brief
from tenure.cli.problems import complain
from tenure.client import Client
from tenure.core.errors import TenureError
from tenure.holds import Hold
from tenure.overview import session_rows

_AFTER_SECONDS = 3.0
_LOOK_SECONDS = 1.0


def in_words(hold: Hold) -> str:
    """What holds a run back, how, until when and why: ``actor extract, paused until 10:36:47 (a repair)``."""
    if hold.kind in {"limit", "rate"}:
        return str(hold)
    did = "paused" if hold.pattern is None and hold.args is None else "blocked"
    until = f" until {brief(hold.until)}" if hold.until is not None else ""
    return f"{hold}, {did}{until}" + (f" ({hold.reason})" if hold.reason else "")


@asynccontextmanager
async def told_if_it_waits(client: Client, key: str) -> AsyncIterator[None]:
    """Once, after three seconds within."""

    async def tell() -> None:
        await asyncio.sleep(_AFTER_SECONDS)
        why = await why_it_waits(client, key)
        if why:
            complain(why)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def why_it_waits(client: Client, key: str) -> str:
    """Why a run does not start; empty if there is no reason, or none that can be seen within a second."""
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            status = await client.status(key)
            if status is not None and status.phase == "scheduled":
                return f"{key!r} is scheduled: it is due at {brief(status.due)}"
            if status is None or status.phase != "queued":
                return ""
            hold = await client.held_by(key)
            if hold is not None:
                return f"{key!r} is queued: it waits for {in_words(hold)}"
            rows = await session_rows(client.stores, every=False, count=False)
    except (TenureError, TimeoutError):  # these credentials may not ask, say: waiting goes on all the same
        return ""
    if any(row.kind == "worker" and row.state == "alive" and status.queue in row.queues for row in rows):
        return ""
    return (
        f"{key!r} is queued, and no worker of {client.app.namespace!r} takes queue {status.queue!r}:"
        " `tenure worker MODULE:APP` starts one"
    )
