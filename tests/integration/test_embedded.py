"""The embedded server: it starts from nats.conf on ports of its own, keeps its data, and never outlives its parent."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import psutil
import pytest

from tenure.core.errors import ConfigError, Unavailable
from tenure.nats import binary
from tenure.nats.binary import find_binary, find_config
from tenure.nats.embedded import EmbeddedServer
from tenure.testing import nats_server as run_server
from tests.processes import busy_cores


@pytest.fixture(autouse=True)
def _children_leave_their_files_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that is killed cannot remove its temporary folder."""
    folder = tmp_path / "of children"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
        yield running


def eventually(predicate: Callable[[], bool], description: str, timeout: float = 5.0) -> None:
    deadline = time.monotonic() + timeout
    while not predicate():
        assert time.monotonic() < deadline, f"never: {description}"
        time.sleep(0.01)  # paused: between two looks


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def monitor(server: EmbeddedServer, page: str) -> Any:
    client = http.client.HTTPConnection(server.monitor_url.removeprefix("http://"), timeout=5.0)
    with contextlib.closing(client):
        client.request("GET", f"/{page}")
        return json.load(client.getresponse())


async def put(url: str, value: bytes) -> None:
    client = await nats.connect(url, allow_reconnect=False)
    bucket = await client.jetstream().create_key_value(bucket="kept")
    await bucket.put("key", value)
    await client.close()


async def get(url: str) -> bytes | None:
    client = await nats.connect(url, allow_reconnect=False)
    bucket = await client.jetstream().key_value("kept")
    entry = await bucket.get("key")
    await client.close()
    return entry.value


def script(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return path


def test_it_runs_the_repositorys_configuration_on_ports_of_its_own(server: EmbeddedServer) -> None:
    variables = monitor(server, "varz")
    assert variables["server_name"] == "tenure"
    assert variables["jetstream"]["config"]["sync_interval"] == 5_000_000_000
    assert variables["max_payload"] == 1 << 20
    assert variables["host"] == "127.0.0.1"
    assert server.url == f"nats://127.0.0.1:{variables['port']}"
    assert variables["port"] not in (0, 4222)
    assert variables["http_port"] not in (0, 8222)
    assert monitor(server, "healthz")["status"] == "ok"


def test_the_configuration_is_valid_as_it_stands() -> None:
    done = subprocess.run([find_binary(), "-c", find_config(), "-t"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_kill_and_restart_keep_address_and_data(server: EmbeddedServer) -> None:
    address, pids = (server.url, server.monitor_url), {server.pid}
    await put(server.url, b"1")

    server.kill()
    assert not server.running
    server.start()
    pids.add(server.pid)
    assert await get(server.url) == b"1"

    server.restart()
    pids.add(server.pid)
    assert await get(server.url) == b"1"
    assert (server.url, server.monitor_url) == address
    assert len(pids) == 3


async def test_a_named_store_outlives_stop(tmp_path: Path) -> None:
    store = tmp_path / "a store"
    with EmbeddedServer(store) as first:
        await put(first.url, b"kept")
    with EmbeddedServer(store) as second:
        assert await get(second.url) == b"kept"


def test_stop_removes_everything_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    server = EmbeddedServer()
    server.start()
    pid = server.pid
    assert list(folder.iterdir())
    server.stop()
    server.stop()
    assert not list(folder.iterdir())
    assert not alive(pid)
    with pytest.raises(RuntimeError, match="not started"):
        _ = server.url


def test_two_servers_stand_side_by_side(server: EmbeddedServer) -> None:
    with run_server() as url:
        assert url != server.url


def test_a_start_while_running_changes_nothing(server: EmbeddedServer) -> None:
    pid = server.pid
    server.start()
    assert server.pid == pid


def test_one_that_crashed_by_itself_can_be_started_again(server: EmbeddedServer) -> None:
    url = server.url
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: not server.running, "the crash is seen")
    server.start()
    assert server.url == url


@pytest.mark.skipif(sys.platform != "linux", reason="the scheduling of one thread is set by Linux calls")
async def test_a_suspended_server_answers_nothing_until_it_is_resumed(server: EmbeddedServer) -> None:
    """A signal to a process waits for one of its threads; on busy cores the others went on, and answered what came after it."""
    client = await nats.connect(server.url, allow_reconnect=False)
    os.sched_setscheduler(
        server.pid, os.SCHED_IDLE, os.sched_param(0)
    )  # of its first thread: the one that takes signals
    with busy_cores():
        server.suspend()
        reply = asyncio.create_task(client.flush(timeout=30))
        done, _ = await asyncio.wait({reply}, timeout=0.2)
    server.resume()
    await reply
    await client.close()
    assert not done
    assert server.running


def test_a_suspended_server_can_be_stopped(server: EmbeddedServer) -> None:
    pid = server.pid
    server.suspend()
    server.stop()
    assert not alive(pid)


def test_the_log_goes_where_it_is_wanted(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with EmbeddedServer(log_file=log) as server:
        server.restart()
    assert log.read_text().count("Server is ready") == 2


def test_a_busy_port_is_reported_with_the_servers_last_words(server: EmbeddedServer) -> None:
    with pytest.raises(ConfigError, match="address already in use"):
        EmbeddedServer(port=int(server.url.rpartition(":")[2])).start()


def test_a_restart_waits_for_its_old_port(server: EmbeddedServer) -> None:
    """A client that reconnects may occupy the dead server's port for a moment by connecting to itself."""
    server.kill()
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", int(server.url.rpartition(":")[2])))
        squatter.listen()
        timer = threading.Timer(0.3, squatter.close)
        timer.start()
        server.start()
        timer.join()
    assert server.running


def test_a_broken_configuration_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    config = tmp_path / "broken.conf"
    config.write_text("jetstream { max_mem: lots }\n")
    server = EmbeddedServer(config=config)
    with pytest.raises(ConfigError, match="max_mem"):
        server.start()
    assert not server.running


def test_a_configuration_without_jetstream_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "plain.conf"
    config.write_text("max_payload: 1MB\n")
    with pytest.raises(ConfigError, match="without JetStream"):
        EmbeddedServer(config=config).start()


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    fake = f"""\
        #!/bin/sh
        [ "$1" = --version ] && echo "nats-server: v2.15.1" && exit
        echo $$ > "{pid_file}"
        exec sleep 60
        """
    monkeypatch.setenv("TENURE_NATS_SERVER", str(script(tmp_path / "slow", fake)))
    with pytest.raises(Unavailable, match="not ready in time"):
        EmbeddedServer().start(timeout=0.5)
    assert not alive(int(pid_file.read_text()))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("echo 'nats-server: v2.10.0'", r"nats-server 2\.10\.0; Tenure needs 2\.12 or newer"),
        ("echo 'hello'", "is not a nats-server"),
        ("exit 1", "is not a nats-server"),
    ],
)
def test_a_binary_of_the_wrong_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, complaint: str
) -> None:
    monkeypatch.setenv("TENURE_NATS_SERVER", str(script(tmp_path / "fake", f"#!/bin/sh\n{answer}\n")))
    with pytest.raises(ConfigError, match=complaint):
        EmbeddedServer().start()


