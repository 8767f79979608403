"""Scenarios 37, 38 and 39: what cannot be encoded, what is too large, and every key there is."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from tenure import App, Client, Context, InvalidCall, Retry, Run, RunFailed
from tenure.config import MAX_INLINE_BYTES
from tenure.core import commands as c
from tenure.core.records import Task
from tenure.core.subjects import MAX_KEY_BYTES
from tests.conftest import Workers
from tests.support import FAST, wait_until

MIB = 1 << 20


@pytest.fixture
async def connections_stay(client: Client, workers: Workers):
    """Nobody's connection may drop: the server cuts off whoever publishes more than it allows."""
    yield
    assert client.stores.conn.is_connected
    assert client.stores.conn.raw.stats["reconnects"] == 0
    for running in workers.running:
        assert running.worker.metrics.errors["server"] == 0


async def is_well(client: Client, app: App) -> None:
    """The worker goes on with others."""

    @app.actor(name="well")
    async def well() -> str:
        return "well"

    run = await client.submit(well.call())
    assert await run.result(timeout=5) == "well"


# -- 37 --------------------------------------------------------------------------------------------------------------


class TwoArguments(Exception):
    """Cannot be made again from its message alone."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(code, detail)
        self.detail = detail


class Mute(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


RESULTS: dict[str, Any] = {
    "generator": lambda: (n for n in range(3)),
    "lock": threading.Lock,
    "itself": lambda: [].append,
    "nan": lambda: {"deep": [float("nan")]},
    "infinity": lambda: (1.0, float("-inf")),
    "surrogate": lambda: "\ud800",
    "object": object,
}


@pytest.mark.parametrize("kind", RESULTS)
async def test_scenario_37_a_result_that_cannot_be_encoded_fails_that_run_at_once(
    kind: str, app: App, client: Client, workers: Workers, connections_stay: None
):
    """No retry can do better, and the worker is none the worse: five attempts are allowed, one is made."""
    attempts: list[int] = []

    @app.actor(retry=Retry(max_attempts=5, initial=0.01))
    async def odd(ctx: Context) -> Any:
        attempts.append(ctx.attempt)
        return RESULTS[kind]()

    async with workers.run(app):
        run = await client.submit(odd.call(), key="k")
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=5)
        await is_well(client, app)
    assert caught.value.error_type == "Unencodable"
    assert "result" in caught.value.message
    assert attempts == [1]


ERRORS: dict[str, Any] = {
    "two arguments": lambda: TwoArguments(7, "detail"),
    "mute": Mute,
    "surrogates": lambda: ValueError("\ud800 \udfff"),
    "long": lambda: ValueError("x" * (2 * MIB)),
    "null": lambda: ValueError("\x00"),
    "exit": lambda: SystemExit(3),
    "group": lambda: ExceptionGroup("several", [TwoArguments(1, "a"), Mute()]),
}


@pytest.mark.parametrize("kind", ERRORS)
async def test_scenario_37_any_exception_becomes_a_stored_failure(
    kind: str, app: App, client: Client, workers: Workers, connections_stay: None
):
    """Exceptions travel as text and are never built again; they are retried like any other."""
    attempts: list[int] = []

    @app.actor(retry=Retry(max_attempts=2, initial=0.01))
    async def bad(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        error = ERRORS[kind]()
        raise error

    async with workers.run(app):
        run = await client.submit(bad.call(), key="k")
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=5)
        await is_well(client, app)
    assert caught.value.error_type.endswith(type(ERRORS[kind]()).__name__)
    assert len(caught.value.message) <= 4_096
    assert attempts == [1, 2]


async def test_scenario_37_arguments_that_no_longer_decode_fail_that_run_at_once(
    app: App, client: Client, workers: Workers, namespace: str, connections_stay: None
):
    """A deploy changed the signature while runs waited: those fail by name, without a retry; new ones run."""
    old = App(namespace, config=FAST)
    bodies: list[int] = []

    @old.actor(name="changed")
    async def before(path: str, depth: int = 1) -> None: ...

    @app.actor(name="changed")
    async def after(path: int) -> int:
        bodies.append(path)
        return path

    stale = await client.submit(before.call("a.pdf"), key="old")
    fresh = await client.submit(after.call(7), key="new")
    async with workers.run(app):
        with pytest.raises(RunFailed, match="signature") as caught:
            await stale.result(timeout=5)
        assert await fresh.result(timeout=5) == 7
    status = await stale.status()
    assert status is not None
    assert (caught.value.error_type, status.attempt) == ("InvalidCall", 1)
    assert bodies == [7]


# -- 38 --------------------------------------------------------------------------------------------------------------

# Around the inline limit, around the server's limit for a message, and over it.
SIZES = [65_000, 66_000, MIB - 10, 5 * MIB]


@pytest.mark.parametrize("size", SIZES)
async def test_scenario_38_large_arguments_and_results_arrive_whole(
    size: int, app: App, client: Client, workers: Workers, connections_stay: None
):
    """1 MiB - 10 B fits the payload but not with its headers.

    Nats.py then loses the connection of everybody who shares it.
    """

    @app.actor
    async def echo(text: str) -> str:
        return text[::-1]

    text = "".join(chr(97 + n % 26) for n in range(size))
    async with workers.run(app):
        run = await client.submit(echo.call(text), key="k")
        assert await run.result(timeout=20) == text[::-1]
        await is_well(client, app)


async def test_scenario_38_what_is_over_the_blob_limit_is_refused_by_name(
    app: App, client: Client, workers: Workers, connections_stay: None
):
    """64 MiB of arguments: InvalidCall, nothing stored.

    64 MiB of result: that run fails at once, and the worker goes on.
    """
    attempts: list[int] = []

    @app.actor
    async def echo(ctx: Context, text: str, times: int) -> str:
        attempts.append(ctx.attempt)
        return text * times

    with pytest.raises(InvalidCall, match="blob_limit_bytes") as caught:
        await client.submit(echo.call("x" * (64 * MIB), 1), key="k")
    assert caught.value.field == "call"
    assert await client.status("k") is None
    async with workers.run(app):
        run = await client.submit(echo.call("x" * MIB, 64), key="k")
        with pytest.raises(RunFailed, match="blob_limit_bytes"):
            await run.result(timeout=20)
        await is_well(client, app)
    assert attempts == [1]


async def test_scenario_38_an_outcome_over_the_servers_limit_is_a_clear_error_and_no_lost_connection(
    app: App, workers: Workers, connections_stay: None
):
    """Result, successor and spawned runs fit by themselves, and together not one message.

    Refused here, before the server cuts us off; the failure is stored, and its letter kept.
    """
    app.config = replace(FAST, inline_limit_bytes=MAX_INLINE_BYTES)
    most = MAX_INLINE_BYTES - 100

    @app.actor
    async def echo(ctx: Context, text: str) -> str:
        if ctx.generation == 1:
            for n in range(6):
                ctx.spawn(echo.call("x" * (most - 700)), key=f"child-{n}-{'k' * 240}")
            ctx.reschedule(call=echo.call("x" * most))
        return text

    async with app.connect(workers.url) as client, workers.run(app):
        run = await client.submit(echo.call("x" * most), key="k")
        with pytest.raises(RunFailed, match=r"cannot be stored: .* over the server's limit"):
            await run.result(timeout=10)
        assert await client.status(f"child-0-{'k' * 240}") is None
        letter = await client.dead.get("k")
        assert letter is not None
        assert len(bytes(letter.task.args)) > most
        await is_well(client, app)


async def test_scenario_38_a_record_that_only_its_headers_put_over_the_limit_is_refused(
    app: App, client: Client, connections_stay: None
):
    """The server counts payload and headers together, and answers with the end of the connection.

    Room is kept for them.
    """
    refused = 0
    for spare in range(0, 4_000, 100):
        task = Task(actor="echo", args=Raw(b'{"text":"%s"}' % (b"x" * (MIB - spare))))
        command = c.Submit(key=f"k{spare}", run_id=client.stores.clock.new_id(), task=task)
        try:
            await client.stores.runs.commit(command.key, command)
        except InvalidCall:
            refused += 1
        assert client.stores.conn.raw.stats["reconnects"] == 0
    assert 20 <= refused < 40


async def test_scenario_38_more_spawned_runs_than_one_record_holds_fail_the_run_by_name(
    app: App, client: Client, workers: Workers, connections_stay: None
):
    """Outbox entries live in the record: too many are a clear error of that run, all or nothing."""

    @app.actor
    async def child(text: str) -> None: ...

    @app.actor
    async def parent(ctx: Context) -> None:
        for n in range(100):
            ctx.spawn(child.call("x" * 60_000), key=f"child-{n}")

    async with workers.run(app):
        run = await client.submit(parent.call(), key="k")
        with pytest.raises(RunFailed, match="spawn fewer"):
            await run.result(timeout=10)
        assert await client.status("child-0") is None
        await is_well(client, app)


# -- 39 --------------------------------------------------------------------------------------------------------------

NASTY = [
    *("a b", "a.b", "*", ">", "a.*", "a.>", "$JS.API.>", "$KV.x", "stream", "_INBOX.x", "tenure.x.submit.y", "."),
    *("A", "a", "=", "=41", "%41", "-", "_", "\x00", "\n", "\r\nPUB x 0\r\n", "\t", " ", "\u00a0", "\u200b", "\ufeff"),
    *("e\u0301", "\u00e9", "\U0001f9ff", "\u202e", "K" * MAX_KEY_BYTES, "\U0001f9ff" * (MAX_KEY_BYTES // 4)),
]


def register_echo(app: App) -> list[str]:
    """An actor that returns its key; returns the keys it saw."""
    seen: list[str] = []

    @app.actor(name="echo")
    async def echo(ctx: Context) -> str:
        seen.append(ctx.key)
        return ctx.key

    return seen


async def submitted(client: Client, app: App, keys: list[str], delay: float | None = None) -> list[Run[Any]]:
    """One run of ``echo`` for each key."""
    out = await client.submit_many([(app.actors["echo"].call(), key) for key in keys], delay=delay)
    runs = [run for run in out if isinstance(run, Run)]
    assert len(runs) == len(keys), out
    return runs


async def test_scenario_39_nasty_keys_all_run_and_none_collides(
    app: App, client: Client, workers: Workers, connections_stay: None
):
    """Wildcards, system subjects, control characters, look-alikes, the empty-looking, the longest.

    Each is one key of its own.
    """
    seen = register_echo(app)
    async with workers.run(app):
        runs = await submitted(client, app, NASTY)
        for key, run in zip(NASTY, runs, strict=True):
            assert await run.result(timeout=10) == key
            assert run.generation == 1
    assert sorted(seen) == sorted(NASTY)
    found: list[str] = []
    await client.stores.runs.scan(lambda header: found.append(header.key))
    assert sorted(found) == sorted(NASTY)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60), min_size=5, max_size=40, unique=True
    )
)
async def test_scenario_39_any_unicode_key_runs_and_can_be_found_and_cancelled(
    keys: list[str], app: App, client: Client, workers: Workers
):
    """A sample of all keys through a real server: submitted, run, read, listed, cancelled; never another key's."""
    if "echo" not in app.actors:
        register_echo(app)
    async with workers.run(app):
        runs = await submitted(client, app, keys)
        assert [await run.result(timeout=10) for run in runs] == keys
    later = await submitted(client, app, keys, delay=60)
    cancelled = await asyncio.gather(*(client.cancel(key) for key in keys))
    assert [out.run_id for out in cancelled] == [run.run_id for run in later]
    assert {out.outcome for out in cancelled} == {"cancelled"}
    for key in keys:
        assert await client.purge(key)


