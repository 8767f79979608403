"""Interleavings found by reading the code against itself: each is made to happen, none by luck.

Signals that arrive between two steps, callers that go away in the middle, bodies that end in ways of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, OutcomeUnknown, Retry, RunCancelled, RunFailed, Snooze, Stopped
from tenure.core.sessions import Session
from tenure.nats.runs import Runs
from tenure.nats.topology import ensure
from tests.conftest import Workers
from tests.proxy import Matches, Proxy
from tests.support import FAST, wait_until

QUICK = replace(FAST, request_timeout_seconds=0.3)


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=QUICK)


@pytest.fixture
async def proxy(nats_server: str) -> AsyncIterator[Proxy]:
    async with Proxy(nats_server) as proxy:
        yield proxy


@pytest.fixture
def behind(proxy: Proxy) -> Workers:
    """Workers behind the proxy."""
    return Workers(proxy.url)


def record(app: App, key: str, state: str) -> Matches:
    """Writes of ``key``'s record that put it into phase ``state``."""
    return lambda p: p.subject == app.names.record(key) and p.says(f"Tenure-State: {state} ")


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


# -- bodies that end in ways of their own ------------------------------------------------------------------------------


class Abort(BaseException):
    """What no ``except Exception`` catches."""


async def test_a_body_may_raise_whatever_there_is_and_it_is_a_failed_attempt(
    app: App, client: Client, workers: Workers
) -> None:
    """A BaseException of its own, Stopped without having been told, a group of both, its own task's cancellation.

    None of them may end the handling without an outcome: the run would be claimed again and again, each time uncounted.
    """
    once = Retry(max_attempts=1)
    bodies: list[str] = []

    @app.actor(retry=once)
    async def ends(how: str) -> None:
        bodies.append(how)
        match how:
            case "base":
                raise Abort("enough")
            case "stopped":
                raise Stopped("says who")
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(raising())
            case "cancelled and awaiting":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)  # body: is cancelled here
            case "cancelled and returning":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    @app.actor(retry=once)
    def plain(how: str) -> None:
        bodies.append(how)
        raise Abort("enough") if how == "base" else Stopped("says who")

    async def raising() -> None:
        raise Abort("enough")

    async with workers.run(app):
        for how in ("base", "stopped", "group", "cancelled and awaiting"):
            with pytest.raises(RunFailed):
                await (await client.submit(ends.call(how))).result(1)
        assert await (await client.submit(ends.call("cancelled and returning"))).result(1) is None
        for how in ("base", "stopped"):
            with pytest.raises(RunFailed):
                await (await client.submit(plain.call(how))).result(1)
    assert len(bodies) == 7


async def test_a_group_that_stops_as_it_was_told_is_no_failure(app: App, client: Client, workers: Workers) -> None:
    """Cancelled; two children of the body's task group see it by ``ctx.check``.

    Stopped comes out in a group, of BaseExceptions.
    """
    started = asyncio.Event()

    @app.actor(grace=5.0)
    async def work(ctx: Context) -> None:
        async def child() -> None:
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)  # body: between two looks
                ctx.check()

        started.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(child())

    async with workers.run(app) as running:
        run = await client.submit(work.call(), key="k")
        await started.wait()
        running.worker.stop()
        await running.task
        assert running.worker.metrics.outcomes["work", "handed_back"] == 1
        status = await run.status()
        assert status is not None
        assert status.failures == 0


async def test_a_snooze_beyond_all_bounds_fails_the_attempt(app: App, client: Client, workers: Workers) -> None:
    """A due time that no timer can name must be refused before it is stored.

    The run would wait for it without a wake-up.
    """

    @app.actor(retry=None)
    async def work() -> None:
        raise Snooze(1e12)

    async with workers.run(app):
        with pytest.raises(RunFailed, match="ten years"):
            await (await client.submit(work.call(), key="k")).result(1)


async def test_a_plain_body_may_look_at_the_stop_event(app: App, client: Client, workers: Workers) -> None:
    """``ctx.stopping`` is first asked for in a thread, where no loop runs; then the run is cancelled."""
    started = threading.Event()

    @app.actor(retry=None)
    def work(ctx: Context) -> None:
        while not ctx.stopping.is_set():
            started.set()

    async with workers.run(app):
        run = await client.submit(work.call(), key="k")
        await wait_until(started.is_set, description="the body runs")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(2)


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


