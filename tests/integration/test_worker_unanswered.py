"""A server that does not answer one step of a worker, or a defect in it: told, and the run comes to its end all the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Limit
from tenure.actors import Actor
from tenure.core.errors import Unavailable
from tenure.core.records import Holder
from tenure.core.sessions import Session
from tenure.nats.connection import NotSent
from tenure.nats.sessions import Sessions
from tenure.supervisor import places
from tenure.worker.handler import Handler
from tenure.worker.handover import Desk
from tenure.worker.places import Places
from tenure.worker.remnants import Remnants
from tenure.worker.table import Table
from tenure.worker.tail import Tail
from tests.conftest import Supervisors, Workers
from tests.gates import opened_at_last
from tests.logged import Heard
from tests.support import FAST, wait_until


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch, log_events: Heard) -> Callable[..., None]:
    """``fails(event, owner, method, error)``: that method raises until the event is told."""

    def make(event: str, owner: type, method: str, error: Exception) -> None:
        original = getattr(owner, method)

        async def failing(*args: Any, **options: Any) -> Any:
            if event not in log_events.events:
                raise error
            return await original(*args, **options)

        monkeypatch.setattr(owner, method, failing)

    return make


async def quick() -> str:
    return "ran"


async def test_a_defect_while_a_run_is_handled_costs_it_one_delivery(
    app: App, client: Client, workers: Workers, fails: Callable[..., None], log_events: Heard
) -> None:
    fails("run.crashed", Handler, "handle", RuntimeError("on purpose"))
    actor = app.actor(quick)
    async with workers.run(app) as running:
        assert await (await client.submit(actor.call(), key="k")).result(timeout=10) == "ran"
        assert running.worker.metrics.errors["handler"] == 1
    assert "run.crashed" in log_events.events


def deaf(app: App, gate: asyncio.Event, **options: Any) -> Actor[Any, ..., Any, Any]:
    """Its body hears nothing, and its time is over soon."""

    @app.actor(timeout=0.05, grace=0.05, retry=None, **options)
    async def deaf() -> None:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()

    return deaf


async def test_an_attempt_that_overstays_is_ended_once_the_server_answers(
    app: App, client: Client, workers: Workers, fails: Callable[..., None], log_events: Heard
) -> None:
    fails("run.not_evicted", Tail, "evict", Unavailable("on purpose"))
    actor = deaf(app, gate := asyncio.Event())
    async with workers.run(app), opened_at_last(gate):
        assert (await (await client.submit(actor.call(), key="k")).wait(timeout=10)).phase == "failed"
    assert "run.not_evicted" in log_events.events


async def test_a_place_that_cannot_be_given_back_keeps_nobody_out(
    app: App,
    client: Client,
    workers: Workers,
    supervisors: Supervisors,
    monkeypatch: pytest.MonkeyPatch,
    log_events: Heard,
) -> None:
    """Of an attempt that was ended while its body went on: the next run under the limit starts all the same."""
    monkeypatch.setattr(places, "_SETTLE_SECONDS", 0.3)
    app.config = replace(app.config, sweep_seconds=0.1)
    actor = deaf(app, gate := asyncio.Event(), limits=[Limit(1)])
    async with workers.run(app) as running, supervisors.run(app), opened_at_last(gate):
        limits = running.worker.stores.limits
        write = limits.write
        got = asyncio.Event()

        async def unanswered(name: str, entry: Any, *rest: Any, **options: Any) -> Any:
            if not got.is_set():
                got.set()
                return await write(name, entry, *rest, **options)
            if "place.not_given_back" not in log_events.events:
                raise Unavailable("on purpose")
            return await write(name, entry, *rest, **options)

        monkeypatch.setattr(limits, "write", unanswered)
        assert (await (await client.submit(actor.call(), key="a")).wait(timeout=10)).phase == "failed"
        following = await client.submit(actor.call(), key="b")
        await wait_until(lambda: "place.not_given_back" in log_events.events, description="it is told")
        gate.set()
        assert (await following.wait(timeout=10)).phase == "succeeded"


async def test_a_worker_starts_though_it_cannot_look_at_limits(
    app: App, client: Client, workers: Workers, fails: Callable[..., None], log_events: Heard
) -> None:
    fails("limits.not_looked_at", Places, "hand_over_more", Unavailable("on purpose"))
    actor = app.actor(limits=[Limit(1)])(quick)
    async with workers.run(app):
        assert await (await client.submit(actor.call(), key="k")).result(timeout=10) == "ran"
        await wait_until(lambda: "limits.not_looked_at" in log_events.events, description="it is told")


async def test_what_an_attempt_has_left_is_looked_at_until_the_server_answers(
    app: App, workers: Workers, monkeypatch: pytest.MonkeyPatch, fails: Callable[..., None], log_events: Heard
) -> None:
    """A handling that ended in the middle: its holder is remembered until its record does not have it any more."""
    fails("remnant.not_settled", Remnants, "_is_over", Unavailable("on purpose"))
    holder = Holder(session="S", run_id="r1", attempt=1)
    left = [(holder, "nobody", 0)]
    monkeypatch.setattr(Table, "remnants", lambda _table: list(left))
    monkeypatch.setattr(Table, "forget_remnant", lambda _table, gone: left.remove((gone, "nobody", 0)))
    async with workers.run(app):
        await wait_until(lambda: not left, description="its key has no record")
    assert "remnant.not_settled" in log_events.events


async def test_an_offer_that_meets_a_defect_is_made_again(
    namespace: str, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch, log_events: Heard
) -> None:
    """A worker that does not know the actor hands its wake-ups over to one that does."""
    opened = Desk.open

    async def broken(desk: Desk, start: Callable[..., Any]) -> None:
        async def fail(delivery: Any) -> bool:
            if "desk.crashed" not in log_events.events:
                raise RuntimeError("on purpose")
            return bool(await start(delivery))

        await opened(desk, fail)

    monkeypatch.setattr(Desk, "open", broken)
    old, new = App(namespace, config=FAST), App(namespace, config=FAST)
    actor = new.actor(quick)
    runs = []
    async with workers.run(old), workers.run(new) as knows:

        async def told() -> bool:
            runs.append(await client.submit(actor.call()))
            return "desk.crashed" in log_events.events

        await wait_until(told, description="a run has come to the wrong one first")
        assert await asyncio.gather(*(run.result(timeout=10) for run in runs)) == ["ran"] * len(runs)
        assert knows.worker.metrics.errors["handler"] == 1


async def test_a_dead_session_is_closed_once_the_server_answers(
    app: App, client: Client, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch, log_events: Heard
) -> None:
    write, stores = Sessions.write, client.stores

    async def unanswered(sessions: Sessions, session: Session, *rest: Any, **options: Any) -> int:
        if session.closed == "expired" and "session.not_closed" not in log_events.events:
            raise NotSent("on purpose")
        return await write(sessions, session, *rest, **options)

    monkeypatch.setattr(Sessions, "write", unanswered)
    dead = Session(id=stores.clock.new_id(), kind="worker", host="h", pid=1, ttl=0.5, started_at=client.now())
    await stores.sessions.create(dead, stores.runs.patience())
    async with supervisors.run(app):

        async def closed() -> bool:
            seen = await stores.sessions.read(dead.id)
            return seen is not None and seen.session.closed == "expired"

        await wait_until(closed, description="it is closed")
    assert "session.not_closed" in log_events.events
