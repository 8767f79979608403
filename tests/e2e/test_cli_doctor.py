"""``tenure doctor``: what it finds, in words, and its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import App
from tenure.nats.binary import find_binary
from tenure.nats.connection import Connection
from tests.e2e.commands import Cli
from tests.e2e.test_cli_above import until
from tests.integration.test_bad_setup import bare_server, server_saying
from tests.support import FAST

__all__ = ["bare_server"]
ANOTHER_SERVER = (
    "have that server upgraded, or JetStream switched on there; or say with --url or $TENURE_NATS_URL another one"
)


def findings(cli: Cli, *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """By check, the worst of its findings. Of each that is not ok it is said what to do."""
    told = cli.fast_json("doctor", *arguments, code=code)
    assert told["ok"] == (code == 0)
    assert all(one["todo"] for one in told["findings"] if one["state"] != "ok"), told["findings"]
    order = ("ok", "note", "wrong", "down")
    return {one["check"]: one for one in sorted(told["findings"], key=lambda one: order.index(one["state"]))}


async def api(own: Cli, call: str, body: dict[str, Any]) -> Any:
    async with App(own.namespace, config=FAST).connect(own.url) as client:
        return await client.stores.conn.api(call.format(names=client.stores.names), body)


def test_a_healthy_namespace_is_exit_code_0(own: Cli) -> None:
    with own.worker("--with-supervisor"):
        found = findings(own)
        assert {one["state"] for one in found.values()} == {"ok"}
        assert {"server", "jetstream", "permissions", "streams", "clock", "supervisors", "workers", "runs"} == set(
            found
        )
        assert found["workers"]["text"] == "1 alive"
        assert "everything is permitted" in found["permissions"]["text"]
        told = own("doctor").stdout
        assert "streams and buckets are as they must be" in told
        own.fast("pause", "default", "--queue")
        assert findings(own)["held back"]["text"] == "queue default"


def test_no_server_is_exit_code_3_and_no_namespace_2(own: Cli) -> None:
    assert "is not set up; run `tenure setup`" in own.fast("doctor", "--namespace", "tpyo", code=2)[0]
    told = findings(own, "--url", "nats://127.0.0.1:1", code=3)["server"]
    assert "cannot reach a NATS server" in told["text"]
    assert told["todo"] == "say with --url or $TENURE_NATS_URL where it is"
    assert "cannot be the URL" in own.fast("doctor", "--url", "http://127.0.0.1", code=2)[1]
    assert "say which namespace" in own.fast("doctor", "--namespace", "", code=2)[1]
    assert "--stuck-after 'soon'" in own.fast("doctor", "--stuck-after", "soon", code=2)[1]


def test_streams_that_are_missing_or_differ_are_named(own: Cli) -> None:
    own.fast("setup", "tasks:app")
    info = asyncio.run(api(own, "STREAM.INFO.{names.sessions_stream}", {}))
    asyncio.run(api(own, "STREAM.UPDATE.{names.sessions_stream}", info["config"] | {"max_msgs_per_subject": 5}))
    found = findings(own, code=2)["streams"]
    assert "_SESSIONS: max_msgs_per_subject is 5, must be 1" in found["text"]
    own.fast("setup", "tasks:app")
    assert findings(own)["streams"]["state"] == "ok"
    asyncio.run(api(own, "STREAM.DELETE.{names.dead_stream}", {}))
    found = findings(own, code=2)["streams"]
    assert (found["text"], found["todo"]) == (f"TENURE_{own.namespace}_DEAD is missing", "run `tenure setup`")


def test_what_nobody_works_on_and_nobody_repairs_is_exit_code_3(own: Cli) -> None:
    """A killed worker and no supervisor: its session is silent, its run is stuck, and what waits finds nobody."""
    with own.worker() as worker:
        own.fast("submit", "tasks:app", "nap", "--key", "k", "--arg", "seconds=60")
        until(lambda: own.fast_json("show", "k")["phase"] == "running", "the run starts")
        assert findings(own, code=3)["supervisors"]["state"] == "down"
        worker.process.send_signal(signal.SIGKILL)
        worker.process.wait(5)
    own.fast("submit", "tasks:app", "say", "--key", "w", "--arg", "text=x")
    until(lambda: own.fast_json("sessions")[0]["state"] == "silent", "its ttl passes")
    found = findings(own, "--stuck-after", "1s", code=3)
    assert found["sessions"]["text"].startswith("1 silent: worker ")
    assert found["runs"]["text"].startswith("1 stuck: 'k' (the process that holds it is gone, for ")
    assert found["queues"]["text"] == "1 wait in queue 'default', and no worker that is alive works on it"
    assert found["workers"]["text"] == "none is alive: what is submitted waits"
    own.fast("pause", "default", "--queue")
    assert "queues" not in findings(own, code=3), "it is held back on purpose"


def test_what_is_stored_is_listed_once(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a backlog of a hundred thousand each list is a second's work, and may be asked of a server that has trouble already."""
    own.fast("submit", "tasks:app", "say", "--key", "w", "--arg", "text=x")
    lists = Counter[str]()
    request = Connection.request

    async def counted(conn: Connection, subject: str, data: bytes, **options: Any) -> Any:
        if b"subjects_filter" in data and "WORK" in subject:
            lists[str(json.loads(data)["subjects_filter"]).split(".")[2]] += 1
        return await request(conn, subject, data, **options)

    monkeypatch.setattr(Connection, "request", counted)
    assert findings(own, code=3)["queues"]["text"].startswith("1 wait in queue 'default'")
    assert lists == {"work": 1, "timer": 1, "park": 1}