# -- clients -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["submit", "replace", "cancel"])
async def test_a_caller_that_goes_away_in_the_middle_leaves_no_run_without_its_wake_up(
    how: str, app: App, proxy: Proxy, workers: Workers
) -> None:
    """The record is written, then the caller is cancelled (a timeout, a closed request) before the effect is.

    Nobody crashed, so nobody repairs: the client itself must finish what it began.
    """
    started = asyncio.Event()

    @app.actor
    async def work(ctx: Context) -> str:
        started.set()
        if how == "cancel":
            await asyncio.Event().wait()
        return "ran"

    async with app.connect(proxy.url) as client, workers.run(app):
        if how == "cancel":
            await client.submit(work.call(), key="k")
            await started.wait()
        subject = app.names.work_prefix if how != "cancel" else app.names.sessions_prefix + "stop."
        lost = proxy.lose(lambda p: p.subject.startswith(subject))
        if how == "submit":
            caller = asyncio.create_task(client.submit(work.call(), key="k"))
        elif how == "replace":
            caller = asyncio.create_task(client.replace(work.call(), key="k"))
        else:
            caller = asyncio.create_task(client.cancel("k"))
        await lost.done.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        if how == "cancel":
            with pytest.raises(RunCancelled):
                await client.run("k").result(3)
        else:
            assert await client.run("k").result(3) == "ran"


async def test_a_purge_of_unknown_fate_does_not_purge_the_next_life(app: App, client: Client, proxy: Proxy) -> None:
    """The purge is applied, its answer lost; the key is submitted anew.

    The repeat is refused, and must not be decided again.
    """

    @app.actor
    async def work() -> None: ...

    async with app.connect(proxy.url) as other:
        run = await client.submit(work.call(), key="k")
        await run.cancel()
        lost = proxy.lose_answer(lambda p: p.subject == app.names.record("k") and p.says("KV-Operation: PURGE"))
        purging = asyncio.create_task(other.purge("k"))
        await lost.done.wait()
        again = await client.submit(work.call(), key="k")
        with pytest.raises(OutcomeUnknown):
            await purging
        status = await again.status()
        assert status is not None
        assert status.phase == "queued"


async def test_a_purge_whose_answer_was_lost_says_that_it_purged(app: App, client: Client, proxy: Proxy) -> None:
    """The repeat of a purge that was applied is refused; what it then reads is nothing, by its own doing."""

    @app.actor
    async def work() -> None: ...

    async with app.connect(proxy.url) as other:
        await (await client.submit(work.call(), key="k")).cancel()
        proxy.lose_answer(lambda p: p.subject == app.names.record("k") and p.says("KV-Operation: PURGE"))
        assert await other.purge("k") is True
        assert await other.purge("k") is False


async def test_a_submit_that_was_stored_never_says_that_nothing_happened(
    namespace: str, nats_server: str, proxy: Proxy
) -> None:
    """The record is stored, its answer lost.

    And after the repeat has found that out the server stays silent: not Unavailable.
    """
    app = App(namespace, config=replace(QUICK, patience_seconds=0.8))

    @app.actor
    async def work() -> None: ...

    async with app.connect(proxy.url) as client:
        proxy.lose_answer(record(app, "k", "waiting"))
        proxy.lose(lambda p: f"STREAM.MSG.GET.{app.names.work_stream}" in p.subject, times=100)
        with pytest.raises(OutcomeUnknown):
            await client.submit(work.call(), key="k")


async def test_whoever_waits_hears_that_the_client_is_closed(app: App, client: Client, workers: Workers) -> None:
    """``result()`` without a timeout in one task, ``close`` in another: it must end, with an error."""

    @app.actor
    async def work() -> None: ...

    async with app.connect(workers.url) as other:
        run = await other.submit(work.call(), key="k")
        waiting = asyncio.create_task(run.result())
        watching = asyncio.create_task(anext(aiter(run.events())))
        await watching
        await wait_until(lambda: not waiting.done(), description="it waits")
    async with asyncio.timeout(2):
        with pytest.raises(Exception, match="closed"):
            await waiting


async def test_processes_that_start_at_once_on_a_new_server_all_succeed(app: App, client: Client) -> None:
    """Each sees no stream and creates it, with an incarnation of its own.

    One wins, the others take over what it made.
    """
    fresh = App(app.namespace + "-new", config=QUICK)
    stores = client.stores
    made = await asyncio.gather(*(ensure(stores.conn, fresh.names, stores.clock, fresh.config) for _ in range(8)))
    assert len({topology.incarnation for topology in made}) == 1


# -- reads whose answer gets lost ----------------------------------------------------------------------------------------


async def test_a_look_up_whose_answer_is_lost_is_repeated(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    """One lost answer must not cost a wake-up the whole ack_wait (2 s here) while the session is trusted."""
    times: list[float] = []
    loop = asyncio.get_running_loop()

    @app.actor(retry=Retry(max_attempts=2, initial=0.01))
    async def work(ctx: Context) -> str:
        times.append(loop.time())
        if ctx.attempt == 1:
            raise RuntimeError
        return "ran"

    async with behind.run(app):
        lost = proxy.lose_answer(lambda p: f"STREAM.MSG.GET.{app.names.work_stream}" in p.subject)
        proxy.lose_answer(record(app, "k", "waiting"))
        run = await client.submit(work.call(), key="k")
        assert await run.result(10) == "ran"
        assert not lost.hits or times[1] - times[0] < 1.5
