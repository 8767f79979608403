"""Virtual time: it passes at once, in order, and never goes back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tenure.core.errors import ConfigError
from tenure.testing.virtual import Stuck, VirtualTime

DAY = 86_400.0


@pytest.fixture(autouse=True)
def takes_no_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 5


async def test_a_day_passes_at_once_and_to_the_second():
    with VirtualTime(start=1_000.0) as virtual:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(DAY)  # work:
        assert loop.time() - began == pytest.approx(DAY)
        assert virtual.clock.now() == pytest.approx(1_000.0 + DAY)


async def test_timers_fire_in_the_order_of_their_times():
    seen: list[float] = []

    async def note(seconds: float) -> None:
        await asyncio.sleep(seconds)  # work:
        seen.append(seconds)

    with VirtualTime():
        await asyncio.gather(*map(note, (3.0, 0.5, DAY, 2.0, 1.0)))
    assert seen == sorted(seen)


async def test_a_timeout_passes_as_well():
    with VirtualTime(), pytest.raises(TimeoutError):
        async with asyncio.timeout(DAY):
            await asyncio.Event().wait()


async def test_time_does_not_go_back_when_it_is_real_again():
    loop = asyncio.get_running_loop()
    for _ in range(2):
        with VirtualTime():
            await asyncio.sleep(DAY)  # work:
            there = loop.time()
        assert loop.time() >= there
    began = loop.time()
    await asyncio.sleep(0.01)  # work:
    assert 0.009 < loop.time() - began < 1.0


@pytest.mark.parametrize("uptime", [0.0, 2e7, 1e9, 1e11])
async def test_time_passes_however_much_has_passed_before(uptime: float):
    """From 2^24 s on, a nanosecond is lost when it is added to the loop's time: what is due now would never be called."""
    loop: Any = asyncio.get_running_loop()
    before, real = loop._clock_resolution, loop.time
    loop.time = lambda: real() + uptime
    with VirtualTime() as virtual:
        began = virtual.clock.now()
        for _ in range(10):
            await asyncio.sleep(3_000 * DAY)  # work:
            await asyncio.sleep(0.001)  # work:
        assert virtual.clock.now() - began == pytest.approx(30_000 * DAY + 0.01, abs=0.001)
    assert loop._clock_resolution == before


async def test_who_waits_for_a_moment_by_the_steady_clock_comes_to_it():
    """0.55 + 0.3 is more than 0.85: what is left then is less than the loop's time can tell, and would be for ever.

    Two hundred times in no time: nor do they turn round for it.
    """
    with VirtualTime() as virtual:
        for _ in range(200):
            await asyncio.sleep(0.05)  # work:
            until = virtual.clock.steady() + 0.3
            while (left := until - virtual.clock.steady()) > 0:  # noqa: ASYNC110  (this is what must end)
                await asyncio.sleep(left)  # work:
        assert virtual.clock.steady() == pytest.approx(200 * 0.35, abs=1e-3)


async def test_who_turns_round_until_a_moment_is_there_sees_it_come():
    with VirtualTime() as virtual:
        until = virtual.clock.steady() + 1e-6
        while virtual.clock.steady() < until:  # noqa: ASYNC110  (this is what must end)
            await asyncio.sleep(0)  # work:


async def test_what_asks_for_a_thread_is_called_in_the_loop_and_takes_no_time():
    with VirtualTime():
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await asyncio.to_thread(threading.current_thread) is threading.current_thread()
        assert loop.time() == began


async def test_what_is_raised_where_a_thread_was_asked_for_comes_to_who_asked():
    with VirtualTime():
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.to_thread(next, iter(()))


async def test_who_waits_for_what_never_comes_is_told_so_with_what_is_waiting():
    with pytest.raises(Stuck, match=r"(?s)ever happen any more.*test_who_waits"), VirtualTime():
        await asyncio.Event().wait()
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()


async def test_it_is_one_at_a_time():
    with VirtualTime(), pytest.raises(ConfigError, match="virtual already"), VirtualTime():
        pass


def test_a_loop_that_is_not_asyncios_own_is_refused():
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        with VirtualTime():
            pass

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(ConfigError, match="uvloop"):
        runner.run(main())


async def test_ids_and_chance_depend_on_the_seed_alone():
    def drawn(seed: int) -> list[object]:
        with VirtualTime(start=5_000.0, seed=seed) as virtual:
            return [virtual.clock.new_id(), virtual.clock.random(), virtual.clock.new_id()]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
