"""Waiting: for events, for a state, for a service that is to end. Every wait has its bound or its owner."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


async def finish(service: asyncio.Task[None]) -> None:
    """Wait for the drain, also if we are cancelled again meanwhile: the third time is the caller's own doing."""
    for _ in range(2):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(service)
            return
    service.cancel()


async def first_of(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Wait until one of ``events`` is set, ``timeout`` seconds at most."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def until(done: Callable[[], bool], changed: asyncio.Event, seconds: float) -> None:
    """Wait until ``done`` says yes, ``seconds`` at most; it is asked again whenever ``changed`` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not done():
                changed.clear()
                await changed.wait()
