"""The same commands as requests: a micro service that is discovered, answers with what became of it, and tells its numbers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import nats
import pytest
from msgspec.structs import replace
from nats.aio.msg import Msg

from tenure import App, Client
from tests.conftest import Supervisors, Workers
from tests.strangers import STATUS, Stranger, Wire, phase, rejected
from tests.support import FAST, wait_until

ERROR, CODE = "Nats-Service-Error", "Nats-Service-Error-Code"


@pytest.fixture
def app(open_app: App) -> App:
    return open_app


async def ask(stranger: Stranger, what: str, arguments: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
    """The error code (0: none) and what was said."""
    data = b"" if arguments is None else json.dumps(arguments).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await stranger.client.request(f"{stranger.root}.api.{what}", data, timeout=5, headers=named or None)
    code = int((answer.headers or {}).get(CODE, "0"))
    assert bool(code) == bool((answer.headers or {}).get(ERROR))
    return code, json.loads(answer.data)


async def test_a_submit_a_replace_a_look_and_a_cancel_are_answered(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors, workers: Workers
) -> None:
    async with supervisors.run(app), workers.run(app):
        _, first = await ask(stranger, "submit.hold", Tenure_Key="k")
        assert (first["key"], first["generation"], first["accepted"]) == ("k", 1, True)
        assert first["phase"] in {"queued", "running"}
        assert first["run_id"] == (await client.run("k")).run_id
        await phase(client, "k", "running")
        _, again = await ask(stranger, "submit.hold", Tenure_Key="k")
        assert (again["run_id"], again["accepted"], again["phase"]) == (first["run_id"], False, "running")
        _, second = await ask(stranger, "replace.hold", Tenure_Key="k")
        assert (second["generation"], second["accepted"]) == (2, True)
        _, look = await ask(stranger, "status", Tenure_Key="k")
        assert (look["run_id"], look["actor"], look["generation"]) == (second["run_id"], "hold", 2)
        _, out = await ask(stranger, "cancel", {"reason": "enough"}, Tenure_Key="k")
        assert (out["run_id"], out["accepted"]) == (second["run_id"], True)
        assert out["outcome"] in {"cancelled", "stopping"}
        assert (await (await client.run("k")).wait(5)).reason == "enough"
        _, later = await ask(stranger, "submit.add", {"one": 1}, Tenure_Delay="1h")
        assert (later["key"], later["phase"]) == (later["run_id"], "scheduled")


async def test_a_request_made_again_with_its_message_id_is_the_same_run(
    app: App, stranger: Stranger, supervisors: Supervisors
) -> None:
    async with supervisors.run(app):
        said = [await ask(stranger, "submit.add", {"one": 1}, Nats_Msg_Id="only") for _ in range(2)]
        assert said[0] == said[1]
        other = await ask(stranger, "submit.add", {"one": 1}, Nats_Msg_Id="other")
        assert other[1]["key"] != said[0][1]["key"]


@pytest.mark.parametrize(
    ("what", "arguments", "headers", "code", "error"),
    [
        ("submit.add", {"one": "1"}, {}, 400, "arguments"),
        ("submit.add", [1], {}, 400, "malformed"),
        ("submit.add", {"one": 1}, {"Tenure_Key": ""}, 400, "key"),
        ("submit.add", {"one": 1}, {"Tenure_At": "2030-01-31T08:00:00"}, 400, "time"),
        ("submit.add", {"one": 1}, {"Tenure_Kye": "k"}, 400, "header"),
        ("submit.sub", {"one": 1}, {}, 404, "unknown_actor"),
        ("submit.add", {"one": 1}, {"Tenure_Key": "live", "Tenure_If_Live": "reject"}, 409, "live"),
        ("replace.add", {"one": 1}, {}, 400, "key"),
        ("cancel", None, {}, 400, "key"),
    ],
)
async def test_what_is_refused_is_answered_with_a_code_and_kept(
    what: str,
    arguments: Any,
    headers: dict[str, str],
    code: int,
    error: str,
    app: App,
    client: Client,
    stranger: Stranger,
    supervisors: Supervisors,
) -> None:
    await client.submit(app.actors["add"].call(1), key="live")
    async with supervisors.run(app):
        said, body = await ask(stranger, what, arguments, **headers)
        assert (said, body["error"]) == (code, error)
        assert body["text"]
        (told,) = await rejected(client)
        assert (told.reason, told.text, told.subject) == (
            error,
            body["text"],
            f"{stranger.root}.api.{what}".rstrip("."),
        )


@pytest.mark.parametrize("what", ["cancel", "status"])
async def test_a_key_that_is_not_there_is_told_and_not_kept(
    what: str, app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    async with supervisors.run(app):
        code, body = await ask(stranger, what, Tenure_Key="nobody")
        assert (code, body["error"]) == (404, "not_found")
        assert await client.dead.rejected() == []


async def discover(stranger: Stranger, subject: str, number: int) -> list[dict[str, Any]]:
    """What ``number`` instances say."""
    said: list[dict[str, Any]] = []

    async def received(msg: Msg) -> None:
        said.append(json.loads(msg.data))

    inbox = stranger.client.new_inbox()
    listening = await stranger.client.subscribe(inbox, cb=received)
    await stranger.client.publish(subject, b"", reply=inbox)
    await wait_until(lambda: len(said) >= number, description=f"{number} answer {subject}")
    await listening.unsubscribe()
    return said


async def test_it_is_discovered_and_its_numbers_add_up(app: App, stranger: Stranger, supervisors: Supervisors) -> None:
    """Two instances share the requests."""
    name = f"tenure-{app.namespace}"
    async with supervisors.run(app), supervisors.run(app):
        pings = await discover(stranger, f"$SRV.PING.{name}", 2)
        assert {one["type"] for one in pings} == {"io.nats.micro.v1.ping_response"}
        assert len({one["id"] for one in pings}) == 2
        everybody = await discover(stranger, "$SRV.PING", 2)
        assert {one["id"] for one in pings} <= {one["id"] for one in everybody}
        (info,) = await discover(stranger, f"$SRV.INFO.{name}.{pings[0]['id']}", 1)
        assert {one["name"]: one["subject"] for one in info["endpoints"]} == {
            "submit": f"{stranger.root}.api.submit.*",
            "replace": f"{stranger.root}.api.replace.*",
            "cancel": f"{stranger.root}.api.cancel",
            "status": f"{stranger.root}.api.status",
        }
        for number in range(20):
            await ask(stranger, "submit.add", {"one": number})
        await ask(stranger, "submit.add", {"one": "1"})
        stats = await discover(stranger, f"$SRV.STATS.{name}", 2)
        submits = [one for instance in stats for one in instance["endpoints"] if one["name"] == "submit"]
        assert sum(one["num_requests"] for one in submits) == 21
        assert sum(one["num_errors"] for one in submits) == 1
        assert all(one["processing_time"] > 0 for one in submits if one["num_requests"])
        assert all(instance["started"] for instance in stats)


async def test_an_actor_that_only_another_supervisors_code_knows_is_found(
    app: App, stranger: Stranger, supervisors: Supervisors
) -> None:
    """A rolling deploy: half of the supervisors are older."""
    old = App(app.namespace, config=FAST)
    async with supervisors.run(old), supervisors.run(old), supervisors.run(app):
        for number in range(12):
            code, said = await ask(stranger, "submit.add", {"one": number}, Tenure_Key=f"k{number}")
            assert (code, said["key"], said["accepted"]) == (0, f"k{number}", True)


async def test_a_command_of_the_inbox_that_an_older_supervisor_gets_waits_for_a_newer_one(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    old = App(app.namespace, config=replace(FAST, command_patience_seconds=60.0))
    async with supervisors.run(old) as older:
        await stranger.send("submit.add", {"one": 1}, Tenure_Key="k")
        await wait_until(lambda: older.metrics.commands["submit", "put_off"], description="put off")
        async with supervisors.run(app):
            await phase(client, "k")
    assert await client.dead.rejected() == []


async def test_headers_that_break_nats_py_do_not_break_the_service(
    app: App, stranger: Stranger, supervisors: Supervisors, nats_server: str
) -> None:
    """Plain NATS hands them on as they are, a status line that is no text among them."""
    async with supervisors.run(app) as supervisor, Wire(nats_server) as wire:
        await wire.publish(f"{stranger.root}.api.submit.add", STATUS, b'{"one": 1}')
        await wait_until(lambda: supervisor.metrics.rejections["malformed"], description="rejected")
        code, _ = await ask(stranger, "submit.add", {"one": 1})
        assert code == 0
        assert supervisor.stores.conn.raw.stats["reconnects"] == 0


async def test_many_requests_at_once_are_all_answered(
    app: App, stranger: Stranger, supervisors: Supervisors, nats_server: str
) -> None:
    async with supervisors.run(app):
        connected = await nats.connect(nats_server)
        other = Stranger(connected, app.namespace)
        said = await asyncio.gather(
            *(ask(other, "submit.add", {"one": n}, Tenure_Key=f"k{n % 50}") for n in range(300))
        )
        assert {code for code, _ in said} == {0}
        assert sum(body["accepted"] for _, body in said) == 50
        await connected.close()


@pytest.mark.parametrize("what", ["api.status", "api.submit.add", "api.submit.unknown"])
async def test_no_answer_is_written_over_a_record(
    what: str, app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    """Who asks says where the answer goes; a supervisor may write where he may not, and must not do it for him."""
    async with supervisors.run(app):
        run = await client.submit(app.actors["hold"].call(), key="victim", delay=3600)
        before = (await client.stores.runs.read("victim")).revision
        for subject in (f"{stranger.root}.{what}", "$SRV.PING"):
            await stranger.client.publish(subject, b"{}", reply=app.names.record("victim"))
        await ask(stranger, "status", Tenure_Key="victim")
        await stranger.client.request("$SRV.PING", b"", timeout=5)
        assert (await client.stores.runs.read("victim")).revision == before
        assert await run.status() is not None
