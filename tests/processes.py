"""Real workers, supervisors and commands as processes, to be killed and frozen at a chosen moment."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure import App
from tenure.supervisor import Supervisor
from tests import site_app
from tests.e2e.commands import Cli, Worker, end, line_of
from tests.support import wait_until

TARGET = "tests.site_app:app"
OLD_TARGET = "tests.site_app:old"
"""Of an earlier release, which knows none of the actors."""
_DIES_SECONDS = 20.0
WITHIN_SECONDS = 6.0
"""By then another process goes on with what a dead one held: the ttl of a site is 2 s, the rest is watching, sweeping and two cores."""


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """More work for every core than it can do."""
    command = [sys.executable, "-I", "-S", "-c", "print(flush=True)\nwhile True: pass"]
    with contextlib.ExitStack() as busy:
        for _ in range(2 * (os.cpu_count() or 1)):
            spin = busy.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            busy.callback(spin.kill)
            assert spin.stdout is not None
            spin.stdout.readline()
        yield


async def until_repaired(supervisor: Supervisor, kind: str) -> None:
    """Wait until one repair of a kind is counted: a repair is counted once it is done, and clients see it a moment earlier."""
    await wait_until(lambda: supervisor.metrics.repairs[kind] == 1, description=f"one {kind} is counted")


@dataclass(frozen=True)
class Event:
    """What a body wrote down."""

    at: float
    what: str
    key: str
    generation: int
    attempt: int
    failures: int
    pid: int


class Process:
    """A worker or supervisor process that was ready once."""

    def __init__(self, process: subprocess.Popen[str], said: dict[str, Any]) -> None:
        self.process = process
        self.said = said

    @property
    def pid(self) -> int:
        return self.process.pid

    def freeze(self) -> None:
        """SIGSTOP; returns when it stands still."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def metrics(self) -> str:
        """What it exposes (of a worker or supervisor started with ``--metrics-port 0``)."""
        return (await asyncio.to_thread(self._get, "/metrics"))[1]

    async def ready(self) -> tuple[int, str]:
        """Status and text of ``/ready``."""
        return await asyncio.to_thread(self._get, "/ready")

    def _get(self, path: str) -> tuple[int, str]:
        return Worker(self.process, json.dumps(self.said)).get(path)

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        await asyncio.to_thread(self.process.wait, 10)

    async def end(self) -> int:
        """SIGTERM; its exit code."""
        return await asyncio.to_thread(end, self.process)


class Site(Cli):
    """A folder, a namespace and the processes of ``tests/site_app.py`` in it."""

    def __init__(self, folder: Path, url: str, namespace: str, **settings: Any) -> None:
        super().__init__(folder, url, namespace)
        self.settings = settings
        self.clock_ahead = 0.0
        """How wrong the time of day is in the processes that are started from now on (seconds)."""

    @property
    def app(self) -> App:
        """The app for a client, worker or supervisor in this process."""
        return site_app.make(self.namespace, self.folder, **self.settings)

    def environment(self) -> dict[str, str]:
        told = {site_app.SETTINGS: json.dumps(self.settings), site_app.AHEAD: str(self.clock_ahead)}
        return super().environment() | told

    async def start_worker(self, *arguments: str, url: str = "", target: str = TARGET) -> Process:
        """A worker that pulls."""
        return await self._ready("worker", arguments, url, target)

    async def start_supervisor(self, *arguments: str, url: str = "", target: str = TARGET) -> Process:
        """A supervisor that has swept once."""
        return await self._ready("supervisor", arguments, url, target)

    async def _ready(self, command: str, arguments: tuple[str, ...], url: str, target: str = TARGET) -> Process:
        process = self.command(command, target, "--log-json", *arguments, url=url)
        return Process(process, json.loads(await asyncio.to_thread(line_of, process)))

    def command(self, *arguments: str, url: str = "", dies: str = "") -> subprocess.Popen[str]:
        """Any command, left running; or one of ``tests.mortal`` until it reaches its point."""
        return self.start(*arguments, TENURE_NATS_URL=url or self.url, SITE_DIES=dies)

    async def dies(self, point: str, *arguments: str) -> None:
        """Run a command of ``tests.mortal`` until it has killed itself at a point of the shipped code."""
        process = self.command(*arguments, dies=point)
        code = await asyncio.to_thread(process.wait, _DIES_SECONDS)
        assert code == -signal.SIGKILL, f"it ended with {code}, and not {point}"

    def open(self, key: str) -> None:
        """Let the bodies of ``key`` go on."""
        (self.folder / f"open-{key}").touch()

    def events(self, what: str = "", key: str = "") -> list[Event]:
        """What the bodies wrote down, in order."""
        file = self.folder / "events"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        events = []
        for line in lines:
            at, name, *rest = line.split()
            of, generation, attempt, failures, pid = rest
            events.append(Event(float(at), name, of, int(generation), int(attempt), int(failures), int(pid)))
        return [event for event in events if event.what.startswith(what) and key in {"", event.key}]

    async def wait_for(self, what: str, key: str, number: int = 1, timeout: float = 10.0) -> Event:
        """Wait for the ``number``-th event of a kind."""
        await wait_until(
            lambda: len(self.events(what, key)) >= number, description=f"{what} of {key} ({number})", timeout=timeout
        )
        return self.events(what, key)[number - 1]
