"""The loop in which bodies run is not ended by what a body's own task exits with."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

import pytest
import uvloop

from tenure import loops

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_factory", LOOPS[request.param])


async def leave(code: int) -> None:
    await asyncio.sleep(0)  # body:
    sys.exit(code)


@pytest.mark.usefixtures("loop")
def test_what_exits_in_a_task_or_a_callback_is_told_and_everything_else_goes_on() -> None:
    told: list[object] = []
    ran: list[str] = []

    async def other() -> None:
        for _ in range(20):
            await asyncio.sleep(0)  # body:
        ran.append("other")

    async def main() -> str:
        beside = asyncio.create_task(other())
        with pytest.raises(SystemExit) as caught:
            await asyncio.create_task(leave(3))
        ran.append(f"caught {caught.value.code}")
        alone = asyncio.create_task(leave(4))
        await asyncio.wait([alone])
        asyncio.get_running_loop().call_soon(sys.exit, 5)
        await asyncio.wait([beside])
        assert isinstance(alone.exception(), SystemExit)
        return "done"

    assert loops.serve_loop(main(), lambda error: told.append(error.code)) == "done"
    assert sorted(ran) == ["caught 3", "other"]
    assert told == [3, 4, 5]


@pytest.mark.usefixtures("loop")
def test_what_its_own_coroutine_ends_with_ends_it() -> None:
    told: list[object] = []
    with pytest.raises(SystemExit, match="7"):
        loops.serve_loop(leave(7), told.append)
    with pytest.raises(ValueError, match="no use"):
        loops.serve_loop(failing(), told.append)
    assert told == []


async def failing() -> None:
    raise ValueError("no use")


@pytest.mark.usefixtures("loop")
def test_ctrl_c_ends_it_in_order() -> None:
    ended: list[str] = []

    async def main() -> None:
        try:
            asyncio.get_running_loop().call_later(0.01, signal.raise_signal, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # body:
            ended.append("in order")

    with pytest.raises(KeyboardInterrupt):
        loops.serve_loop(main(), print)
    assert ended == ["in order"]
