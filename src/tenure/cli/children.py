"""Workers and supervisors in processes of their own, for ``dev`` and ``demo``.

A child holds the reading end of a pipe whose writing end we hold, and drains when it closes: however we end, it ends
too.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import msgspec

from tenure.cli.worker import READY
from tenure.core.errors import TenureError

_START_SECONDS = 30.0


class Ready(msgspec.Struct):
    """What a worker or a supervisor says once it is ready."""

    event: str
    namespace: str
    pid: int
    metrics: str | None = None


class Child:
    """A ``tenure worker`` (or ``supervisor``) process.

    With a ``log`` its standard error goes there and its ready line is ours to read.
    """

    def __init__(self, arguments: list[str], *, command: str = "worker", log: Path | None = None) -> None:
        self._arguments = [command, *arguments]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._draining: asyncio.Task[None] | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process. Raises TenureError before it is started."""
        if self._process is None:
            raise TenureError("the process is not started")
        return self._process

    async def start(self) -> None:
        """Start the process."""
        command = [sys.executable, "-m", "tenure.cli", *self._arguments, "--stop-with-stdin"]
        pipe = asyncio.subprocess.PIPE
        if self._log is None:
            # In a session of its own: Ctrl-C is ours alone to pass on, and twice would mean "let nothing finish".
            self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, start_new_session=True)
            return
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, "--log-json", stdin=pipe, stdout=pipe, stderr=log
            )

    async def ready(self) -> Ready:
        """Wait until it pulls. Raises TenureError with its last words if it ends instead."""
        output = self.process.stdout
        if output is None:
            raise TenureError("a process without a log keeps its ready line to itself")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while line := await output.readline():
                    with contextlib.suppress(msgspec.DecodeError):
                        said = msgspec.json.decode(line, type=Ready)
                        if said.event in READY.values():
                            self._draining = asyncio.create_task(_drain(output))
                            return said
        words = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if self._log else []
        raise TenureError(f"a {self._arguments[0]} did not start: {words[-1] if words else 'it said nothing'}")

    async def stop(self, seconds: float) -> int:
        """SIGTERM, and SIGKILL after ``seconds``; its exit code."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(seconds):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            code = await process.wait()
        if self._draining is not None:
            await self._draining
        return code


async def _drain(output: asyncio.StreamReader) -> None:
    """What bodies print must not fill the pipe."""
    while await output.read(65_536):
        pass
