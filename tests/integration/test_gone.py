"""A stream of the namespace is gone: whoever calls, and whoever asks a process whether it is ready, is told which and what to do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

import tenure.core.commands as c
from tenure import App, Client, OutcomeUnknown, Run, RunSuperseded, Unavailable
from tenure.nats import changes, presence
from tests.conftest import Supervisors, Workers
from tests.counted import QUICK
from tests.gates import opened_at_last
from tests.integration.test_restarts import Gated, depth
from tests.proxy import Proxy
from tests.support import FAST, wait_until

Door = Callable[[Client, App], Awaitable[object]]
_LARGE = "x" * 1_500


@pytest.fixture
def app(namespace: str) -> App:
    app = App(
        namespace,
        config=replace(QUICK, patience_seconds=0.2, inline_limit_bytes=1_000, wake_limit_bytes=1_000),
    )

    @app.actor
    async def echo(text: str) -> str:
        return text

    return app


@pytest.fixture
async def client(app: App, nats_server: str) -> AsyncIterator[Client]:
    """With a run that waits, and one that seems to run."""
    async with app.connect(nats_server) as client:
        await client.submit(app.actors["echo"].call("x"), key="waits", delay=60)
        run = await client.submit(app.actors["echo"].call("x"), key="runs")
        claim = c.Claim(session=client.stores.clock.new_id(), run_id=run.run_id, next_run_id="")
        await client.stores.runs.commit("runs", claim)
        yield client


def submit(key: str, text: str = "x") -> Door:
    return lambda client, app: client.submit(app.actors["echo"].call(text), key=key)


def replaced(key: str) -> Door:
    return lambda client, app: client.replace(app.actors["echo"].call("y"), key=key)


DOORS: dict[str, tuple[str, Door]] = {
    "submit": ("runs_stream", submit("new")),
    "replace": ("runs_stream", replaced("waits")),
    "cancel": ("runs_stream", lambda client, _: client.cancel("waits")),
    "status": ("runs_stream", lambda client, _: client.status("waits")),
    "result": ("runs_stream", lambda client, _: client.run("waits").result(0)),
    "pause": ("runs_stream", lambda client, _: client.pause(actor="echo")),
    "blocks": ("runs_stream", lambda client, _: client.blocks()),
    "submit, no work": ("work_stream", submit("new")),
    "submit later, no work": (
        "work_stream",
        lambda client, app: client.submit(app.actors["echo"].call("x"), key="new", delay=60),
    ),
    "replace, no work": ("work_stream", replaced("waits")),
    "cancel what runs, no sessions": ("sessions_stream", lambda client, _: client.cancel("runs")),
    "submit large, no blobs": ("blobs_stream", submit("new", _LARGE)),
}


@pytest.mark.parametrize("what", DOORS)
async def test_a_call_that_needs_it_says_that_it_is_gone_and_what_to_do(what: str, client: Client, app: App) -> None:
    stream, door = DOORS[what]
    name = getattr(app.names, stream)
    assert isinstance(await client.stores.conn.api(f"STREAM.DELETE.{name}", {}), dict)
    with pytest.raises((Unavailable, OutcomeUnknown, TimeoutError)) as caught:
        await door(client, app)
    assert "tenure setup" in str(caught.value)
    if what not in {"pause", "blocks"}:  # they name what they cannot read
        assert f"{name} is gone" in str(caught.value)


async def test_a_write_of_a_cas_that_finds_no_bucket_says_so(client: Client, app: App) -> None:
    """It was there when the record was read."""
    found = await client.stores.runs.read("waits")
    assert found.record is not None
    await client.stores.conn.api(f"STREAM.DELETE.{app.names.runs_stream}", {})
    with pytest.raises(Unavailable, match=f"{app.names.runs_stream} is gone; run `tenure setup`"):
        await client.stores.runs.commit("waits", c.Cancel(run_id=found.record.run_id, reason=""), at=found)


WAITS: dict[str, Callable[[Run[Any]], Coroutine[Any, Any, object]]] = {
    "result": lambda run: run.result(),
    "wait": lambda run: run.wait(),
    "events": lambda run: collected(run.events()),
}


async def collected(events: AsyncIterator[object]) -> list[object]:
    return [event async for event in events]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("how", WAITS)
async def test_who_waits_without_a_timeout_is_told_that_the_bucket_is_gone(
    how: str, when: str, app: App, nats_server: str
) -> None:
    """No outcome will ever come: it takes no longer than a call may, from the first look that finds nothing."""
    app.config = replace(app.config, reread_seconds=0.1)
    async with app.connect(nats_server) as client, asyncio.timeout(5):
        run = await client.submit(app.actors["echo"].call("x"), key="waits", delay=60)
        if when == "before":
            await client.stores.conn.api(f"STREAM.DELETE.{app.names.runs_stream}", {})
        waiting = asyncio.create_task(WAITS[how](run))
        if when == "meanwhile":
            await asyncio.sleep(0.2)  # paused: it waits
            assert not waiting.done()
            await client.stores.conn.api(f"STREAM.DELETE.{app.names.runs_stream}", {})
        with pytest.raises(Unavailable, match=f"{app.names.runs_stream} is gone; run `tenure setup`") as caught:
            await waiting
        assert caught.value.key == "waits"


async def test_who_waits_without_a_timeout_outlasts_a_server_that_is_away_for_longer_than_a_call_may_take(
    app: App, client: Client, proxy: Proxy, workers: Workers
) -> None:
    """An outage proves nothing: what was accepted is there when it is over."""
    async with app.connect(proxy.url) as cut_off:
        run = await client.submit(app.actors["echo"].call("there"), key="k", delay=0.5)
        waiting = asyncio.create_task(cut_off.run("k").result())
        await proxy.take_down()
        async with workers.run(app):
            assert await run.result(5) == "there"
        await asyncio.sleep(3 * app.config.patience_seconds)  # paused: an outage
        assert not waiting.done()
        await proxy.bring_up()
        assert await asyncio.wait_for(waiting, 5) == "there"


@pytest.mark.parametrize("what", ["work", "blobs", "dead", "inbox"])
async def test_neither_worker_nor_supervisor_is_ready_and_both_say_what_is_gone(
    what: str, app: App, client: Client, workers: Workers, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody ends for it."""
    monkeypatch.setattr(presence, "_LOOK_SECONDS", 0.1)
    stream = getattr(app.names, f"{what}_stream")
    async with workers.run(app) as running, supervisors.run(app) as supervisor:
        await client.stores.conn.api(f"STREAM.DELETE.{stream}", {})
        name = app.names.blobs_bucket if what == "blobs" else stream

        def all_say_so() -> bool:
            reasons = [running.worker.why_not_ready, supervisor.why_not_ready]
            return all(why.endswith(f"{name} is gone: run `tenure setup`") for why in reasons)

        await wait_until(all_say_so, description="both say so")
        assert not running.task.done()