def test_messages_that_can_be_nobodys_are_named_and_removed(own: Cli) -> None:
    own.fast("setup", "tasks:app")
    junk = f"tenure.{own.namespace}.work.default.urgent.k.r"
    asyncio.run(put(own, junk))
    stream = f"TENURE_{own.namespace}_WORK"
    assert findings(own)["messages"]["text"] == f"{stream} has 1 subjects that name no run: {junk}"
    assert own.fast_json("queues") == []
    assert own.fast_json("repair")["repairs"] == {"foreign": 1}
    assert "messages" not in findings(own)


async def put(own: Cli, subject: str) -> None:
    async with App(own.namespace, config=FAST).connect(own.url) as client:
        await client.stores.conn.put(subject, b"junk")


@pytest.fixture
def guarded(tmp_path: Path, namespace: str) -> Iterator[str]:
    """``127.0.0.1:<port>`` of a server where ``half`` may do all but answer wake-ups, and ``tenure`` everything."""
    config = tmp_path / "guarded.conf"
    config.write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: {json.dumps(str(tmp_path))}\n'
        f"jetstream {{ store_dir: {json.dumps(str(tmp_path))} }}\n"
        "authorization { users: [ { user: tenure, password: t }, { user: half, password: h, permissions: {"
        ' publish: { allow: [">"], deny: ["$JS.ACK.>"] } } } ] }\n'
    )
    process = subprocess.Popen([find_binary(), "-c", config], stderr=subprocess.DEVNULL)
    ports: list[int] = []

    def ready() -> bool:
        for file in tmp_path.glob("*.ports"):
            with contextlib.suppress(ValueError):  # half written
                ports[:] = [int(json.loads(file.read_text())["nats"][0].rpartition(":")[2])]
        return bool(ports)

    try:
        until(ready, "the server is there")
        yield f"127.0.0.1:{ports[0]}"
    finally:
        process.terminate()
        process.wait()


def test_a_key_whose_older_body_may_still_run_is_not_stuck(own: Cli) -> None:
    """A sweep looks after it all the same: its session may be closed any moment."""
    with own.worker("--with-supervisor"):
        nap = ("tasks:app", "nap", "--arg", "seconds=60", "--key", "p")
        own.fast("submit", *nap)
        until(lambda: own.fast_json("show", "p")["phase"] == "running", "its body starts")
        own.fast("replace", *nap, "--overlap", "parallel")
        until(lambda: [row["key"] for row in own.fast_json("repair", "--dry-run")["keys"]] == ["p"], "a sweep looks")
        assert findings(own, "--stuck-after", "1s")["runs"]["state"] == "ok"


def test_permissions_that_are_missing_are_told_in_words(guarded: str, tmp_path: Path, namespace: str) -> None:
    own = Cli(tmp_path, f"nats://tenure:t@{guarded}", namespace)
    own.fast("setup", "tasks:app")
    assert findings(own)["permissions"]["state"] == "ok"
    own.url = f"nats://half:h@{guarded}"
    told = own.fast("doctor")[0]
    assert "enough for producer, setup, viewer" in told
    assert "not enough for worker, supervisor; --role says what is missing" in told
    assert "half:h" not in told
    found = findings(own, "--role", "worker", code=2)["permissions"]
    lacking = f"not enough for worker, which must publish $JS.ACK.TENURE_{namespace}_WORK.*.> (answer wake-ups)"
    assert found["text"].startswith(lacking)
    assert findings(own, "--role", "producer")["permissions"]["state"] == "note"
    own.fast("submit", "tasks:app", "say", "--key", "w", "--arg", "text=x")
    assert findings(own, code=3)["queues"]["state"] == "down"
    assert "wrong" in {one["state"] for one in findings(own, "--role", "worker", code=2).values()}
    own.url = f"nats://half:wrong@{guarded}"
    assert "refuses these credentials" in own.fast("doctor", code=2)[0]


async def test_a_server_that_is_too_old_is_exit_code_2_and_the_todo_is_the_server(own: Cli) -> None:
    info = {"server_id": "x", "version": "2.11.9", "max_payload": 1 << 20, "headers": True, "jetstream": True}
    async with server_saying(info | {"proto": 1}) as url:
        found = (await asyncio.to_thread(findings, own, "--url", url, code=2))["server"]
    assert found["state"] == "wrong"
    assert "is 2.11.9; Tenure needs 2.12 or newer" in found["text"]
    assert found["todo"] == ANOTHER_SERVER


def test_a_server_without_jetstream_is_exit_code_2_and_the_todo_is_the_server(own: Cli, bare_server: list[str]) -> None:
    url = bare_server[0].replace("//", "//u:p@")
    found = findings(own, "--app", "tasks:app", "--url", url, code=2)["server"]
    assert "has no JetStream" in found["text"]
    assert found["todo"] == ANOTHER_SERVER
    wrong = findings(own, "--app", "tasks:app", "--url", url.replace("u:p", "u:no"), code=2)["server"]
    assert wrong["todo"].endswith("which server, and whom to connect as")
