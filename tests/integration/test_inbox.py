"""The inbox from the outside: a plain NATS client that knows nothing but subjects, headers and JSON."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from nats.js.errors import APIError

from tenure import App, Client
from tests.conftest import Supervisors, Workers
from tests.strangers import Stranger, phase, rejected, run_of, until_forgotten
from tests.support import FAST, wait_until


@pytest.fixture
def app(open_app: App) -> App:
    return open_app


# -- what may be asked ---------------------------------------------------------------------------------------------


async def test_a_submit_runs_with_its_arguments_and_the_actors_defaults(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors, workers: Workers
) -> None:
    async with supervisors.run(app) as supervisor, workers.run(app):
        await stranger.send("submit.add", {"one": 40}, Tenure_Key="sum")
        run = await run_of(client, "sum")
        assert await run.result(5) == 42
        await until_forgotten(client, "sum")
        assert supervisor.metrics.commands["submit", "applied"] == 1
        assert run.generation == 1


async def test_a_command_is_kept_from_its_acknowledgement_on_and_applied_by_a_supervisor_that_comes_later(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    await stranger.send("submit.add", {"one": 1}, Tenure_Key="later")
    assert await client.status("later") is None
    async with supervisors.run(app):
        assert await phase(client, "later") == "queued"


async def test_a_submit_without_a_key_gets_one_and_an_empty_payload_is_no_arguments(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    keys: list[str] = []
    stop = await client.stores.runs.follow_all(lambda key, _found: keys.append(key))
    async with supervisors.run(app):
        await stranger.raw("submit.hold", b"")
        await stranger.raw("submit.hold", b"")
        await wait_until(lambda: len(set(keys)) == 2, description="two runs")
    await stop()


async def test_a_delay_counts_from_the_acknowledgement_and_a_time_is_taken_as_it_is(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    before = datetime.now(UTC)
    await stranger.send("submit.add", {"one": 1}, Tenure_Key="a", Tenure_Delay="1h30m")
    await stranger.send("submit.add", {"one": 1}, Tenure_Key="b", Tenure_Delay="90.5")
    at = before + timedelta(days=1)
    await stranger.send("replace.add", {"one": 1}, Tenure_Key="c", Tenure_At=at.isoformat())
    await asyncio.sleep(0.5)  # work: it lies there for a while
    async with supervisors.run(app):
        due = {}
        for key in "abc":
            assert await phase(client, key) == "scheduled"
            status = await client.status(key)
            assert status is not None
            assert status.due is not None
            due[key] = (status.due - before).total_seconds()
    assert 5_400 <= due["a"] < 5_400.4
    assert 90.5 <= due["b"] < 90.9
    assert due["c"] == pytest.approx(86_400, abs=0.001)


async def test_a_live_run_is_kept_replaced_or_the_command_rejected(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    async with supervisors.run(app) as supervisor:
        first = await client.submit(app.actors["add"].call(1), key="k")
        await stranger.send("submit.add", {"one": 2}, Tenure_Key="k")
        await wait_until(lambda: supervisor.metrics.commands["submit", "kept"], description="kept")
        await stranger.send("submit.add", {"one": 3}, Tenure_Key="k", Tenure_If_Live="reject")
        (told,) = await rejected(client)
        assert (told.reason, told.headers["Tenure-Key"], told.data) == ("live", "k", b'{"one": 3}')
        assert first.run_id == (await client.run("k")).run_id
        await stranger.send("submit.add", {"one": 4}, Tenure_Key="k", Tenure_If_Live="replace")
        await wait_until(lambda: supervisor.metrics.commands["submit", "applied"], description="replaced")
        status = await client.status("k")
        assert status is not None
        assert status.generation == 2


async def test_a_replace_and_a_cancel_reach_a_body_that_runs(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors, workers: Workers
) -> None:
    async with supervisors.run(app), workers.run(app):
        first = await client.submit(app.actors["hold"].call(), key="k")
        await phase(client, "k", "running")
        await stranger.send("replace.hold", {}, Tenure_Key="k", Tenure_Overlap="parallel")

        async def second_runs() -> bool:
            status = await client.status("k")
            return status is not None and status.generation == 2 and status.phase == "running"

        await wait_until(second_runs, description="the second generation runs")
        second = await client.run("k")
        await stranger.send("cancel", {"reason": "enough"}, Tenure_Key="k", Tenure_Run=first.run_id)
        await stranger.send("cancel", {"reason": "of it"}, Tenure_Key="k")
        assert (await second.wait(5)).reason == "of it"


async def test_arguments_over_the_inline_limit_travel_as_a_blob(
    namespace: str, client: Client, nats_server: str, stranger: Stranger, supervisors: Supervisors, workers: Workers
) -> None:
    app = App(namespace, config=replace(FAST, inline_limit_bytes=2_000, wake_limit_bytes=2_000))

    @app.actor
    async def length(text: str) -> int:
        return len(text)

    async with supervisors.run(app), workers.run(app):
        await stranger.send("submit.length", {"text": "x" * 300_000}, Tenure_Key="big")
        assert await (await run_of(client, "big")).result(10) == 300_000
        found = await client.stores.runs.read("big")
        assert found.record is not None
        assert found.record.task.blob is not None


# -- what is refused -----------------------------------------------------------------------------------------------

BAD: list[tuple[str, str, bytes, dict[str, str], str]] = [
    ("no JSON", "submit.add", b"{", {}, "malformed"),
    ("no object", "submit.add", b"[1]", {}, "malformed"),
    ("no UTF-8", "submit.add", b'{"one": "\xff"}', {}, "malformed"),
    ("a missing argument", "submit.add", b"{}", {}, "arguments"),
    ("an unknown argument", "submit.add", b'{"one": 1, "three": 3}', {}, "arguments"),
    ("a wrong type", "submit.add", b'{"one": "1"}', {}, "arguments"),
    ("too deep", "submit.add", b'{"one":' + b"[" * 300 + b"]" * 300 + b"}", {}, "arguments"),
    ("an empty key", "submit.add", b'{"one": 1}', {"Tenure-Key": ""}, "key"),
    ("a long key", "submit.add", b'{"one": 1}', {"Tenure-Key": "k" * 300}, "key"),
    ("a replace without a key", "replace.add", b'{"one": 1}', {}, "key"),
    ("a cancel without a key", "cancel", b"", {}, "key"),
    ("a naive time", "submit.add", b'{"one": 1}', {"Tenure-At": "2030-01-31T08:00:00"}, "time"),
    ("no time", "submit.add", b'{"one": 1}', {"Tenure-At": "tomorrow"}, "time"),
    ("a far time", "submit.add", b'{"one": 1}', {"Tenure-At": "9030-01-31T08:00:00Z"}, "time"),
    ("a negative delay", "submit.add", b'{"one": 1}', {"Tenure-Delay": "-1"}, "time"),
    ("an endless delay", "submit.add", b'{"one": 1}', {"Tenure-Delay": "9" * 400}, "time"),
    ("two times", "submit.add", b'{"one": 1}', {"Tenure-Delay": "1", "Tenure-At": "2030-01-31T08:00:00Z"}, "time"),
    ("an unknown value", "submit.add", b'{"one": 1}', {"Tenure-If-Live": "perhaps"}, "header"),
    ("an unknown overlap", "replace.add", b'{"one": 1}', {"Tenure-Key": "k", "Tenure-Overlap": "x"}, "header"),
    ("a header of another verb", "submit.add", b'{"one": 1}', {"Tenure-Overlap": "stop"}, "header"),
    ("an unknown header", "submit.add", b'{"one": 1}', {"Tenure-Kye": "k"}, "header"),
    ("no run id", "cancel", b"", {"Tenure-Key": "k", "Tenure-Run": "1"}, "header"),
    ("a cancel with arguments", "cancel", b'{"one": 1}', {"Tenure-Key": "k"}, "arguments"),
    ("an actor nobody knows", "submit.sub", b'{"one": 1}', {}, "unknown_actor"),
    ("no name of an actor", "submit.$x", b'{"one": 1}', {}, "unknown_actor"),
]


async def test_what_cannot_be_carried_out_is_kept_with_its_reason_and_stops_nothing_else(
    app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    async with supervisors.run(app) as supervisor:
        for _, what, data, headers, _ in BAD:
            await stranger.raw(what, data, headers)
        await stranger.send("submit.add", {"one": 1}, Tenure_Key="good")
        await phase(client, "good")
        told = await rejected(client, len(BAD))
        by_payload = {(one.subject, one.data, tuple(sorted(one.headers.items()))): one.reason for one in told}
        wanted = {
            (f"{stranger.root}.{what}", data, tuple(sorted(headers.items()))): why
            for _, what, data, headers, why in BAD
        }
        assert by_payload == wanted
        assert all(one.text for one in told)
        assert await client.dead.list() == [], "they are a kind of their own"
        assert await client.status("k") is None
        assert sum(supervisor.metrics.rejections.values()) == len(BAD)
        assert supervisor.metrics.rejections["time"] == 6
        assert set(supervisor.metrics.rejections) <= {one[-1] for one in BAD} | set(supervisor.metrics.rejections)
    info = await stranger.js.stream_info(client.app.names.inbox_stream)
    assert info.state.messages == 0


async def test_arguments_over_the_limit_are_refused(
    namespace: str, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    app = App(namespace, config=replace(FAST, blob_limit_bytes=200_000))

    @app.actor
    async def length(text: str) -> int:
        return len(text)

    async with supervisors.run(app):
        await stranger.send("submit.length", {"text": "x" * 500_000}, Tenure_Key="big")
        (told,) = await rejected(client)
    assert told.reason == "too_large"
    assert told.size > 500_000
    assert len(told.data) == 131_072
    assert await client.status("big") is None


HARMFUL = [
    {"Nats-Schedule": "@at 2030-01-01T00:00:00Z", "Nats-Schedule-Target": "{root}.submit.add"},
    {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "{root}.submit.other"},
    {"Nats-TTL": "1s"},
    {"Nats-Rollup": "all"},
    {"Nats-Rollup": "sub"},
    {"Nats-Incr": "1"},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    {"Nats-Expected-Last-Sequence": "99"},
    {"Nats-Expected-Stream": "OTHER"},
]


@pytest.mark.parametrize("headers", HARMFUL, ids=lambda headers: next(iter(headers)))
async def test_a_header_that_would_act_on_other_messages_is_refused_in_the_answer_or_does_nothing(
    client: Client, stranger: Stranger, headers: dict[str, str]
) -> None:
    before = await stranger.send("submit.add", {"one": 1}, Tenure_Key="before")
    filled = {name: value.format(root=stranger.root) for name, value in headers.items()}
    try:
        await stranger.raw("submit.add", b'{"one": 2}', filled)
    except APIError as error:
        assert error.err_code  # noqa: PT017  (whether it is refused or stored is the server's; neither may do harm)
        stored = 1
    else:
        stored = 2
    info = await stranger.js.stream_info(client.app.names.inbox_stream)
    assert info.state.messages == stored
    assert info.state.first_seq == before
    if "Nats-TTL" in headers or "Nats-Rollup" in headers or "Nats-Schedule" in headers:
        assert stored == 1
