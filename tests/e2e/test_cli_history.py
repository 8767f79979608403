"""``tenure show KEY --history`` and ``tenure worker --queue NAME=WEIGHT``, judged by output and exit codes."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.e2e.commands import Cli, Worker


def mirrored(cli: Cli) -> None:
    """A mirror that was made just now sees nothing of its first moments."""
    deadline = time.monotonic() + 20.0
    number = 0
    while True:
        number += 1
        cli.fast("submit", "tasks:app", "fail", "--key", f"warm-{number}", "--arg", "why=x", "--delay", "1h")
        told = cli.fast_json("show", f"warm-{number}", "--history")
        if told and told[0]["what"] == "submitted":
            return
        assert time.monotonic() < deadline, told


def until(cli: Cli, key: str, what: str) -> list[dict[str, Any]]:
    """A mirror is a moment behind."""
    deadline = time.monotonic() + 10.0
    while True:
        steps: list[dict[str, Any]] = cli.fast_json("show", key, "--history")
        if steps[-1]["what"] == what:
            return steps
        assert time.monotonic() < deadline, steps


def test_it_tells_what_happened(cli: Cli, worker: Worker) -> None:
    mirrored(cli)
    cli.fast("submit", "tasks:app", "fail", "--key", "ключ", "--arg", "why=no paper", "--wait", code=1)
    steps = until(cli, "ключ", "failed")

    assert [step["what"] for step in steps] == ["submitted", "claimed", "failed"]
    assert steps[-1]["why"] == "Fail: no paper"
    assert steps[1]["who"] == steps[2]["who"] != ""
    table = cli("show", "ключ", "--history").stdout
    assert re.search(r"TIME +GEN +TRY +WHAT +WHO +WHY", table)
    assert re.search(rf"1 +1 +failed +{steps[1]['who'][-6:]} +Fail: no paper", table)


def test_the_table_fits_eighty_columns(cli: Cli, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored(cli)
    cli.fast("submit", "tasks:app", "fail", "--key", "long", "--arg", f"why={'no paper ' * 30}", "--wait", code=1)
    until(cli, "long", "failed")
    monkeypatch.setattr("tenure.cli.output._WIDE", 80)

    table = cli.fast("show", "long", "--history")[0]

    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table
    for row in ("submitted", "claimed", "failed"):
        assert re.search(rf"\d\d:\d\d:\d\d\.\d\d\d .* {row} ", table)


def test_a_key_that_never_was_has_no_history(cli: Cli, worker: Worker) -> None:
    assert "there is no key 'nobody'" in cli.fast("show", "nobody", "--history", code=2)[1]


def test_queues_take_weights(own: Cli) -> None:
    with own.worker("--queue", "default=3", "--queue", "bulk") as worker:
        assert worker.said["queues"] == ["default", "bulk"]


@pytest.mark.parametrize("queue", ["bulk=", "bulk=0", "bulk=x", "bulk=1.5", "=3", "a b=3"])
def test_a_bad_weight_is_named(own: Cli, queue: str) -> None:
    said = own.fast("worker", "tasks:app", "--queue", queue, code=2)[1]
    assert f"queue {queue.partition('=')[0]!r}" in said