@pytest.mark.parametrize("what", ["the bucket", "one record after the other"])
async def test_a_purged_runs_bucket_ends_what_ran_without_an_outcome_and_stops_nobody(
    what: str, namespace: str, nats_server: str, workers: Workers, monkeypatch: pytest.MonkeyPatch
):
    """Every record is gone at once, so every fence is: nothing that was in hand writes any more, and a wake-up of nothing is dropped.

    Revisions go on where they were: an old body cannot take a new run of its key for its own.
    """
    monkeypatch.setattr(
        changes, "_SURE_SECONDS", 0.3
    )  # of who was deposed, nobody would believe at once that they are gone
    app = App(namespace, config=FAST)
    gated = Gated(app)
    async with (
        app.connect(nats_server) as client,
        workers.run(app, concurrency=2) as running,
        opened_at_last(gated.gate),
    ):
        session = running.worker.lease.id
        old = [await gated.start(client, key) for key in ("long 1", "long 2")]
        waiting = await client.submit(gated.actor.call(), key="waiting")
        one_by_one: list[dict[str, str]] = [{"filter": app.names.record(run.key)} for run in (*old, waiting)]
        for body in [{}] if what == "the bucket" else one_by_one:
            assert isinstance(await client.stores.conn.api(f"STREAM.PURGE.{app.names.runs_stream}", body), dict)
        new = await client.submit(gated.actor.call(), key="long 2")
        assert new.run_id != old[1].run_id
        gated.gate.set()
        assert await new.result(5) == 1
        assert await (await client.submit(gated.actor.call(), key="after")).result(5) == 1
        await wait_until(lambda: depth(client, 0), description="no wake-up is left")
        for run in (*old, waiting):
            with pytest.raises(RunSuperseded):
                await run.result(5)
        assert new.generation == 1
        assert [await client.status(key) for key in ("long 1", "waiting")] == [None, None], "nothing is resurrected"
        await wait_until(lambda: not running.worker.why_not_ready, description="it is ready, as before")
        assert running.worker.lease.id == session
    assert Counter(gated.bodies) == {("long 1", 1): 1, ("long 2", 1): 2, ("after", 1): 1}
