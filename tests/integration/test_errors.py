"""What an error is about can be read from it: key, generation, run id, and the revision of the record that was met."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import (
    App,
    Client,
    Fail,
    InvalidCall,
    KeyConflict,
    KeyIsLive,
    NewerSchema,
    OutcomeUnknown,
    Run,
    RunCancelled,
    RunFailed,
    RunSuperseded,
    TenureError,
    Unavailable,
    UnreadableRecord,
)
from tests.conftest import Workers
from tests.counted import QUICK
from tests.proxy import Proxy, record


@pytest.fixture
def app(namespace: str) -> App:
    app = App(namespace, config=QUICK)

    @app.actor
    async def end(text: str) -> str:
        if text == "bad":
            raise Fail("no use")
        return text

    @app.actor
    async def lie() -> int:
        return "text"  # type: ignore[return-value]  # whoever reads it as promised is to be told

    return app


async def told(kind: type[TenureError], door: Awaitable[object]) -> Any:
    with pytest.raises(kind) as caught:
        await door
    return caught.value


def said(error: TenureError) -> tuple[str | None, int | None, str | None, int | None]:
    return error.key, error.generation, error.run_id, error.revision


async def about(client: Client, run: Run[Any]) -> tuple[str, int, str, int]:
    return run.key, run.generation, run.run_id, (await client.stores.runs.read(run.key)).revision


async def test_who_meets_a_live_run_is_told_which(app: App, client: Client) -> None:
    call, other = app.actors["end"].call("one"), app.actors["end"].call("two")
    run = await client.submit(call, key="k", delay=60)
    assert said(await told(KeyIsLive, client.submit(call, key="k", if_live="reject"))) == await about(client, run)
    assert said(await told(KeyConflict, client.submit(other, key="k", if_differs="error"))) == await about(client, run)


async def test_who_waits_for_a_run_is_told_which_it_was(app: App, client: Client, workers: Workers) -> None:
    async with workers.run(app):
        failed = await client.submit(app.actors["end"].call("bad"), key="failed")
        error = await told(RunFailed, failed.result(timeout=10))
        assert said(error)[:3] == (failed.key, failed.generation, failed.run_id)
        assert isinstance(error.revision, int)
        lied = await client.submit(app.actors["lie"].call(), key="lied")
        assert said(await told(TenureError, lied.result(timeout=10))) == await about(client, lied)
    cancelled = await client.submit(app.actors["end"].call("x"), key="cancelled", delay=60)
    await cancelled.cancel()
    assert said(await told(RunCancelled, cancelled.result(timeout=10))) == await about(client, cancelled)
    old = await client.submit(app.actors["end"].call("x"), key="replaced", delay=60)
    new = await client.replace(app.actors["end"].call("y"), key="replaced", delay=60)
    superseded = await told(RunSuperseded, old.result(timeout=10))
    assert said(superseded) == ("replaced", 1, old.run_id, (await about(client, new))[3])
    await client.purge("replaced")
    gone = await told(RunSuperseded, new.result(timeout=10))
    assert (said(gone)[:3], gone.by_generation) == (("replaced", 2, new.run_id), 0)


@pytest.mark.parametrize(("data", "kind"), [(b"\xff", UnreadableRecord), (b'{"schema": 99}', NewerSchema)])
async def test_who_meets_what_cannot_be_read_is_told_where(
    data: bytes, kind: type[TenureError], app: App, client: Client
) -> None:
    run = await client.submit(app.actors["end"].call("x"), key="k", delay=60)
    waiting = asyncio.create_task(told(kind, run.result(timeout=10)))
    ack = await client.stores.conn.put(app.names.record("k"), data)
    for door in (client.status("k"), client.cancel("k"), client.purge("k")):
        assert said(await told(kind, door)) == ("k", None, None, ack.seq)
    heard = await waiting
    assert (heard.key, heard.revision) == ("k", ack.seq)


async def test_who_names_a_key_that_is_not_there_is_told_which(app: App, client: Client) -> None:
    assert (await told(InvalidCall, client.trigger("nobody"))).key == "nobody"
    run = client.run("nobody")
    for door in (run.status(), run.result(timeout=1)):
        assert (await told(TenureError, door)).key == "nobody"


async def test_who_does_not_reach_the_server_or_hears_no_answer_is_told_of_which_run(app: App, proxy: Proxy) -> None:
    """Nothing was sent: Unavailable, with the key. Sent, and the record has moved on since: with the run whose fate is unknown."""
    call = app.actors["end"].call("x")
    async with app.connect(proxy.url) as client, app.connect(proxy.url) as other:
        planned = proxy.lose_answer(record(app, "k", "waiting"))
        asked = asyncio.create_task(told(OutcomeUnknown, client.replace(call, key="k", delay=60)))
        await planned.done.wait()
        for _ in range(2):
            newest = await other.replace(call, key="k", delay=60)
        unknown = await asked
        assert said(unknown)[:2] == ("k", 1)
        assert unknown.run_id not in (None, newest.run_id)
        assert unknown.revision == 0


async def test_who_cannot_write_or_read_is_told_the_key(namespace: str, proxy: Proxy) -> None:
    app = App(namespace, config=replace(QUICK, patience_seconds=0.1))

    @app.actor
    async def end(text: str) -> str:
        return text

    async with app.connect(proxy.url) as client:
        run = await client.submit(end.call("x"), key="k", delay=60)
        await proxy.take_down()
        doors = (client.submit(end.call("x"), key="k"), client.status("k"), run.status(), client.cancel("k"))
        assert [(await told(Unavailable, door)).key for door in doors] == ["k"] * 4
        await proxy.bring_up()


async def test_who_cannot_store_large_arguments_is_told_the_key(namespace: str, nats_server: str) -> None:
    app = App(
        namespace,
        config=replace(
            QUICK, patience_seconds=0.1, inline_limit_bytes=1_000, wake_limit_bytes=1_000, blob_limit_bytes=2_000
        ),
    )

    @app.actor
    async def end(text: str) -> str:
        return text

    async with app.connect(nats_server) as client:
        assert (await told(InvalidCall, client.submit(end.call("x" * 3_000), key="k"))).key == "k"
        await client.stores.conn.api(f"STREAM.DELETE.{app.names.blobs_stream}", {})
        assert (await told(Unavailable, client.submit(end.call("x" * 1_500), key="k"))).key == "k"


async def test_a_cancel_that_takes_effect_late_is_about_the_run_that_it_was_to_cancel(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not about the one that the key shows by then: whoever looks it up must find what became of it."""

    @app.actor(grace=60)
    async def goes_on() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()

    async def away(*_args: object) -> None:
        raise Unavailable("away")

    begun, release = asyncio.Event(), asyncio.Event()
    async with workers.run(app):
        first = await client.submit(goes_on.call(), key="k")
        await begun.wait()
        assert (await first.cancel()).outcome == "stopping"
        second = await client.replace(goes_on.call(), key="k", overlap="wait")
        with monkeypatch.context() as broken:
            broken.setattr(client.stores, "complete", away)
            error = await told(OutcomeUnknown, first.cancel())
        assert said(error)[:3] == ("k", first.generation, first.run_id)
        release.set()
        await second.cancel()
