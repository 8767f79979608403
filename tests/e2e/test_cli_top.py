"""``tenure top``: one picture, many, and live in a terminal, while runs go through."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.nats.embedded import EmbeddedServer
from tests.e2e.commands import Cli
from tests.e2e.test_cli_above import until


@pytest.fixture
def busy(own: Cli) -> Iterator[Cli]:
    """A worker with a run in hand, a queue that is paused, and one that nobody works on."""
    with own.worker("--queue", "default", "--with-supervisor"):
        source = own.module.read_text(encoding="utf-8")
        own.module.write_text(source.replace("retry=None)\nasync def say", 'retry=None, queue="mail")\nasync def say'))
        own.fast("submit", "tasks:app", "nap", "--key", "n", "--arg", "seconds=60")
        for i in range(3):
            own.fast("submit", "tasks:app", "say", "--key", f"m{i}", "--arg", "text=x")
        until(lambda: own.fast_json("show", "n")["phase"] == "running", "the run starts")
        yield own


def test_one_picture_tells_queues_actors_and_sessions_in_80_columns(busy: Cli) -> None:
    text = busy("top", "--once", "--every", "300ms").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text, "a file gets no control codes"
    assert re.match(rf"tenure top  {busy.namespace}  \S+ .* UTC\n", text)
    assert re.search(r"\nQUEUE +HIGH +NORMAL +LOW +IN HAND +OLDEST +WORKERS", text)
    assert re.search(r"\ndefault +0 +0 +0 +1 +- +1 *\n", text)
    assert re.search(r"\nmail +0 +3 +0 +0 +\S+ +0 +no worker *\n", text)
    assert re.search(r"\nnap +1 +0 +- +- +- +- +- +- *\n", text)
    assert re.search(r"\nworker +\S+ +\d+ +\S+ +\S+ +1 +default *\n", text)
    assert re.search(r"\nsupervisor +\S+ +\d+ ", text)


def test_what_happens_while_it_looks_is_counted(busy: Cli) -> None:
    """JSON: a picture a line. A submit, a replace and a cancel are seen, each in its actor's row."""
    process = busy.start("top", "--every", "200ms", "--json")
    assert process.stdout is not None
    first: dict[str, Any] = json.loads(process.stdout.readline())
    assert {row["queue"]: row["waiting"] for row in first["queues"] if row["priority"] == "normal"} == {
        "default": 0,
        "mail": 3,
    }
    assert {row["actor"]: row["running"] for row in first["actors"]} == {"nap": 1}
    busy.fast("submit", "tasks:app", "greet", "--key", "g", "--arg", "name=x", "--wait")
    busy.fast("replace", "tasks:app", "greet", "--key", "m0", "--arg", "name=y", "--wait")
    busy.fast("cancel", "m1")
    deadline = time.monotonic() + 10
    while True:
        told = json.loads(process.stdout.readline())["totals"]
        if (told["succeeded"], told["superseded"], told["cancelled"]) == (2, 1, 1):
            break
        assert time.monotonic() < deadline, told
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0


def test_a_queue_of_the_app_that_nobody_works_on_is_told_in_every_picture(busy: Cli) -> None:
    """It is looked for in every tenth one only; between these what was found is kept."""
    process = busy.start("top", "--every", "100ms", "--json", "--app", "tasks:app")
    assert process.stdout is not None
    for _ in range(3):
        told = {row["queue"]: row["waiting"] for row in json.loads(process.stdout.readline())["queues"]
                if row["priority"] == "normal"}  # fmt: skip
        assert told == {"default": 0, "mail": 3}


def test_what_is_parked_is_told_by_actor(busy: Cli) -> None:
    """For a pause, for a place under a limit; and of blocked keys, which may be any actor's, how many."""
    busy.fast("pause", "greet", "--actor")
    busy.fast("block", "x*")
    for number, (actor, arg) in enumerate((("greet", "name=x"), ("fetch", "site=a"), ("fetch", "site=a"))):
        busy.fast("submit", "tasks:app", actor, "--key", f"p{number}", "--arg", arg)
    busy.fast("submit", "tasks:app", "fetch", "--key", "x", "--arg", "site=b")

    def told() -> tuple[dict[str, int], int]:
        frame = busy.fast_json("top", "--once", "--every", "100ms")
        return {row["actor"]: row["parked"] for row in frame["actors"] if row["parked"]}, frame["blocked"]

    until(lambda: told() == ({"greet": 1, "fetch": 1}, 1), "each is parked")
    text = busy.fast("top", "--once", "--every", "100ms")[0]
    assert re.search(r"\n\(blocked keys\) +1 *\n", text)
    assert re.search(r"\nfetch +1 +1 ", text)


def test_in_a_terminal_it_draws_over_itself_and_puts_the_screen_back(busy: Cli) -> None:
    """A picture is written on the other screen from its upper left corner, never after the screen was wiped."""
    ours, theirs = pty.openpty()
    environment = busy.environment() | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure.cli", "top", "--every", "200ms"],
        cwd=busy.folder, env=environment, stdin=theirs, stdout=theirs, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    seen = b""

    def read() -> bool:
        nonlocal seen
        if select.select([ours], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):  # its side is closed
                seen += os.read(ours, 65_536)
        return seen.count(b"tenure top") >= 4

    until(read, "four pictures")
    process.send_signal(signal.SIGINT)
    until(lambda: read() and process.poll() is not None, "it ends")
    read()
    os.close(ours)
    assert process.returncode == 0
    assert (seen.count(b"\x1b[?1049h"), seen.count(b"\x1b[?1049l")) == (1, 1)
    pictures = seen.split(b"tenure top")[2:4]
    assert all(b"\x1b[2J" not in picture for picture in pictures), "a wiped screen flickers"
    assert all(b"Traceback" not in picture for picture in pictures)


def test_what_is_wrong_is_told_and_an_empty_namespace_is_no_fault(own: Cli) -> None:
    assert "there is no namespace 'tpyo'" in own.fast("top", "--once", "--namespace", "tpyo", code=2)[1]
    assert "cannot reach a NATS server" in own.fast("top", "--once", "--url", "nats://127.0.0.1:1", code=3)[1]
    assert "between 100ms and 1h" in own.fast("top", "--every", "1ms", code=2)[1]
    assert "--every 'often'" in own.fast("top", "--every", "often", code=2)[1]
    own.fast("setup", "tasks:app")
    told = own.fast_json("top", "--once", "--every", "100ms")
    assert (told["queues"], told["sessions"], told["trouble"]) == ([], [], "")


@pytest.mark.long
def test_a_server_that_goes_away_is_told_of_in_the_picture_and_found_again(tmp_path: Path, namespace: str) -> None:
    """A picture of one look is exit code 3 then. Nothing is logged across a picture."""
    with EmbeddedServer(tmp_path / "store") as server:
        own = Cli(tmp_path, server.url, namespace)
        own.fast("setup", "tasks:app")
        process = own.start("top", "--every", "200ms", "--json", "--app", "tasks:app")
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["trouble"] == ""
        server.kill()
        deadline = time.monotonic() + 20
        while "no answer from the server" not in json.loads(process.stdout.readline())["trouble"]:
            assert time.monotonic() < deadline
        assert "cannot reach a NATS server" in own.fast("top", "--once", code=3)[1]
        server.start()
        while json.loads(process.stdout.readline())["trouble"]:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert (tmp_path / "stderr.log").read_text() == ""
        own.close()
