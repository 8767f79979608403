"""Scenarios 22 and 24, on worker processes: warm shutdowns lose and repeat nothing; a drain keeps its lease and obeys."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenure import App, Client, Run
from tenure.cli.problems import Exit
from tenure.nats.embedded import EmbeddedServer
from tests.conftest import Supervisors
from tests.forks import Command
from tests.support import sized, wait_until

KINDS = pytest.mark.parametrize("actor", ["work", "plain", "isolated"])


class Processes:
    """Starts `tenure worker` processes and reads what their bodies noted; none outlives its test."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self._log = url, log
        self.started: list[subprocess.Popen[str]] = []

    def start(self, drain: float = 10.0, concurrency: int = 20) -> subprocess.Popen[str]:
        with self._log.with_suffix(".stderr").open("ab") as errors:
            command = [sys.executable, "-m", "tenure.cli", "worker", "tests.shutdown:app", "--url", self.url]
            popen = Command(
                [*command, "--concurrency", str(concurrency)],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TENURE_TEST_DRAIN": str(drain)},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                text=True,
            )
        self.started.append(popen)
        return popen

    def notes(self, word: str) -> list[list[str]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line.split() for line in lines if line.split()[1] == word]

    def errors(self) -> str:
        return self._log.with_suffix(".stderr").read_text()

    async def ended(self, popen: subprocess.Popen[str]) -> int:
        await wait_until(lambda: popen.poll() is not None, description="the worker has ended", timeout=20)
        return popen.returncode


