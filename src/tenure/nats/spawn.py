"""A child process that ends with its parent, and what it logs.

On Linux the kernel kills the child (``PR_SET_PDEATHSIG``). That signal follows the *thread* that forked, so every child is
forked by one thread that lives as long as the process. A ``preexec_fn`` could deadlock beside other threads; a few lines of
Python that call ``prctl`` and then become the server cannot.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import IO

_END_SECONDS = 1.0

# 1 is PR_SET_PDEATHSIG. A parent that died before prctl was called sends nothing any more: hence the second look.
_BECOME_SERVER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class _Forker:
    """One thread, as long-lived as the process, that starts every server."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]
        self._jobs = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="tenure-embedded-server", daemon=True).start()

    def run(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Call ``start`` in the thread and return what it returns, or raise what it raises."""
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((start, answer))
        return answer.result()

    def _serve(self) -> None:
        while True:
            start, answer = self._jobs.get()
            try:
                answer.set_result(start())
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that asked
                answer.set_exception(error)
            del start, answer  # an idle thread must not keep a finished server's objects alive


@functools.cache
def _forker_of(_pid: int) -> _Forker:
    # By process id: a forked child inherits this cache, but not the thread.
    return _Forker()


def spawn(command: list[str], output: IO[bytes], *, keep: int) -> subprocess.Popen[bytes]:
    """Start ``command`` with ``output`` for what it logs; it inherits the file descriptor ``keep``."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - the binary was checked by find_binary
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(keep,),
        )

    if sys.platform != "linux" or not sys.executable:
        return start()
    command = [sys.executable, "-I", "-S", "-c", _BECOME_SERVER, str(os.getpid()), *command]
    return _forker_of(os.getpid()).run(start)


def halt(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP, and return when it stands still: until each of its threads has noticed, it may go on to answer."""
    process.send_signal(signal.SIGSTOP)
    if sys.platform == "linux" and process.poll() is None:
        with contextlib.suppress(ChildProcessError):  # it ended just now, and another thread has learnt of it
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


# -- what it logs ----------------------------------------------------------------------------------------------------


class Echo:
    """Passes what is written to ``writing`` on to our standard error, once it is let through, and keeps the last lines.

    Its thread ends when nobody has ``writing`` open any more: with the child.
    """

    def __init__(self, lines: int) -> None:
        reading, writing = os.pipe()
        self.writing: IO[bytes] = os.fdopen(writing, "wb")
        self._reading = os.fdopen(reading, "rb")
        self._last: deque[bytes] = deque(maxlen=lines)
        self._held: list[bytes] | None = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._copy, name="tenure-embedded-server-log", daemon=True)
        self._thread.start()

    def let_through(self) -> None:
        """Show what was held back, and everything from now on."""
        with self._lock:
            held, self._held = self._held, None
            for line in held or ():
                _show(line)

    def last_words(self) -> bytes:
        """The last lines of a child that has ended; nothing if they were shown."""
        self._thread.join(_END_SECONDS)
        with self._lock:
            return b"" if self._held is None else b"".join(self._last)

    def _copy(self) -> None:
        with self._reading as log:
            for line in log:
                with self._lock:
                    self._last.append(line)
                    if self._held is None:
                        _show(line)
                    else:
                        self._held.append(line)


def _show(line: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads it: that must not stop the server
        os.write(sys.stderr.fileno(), line)
