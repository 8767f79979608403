"""Several things at once, none of which outlives whoever asked for them.

``asyncio.gather`` leaves the others running, with no owner, when one fails. A TaskGroup does not, but must not be within another
before Python 3.13 (the inner one can swallow the outer's cancellation), and whoever calls a client may well be in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar, cast

A = TypeVar("A")
B = TypeVar("B")


async def each(items: Collection[A], work: Callable[[A], Awaitable[B]], at_once: int) -> list[B]:
    """What comes of ``work`` on each, in their order, so many at once. The first failure ends the others; then it is raised."""
    results: dict[int, B] = {}
    todo = iter(enumerate(items))

    async def lane() -> None:
        for number, item in todo:
            results[number] = await work(item)

    lanes = [asyncio.create_task(lane()) for _ in range(min(at_once, len(items)))]
    try:
        await asyncio.gather(*lanes)
    finally:
        for task in lanes:
            task.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
    return [results[number] for number in range(len(items))]


async def all_of(*work: Awaitable[Any]) -> list[Any]:
    """Wait for the end of all, whatever becomes of some, then raise the first error. For what must not be broken off."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[Any]", results)
