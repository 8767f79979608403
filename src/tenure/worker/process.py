"""One child process, the worker's side: started, spoken to, killed and reaped.

A child is a fresh interpreter that leads a process group of its own; killing it takes along whatever its body started.
It is started from the loop's own thread, which lives as long as the worker: the kernel's parent-death signal follows the
thread that forked. One thread per child waits for its end, so that none stays a zombie.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import msgspec

from tenure.core.records import Failure
from tenure.isolation import Home
from tenure.telemetry import get_logger, pass_on
from tenure.worker.pipe import LENGTH_BYTES, Said, ToChild, ToWorker, frame, read_in_worker

_log = get_logger("tenure.child")
_END_SECONDS = 2.0
"""How long a process that was killed, or that closed its socket, may take to be gone."""
_LINGER_SECONDS = 0.5
"""After its end: what a child has sent is here already; a stranger that inherited its socket is not waited for."""
_BOOT = """
import ctypes, json, signal, sys
if sys.platform == "linux":  # first: an import may take long, and the worker may die in the middle of it
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
sys.path[:] = json.loads(sys.argv.pop(1))
from tenure.worker.child import main
main()
"""
"""``prctl(PR_SET_PDEATHSIG)``: the kernel kills it when the thread that started it ends."""


class Child:
    """One child process."""

    def __init__(self) -> None:
        """Start it. Raises OSError where the system refuses; nothing is left then."""
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603  (this interpreter, our own module)
                    [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # what a body prints must not mix with what the worker says on its standard output
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self._socket = ours
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._connecting = False
        self._gone = False
        self._lock = threading.Lock()
        self.exited = asyncio.Event()
        self.killed = False
        self.home: Home | None = None
        """Of the actor that it has at hand."""
        self._reaper = threading.Thread(target=self._reap, name=f"tenure-child-{self.pid}", daemon=True)
        self._reaper.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    # -- its end -----------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """In a thread: wait until it has ended; then end what it left behind, while its process id still names its group."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS before Python 3.13. Its group keeps the number as long as it has a member; an empty one is not found
            self._process.wait()
        with self._lock:
            self._kill_group()
            self._process.wait()
            self._gone = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._ended)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _ended(self) -> None:
        self.exited.set()
        if not self._connecting:  # else ``connect`` sees to it: its socket must not be closed under it
            self._hang_up()

    def _hang_up(self) -> None:
        if self._writer is None:
            self._socket.close()
        else:
            self._loop.call_later(_LINGER_SECONDS, self._writer.close)

    def kill(self) -> None:
        """SIGKILL to it and to everything in its group. Harmless when it has ended."""
        self.killed = True
        with self._lock:
            if not self._gone:
                self._kill_group()

    async def end(self) -> None:
        """Kill it and wait until it is gone: then nothing of its body runs any more."""
        self.kill()
        await self._wait(_END_SECONDS)
        if not self.exited.is_set():  # in the kernel, on a dead disk say; it will never get back to its body
            _log.error("child.not_gone", pid=self.pid)
        if self._writer is not None:
            self._writer.close()

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()

    async def obituary(self) -> Failure:
        """How it ended, as the failure of the attempt that it ran."""
        await self._wait(_END_SECONDS)
        if not self.exited.is_set():  # it closed its socket and lives on
            await self.end()
        code = self._process.returncode
        how = f"ended with exit code {code}"
        if code is None or code < 0:
            number = -(code or -signal.SIGKILL)
            name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
            how = f"was ended by {name} ({number})"
            if number == signal.SIGKILL:
                how += "; perhaps the system was out of memory"
        return Failure(type="ProcessDied", message=f"the child process of the body (pid {self.pid}) {how}")

    # -- messages ----------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Before anything is said. Raises OSError if it has ended already."""
        self._connecting = True
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        finally:
            self._connecting = False
            if self.exited.is_set():
                self._hang_up()

    def send(self, message: ToChild) -> None:
        """Say something to it; nothing happens if it is gone."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))

    async def receive(self) -> ToWorker | None:
        """What it says next, its log events passed on; None once it is gone."""
        reader = self._reader
        try:
            while reader is not None:
                size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                message: ToWorker = read_in_worker(await reader.readexactly(size))
                if not isinstance(message, Said):
                    return message
                pass_on(message.logger, message.level, message.text, msgspec.json.decode(message.fields))
        except (asyncio.IncompleteReadError, OSError):
            pass
        return None
