"""Real processes that a chaos run starts: none outlives the run, whatever ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.journal import steady
from tests.history.evidence import Death

# 1 is PR_SET_PDEATHSIG: the kernel kills the child when the thread that started it ends. It survives `ip netns exec`.
_ENDS_WITH_US = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Child:
    """A process that can be ended and started again. Its output is appended to ``<folder>/<name>.log``."""

    def __init__(
        self,
        name: str,
        command: list[str],
        folder: Path,
        *,
        env: dict[str, str] | None = None,
        netns: str = "",
    ) -> None:
        self.name = name
        self.role = name.rstrip("0123456789")
        self.netns = netns
        self.command = command
        self.log = folder / f"{name}.log"
        self.deaths: list[Death] = []
        self.ready_at: list[float] = []
        """When it was seen to be ready, of each of its lives in which it was."""
        self._ready = False
        self.suspended = False
        self._env = os.environ | (env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_at = self._began = 0.0
        self._log_start = 0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.running:
            return
        inside = ["ip", "netns", "exec", self.netns] if self.netns else []
        command = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_US, str(os.getpid()), *inside, *self.command]
        self._began = time.time()
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._env | {"CHAOS_LIFE": str(len(self.deaths))},
                start_new_session=True,
            )
        self.suspended = self._ready = False
        self._asked_at = 0.0

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)
        self.suspended = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.suspended = False

    def kill(self) -> None:
        """SIGKILL."""
        self.end("kill", 0.0)

    def ask_to_end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """A signal after which it has to end by itself. ``end`` must follow."""
        self._asked_at = steady()
        self._signal(number)
        self.resume()

    def end(self, how: str, seconds: float) -> None:
        """Have it end: "kill" at once, "term" by SIGTERM, and by SIGKILL after so many seconds more."""
        if how == "term" and self.running and not self._asked_at:
            self.ask_to_end()
        ready = self.said(".ready")
        process, self._process = self._process, None
        if process is None:
            return
        killed_at = self._asked_at or steady()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            how, killed_at = "kill", steady()
            process.kill()
        code = process.wait()
        self.deaths.append(
            Death(
                pid=process.pid,
                role=self.role,
                name=self.name,
                how=how,
                began=self._began,
                asked_at=self._asked_at,
                killed_at=killed_at,
                at=steady(),
                wall=time.time(),
                code=code,
                ready=ready,
            )
        )

    def children(self) -> list[int]:
        """The processes that it has started itself."""
        found: list[int] = []
        for path in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread has ended meanwhile
                found += [int(pid) for pid in path.read_text().split()]
        return found

    def said(self, word: str) -> bool:
        """Whether its log holds a word since its last start."""
        if not self.log.exists():
            return False
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return word.encode() in log.read()

    def notice(self) -> None:
        """Look whether it is ready."""
        if not self._ready and self.said(".ready"):
            self._ready = True
            self.ready_at.append(steady())

    def ended_by_itself(self) -> int | None:
        """Its exit code, None while it runs or was ended, or asked to end, by us."""
        return self._process.poll() if self._process is not None and not self._asked_at else None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
