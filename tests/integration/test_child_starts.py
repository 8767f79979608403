"""How child processes start: few at once, each with its whole time; a start that fails costs no attempt, but has an end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from tenure import App, Client, Run
from tenure.clock import SYSTEM, AlignedClock
from tenure.worker import isolate
from tests.conftest import Workers
from tests.support import FAST, alive, lines, wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def app(tasks: Any) -> App:
    found: App = tasks.app
    return found


async def outcomes(runs: Sequence[object]) -> set[tuple[str, int, int]]:
    statuses = [await run.wait(20) for run in runs if isinstance(run, Run)]
    return {(status.phase, status.attempt, status.failures) for status in statuses}


async def test_no_more_children_start_at_once_than_the_cores_can_bear(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight cold runs, room for all, and two may start: six wait, unclaimed, and start when the two are there."""
    monkeypatch.setattr(isolate, "_STARTS_AT_ONCE", 2)
    monkeypatch.setenv("TENURE_TEST_IMPORT_GATE", str(tmp_path))
    async with workers.run(tasks.app, concurrency=8) as running:
        runs = await client.submit_many([(tasks.double.call(n), f"k{n}") for n in range(8)])
        await wait_until(lambda: len(running.worker.table) == 8, description="all are in hand")
        await lines(tmp_path / "importing", 2)
        assert running.worker._handler is not None
        assert len(running.worker._handler._children._all) == 2
        (tmp_path / "open").touch()
        assert await outcomes(runs) == {("succeeded", 1, 0)}


async def test_the_time_for_a_start_counts_from_when_it_starts(client: Client, workers: Workers, tasks: Any) -> None:
    """Others start for longer than a start may take; the run that waited for them has its whole time all the same."""
    tasks.app.config = replace(FAST, child_start_seconds=4.0)
    async with workers.run(tasks.app) as running:
        assert running.worker._handler is not None
        children = running.worker._handler._children
        children._starting[tasks.double.home] = isolate._STARTS_AT_ONCE
        run = await client.submit(tasks.double.call(1))
        await wait_until(lambda: len(running.worker.table) == 1, description="the run is in hand")
        over = client.now() + 4.5
        await wait_until(lambda: client.now() > over, description="that time is over")
        assert not children._all
        for _ in range(isolate._STARTS_AT_ONCE):
            children.started(tasks.double.home)
        assert await outcomes([run]) == {("succeeded", 1, 0)}


async def test_runs_that_wait_for_a_child_take_one_that_is_given_back(
    client: Client, workers: Workers, tasks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One child is warm and busy, the only start hangs in its import: five more runs are done by the warm one meanwhile."""
    monkeypatch.setattr(isolate, "_STARTS_AT_ONCE", 1)
    call = tasks.waits.call(str(tmp_path / "busy"))
    async with workers.run(tasks.app, concurrency=7) as running:
        first = await client.submit(call)
        await lines(tmp_path / "busy", 1)
        monkeypatch.setenv("TENURE_TEST_IMPORT_GATE", str(tmp_path))
        stuck = await client.submit(call)
        await lines(tmp_path / "importing", 1)
        runs = await client.submit_many([(call, f"k{n}") for n in range(5)])
        await wait_until(lambda: len(running.worker.table) == 7, description="all are in hand")
        (tmp_path / "busy.open").touch()
        await first.result(5)
        assert await outcomes(runs) == {("succeeded", 1, 0)}
        (tmp_path / "open").touch()
        await stuck.result(5)


async def test_an_actor_whose_starts_all_hang_leaves_a_turn_to_the_others(tasks: Any) -> None:
    children = isolate.Children(FAST, AlignedClock(SYSTEM))
    try:
        for _ in range(isolate._STARTS_AT_ONCE):
            await children.take(tasks.waits.home)
        waiting = asyncio.create_task(children.take(tasks.waits.home))
        await asyncio.wait_for(children.take(tasks.double.home), 5)
        assert not waiting.done()
        waiting.cancel()
    finally:
        await children.close()


@pytest.mark.parametrize("how", ["hangs", "exits"])
async def test_a_start_that_fails_costs_no_attempt_and_is_made_again(
    client: Client,
    workers: Workers,
    tasks: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    """The first child never gets through its import, as on a machine that is too busy or short of memory; the next does."""
    monkeypatch.setenv("TENURE_TEST_FIRST_IMPORT", f"{tmp_path / 'first'} {how}")
    tasks.app.config = replace(FAST, child_start_seconds=8.0)
    async with workers.run(tasks.app):
        run = await client.submit(tasks.punctual.call())
        assert await run.result(20) == "in time"
        assert await outcomes([run]) == {("succeeded", 1, 0)}
    assert "child.not_ready" in caplog.text


async def test_a_drain_does_not_wait_for_runs_that_wait_for_their_start(
    client: Client,
    workers: Workers,
    tasks: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One child was too slow and is to be started again later, one imports, one run waits for its turn: all go back."""
    monkeypatch.setattr(isolate, "_STARTS_AT_ONCE", 1)
    monkeypatch.setattr(isolate, "_PAUSES", (60.0,))
    monkeypatch.setenv("TENURE_TEST_IMPORT_GATE", str(tmp_path))
    tasks.app.config = replace(FAST, child_start_seconds=2.0)
    async with workers.run(tasks.app, concurrency=3) as running:
        runs = await client.submit_many([(tasks.double.call(n), f"k{n}") for n in range(3)])
        await wait_until(lambda: "child.not_ready" in caplog.text, description="the first was too slow")
        async with asyncio.timeout(3):
            await running.stop()
    for run in runs:
        assert isinstance(run, Run)
        status = await run.status()
        assert status is not None
        assert (status.phase, status.attempt) == ("queued", 0)


PARENT = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])

async def main():
    from tenure.worker.process import Child
    sys.path.insert(0, sys.argv[2])
    print(Child().pid, flush=True)
    await asyncio.sleep(60)  # body: lives until it is killed

asyncio.run(main())
"""
STUCK_PACKAGE = """
import pathlib, time
pathlib.Path(__file__).with_name("imported").touch()
time.sleep(60)  # body: an import that never ends
"""


@pytest.mark.skipif(
    sys.platform != "linux",
    reason="only Linux tells a child that its parent died; elsewhere it ends once it has imported Tenure",
)
def test_a_child_that_has_not_even_imported_tenure_ends_with_its_worker(tmp_path: Path) -> None:
    """Kill -9 of the worker while a child is stuck in the very first import."""
    stuck = tmp_path / "tenure"
    stuck.mkdir()
    (stuck / "__init__.py").write_text(STUCK_PACKAGE)
    source = str(Path(isolate.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, source, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            asyncio.run(wait_until((stuck / "imported").exists, description="it imports"))
            parent.kill()
            asyncio.run(wait_until(lambda: not alive(child), description="it has ended", timeout=2))
        finally:
            parent.kill()
            if psutil.pid_exists(child):
                os.kill(child, signal.SIGKILL)
