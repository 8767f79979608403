"""A time limit, and an end, for what may lose a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_AGAIN_SECONDS = 0.2


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns or raises; TimeoutError if it has not ended in time, however often it must be cancelled for that.

    Before Python 3.12 ``asyncio.wait_for`` returns what arrives at the very moment of a cancellation, and the cancellation is
    gone. nats-py waits like that in a loop that tries for ever: once cancelled, it might never end.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await end(task)
        raise
    if not task.done():
        await end(task)
        raise TimeoutError
    return task.result()


async def end(task: asyncio.Future[Any]) -> None:
    """Cancel ``task`` until it has ended; what it ends with is nobody's business."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_SECONDS)
    if not task.cancelled():
        task.exception()
