"""Interleavings found by reading the code against itself: each is made to happen, none by luck.

Signals that arrive between two steps, callers that go away in the middle, bodies that end in ways of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, OutcomeUnknown, RunCancelled
from tenure.core import commands as c
from tenure.core.sessions import Session
from tenure.nats.runs import Runs
from tenure.worker import remnants
from tenure.worker.tail import Tail
from tests.conftest import Workers
from tests.proxy import Proxy, record
from tests.support import FAST, wait_until, wake

QUICK = replace(FAST, request_timeout_seconds=0.3)


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=QUICK)


async def close_session(client: Client, session: str) -> None:
    """What a supervisor does to a session that it saw unchanged for a ttl."""
    while True:
        seen = await client.stores.sessions.read(session)
        assert seen is not None
        closed: Session = replace(seen.session, closed="expired")
        if await client.stores.sessions.write(closed, seen.revision):
            return


# -- claim -----------------------------------------------------------------------------------------------------------


async def test_a_claim_that_was_cancelled_before_its_answer_came_ends_cancelled(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    """The server stores the claim, its answer is lost.

    A cancel comes over it; the worker repeats the claim, is refused and reads.

    The holder that it finds is its own, in a record that is stopping: nobody else will end that run, so its wake-up
    must not be acknowledged before it has ended.
    """
    ran: list[int] = []

    @app.actor
    async def work(ctx: Context) -> None:
        ran.append(ctx.attempt)

    async with behind.run(app) as running:
        lost = proxy.lose_answer(record(app, "k", "running"))
        run = await client.submit(work.call(), key="k")
        await lost.done.wait()
        assert (await run.cancel(reason="changed my mind")).outcome == "stopping"
        with pytest.raises(RunCancelled, match="changed my mind"):
            await run.result(5)
        assert ran == []
        await wait_until(lambda: not len(running.worker.table), description="the wake-up is done with")
        assert running.worker.metrics.cancelled["work", "running"] == 1


async def test_no_body_starts_under_a_session_that_has_lost_its_trust(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trust ends while the claim is under way and the loop has not heard of it yet.

    The claim wins, its body must not start.
    """
    ran: list[int] = []
    started = asyncio.Event()
    real = Runs.commit

    @app.actor
    async def work(ctx: Context) -> str:
        ran.append(ctx.attempt)
        return f"attempt {ctx.attempt}"

    async with workers.run(app) as running:
        lease = running.worker.lease

        async def commit(self: Runs, *args: object, **options: object) -> object:
            result = await real(self, *args, **options)  # type: ignore[arg-type]  # passed on as they came
            if type(args[1]).__name__ == "Claim" and not started.is_set():
                monkeypatch.setattr(lease, "_trusted_until", 0.0)
                started.set()
            return result

        monkeypatch.setattr(Runs, "commit", commit)
        run = await client.submit(work.call(), key="k")
        await started.wait()
        assert await run.result(10) == "attempt 2"
    assert ran == [2]


