"""What goes on beside a loop: in a thread, or as a task where there are none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tenure.loops import Companion, allow_threads, forbid_threads, in_own_thread


@pytest.fixture(params=["thread", "shared", "forbidden"])
def threads(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
async def forbidden(threads: str) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    if threads == "forbidden":
        forbid_threads(loop)
    yield
    allow_threads(loop)


class Guest:
    """Is ready at once, then waits until it is told to end."""

    def __init__(self, how: str, *, fails: str = "") -> None:
        self.fails = fails
        self.errors: list[BaseException | None] = []
        self.ending: asyncio.Event | None = None
        self.ran_in: threading.Thread | None = None
        self.beside = Companion(self.main, name="tenure-guest", ended=self.errors.append, shared=how == "shared")

    async def main(self) -> None:
        self.ran_in = threading.current_thread()
        if self.fails == "early":
            raise ValueError(self.fails)
        self.ending = asyncio.Event()
        self.beside.ready()
        await self.ending.wait()
        if self.fails:
            raise ValueError(self.fails)

    def end(self) -> None:
        assert self.ending is not None
        self.beside.call(self.ending.set)


async def test_it_is_started_once_it_is_ready_and_can_be_told_to_end(threads: str):
    guest = Guest(threads)
    await guest.beside.start()
    assert guest.beside.is_ready
    assert not guest.errors
    guest.end()
    await guest.beside.join()
    assert guest.errors == [None]


async def test_it_has_a_thread_only_where_there_are_threads(threads: str):
    guest = Guest(threads)
    await guest.beside.start()
    assert (guest.ran_in is threading.current_thread()) == (threads != "thread")
    guest.end()
    await guest.beside.join()


@pytest.mark.parametrize("when", ["early", "late"])
async def test_what_ends_it_is_told_and_nobody_waits_for_it_any_more(threads: str, when: str):
    guest = Guest(threads, fails=when)
    await guest.beside.start()
    if when == "late":
        guest.end()
    await guest.beside.join()
    (error,) = guest.errors
    assert isinstance(error, ValueError)


async def test_calls_to_one_that_has_ended_go_nowhere(threads: str):
    guest = Guest(threads)
    await guest.beside.start()
    guest.end()
    await guest.beside.join()
    guest.end()


async def test_what_blocks_has_no_thread_either_where_there_are_none(threads: str):
    seen: list[threading.Thread] = []
    await in_own_thread(lambda: seen.append(threading.current_thread()))
    assert (seen[0] is threading.current_thread()) == (threads == "forbidden")
