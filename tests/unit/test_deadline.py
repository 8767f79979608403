"""A cancellation that gets lost is made again."""

from __future__ import annotations

import asyncio

import pytest

from tenure.nats.deadline import within


async def test_what_swallows_a_cancellation_ends_in_time_all_the_same() -> None:
    """As a connection to a server that refuses it: nats-py tries for ever, and `wait_for` of Python 3.11 may lose a cancel."""
    lost = 0

    async def tries_for_ever() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(60)  # body:
            except asyncio.CancelledError:
                lost += 1
                if lost == 2:
                    raise

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(within(0.05, tries_for_ever()), 10)
    assert lost == 2

    lost = 0
    task = asyncio.create_task(within(60, tries_for_ever()))
    await asyncio.sleep(0)  # body: it has begun
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    assert lost == 2


async def test_what_ends_in_time_is_told() -> None:
    async def value() -> int:
        return 7

    async def error() -> int:
        raise ValueError

    assert await within(10, value()) == 7
    with pytest.raises(ValueError, match=r"\A\Z"):
        await within(10, error())
