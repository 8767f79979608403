"""``tenure queues`` and ``tenure sessions``, as people and scripts read them."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.e2e.commands import Cli


def until(found: Callable[[], object], what: str, seconds: float = 15.0) -> None:
    """Ask again and again: a command's answer is what is waited for."""
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)  # paused: between two polls


def test_queues_tell_what_waits_and_that_nobody_works_on_it(own: Cli) -> None:
    own.fast("setup", "tasks:app")
    assert own.fast_json("queues") == []
    assert {row["queue"] for row in own.fast_json("queues", "--app", "tasks:app")} == {"default"}
    for i in range(3):
        own.fast("submit", "tasks:app", "say", "--key", f"k{i}", "--arg", "text=x")
    own.fast("submit", "tasks:app", "say", "--key", "later", "--arg", "text=x", "--delay", "1h")
    (row,) = own.fast_json("queues")
    assert (row["queue"], row["priority"], row["waiting"], row["in_hand"]) == ("default", "normal", 3, 0)
    assert (row["workers"], row["paused"]) == (0, False)
    assert 0.0 <= row["oldest_seconds"] < 60.0
    assert re.search(r"default +normal +3 +0 +\S+ +0 +no worker", own("queues").stdout)
    own.fast("pause", "default", "--queue")
    assert own.fast_json("queues")[0]["paused"] is True
    assert re.search(r"default +normal +3 .* paused", own.fast("queues")[0])
    assert own.fast_json("queues", "--queue", "mail") == []


def test_queues_and_sessions_tell_who_works_on_what(own: Cli) -> None:
    with own.worker("--queue", "default", "--with-supervisor") as worker:
        own.fast("submit", "tasks:app", "nap", "--key", "n", "--arg", "seconds=60")
        until(lambda: own.fast_json("show", "n")["phase"] == "running", "the run starts")
        rows = {row["priority"]: row for row in own.fast_json("queues")}
        assert set(rows) == {"high", "normal", "low"}
        assert (rows["normal"]["in_hand"], rows["normal"]["waiting"], rows["normal"]["workers"]) == (1, 0, 1)
        told = {row["kind"]: row for row in own.fast_json("sessions")}
        assert set(told) == {"worker", "supervisor"}
        assert told["worker"]["pid"] == told["supervisor"]["pid"] == worker.process.pid
        assert (told["worker"]["runs"], told["supervisor"]["runs"]) == (1, 0)
        assert (told["worker"]["queues"], told["supervisor"]["queues"]) == (["default"], [])
        assert told["worker"]["state"] == "alive"
        assert told["worker"]["beat_seconds"] < told["worker"]["ttl_seconds"]
        text = own("sessions").stdout
        assert re.search(
            rf"{told['worker']['id']} +worker +\S+ +{worker.process.pid} +alive +\S+ +\S+ +1 +default", text
        )
    assert own.fast_json("sessions") == []
    ended = own.fast_json("sessions", "--all")
    assert {row["state"] for row in ended} == {"closed"}
    assert "closed: drain" in own.fast("sessions", "--all")[0]


def test_a_killed_worker_is_silent(own: Cli) -> None:
    """With no supervisor nobody closes its session; with one it would be gone from the list."""
    with own.worker() as worker:
        worker.process.send_signal(signal.SIGKILL)
        worker.process.wait(5)
    until(lambda: [row["state"] for row in own.fast_json("sessions")] == ["silent"], "its ttl passes")
    assert all(row["workers"] == 0 for row in own.fast_json("queues"))


@pytest.mark.long
def test_what_is_wrong_with_the_question_is_told(own: Cli) -> None:
    for command in ("queues", "sessions", "limits"):
        assert "there is no namespace 'tpyo'" in own.fast(command, "--namespace", "tpyo", code=2)[1]
        assert "namespace 'a b'" in own.fast(command, "--namespace", "a b", code=2)[1]
        assert "No such option" in own.fast(command, "--colour", code=2)[1]
        assert "cannot reach a NATS server" in own.fast(command, "--url", "nats://127.0.0.1:1", code=3)[1]
