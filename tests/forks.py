"""Commands as processes of their own, without the second of imports that each of them costs.

One process per test run has imported what commands need, and forks for each. What it forks becomes a child of the test's own
process, so that it is waited for, stopped and killed as any other. Where that cannot be (no Linux), a command starts anew.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import inspect
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
CAN_FORK = sys.platform == "linux"
_SET_CHILD_SUBREAPER = 36
_SIZE = struct.Struct("!I")
T = TypeVar("T", str, bytes)


class Command(subprocess.Popen[T]):
    """``subprocess.Popen`` of ``[sys.executable, "-m", "tenure.cli", ...]``; every argument is as there."""

    def _execute_child(self, *given: Any) -> None:
        if not CAN_FORK:
            super()._execute_child(*given)  # type: ignore[misc]  # not in the stubs
            return
        start = subprocess.Popen._execute_child  # type: ignore[attr-defined]  # it is not in the stubs
        told = inspect.signature(start).bind(self, *given).arguments
        assert told["args"][:3] == [sys.executable, "-m", "tenure.cli"], told["args"]
        job = {
            "arguments": told["args"][3:],
            "folder": os.fspath(told["cwd"] or Path.cwd()),
            "environment": dict(os.environ if told["env"] is None else told["env"]),
            "session": told["start_new_session"],
        }
        files = [told["p2cread"], told["c2pwrite"], told["errwrite"]]
        self.pid = _nursery().fork(job, [file if file >= 0 else number for number, file in enumerate(files)])
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(told[end] for end in ends))  # type: ignore[attr-defined]  # it is not in the stubs


def run(arguments: list[str], *, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tenure.cli", *arguments]
    with Command(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            out, err = process.communicate(timeout=50)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class _Nursery:
    """The other side of the process that forks. It ends when this one does."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair()
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        with other:
            command = [sys.executable, "-m", "tests.forks", str(other.fileno())]
            path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
            environment = os.environ | {"PYTHONPATH": path}
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self._end)

    def fork(self, job: dict[str, Any], files: list[int]) -> int:
        """The pid of a new child of this process."""
        data = json.dumps(job).encode()
        with self._lock:
            self._adopt(True)
            try:
                socket.send_fds(self._socket, [_SIZE.pack(len(data))], files)
                self._socket.sendall(data)
                return int(_SIZE.unpack(_read(self._socket, _SIZE.size))[0])
            finally:
                self._adopt(False)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def _adopt(self, on: bool) -> None:
        """Orphans of our descendants become our children: for the moment in which a forked command is one."""
        if self._libc.prctl(_SET_CHILD_SUBREAPER, int(on), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


_started: list[_Nursery] = []


def _nursery() -> _Nursery:
    if not _started:
        _started.append(_Nursery())
    return _started[0]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork for each job, for ever; returns in each process that was forked, with its job."""
    while True:
        size, files, _, _ = socket.recv_fds(connection, _SIZE.size, 3)
        if not size:
            os._exit(0)
        job: dict[str, Any] = json.loads(_read(connection, _SIZE.unpack(size)[0]))
        between = os.fork()
        if between == 0:
            own = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == own:  # until it has its new parent
                time.sleep(0.0005)  # body:
            connection.sendall(_SIZE.pack(os.getpid()))
            connection.close()
            _become(job, files)
            return job
        os.waitpid(between, 0)
        for file in files:
            os.close(file)


def _become(job: dict[str, Any], files: list[int]) -> None:
    """What an interpreter does before it runs ``-m tenure.cli``."""
    if job["session"]:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    before = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    rest = [entry for entry in sys.path[1:] if entry not in {str(ROOT), str(ROOT / "src"), *before}]
    sys.path[:] = [
        job["folder"],
        *(entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry),
        *rest,
    ]
    sys.argv[:] = ["tenure", *job["arguments"]]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115  (it stays open)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc]  # noqa: SIM115  (as above)
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # type: ignore[misc]  # noqa: SIM115  (as above)


def _import_all() -> None:
    """Whatever a command may need, but for the user's own modules."""
    import importlib
    import pkgutil

    import tenure
    from tenure.cli import root

    for module in pkgutil.walk_packages(tenure.__path__, "tenure."):
        if not module.name.endswith("__main__") and ".testing" not in module.name:
            importlib.import_module(module.name)
    root.commands()
    assert threading.active_count() == 1, "a fork would lose threads"
    gc.freeze()


if __name__ == "__main__":
    _import_all()
    with socket.socket(fileno=int(sys.argv[1])) as link:
        _serve(link)
    from tenure.cli import main

    main()