def test_a_binary_that_cannot_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_NATS_SERVER", str(script(tmp_path / "noise", "\x00\x01 neither program nor script")))
    with pytest.raises(ConfigError, match="cannot be run"):
        find_binary()


def test_a_missing_binary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_NATS_SERVER", str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="not an executable file"):
        find_binary()


def test_path_is_searched_last_and_an_empty_one_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENURE_NATS_SERVER", raising=False)
    monkeypatch.setattr(binary, "_binary_of_wheel", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="No nats-server found"):
        find_binary()
    fake = script(tmp_path / "nats-server", "#!/bin/sh\necho nats-server: v2.99.0\n")
    assert find_binary() == fake


PARENT = """
import sys, threading, time
from tenure.nats.embedded import EmbeddedServer
server = EmbeddedServer()
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
print(server.pid, server.url, flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def parent_of_a_server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield a Python process that runs a server, started from a thread that has ended, and the server's pid."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        pid, url = parent.stdout.readline().split()
        host, _, port = url.removeprefix("nats://").partition(":")
        socket.create_connection((host, int(port)), timeout=5.0).close()
        try:
            yield parent, int(pid)
        finally:
            parent.kill()


def test_the_end_of_the_thread_that_started_it_does_not_end_it() -> None:
    with parent_of_a_server() as (_, pid):
        assert alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_killed_parent_takes_its_server_along() -> None:
    with parent_of_a_server() as (parent, pid):
        parent.kill()
        eventually(lambda: not alive(pid), "the server is gone")


def test_a_parent_that_exits_without_stopping_it_takes_it_along() -> None:
    with parent_of_a_server() as (parent, pid):
        parent.communicate("\n", timeout=10.0)
        assert parent.returncode == 0
        assert not alive(pid)


def test_an_interrupt_from_the_terminal_does_not_reach_it() -> None:
    """Ctrl-C goes to the whole foreground process group; here the parent leads one of its own."""
    with parent_of_a_server() as (parent, pid):
        assert os.getpgid(pid) != os.getpgid(parent.pid)
        assert os.getsid(pid) != os.getsid(parent.pid)


def test_a_forked_child_that_exits_leaves_the_parents_server_alone(server: EmbeddedServer) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKING_PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        out, _ = parent.communicate("\n", timeout=20.0)
    assert out.split() == ["child", "True", "parent", "True"]


FORKING_PARENT = """
import os, sys
from tenure.nats.embedded import EmbeddedServer
server = EmbeddedServer()
server.start()
child = os.fork()
if child == 0:
    with EmbeddedServer() as own:
        print("child", own.running, flush=True)
    sys.exit()
os.waitpid(child, 0)
print("parent", server.running, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_foreground_server_runs_until_it_is_asked_to_stop(tmp_path: Path, number: int) -> None:
    code = "import sys; from tenure.nats.embedded import serve_foreground; sys.exit(serve_foreground('here', 0))"
    with foreground(code, tmp_path) as (process, server):
        process.send_signal(number)
        assert process.wait(10.0) == 0
        assert not server.is_running()
    assert (tmp_path / "here").is_dir()


def test_the_foreground_server_says_when_the_server_ended_by_itself(tmp_path: Path) -> None:
    code = "import sys; from tenure.nats.embedded import serve_foreground; sys.exit(serve_foreground(None, 0))"
    with foreground(code, tmp_path) as (process, server):
        server.kill()
        assert process.wait(10.0) == 3
    assert (tmp_path / "nats-data").is_dir()


@contextlib.contextmanager
def foreground(code: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("NATS at nats://127.0.0.1:")
        (server,) = psutil.Process(process.pid).children()
        try:
            yield process, server
        finally:
            process.kill()


def test_the_fixture_of_the_pytest_plugin_is_a_server(nats_server: str) -> None:
    assert nats_server.startswith("nats://127.0.0.1:")
