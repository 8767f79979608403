"""The loop of the simulation: what a kill and a freeze are, and whose time it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.sim.loop import Process, SimLoop, Stalled, process_here

Main = Callable[[], Awaitable[None]]


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    loop.set_exception_handler(lambda _loop, _context: None)  # tasks of the dead end with the loop, unheard
    yield loop
    for task in set().union(*loop._graves, asyncio.all_tasks(loop)):
        task.get_coro().close()
    loop.close()


def process(loop: SimLoop, name: str = "one", pid: int = 1) -> Process:
    return Process(loop, name, pid)


def test_who_is_killed_is_never_called_again_not_even_for_a_finally(loop: SimLoop):
    seen: list[str] = []

    async def main() -> None:
        try:
            seen.append("begun")
            await asyncio.sleep(2)  # work:
            seen.append("slept")
        finally:
            seen.append("cleaned up")

    async def world() -> None:
        one = process(loop)
        one.start(main())
        await asyncio.sleep(1)  # work:
        one.kill()
        await asyncio.sleep(5)  # work:
        assert seen == ["begun"]

    loop.run_until_complete(world())


@pytest.mark.parametrize("steps", range(1, 6))
def test_a_fuse_kills_between_any_two_steps(loop: SimLoop, steps: int):
    seen: list[int] = []

    async def main() -> None:
        for number in range(10):
            seen.append(number)
            await asyncio.sleep(0)  # work:

    async def world() -> None:
        one = process(loop)
        one.fuses.light(steps, one.kill)
        one.start(main())
        await asyncio.sleep(1)  # work:
        assert not one.alive

    loop.run_until_complete(world())
    assert seen == list(range(steps - 1))


def test_what_a_process_starts_is_its_own_and_dies_with_it(loop: SimLoop):
    seen: list[str] = []

    async def child() -> None:
        assert process_here() is not None
        seen.append(process_here().name)  # type: ignore[union-attr]  # as the line before says
        await asyncio.sleep(2)  # work:
        seen.append("survived")

    async def main() -> None:
        asyncio.create_task(child())  # noqa: RUF006  (the loop has it until it is killed)
        await asyncio.sleep(9)  # work:

    async def world() -> None:
        one = process(loop, "parent")
        one.start(main())
        await asyncio.sleep(1)  # work:
        one.kill()
        await asyncio.sleep(3)  # work:

    loop.run_until_complete(world())
    assert seen == ["parent"]


def test_who_is_frozen_does_all_of_it_later_and_in_order(loop: SimLoop):
    seen: list[tuple[float, str]] = []

    async def main() -> None:
        for name in ("a", "b"):
            await asyncio.sleep(1)  # work:
            seen.append((loop.time(), name))

    async def world() -> None:
        one = process(loop)
        one.start(main())
        await asyncio.sleep(0.5)  # work:
        one.freeze()
        await asyncio.sleep(9.5)  # work:
        one.thaw()
        await asyncio.sleep(5)  # work:

    loop.run_until_complete(world())
    assert seen == [(10.0, "a"), (11.0, "b")]


def test_who_blocks_holds_up_its_own_process_alone(loop: SimLoop):
    seen: list[tuple[float, str]] = []

    async def blocks() -> None:
        here = process_here()
        assert here is not None
        here.block(3.0)
        seen.append((loop.time(), "blocked"))

    async def ticks(name: str) -> None:
        await asyncio.sleep(1)  # work:
        seen.append((loop.time(), name))

    async def world() -> None:
        one, two = process(loop), process(loop, "two", 2)
        one.start(blocks())
        one.start(ticks("beside it"))
        two.start(ticks("elsewhere"))
        await asyncio.sleep(5)  # work:

    loop.run_until_complete(world())
    assert seen == [(3.0, "blocked"), (1.0, "elsewhere"), (4.0, "beside it")]


def test_a_world_in_which_nothing_can_happen_any_more_is_told(loop: SimLoop):
    with pytest.raises(Stalled, match="ever happen"):
        loop.run_until_complete(asyncio.Event().wait())


def test_tasks_stand_in_sets_in_the_order_of_their_making(loop: SimLoop):
    async def nothing() -> None: ...

    async def world() -> list[str]:
        tasks = {asyncio.create_task(nothing(), name=str(number)) for number in range(8)}
        names = [task.get_name() for task in tasks]
        await asyncio.wait(tasks)
        return names

    names = loop.run_until_complete(world())
    assert sorted(names) == [str(number) for number in range(8)]
    assert names[names.index("0") :] + names[: names.index("0")] == sorted(names)