@pytest.mark.parametrize(
    "error", [RuntimeError("a defect"), OutcomeUnknown("no answer", key="k")], ids=lambda e: e.args[0]
)
async def test_an_attempt_whose_handling_ended_in_the_middle_is_not_run_again_as_a_claim_of_its_own(
    app: App,
    client: Client,
    behind: Workers,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """Its outcome is not stored: a crash, or trust that lapsed for a moment. The process and its session live on.

    The server brings the wake-up again before the process has looked at what it gave up: that look reads first, so a claim
    after it never begins on an old record (it may wait for the server over others, for a slot, or for the pause after a
    defect). The claim, decided on the record that the wake-up carries, is refused, and that answer is lost; refused once
    more it reads, and finds a holder under its own session with the number that it would have written.
    """
    ran: list[int] = []
    failed = asyncio.Event()
    real = Tail.store

    @app.actor
    async def work(ctx: Context) -> str:
        ran.append(ctx.attempt)
        return f"attempt {ctx.attempt}"

    async def store(self: Tail, *args: Any) -> Any:
        if failed.is_set():
            return await real(self, *args)
        failed.set()
        raise error

    monkeypatch.setattr(Tail, "store", store)
    monkeypatch.setattr(remnants, "_LOOK_SECONDS", 60.0)
    async with behind.run(app) as running:
        run = await client.submit(work.call(), key="k")
        await failed.wait()
        lost = proxy.lose_answer(record(app, "k", "running"))
        assert await run.result(10) == "attempt 2"
        assert lost.hits[0].says('"attempt":1'), "it began on the record that the wake-up carries"
        assert running.worker.metrics.claims["work", "reclaimed"] == 1
        status = await run.status()
        assert status is not None
        assert status.failures == 0
    assert ran == [1, 2]


# -- drain and lease ---------------------------------------------------------------------------------------------------


async def test_a_draining_worker_obeys_the_loss_of_its_session(namespace: str, workers: Workers) -> None:
    """SIGTERM, 30 s to finish; then somebody closes the session.

    The run may be another's already, so its body is cancelled.
    """
    app = App(namespace, config=replace(QUICK, drain_seconds=30.0))
    started = asyncio.Event()
    reasons: list[str | None] = []

    @app.actor
    async def work(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.stop_reason)

    async with app.connect(workers.url) as client, workers.run(app) as running:
        await client.submit(work.call(), key="k")
        await started.wait()
        running.worker.stop()
        await close_session(client, running.worker.lease.id)
        async with asyncio.timeout(5):
            await running.task
    assert reasons == ["lease_lost"]


async def test_a_worker_that_is_run_again_leaves_the_runs_of_bodies_it_gave_up_to_a_new_session(
    namespace: str, workers: Workers
) -> None:
    """The first drain gives a deaf body up.

    The second ``run`` must not claim that run again under the session it is held by.
    """
    app = App(namespace, config=replace(QUICK, drain_seconds=0.1))
    release = asyncio.Event()
    claims: list[tuple[int, str, bool]] = []

    @app.actor(grace=0.1)
    async def deaf(ctx: Context) -> str:
        claims.append((ctx.attempt, ctx.session, release.is_set()))
        while ctx.attempt == 1 and not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return f"attempt {ctx.attempt}"

    async with app.connect(workers.url) as client, workers.run(app) as running:
        run = await client.submit(deaf.call(), key="k")
        await wait_until(lambda: claims, description="the body runs")
        first = running.worker.lease.id
        await running.stop()
        seen = await client.stores.sessions.read(first)
        assert seen is not None
        assert seen.session.closed == "drain"
        again = asyncio.create_task(running.worker.run())
        assert await run.result(10) == "attempt 2"
        assert running.worker.lease.id != first
        release.set()
        running.worker.stop()
        await again
    assert [attempt for attempt, _, _ in claims] == [1, 2]


async def test_leaving_the_worker_drains_what_still_runs(app: App, client: Client, workers: Workers) -> None:
    """The block is left while ``run`` goes on in a task.

    Its body's value must be stored before the session is closed.
    """
    started, release = asyncio.Event(), asyncio.Event()

    @app.actor
    async def work(ctx: Context) -> str:
        started.set()
        await ctx.stopping.wait()
        return "finished"

    async with app.worker(workers.url) as worker:
        serving = asyncio.create_task(worker.run())
        run = await client.submit(work.call(), key="k")
        await started.wait()
    await serving
    status = await run.status()
    assert status is not None
    assert status.phase == "succeeded"
    assert release is not None


async def test_an_answer_that_is_lost_while_the_lanes_are_opened_ends_no_worker(
    app: App, proxy: Proxy, behind: Workers, client: Client
) -> None:
    @app.actor
    async def work() -> str:
        return "ran"

    lost = proxy.lose_answer(lambda p: ".CONSUMER.DURABLE.CREATE." in p.subject)
    async with behind.run(app):
        assert lost.done.is_set()
        assert await (await client.submit(work.call(), key="k")).result(5) == "ran"


async def test_opening_a_worker_that_is_given_up_leaves_nothing_behind(app: App, client: Client, proxy: Proxy) -> None:
    """The caller's timeout strikes while the lease's thread connects.

    No thread, and no session that is renewed for ever.
    """
    before = set(threading.enumerate())
    created = proxy.lose(lambda p: p.subject.startswith(app.names.session("")))
    opening = asyncio.create_task(app.worker(proxy.url).__aenter__())
    await created.done.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await wait_until(
        lambda: not [t for t in set(threading.enumerate()) - before if t.name.startswith("tenure-lease")],
        description="the lease's thread has ended",
    )
    session = created.hits[0].subject.removeprefix(app.names.session(""))
    seen = await client.stores.sessions.read(session)
    assert seen is None or seen.session.closed is not None


async def test_a_connection_that_is_given_up_is_closed() -> None:
    """The caller's timeout strikes while a server that says nothing is connected to."""
    ended = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await App("nobody").connect(f"nats://127.0.0.1:{port}").__aenter__()
        async with asyncio.timeout(2):
            await ended.wait()


# -- reads whose answer gets lost ----------------------------------------------------------------------------------------


async def test_a_look_up_whose_answer_is_lost_is_repeated(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    """The holder's session is read, the answer is lost: the wake-up must not be given up for ack_wait while trust lasts."""
    dead = await held_by_a_session_that_is_closed(app, client)
    async with behind.run(app) as running:
        lost = proxy.lose_answer(lambda p: "STREAM.MSG.GET" in p.subject and p.says(app.names.session(dead)))
        await wake(client, "k")
        assert await client.run("k").result(5) == "attempt 2"
        assert len(lost.hits) == 1
        assert running.worker.metrics.errors["server"] == 0


async def held_by_a_session_that_is_closed(app: App, client: Client) -> str:
    """A run ``k`` whose worker died after its claim: its session is closed, its wake-up gone."""

    @app.actor
    async def work(ctx: Context) -> str:
        return f"attempt {ctx.attempt}"

    stores = client.stores
    run = await client.submit(work.call(), key="k")
    await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})
    session = Session(id=stores.clock.new_id(), kind="worker", host="h", pid=1, ttl=1.0, started_at=client.now())
    await stores.sessions.create(session, stores.runs.patience())
    await stores.runs.commit("k", c.Claim(session=session.id, run_id=run.run_id, next_run_id=""))
    await close_session(client, session.id)
    return session.id