@pytest.mark.parametrize("key", ["", "x" * 4_096, "\U0001f9ff" * 1_024, "\ud800", 7, None, b"k"])
async def test_scenario_39_a_key_that_cannot_be_is_an_error_that_names_it(key: Any, app: App, client: Client):
    """Empty, 4 KiB, half a surrogate pair, no string: refused by every door before anything is sent."""
    register_echo(app)
    call = app.actors["echo"].call()
    doors = [
        lambda: client.replace(call, key=key),
        lambda: client.cancel(key),
        lambda: client.status(key),
        lambda: client.purge(key),
        lambda: _handle(client, key),
    ]
    if key is not None:  # submit makes a key of its own
        doors.append(lambda: client.submit(call, key=key))
        [outcome] = await client.submit_many([(call, key)])
        assert isinstance(outcome, InvalidCall)
    for door in doors:
        with pytest.raises(InvalidCall) as caught:
            await door()
        assert caught.value.field == "key"


async def _handle(client: Client, key: Any) -> None:
    client.run(key)


async def test_scenario_39_the_subject_of_every_key_stays_within_its_namespace(app: App, client: Client):
    """What the server has stored after the nasty keys: records and wake-ups of this namespace, one token each."""
    register_echo(app)
    await submitted(client, app, NASTY)
    for stream, depth in ((app.names.runs_stream, 3), (app.names.work_stream, 7)):
        info = await client.stores.conn.api(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})
        assert isinstance(info, dict)
        subjects = info["state"]["subjects"]
        assert len(subjects) == len(NASTY)
        assert {len(subject.split(".")) for subject in subjects} == {depth}
    await wait_until(lambda: client.stores.conn.is_connected, description="still connected")
