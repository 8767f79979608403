"""A real nats-server as a child process: for ``tenure server``, ``tenure demo``, ``tenure dev`` and tests.

It starts from the repository's own ``nats.conf``, so that what is tested is what runs in production. A small file that
*includes* it and replaces the addresses and the store is written per server; a later top-level key wins over an
included one. (Command line flags cannot do this: ``-sd`` beside a configured store is refused as a duplicate.)

Ports are chosen by the server itself and read from the file that it writes once it accepts connections, so two
servers never race for one. JetStream is recovered before that moment.

The server never outlives its parent on Linux (see ``spawn``). Elsewhere an interpreter that exits ends its servers, but
one that is killed leaves them: the store's lock (see ``store``) keeps a second server from joining such an orphan.

It runs in a session of its own: Ctrl-C in a terminal reaches the parent alone, which then decides.

This module owns processes and temporary folders. It never speaks more NATS than the greeting line.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self, TypeAlias
from urllib.parse import urlsplit

from tenure.core.errors import ConfigError, Unavailable
from tenure.nats.binary import find_binary, find_config
from tenure.nats.spawn import Echo, halt, spawn
from tenure.nats.store import hold, made

START_TIMEOUT_SECONDS = 30.0
"""An empty store is ready in a tenth of a second; a large one is recovered first."""

_POLL_SECONDS = 0.004
_QUIET_SECONDS = 1.0
"""A start that takes longer is worth watching: what an echoing server has logged is shown from then on."""
_LOG_LINES = 12
_ANY_FREE_PORT = -1
_EXIT_STOPPED, _EXIT_DIED = 0, 3

StrPath: TypeAlias = str | os.PathLike[str]


def _abandon(owner_pid: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    """End a server whose object was forgotten or whose interpreter exits. A forked copy of the object ends nothing."""
    if os.getpid() == owner_pid:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


# -- the server ------------------------------------------------------------------------------------------------------


class EmbeddedServer:
    """One nats-server with JetStream on the loopback interface, as a child process. Use it as a context manager.

    store: folder for its data; None makes a temporary one that ``stop`` removes.
    port, http_port: 0 lets the server choose a free one; None keeps what the configuration says.
    config: configuration to start from; None is Tenure's own ``nats.conf``. Another one must keep its ``store_dir`` at
    the top level or have none.
    log_file: where its log is appended; None keeps it in a temporary folder until ``stop``.
    echo: let it log to this process's stderr instead; of a start that fails at once, the error holds its last words.

    Methods block (``start`` for about 0.1 s) and are for one thread at a time; from a coroutine call them through
    ``asyncio.to_thread``.
    """

    def __init__(
        self,
        store: StrPath | None = None,
        port: int | None = 0,
        http_port: int | None = 0,
        config: StrPath | None = None,
        log_file: StrPath | None = None,
        *,
        echo: bool = False,
    ) -> None:
        self._store = None if store is None else Path(store).expanduser().resolve()
        self._asked = (port, http_port)
        self._config = None if config is None else Path(config).expanduser().resolve()
        self._log_file = None if log_file is None else Path(log_file).expanduser().resolve()
        self._echoes = echo
        self._echo: Echo | None = None
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._abandoned: weakref.finalize[..., EmbeddedServer] | None = None
        self._urls: tuple[str, str | None] | None = None

    def __repr__(self) -> str:
        where = self._urls[0] if self._urls else "not started"
        return f"<EmbeddedServer {where} pid={self._process.pid if self._process else None}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """``nats://127.0.0.1:<port>``; the same from the first start until ``stop``, whatever happens between."""
        return self._started()[0]

    @property
    def monitor_url(self) -> str:
        """``http://127.0.0.1:<port>`` of the monitoring endpoint; stays like ``url``.

        Raises RuntimeError when a configuration of your own switched monitoring off.
        """
        monitor = self._started()[1]
        if monitor is None:
            raise RuntimeError("this server's configuration has no monitoring port")
        return monitor

    @property
    def pid(self) -> int:
        """Process id of the server. Raises RuntimeError unless one was started and neither stopped nor killed."""
        return self._child().pid

    @property
    def running(self) -> bool:
        """Whether the process exists (a suspended one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = START_TIMEOUT_SECONDS) -> None:
        """Start the server and return once it accepts connections with JetStream recovered; at once if it runs.

        After ``kill`` it comes back with the same port and store. ``timeout`` is in seconds.

        Raises ConfigError (someone must change something) when the store is in use or cannot be used, when no usable
        binary is found, or, with the last lines of its log, when the server ends by itself; Unavailable when it is not
        ready in time. Then nothing is left running.
        """
        if self.running:
            return
        self._end(signal.SIGKILL, timeout=None)  # forget one that ended by itself
        binary, deadline = find_binary(), time.monotonic() + timeout
        if self._folder is None:
            with made("a temporary folder"):
                self._folder = Path(tempfile.mkdtemp(prefix="tenure-nats-"))
        again = self._urls is not None
        try:
            while not self._attempt(binary, deadline, may_wait_for_port=again):
                time.sleep(0.05)
        except BaseException:
            self._end(signal.SIGKILL, timeout=None)
            if not again:
                self._forget()
            raise

    def stop(self, timeout: float = 10.0) -> None:
        """Shut down, by force after ``timeout`` seconds, and remove what was temporary. Nothing happens if stopped."""
        self._end(signal.SIGTERM, timeout=timeout)
        self._forget()

    def kill(self) -> None:
        """SIGKILL: the crash of a server. Returns when the process is gone; ``start`` brings it back with its data."""
        self._end(signal.SIGKILL, timeout=None)

    def restart(self, timeout: float = 10.0) -> None:
        """Shut down as ``stop`` does, then start again with the same port and store. Raises what ``start`` raises."""
        self._end(signal.SIGTERM, timeout=timeout)
        self.start()

    def suspend(self) -> None:
        """SIGSTOP: a server that keeps its connections and answers nothing, until ``resume``."""
        halt(self._child())

    def resume(self) -> None:
        """SIGCONT."""
        self._child().send_signal(signal.SIGCONT)

    # -- internals

    def _started(self) -> tuple[str, str | None]:
        if self._urls is None:
            raise RuntimeError("the embedded server is not started")
        return self._urls

    def _child(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the embedded server is not running")
        return self._process

    def _attempt(self, binary: Path, deadline: float, *, may_wait_for_port: bool) -> bool:
        """Start a process and wait for it; False: its old port is taken for the moment, try again.

        A client that reconnects to a dead server's port can be given that very port as its source and so connect to
        itself: the port is then busy until the client gives up.
        """
        config, log = self._write_config(), self._log_path()
        with contextlib.ExitStack() as files:
            lock = files.enter_context(hold(self._store_path()))
            echo = self._echo = Echo(_LOG_LINES) if self._echoes else None
            with made(f"the log {log}"):
                output = files.enter_context(log.open("ab") if echo is None else echo.writing)
            log_start = output.tell() if echo is None else 0
            self._process = process = spawn([str(binary), "-c", str(config)], output, keep=lock)
        self._abandoned = weakref.finalize(self, _abandon, os.getpid(), process, config.parent)
        quiet = time.monotonic() + _QUIET_SECONDS
        while process.poll() is None:
            ports = _read_ports(config.parent, process.pid)
            if echo is not None and (ports is not None or time.monotonic() > quiet):
                echo.let_through()
            if ports is not None:
                _require_jetstream(ports[0], deadline)
                self._urls = ports
                return True
            if time.monotonic() > deadline:
                raise Unavailable(f"nats-server was not ready in time.{self._log_tail(log_start)}")
            time.sleep(_POLL_SECONDS)
        tail = self._log_tail(log_start)
        if may_wait_for_port and "address already in use" in tail and time.monotonic() < deadline:
            self._end(signal.SIGKILL, timeout=None)
            return False
        raise ConfigError(f"nats-server ended with exit code {process.returncode} while starting.{tail}")

    def _store_path(self) -> Path:
        assert self._folder is not None  # noqa: S101 - start() made it
        return self._store or self._folder / "store"

    def _write_config(self) -> Path:
        assert self._folder is not None  # noqa: S101 - start() made it
        for stale in self._folder.glob("*.ports"):
            stale.unlink()
        port, http_port = self._asked
        if self._urls is not None:
            port, http_port = (urlsplit(url).port if url else None for url in self._urls)
        # An include path is always taken as relative to the including file.
        base = os.path.relpath(self._config or find_config(), self._folder.resolve())
        lines = [
            f"include {_quoted(base)}",
            f"store_dir: {_quoted(self._store_path())}",
            f"ports_file_dir: {_quoted(self._folder)}",
        ]
        if port is not None:
            lines.append(f'listen: "127.0.0.1:{port or _ANY_FREE_PORT}"')
        if http_port is not None:
            lines.append(f'http: "127.0.0.1:{http_port or _ANY_FREE_PORT}"')
        path = self._folder / "embedded.conf"
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        return path

    def _log_path(self) -> Path:
        assert self._folder is not None  # noqa: S101 - start() made it
        return self._log_file or self._folder / "nats-server.log"

    def _log_tail(self, start: int) -> str:
        log = self._log_path().read_bytes()[start:] if self._echo is None else self._echo.last_words()
        text = log.decode("utf-8", "replace").rstrip()
        return " Its last words:\n" + "\n".join(text.splitlines()[-_LOG_LINES:]) if text else " It logged nothing."

    def _end(self, how: signal.Signals, *, timeout: float | None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        if how is not signal.SIGKILL:
            process.send_signal(signal.SIGCONT)  # a suspended server would not see the request
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._abandoned is not None:
            self._abandoned.detach()

    def _forget(self) -> None:
        folder, self._folder, self._urls = self._folder, None, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _quoted(path: StrPath) -> str:
    return json.dumps(os.fspath(path), ensure_ascii=False)


def _read_ports(folder: Path, pid: int) -> tuple[str, str | None] | None:
    """Return (client url, monitoring url), or None while the server has not written them, or only in part."""
    for file in folder.glob(f"*_{pid}.ports"):
        with contextlib.suppress(ValueError, KeyError, IndexError):
            ports = json.loads(file.read_text(encoding="utf-8"))
            return str(ports["nats"][0]), next(iter(map(str, ports.get("monitoring") or ())), None)
    return None


def _require_jetstream(url: str, deadline: float) -> None:
    """Read the greeting that a server sends to every new connection. Raises ConfigError, Unavailable."""
    address, greeting = urlsplit(url), b""
    try:
        with socket.create_connection(
            (address.hostname, address.port), timeout=max(0.1, deadline - time.monotonic())
        ) as connection:
            while not greeting.endswith(b"\r\n") and (chunk := connection.recv(65536)):
                greeting += chunk
    except OSError as error:
        raise Unavailable(f"nats-server does not answer at {url}: {error}.") from error
    if not (greeting.startswith(b"INFO ") and json.loads(greeting[5:]).get("jetstream")):
        raise ConfigError(f"The nats-server at {url} runs without JetStream: its configuration must enable it.")


# -- in the foreground -----------------------------------------------------------------------------------------------


def serve_foreground(
    store: StrPath | None = None, port: int | None = None, *, report: Callable[[str], object] = print
) -> int:
    """Run a server until SIGINT or SIGTERM and return the exit code: 0 when asked to stop, 3 when it ended by itself.

    ``store`` is a folder (None: ``nats-data`` here) and outlives the server. ``port`` None takes both ports from
    ``nats.conf``; with any other (0: a free one) the monitoring port is a free one as well, so that several can run.
    The log goes to stderr; ``report`` gets the two addresses.

    Call it from the main thread. Raises ConfigError and Unavailable like ``EmbeddedServer.start``.
    """
    asked: list[int] = []

    def ask(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    server = EmbeddedServer(
        "nats-data" if store is None else store, port=port, http_port=None if port is None else 0, echo=True
    )
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with server:
            report(f"NATS at {server.url}, monitoring at {server.monitor_url}. Ctrl-C stops it.")
            while not asked and server.running:
                time.sleep(0.1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return _EXIT_STOPPED if asked else _EXIT_DIED
