"""Several at once: in order, so many, and with nobody left behind when one fails or whoever asked goes away."""

from __future__ import annotations

import asyncio

import pytest

from tenure.together import all_of, each


async def test_the_results_are_in_the_order_of_the_items_and_so_many_are_under_way() -> None:
    now, most = 0, 0

    async def work(number: int) -> int:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        for _ in range(20 - number):  # the first ends last
            await asyncio.sleep(0)  # work: of some turns
        now -= 1
        return number * number

    assert await each(range(20), work, 7) == [number * number for number in range(20)]
    assert most == 7
    assert await each((), work, 7) == []


async def test_a_failure_ends_the_others_before_it_is_raised() -> None:
    """``gather`` raises it and leaves them running with no owner."""
    begun: list[int] = []
    ended: list[int] = []

    async def work(number: int) -> None:
        begun.append(number)
        try:
            if number == 2:
                raise ValueError("the third")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # work: tidying up
            ended.append(number)

    with pytest.raises(ValueError, match="the third"):
        async with asyncio.timeout(5):
            await each(range(10), work, 4)
    assert begun == [0, 1, 2, 3], "what had not begun does not begin"
    assert sorted(ended) == begun, "and nobody is left"


async def test_whoever_goes_away_leaves_nobody_behind() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # work: tidying up
            ended.append(number)

    asking = asyncio.create_task(each(range(9), work, 3))
    for _ in range(3):
        await asyncio.sleep(0)  # work: until they are under way
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert sorted(ended) == [0, 1, 2]


async def test_what_must_not_be_broken_off_ends_before_another_failure_of_it_is_raised() -> None:
    did: list[str] = []

    async def fails() -> None:
        raise ValueError("at once")

    async def writes() -> str:
        for _ in range(5):
            await asyncio.sleep(0)  # work: on its way
        did.append("written")
        return "written"

    with pytest.raises(ValueError, match="at once"):
        await all_of(fails(), writes())
    assert did == ["written"]
    assert await all_of(writes(), writes()) == ["written", "written"]
