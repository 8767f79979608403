"""Everything that comes in wrong - calls, times, messages, records - on a real server.

The fault is named, nobody is harmed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tenure import App, Client, Context, InvalidCall, NewerSchema, RunFailed, TenureError
from tenure.core.records import Record, encode
from tests.conftest import Running, Workers
from tests.inputs import is_well, register
from tests.support import FAST, wait_until


async def nothing_is_stored(client: Client) -> bool:
    for stream in (client.app.names.runs_stream, client.app.names.work_stream, client.app.names.blobs_stream):
        info = await client.stores.conn.api(f"STREAM.INFO.{stream}", {})
        assert isinstance(info, dict)
        if info["state"]["messages"]:
            return False
    return True


async def depth(client: Client) -> int:
    info = await client.stores.conn.api(f"STREAM.INFO.{client.app.names.work_stream}", {})
    assert isinstance(info, dict)
    return int(info["state"]["messages"])


async def drained(client: Client) -> bool:
    return await depth(client) == 0


async def only_one_is_left(client: Client) -> bool:
    return await depth(client) == 1


# -- calls -----------------------------------------------------------------------------------------------------------

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str | None]] = {
    "missing": ((), {}, "path"),
    "wrong type": ((7,), {}, "path"),
    "wrong nested type": (("p",), {"depth": "two"}, "depth"),
    "unknown": (("p",), {"depht": 2}, "depht"),
    "twice": (("p",), {"path": "q"}, "path"),
    "too many": (("p", 1, 0.0, None, "more"), {}, None),
    "no json": (("p",), {"extra": threading.Lock()}, "extra"),
    "generator": (("p",), {"extra": iter("abc")}, "extra"),
    "nan": (("p",), {"ratio": float("nan")}, "ratio"),
    "deep infinity": (("p",), {"extra": {"a": [float("inf")]}}, "extra"),
    "lone surrogate": (("\ud800",), {}, "path"),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_a_wrong_call_is_refused_where_it_is_made(kind: str, app: App, client: Client):
    """It names its argument, and nothing of it reaches the server or a worker."""
    register(app)
    args, kwargs, field = CALLS[kind]
    with pytest.raises(InvalidCall) as caught:
        await client.submit(app.actors["typed"].call(*args, **kwargs))
    assert caught.value.field == field
    assert await nothing_is_stored(client)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "negative delay": ({"delay": -0.001}, "delay"),
    "nan delay": ({"delay": float("nan")}, "delay"),
    "endless delay": ({"delay": float("inf")}, "delay"),
    "far delay": ({"delay": 1e12}, "delay"),
    "text delay": ({"delay": "1s"}, "delay"),
    "bool delay": ({"delay": True}, "delay"),
    "negative timedelta": ({"delay": timedelta(seconds=-1)}, "delay"),
    "naive": ({"at": datetime(2030, 1, 1)}, "at"),  # noqa: DTZ001  (the naive datetime is the bad input)
    "no datetime": ({"at": 1_900_000_000}, "at"),
    "far": ({"at": datetime(2999, 1, 1, tzinfo=UTC)}, "at"),
    "both": ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "at"),
    "if_live": ({"if_live": "perhaps"}, "if_live"),
    "if_differs": ({"if_differs": None}, "if_differs"),
}


@pytest.mark.parametrize("kind", OPTIONS)
async def test_a_wrong_option_is_refused_by_name(kind: str, app: App, client: Client):
    register(app)
    options, field = OPTIONS[kind]
    call = app.actors["typed"].call("p")
    with pytest.raises(InvalidCall) as caught:
        await client.submit(call, key="k", **options)
    assert caught.value.field == field
    [outcome] = await client.submit_many([(call, "k")], **options)
    assert isinstance(outcome, InvalidCall)
    if field in {"delay", "at"}:
        with pytest.raises(InvalidCall):
            await client.replace(call, key="k", **options)
    assert await nothing_is_stored(client)


@pytest.mark.parametrize("what", [None, "text", lambda: None, 7, object()])
async def test_what_is_no_call_is_refused(what: Any, app: App, client: Client):
    """The function itself, its result, anything: only actor.call(...) makes one."""
    for door in (client.submit(what, key="k"), client.replace(what, key="k")):
        with pytest.raises(InvalidCall) as caught:
            await door
        assert caught.value.field == "call"
    assert await nothing_is_stored(client)


async def test_bad_items_of_many_stop_no_good_one(app: App, client: Client, workers: Workers):
    """One outcome per item, in order."""
    register(app)
    good = app.actors["typed"].call("p")
    items: list[Any] = [(good, "a"), (good, ""), None, (good,), ("x", "b"), (good, "c"), (good, "\ud800"), (good, None)]
    out = await client.submit_many(items)
    assert [isinstance(outcome, InvalidCall) for outcome in out] == [False, True, True, True, True, False, True, False]
    async with workers.run(app):
        assert await client.run("c").result(timeout=5) == "p/1"


async def test_a_handle_to_a_key_without_a_record_says_so_and_stores_nothing(app: App, client: Client):
    run = client.run("nobody")
    for ask in (run.result(timeout=1), run.wait(timeout=1), run.status(), run.cancel()):
        with pytest.raises(TenureError, match="nobody"):
            await ask
    assert (await client.cancel("nobody")).outcome == "not_found"
    assert await client.status("nobody") is None
    assert await client.purge("nobody") is False
    assert await nothing_is_stored(client)


async def test_a_client_that_is_not_connected_says_so(app: App):
    register(app)
    client = app.connect()
    with pytest.raises(TenureError, match="async with"):
        await client.submit(app.actors["typed"].call("p"))


# -- what a worker meets ---------------------------------------------------------------------------------------------


async def claims(running: Running, actor: str, outcome: str, at_least: int = 1) -> None:
    metrics = running.worker.metrics
    await wait_until(lambda: metrics.claims[actor, outcome] >= at_least, description=f"counted as {outcome}")


async def test_a_worker_that_does_not_know_an_actor_hands_it_on_and_never_loses_it(
    app: App, client: Client, workers: Workers, namespace: str
):
    """Old and new worker on one queue.

    The old one gives it back each time; as soon as the new one is there, it runs, once.
    """
    old = App(namespace, config=FAST)
    register(old)
    bodies: list[int] = []

    @app.actor(name="new")
    async def new(ctx: Context) -> int:
        bodies.append(ctx.attempt)
        return ctx.attempt

    async with workers.run(old) as running:
        run = await client.submit(new.call(), key="k")
        await claims(running, "new", "unknown_actor", at_least=2)
        status = await run.status()
        assert status is not None
        assert (status.phase, status.attempt, status.failures) == ("queued", 0, 0)
        async with workers.run(app):
            assert await run.result(timeout=10) == 1
    assert bodies == [1]
    await wait_until(lambda: drained(client), description="nothing is left in the work stream")


Payload = Callable[[Record, bytes], bytes]
PAYLOADS: dict[str, Payload] = {
    "garbage": lambda _record, _data: b"garbage",
    "empty": lambda _record, _data: b"",
    "binary": lambda _record, _data: bytes(range(256)),
    "another bucket": lambda record, _data: (
        b'{"i":"01JOTHER","g":1,"r":1}\n' + encode(msgspec.structs.replace(record, attempt=7))
    ),
    "wrong revision": lambda _record, data: b'{"i":"INCARNATION","g":1,"r":999999}\n' + data,
    "no record": lambda _record, _data: b'{"i":"INCARNATION","g":1,"r":1}\n{"schema":1}',
    "record that never was": lambda record, _data: (
        b'{"i":"INCARNATION","g":1,"r":0}\n' + encode(msgspec.structs.replace(record, attempt=7))
    ),
}


@pytest.mark.parametrize("kind", PAYLOADS)
async def test_a_wake_up_with_a_wrong_payload_still_starts_its_run(
    kind: str, app: App, client: Client, workers: Workers
):
    """The subject says whom it is about; the record is looked up, and decides.

    The real wake-up comes as well: one body.
    """
    bodies = register(app)
    run = await client.submit(app.actors["typed"].call("p"), key="k")
    found = await client.stores.runs.read("k")
    assert found.record is not None
    await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})
    payload = PAYLOADS[kind](found.record, encode(found.record))
    payload = payload.replace(b"INCARNATION", client.stores.work.incarnation.encode())
    await client.stores.conn.put(app.names.work("default", "normal", "k", run.run_id), payload)
    async with workers.run(app) as running:
        assert await run.result(timeout=5) == "p/1"
        await wait_until(lambda: drained(client), description="the wake-up is acknowledged")
        assert running.worker.metrics.errors["handler"] == 0
    assert bodies == ["k"]
    status = await run.status()
    assert status is not None
    assert status.attempt == 1


FOREIGN = ["x", "x.y.z", "=zz.01JRUN", "k.01JRUN.more", "$JS.API", "\u00e4.01JRUN"]


async def test_foreign_messages_are_terminated_counted_and_stop_nobody(app: App, client: Client, workers: Workers):
    """Scenario 41: they name no run, so nothing is lost with them; the depth goes back to 0 and the worker works on."""
    register(app)
    stored = 0
    for tail in FOREIGN:
        ack = await client.stores.conn.put(f"{app.names.work_prefix}default.normal.{tail}", b"\xff\x00 junk")
        stored += ack.error is None and bool(ack.seq)
    for n in range(50):
        await client.stores.conn.put(f"{app.names.work_prefix}default.normal.many", b"%d" % n)
    assert stored >= 4
    async with workers.run(app, concurrency=2) as running:
        await claims(running, "", "foreign", at_least=stored + 50)
        await is_well(client)
        await wait_until(lambda: drained(client), description="depth 0")
        assert running.worker.metrics.errors["handler"] == 0
        await wait_until(lambda: not running.worker.why_not_ready, description="it is ready, as before")


async def test_a_wake_up_for_a_key_that_never_was_is_acknowledged(app: App, client: Client, workers: Workers):
    register(app)
    await client.stores.conn.put(app.names.work("default", "normal", "ghost", "01JRUN"), b"boo")
    async with workers.run(app) as running:
        await claims(running, "", "absent")
        await wait_until(lambda: drained(client), description="depth 0")
        await is_well(client)
    assert await client.status("ghost") is None


@pytest.mark.parametrize("carried", [True, False])
async def test_a_newer_record_is_left_alone_and_stops_nobody_else(
    carried: bool, app: App, client: Client, workers: Workers
):
    """A newer Tenure wrote it: the client says so; the worker gives it back, counts, goes on.

    Once it is readable it runs.
    """
    bodies = register(app)
    call = app.actors["typed"].call("p")
    run = await client.submit(call, key="k")
    found = await client.stores.runs.read("k")
    assert found.record is not None
    newer = msgspec.json.encode(msgspec.json.decode(encode(found.record)) | {"schema": 99, "phase": "dreaming"})
    await client.stores.conn.put(app.names.record("k"), newer)
    await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})
    head = b'{"i":"%s","g":1,"r":2}\n' % client.stores.work.incarnation.encode()
    await client.stores.conn.put(
        app.names.work("default", "normal", "k", run.run_id), head + newer if carried else b"garbage"
    )
    doors = [
        lambda: client.status("k"),
        lambda: client.submit(call, key="k"),
        lambda: client.replace(call, key="k"),
        lambda: client.cancel("k"),
        lambda: client.purge("k"),
        lambda: run.result(timeout=2),
        lambda: run.wait(timeout=2),
    ]
    for door in doors:
        with pytest.raises(NewerSchema) as caught:
            await door()
        assert caught.value.schema == 99
    async with workers.run(app) as running:
        await wait_until(
            lambda: sum(n for (_, what), n in running.worker.metrics.claims.items() if what == "newer_schema"),
            description="counted",
        )
        await is_well(client)
        await wait_until(lambda: only_one_is_left(client), description="the others are acknowledged")
        await client.stores.conn.put(app.names.record("k"), encode(found.record))
        assert await run.result(timeout=10) == "p/1"
        assert running.worker.metrics.errors["handler"] == 0
    assert bodies.count("k") == 1


async def test_a_result_that_does_not_fit_its_annotation_is_an_error_of_the_reader(
    app: App, client: Client, workers: Workers
):
    """The body returned another type than it promised: the run succeeded; whoever reads it as promised is told."""

    @app.actor
    async def liar() -> int:
        return "text"  # type: ignore[return-value]  # the lie is the bad input

    async with workers.run(app):
        run = await client.submit(liar.call(), key="k")
        with pytest.raises(TenureError, match="does not fit") as caught:
            await run.result(timeout=5)
        assert not isinstance(caught.value, RunFailed)
        status = await run.status()
        assert status is not None
        assert status.phase == "succeeded"


async def test_a_blob_of_arguments_that_is_gone_fails_that_run_at_once(app: App, client: Client, workers: Workers):
    bodies = register(app)
    run = await client.submit(app.actors["typed"].call("p" * 100_000), key="k")
    await client.stores.conn.api(f"STREAM.PURGE.{app.names.blobs_stream}", {})
    async with workers.run(app):
        with pytest.raises(RunFailed, match="gone"):
            await run.result(timeout=5)
        await is_well(client)
    status = await run.status()
    assert status is not None
    assert status.attempt == 1
    assert "k" not in bodies
