"""One child process of a worker: its socket, its end, and what it takes along."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tenure import App, Client
from tenure.clock import SYSTEM, AlignedClock
from tenure.worker.isolate import Children, Remote
from tenure.worker.pipe import Done, Prepare, Ready, Start
from tenure.worker.process import Child
from tenure.worker.table import Live
from tests.conftest import Workers
from tests.support import FAST, alive, lines, wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def app(tasks: Any) -> App:
    found: App = tasks.app
    return found


def start(args: bytes, clock_offset: float = 0.0) -> Start:
    """Of a body that needs no more than its arguments."""
    common = {"key": "k", "run_id": "r", "session": "s", "deadline": None, "told": None, "trace": ""}
    numbers = dict.fromkeys(("generation", "attempt", "failures", "fence", "traceback_limit", "result_limit"), 1)
    return Start(args=args, clock_offset=clock_offset, **common, **numbers)  # type: ignore[arg-type]  # dicts of plain values


async def test_a_body_in_a_child_goes_by_the_time_of_its_worker(tasks: Any) -> None:
    """Which is the server's. A delay counted from a wrong clock of the machine would be another one for everybody else."""
    child = Child()
    try:
        await child.connect()
        child.send(Prepare("tests.isolated", "puts_off", "puts_off", tasks.app.namespace, logging.WARNING))
        assert await child.receive() == Ready()
        now = SYSTEM.now() - 3600
        child.send(start(tasks.puts_off.call().args, clock_offset=-3600.0))
        done = await child.receive()
        assert isinstance(done, Done)
        assert done.rescheduled is not None
        assert 60 <= done.rescheduled.due - now < 90
    finally:
        await child.end()


async def test_a_child_ends_by_itself_when_its_worker_hangs_up(tasks: Any, tmp_path: Path) -> None:
    """Where no kernel signal tells it: the socket is closed while a body runs, and what the body started ends too."""
    log = tmp_path / "log"
    child = Child()
    try:
        await child.connect()
        child.send(Prepare("tests.isolated", "breeds", "breeds", tasks.app.namespace, logging.WARNING))
        assert await child.receive() == Ready()
        args = tasks.breeds.call(str(log)).args
        child.send(start(args))
        pids = [int(word) for word in (await lines(log, 1))[0].split()[1:]]
        assert child._writer is not None
        child._writer.close()
        await wait_until(lambda: not any(map(alive, pids)), description="all have ended", timeout=3)
        await child.exited.wait()
    finally:
        await child.end()


async def test_children_work_where_nobody_can_wait_for_a_process_without_reaping_it(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no ``os.waitid`` on macOS before Python 3.13. A child lives until it is ended, and what it started ends with it."""
    monkeypatch.delattr(os, "waitid", raising=False)
    log = tmp_path / "log"
    async with workers.run(tasks.app):
        assert (await (await client.submit(tasks.double.call(21))).result(10))[0] == 42
        run = await client.submit(tasks.breeds.call(str(log)), key="k")
        pids = [int(word) for word in (await lines(log, 1))[0].split()[1:]]
        os.kill(pids[0], signal.SIGKILL)
        assert (await run.wait(5)).phase == "failed"
        await wait_until(lambda: not any(map(alive, pids)), description="both have ended", timeout=3)


async def test_a_socket_is_not_closed_under_the_one_who_connects_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child ends while its socket is being attached: closed then, its number may be another file's already."""
    child = Child()
    attach = asyncio.open_unix_connection

    async def late(*, sock: socket.socket) -> Any:
        child.kill()
        await child.exited.wait()
        assert sock.fileno() != -1
        return await attach(sock=sock)

    monkeypatch.setattr(asyncio, "open_unix_connection", late)
    try:
        await child.connect()
        assert await child.receive() is None
    finally:
        await child.end()


async def test_a_run_that_is_given_up_while_its_child_is_told_not_to_start_goes_no_further(
    tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker drains, its child is being told to leave it, and the run is abandoned: it must not be claimed."""
    starting, leaving, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def lingering(_remote: Remote, _child: Child) -> None:
        starting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            leaving.set()
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
            raise

    monkeypatch.setattr(Remote, "_prepare", lingering)
    children = Children(FAST, AlignedClock(SYSTEM))
    remote = Remote(children, Live("k", "r", ""), tasks.double, tasks.double.home)
    try:
        making = asyncio.create_task(remote.make_ready())
        await starting.wait()
        remote.told("drain")
        await leaving.wait()
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(making), 5)
    finally:
        gate.set()
        await children.close()