@pytest.fixture
def tasks(namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TENURE_TEST_NAMESPACE", namespace)
    monkeypatch.setenv("TENURE_TEST_LOG", str(tmp_path / "log"))
    sys.modules.pop("tests.shutdown", None)
    yield importlib.import_module("tests.shutdown")
    sys.modules.pop("tests.shutdown", None)


@pytest.fixture
def app(tasks: Any) -> App:
    found: App = tasks.app
    return found


@pytest.fixture
def processes(nats_server: str, tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(nats_server, tmp_path / "log")
    yield processes
    for popen in processes.started:
        popen.kill()
        popen.wait()


class Shutdowns:
    """Workers of which one that is at work gets SIGTERM, at a random moment; another takes its place."""

    def __init__(self, processes: Processes, rng: random.Random) -> None:
        self._processes, self._rng = processes, rng
        self.signalled: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        self._processes.start(drain=0.1, concurrency=5)

    def _at_work(self) -> list[subprocess.Popen[str]]:
        busy = {note[-1] for note in self._processes.notes("start")}
        return [p for p in self._processes.started if str(p.pid) in busy and p not in self.signalled]

    async def one(self, server: EmbeddedServer | None = None) -> None:
        """``server``: is killed just before the signal, and comes back after it."""
        victims: list[subprocess.Popen[str]] = await wait_until(self._at_work, description="a worker works", timeout=20)
        await asyncio.sleep(self._rng.uniform(0.0, 0.2))  # paused: a random moment
        self.signalled.append(self._rng.choice(victims))
        if server is not None:
            for popen in self.signalled[:-1]:
                await self._processes.ended(popen)
            await asyncio.to_thread(server.kill)
        self.signalled[-1].send_signal(signal.SIGTERM)
        if server is not None:
            await asyncio.sleep(0.5)  # paused: it drains meanwhile
            await asyncio.to_thread(server.start)


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.mark.timeout(180)
@pytest.mark.one_server("its own server is restarted with its store")
async def test_scenario_22_warm_shutdowns_under_load_lose_and_repeat_nothing(
    app: App, server: EmbeddedServer, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """celery#3802, #4354. Three workers; one at random gets SIGTERM at a random moment, again and again, and is replaced.

    A supervisor repairs what it thinks is broken. Half-way the server is killed; a worker is told to stop while it is away,
    and it comes back well within the ttl. Bodies of three kinds take 0 to 0.4 s, the drain allows 0.1 s: some end in it,
    some are handed back. Each key has one outcome, one body has ended for it (an allowance of one attempt, and nothing
    counted), and every worker ended with 0; the one told without a server may say that it could not reach it.
    """
    tasks, signals = sized(350, 1_000), sized(6, 20)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    kinds = [rng.choices(["work", "plain", "isolated"], [12, 6, 2])[0] for _ in range(tasks)]
    calls = [(app.actors[kind].call(rng.uniform(0.0, 0.4)), f"k{number}") for number, kind in enumerate(kinds)]
    processes.url = server.url
    monkeypatch.setenv("TENURE_TEST_TTL", "10")
    shutdowns = Shutdowns(processes, rng)
    for _ in range(3):
        shutdowns.start()
    async with app.connect(server.url) as client, Supervisors(server.url).run(app):
        runs = [run for run in await client.submit_many(calls) if isinstance(run, Run)]
        assert len(runs) == tasks
        waiting = asyncio.gather(*(run.wait() for run in runs))
        for number in range(signals):
            await shutdowns.one(server if number == signals // 2 else None)
            shutdowns.start()
        under_way = not waiting.done()
        async with asyncio.timeout(50):  # from here on: how long the shutdowns took is how long processes take to start
            final = await waiting
    codes = [await processes.ended(popen) for popen in shutdowns.signalled]
    assert codes.pop(signals // 2) in {Exit.OK, Exit.UNAVAILABLE}, f"seed {seed}"
    assert codes == [Exit.OK] * (signals - 1), f"seed {seed}"
    assert Counter(status.phase for status in final) == {"succeeded": tasks}, f"seed {seed}"
    assert {status.failures for status in final} == {0}, f"seed {seed}"
    started, ended = (Counter(note[2] for note in processes.notes(word)) for word in ("start", "end"))
    assert (len(ended), ended.total()) == (tasks, tasks), f"seed {seed}: {ended.most_common(3)}"
    assert started.total() > tasks, f"seed {seed}: no body was handed back"
    assert under_way, f"seed {seed}: the work was over before the signals were"


@KINDS
async def test_scenario_22_a_sigterm_just_before_a_body_ends_gives_one_run(
    app: App, client: Client, processes: Processes, actor: str
) -> None:
    """The signal comes while ten bodies are about to end; another worker stands by. Each ended once."""
    first = processes.start()
    runs = [await client.submit(app.actors[actor].call(1.0 + number / 100), key=f"k{number}") for number in range(10)]
    await wait_until(lambda: len(processes.notes("start")) == 10, description="all run")
    processes.start()
    await wait_until(lambda: processes.notes("end"), description="the first has ended")
    first.send_signal(signal.SIGTERM)
    for run in runs:
        assert await run.result(10) == 1
    assert await processes.ended(first) == 0
    assert len(processes.notes("start")) == len(processes.notes("end")) == 10


@KINDS
async def test_scenario_24_a_cancel_is_obeyed_and_the_lease_is_kept_while_draining(
    app: App, client: Client, processes: Processes, actor: str
) -> None:
    """Docket 0.27. SIGTERM, then cancel one of two draining runs: it stops at once, under the reason `cancel`.

    The other runs on for five times the ttl while a second worker is woken for it: never taken over, its value stored.
    """
    draining = processes.start()
    cancelled = await client.submit(app.actors[actor].call(30.0), key="cancelled")
    long = await client.submit(app.actors[actor].call(3.0), key="long")
    await wait_until(lambda: len(processes.notes("start")) == 2, description="both run")
    draining.send_signal(signal.SIGTERM)
    await wait_until(lambda: "drain.started" in processes.errors(), description="it drains")
    processes.start()
    assert (await cancelled.cancel()).outcome == "stopping"
    await wait_until(lambda: processes.notes("stopped"), description="the body is told", timeout=2)
    assert processes.notes("stopped")[0][2:] == ["cancelled", "cancel"]
    assert (await cancelled.wait(5)).phase == "cancelled"
    assert draining.poll() is None
    assert await long.result(10) == 1
    assert await processes.ended(draining) == 0
    assert [note[2:] for note in processes.notes("start") if note[2] == "long"] == [["long", "1", str(draining.pid)]]


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "stopped"])
async def test_children_end_at_once_with_a_worker_that_is_killed(
    app: App, client: Client, processes: Processes, frozen: bool
) -> None:
    """Kill -9 of the worker, no grace for anybody. A child that is stopped reads no closed socket: the kernel ends it."""
    worker = processes.start()
    await client.submit(app.actors["isolated"].call(30.0), key="k")
    await wait_until(lambda: processes.notes("start"), description="the body runs")
    child = psutil.Process(int(processes.notes("start")[0][0]))
    assert child.ppid() == worker.pid
    if frozen:
        child.send_signal(signal.SIGSTOP)
    worker.kill()
    await wait_until(
        lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE,
        description="the child has ended",
        timeout=2,
    )


async def test_a_sigterm_to_the_whole_group_does_not_kill_the_bodies(
    app: App, client: Client, processes: Processes
) -> None:
    """Systemd signals every process of a service: the children leave it to the worker, which drains."""
    worker = processes.start()
    run = await client.submit(app.actors["isolated"].call(0.5), key="k")
    await wait_until(lambda: processes.notes("start"), description="the body runs")
    os.kill(int(processes.notes("start")[0][0]), signal.SIGTERM)
    worker.send_signal(signal.SIGTERM)
    assert await run.result(5) == 1
    assert await processes.ended(worker) == 0
