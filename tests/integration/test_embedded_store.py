"""The embedded server's files: one server to a store, however the last one ended, and a word for what cannot be used."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tenure.core.errors import ConfigError
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.store import hold

PARENT = """
import sys
from tenure.nats.embedded import EmbeddedServer
sys.platform = sys.argv[2]
server = EmbeddedServer(sys.argv[1])
server.start()
print(server.pid, flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def parent_of(store: Path, platform: str) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A Python process with a server on ``store``, and that server; elsewhere than on Linux it outlives a killed parent."""
    command = [sys.executable, "-c", PARENT, str(store), platform]
    environment = os.environ | {
        "TMPDIR": str(store.parent)
    }  # a parent that is killed cannot remove its temporary folder
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        try:
            yield parent, server
        finally:
            parent.kill()
            with contextlib.suppress(psutil.NoSuchProcess):
                server.kill()


def test_a_store_in_use_is_refused_and_free_again_once_its_server_has_ended(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with EmbeddedServer(store) as first:
        with pytest.raises(ConfigError, match=rf"the store {re.escape(str(store))} is in use"):
            EmbeddedServer(store).start()
        assert first.running
        first.restart()
        first.kill()
        with EmbeddedServer(store), pytest.raises(ConfigError, match="in use"):
            first.start()
        first.start()


def test_a_store_is_the_same_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with EmbeddedServer(tmp_path / "store"), pytest.raises(ConfigError, match="in use"):
        EmbeddedServer(tmp_path / "link").start()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the orphan keeps its lock: the test after the next")
def test_a_killed_parent_leaves_its_store_to_the_next_at_once(tmp_path: Path) -> None:
    with parent_of(tmp_path / "store", "linux") as (parent, _):
        parent.kill()
        parent.wait(5)
        with EmbeddedServer(tmp_path / "store") as next_one:
            assert next_one.running


def test_a_server_that_is_just_being_ended_is_waited_for(tmp_path: Path) -> None:
    """As after a kill -9 of its parent: the kernel ends it a moment later."""
    with contextlib.ExitStack() as dying:
        dying.enter_context(hold(tmp_path))
        timer = threading.Timer(0.3, dying.close)
        timer.start()
        with EmbeddedServer(tmp_path) as next_one:
            assert next_one.running
        timer.join()


def test_an_orphaned_server_is_not_joined_by_a_second(tmp_path: Path) -> None:
    """As where the kernel does not end a child with its parent: it goes on writing, and so it keeps the store."""
    with parent_of(tmp_path / "store", "elsewhere") as (parent, orphan):
        parent.kill()
        parent.wait(5)
        assert orphan.is_running()
        with pytest.raises(ConfigError, match="in use"):
            EmbeddedServer(tmp_path / "store").start()
        orphan.send_signal(signal.SIGKILL)
        with EmbeddedServer(tmp_path / "store") as next_one:
            assert next_one.running


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nope"])
def test_a_store_that_cannot_be_one_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    store = tmp_path / place
    with pytest.raises(ConfigError, match=f"the store {store} cannot be used: "):
        EmbeddedServer(store).start()


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    log = tmp_path / "missing" / "log"
    with pytest.raises(ConfigError, match=f"the log {log} cannot be used: No such file"):
        EmbeddedServer(log_file=log).start()


def test_a_server_that_echoes_and_cannot_start_says_why_in_its_error_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedServer() as running:
        taken = int(running.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match="address already in use"):
            EmbeddedServer(tmp_path, port=taken, echo=True).start()
    assert capfd.readouterr().err == ""


def test_a_server_that_echoes_is_heard_from_its_first_line_to_its_last(capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedServer(echo=True) as server:
        thread_of_log = server._echo
        assert thread_of_log is not None
    thread_of_log.last_words()
    heard = capfd.readouterr().err
    assert "Starting nats-server" in heard
    assert "Server is ready" in heard
    assert "Server Exiting" in heard
