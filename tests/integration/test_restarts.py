"""A server of the worker's own that is restarted, crashes, or loses what the namespace is made of."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenure import App, Client, ConfigError, Context, OutcomeUnknown, Run, Unavailable
from tenure.nats.connection import Connection
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.topology import ensure
from tests.conftest import Running, Workers
from tests.gates import opened_at_last
from tests.proxy import Proxy
from tests.support import FAST, wait_until

pytestmark = pytest.mark.one_server("each has a server of its own that is stopped, killed or robbed of its streams")


_MOST_LOOKS = 1_000


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=replace(FAST, session_ttl_seconds=5.0))


@pytest.fixture
async def client(app: App, server: EmbeddedServer) -> AsyncIterator[Client]:
    async with app.connect(server.url) as client:
        yield client


@pytest.fixture
def workers(server: EmbeddedServer) -> Workers:
    return Workers(server.url)


class Gated:
    """An actor whose bodies wait at a gate if their key begins with "long"; notes who began, and why it was stopped."""

    def __init__(self, app: App) -> None:
        self.gate = asyncio.Event()
        self.bodies: list[tuple[str, int]] = []
        self.stopped: list[str | None] = []

        @app.actor(name="work")
        async def work(ctx: Context) -> int:
            self.bodies.append((ctx.key, ctx.attempt))
            if ctx.key.startswith("long"):
                try:
                    await self.gate.wait()
                except asyncio.CancelledError:
                    self.stopped.append(ctx.stop_reason)
                    raise
            return ctx.attempt

        self.actor = work

    async def start(self, client: Client, key: str) -> Run[Any]:
        run = await client.submit(self.actor.call(), key=key)
        await wait_until(lambda: (key, 1) in self.bodies, description="the body runs")
        return run


async def submitted(client: Client, gated: Gated, key: str) -> Run[Any]:
    """As a producer that is told that the server is away: the same key again."""
    while True:
        try:
            return await client.submit(gated.actor.call(), key=key)
        except (Unavailable, OutcomeUnknown):
            continue


async def ready(running: Running) -> None:
    await wait_until(lambda: not running.worker.why_not_ready, description="the worker is ready")


# -- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_a_body_outlives_a_restart_of_the_server(
    how: str, app: App, client: Client, workers: Workers, server: EmbeddedServer
):
    """Graceful, or kill -9 and a start on the same store and port: one run each, under the same session."""
    gated = Gated(app)
    async with workers.run(app) as running, opened_at_last(gated.gate):
        session = running.worker.lease.id
        long = await gated.start(client, "long")
        await asyncio.to_thread(getattr(server, how))
        await asyncio.to_thread(server.start)
        after = await submitted(client, gated, "after")
        assert await after.result(5) == 1
        gated.gate.set()
        assert await long.result(5) == 1
        assert running.worker.lease.id == session
    assert gated.bodies == [("long", 1), ("after", 1)]
    assert gated.stopped == []


async def test_an_outcome_waits_for_the_server(app: App, client: Client, workers: Workers, server: EmbeddedServer):
    """The body ends while the server is away: its outcome is stored once it is back, and the body does not run again."""
    gated = Gated(app)
    async with workers.run(app) as running, opened_at_last(gated.gate):
        long = await gated.start(client, "long")
        await asyncio.to_thread(server.kill)
        gated.gate.set()
        await wait_until(lambda: not running.worker.stores.conn.is_connected, description="the crash is noticed")
        await asyncio.to_thread(server.start)
        assert await long.result(5) == 1
    assert gated.bodies == [("long", 1)]


async def test_scenario_28_alive_but_deaf_is_not_ready(
    app: App, client: Client, workers: Workers, server: EmbeddedServer
):
    """celery#8384. Five restarts, a task after each: not ready while it does not pull, delivered within 5 s."""
    gated = Gated(app)
    async with workers.run(app) as running:
        for number in range(5):
            await asyncio.to_thread(server.kill)
            await wait_until(lambda: running.worker.why_not_ready, description="not ready while there is no server")
            await asyncio.to_thread(server.start)
            run = await submitted(client, gated, f"k{number}")
            assert await run.result(5) == 1
            await ready(running)
    assert gated.bodies == [(f"k{number}", 1) for number in range(5)]


async def test_scenario_29_an_idle_worker_picks_up_at_once(namespace: str, server: EmbeddedServer):
    """nats.py#933. Its pulls have run out more than once; a task that comes then starts within 200 ms."""
    app = App(namespace, config=replace(FAST, pull_expires_seconds=0.4, idle_heartbeat_seconds=0.2))
    gated = Gated(app)
    async with app.connect(server.url) as client, Workers(server.url).run(app) as running:
        pulls = _Counted(running)
        await pulls.reaches(6)
        loop = asyncio.get_running_loop()
        for number in range(3):
            at = loop.time()
            run = await client.submit(gated.actor.call(), key=f"k{number}")
            assert await run.result(5) == 1
            assert loop.time() - at < 0.2
            seen = pulls.number
            await pulls.reaches(seen + 6)


class _Counted:
    """Counts the pulls of a worker."""

    def __init__(self, running: Running) -> None:
        self.number = 0
        conn = running.worker.stores.conn
        publish = conn.publish

        async def counting(subject: str, *args: Any, **options: Any) -> None:
            self.number += ".MSG.NEXT." in subject
            await publish(subject, *args, **options)

        conn.publish = counting  # type: ignore[method-assign]  # watches, changes nothing

    async def reaches(self, number: int) -> None:
        await wait_until(lambda: self.number >= number, description="each lane has pulled twice more")


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.long)])
async def test_scenario_42_reconnects_leak_nothing(times: int, namespace: str, server: EmbeddedServer):
    """openobserve#13676. Again and again every connection breaks, under a worker and a client that waits for a result.

    The server stays, so whatever is left behind stays too: consumers of every stream, connections and subscriptions there,
    asyncio tasks and threads here are as before.
    """
    app = App(namespace, config=replace(FAST, session_ttl_seconds=60.0))  # it must outlive minutes of being cut off
    gated = Gated(app)
    async with Proxy(server.url) as proxy, app.connect(server.url) as watching, contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(app.connect(proxy.url))
        async with Workers(proxy.url).run(app) as running, opened_at_last(gated.gate):
            long = await gated.start(client, "long")
            waiting = asyncio.create_task(long.result(60))
            before = await _settled(watching, server)
            for _ in range(times):
                await cut_once(proxy, running.worker.stores.conn, client.stores.conn)
            await ready(running)
            after = await _settled(watching, server)
            assert after == before
            gated.gate.set()
            assert await waiting == 1
    assert gated.bodies == [("long", 1)]


async def cut_once(proxy: Proxy, *conns: Connection) -> None:
    """Break every connection through the proxy; returns once these are back."""
    before = [conn.raw.stats["reconnects"] for conn in conns]
    await proxy.cut()
    await wait_until(
        lambda: all(
            conn.raw.stats["reconnects"] > n and conn.is_connected for conn, n in zip(conns, before, strict=True)
        ),
        description="all have reconnected",
    )


async def _settled(client: Client, server: EmbeddedServer) -> dict[str, Any]:
    """The census once it stays the same for a second and ten looks, however long one takes; some thousand may differ."""
    now = asyncio.get_running_loop().time
    seen, same, since = await _census_of(client, server), 0, now()
    for _ in range(_MOST_LOOKS):
        await asyncio.sleep(0.01)  # paused: between two looks
        census = await _census_of(client, server)
        if census == seen:
            same += 1
        else:
            seen, same, since = census, 0, now()
        if same >= 10 and now() - since >= 1.0:
            return seen
    pytest.fail(f"things do not settle: {seen}")


async def _census_of(client: Client, server: EmbeddedServer) -> dict[str, Any]:
    names = client.app.names
    counted: dict[str, Any] = {}
    for stream in (
        names.runs_stream,
        names.work_stream,
        names.sessions_stream,
        names.blobs_stream,
        names.inbox_stream,
        names.dead_stream,
    ):
        info = await client.stores.conn.api(f"STREAM.INFO.{stream}", {})
        counted[stream] = info["state"]["consumer_count"] if isinstance(info, dict) else info
    connections = (await asyncio.to_thread(_get, f"{server.monitor_url}/connz?subs=1"))["connections"]
    counted["connections"] = sorted((one.get("name", "not agreed yet"), one["subscriptions"]) for one in connections)
    counted["tasks"] = len(asyncio.all_tasks())
    counted["threads"] = sorted(t.name for t in threading.enumerate() if t.name.startswith("tenure-lease"))
    return counted


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  (http, the test's own server)
        return msgspec.json.decode(answer.read())


# -- what is deleted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", [True, False])
async def test_a_deleted_consumer_comes_back(busy: bool, app: App, client: Client, workers: Workers):
    """Somebody deletes the lane's durable consumer: made again, and what is stored arrives within 5 s."""
    gated = Gated(app)
    names = app.names
    async with workers.run(app) as running, opened_at_last(gated.gate):
        if busy:
            long = await gated.start(client, "long")
        call = f"CONSUMER.DELETE.{names.work_stream}.{names.consumer('default', 'normal')}"
        assert isinstance(await client.stores.conn.api(call, {}), dict)
        run = await client.submit(gated.actor.call(), key="after")
        assert await run.result(5) == 1
        gated.gate.set()
        if busy:
            assert await long.result(5) == 1
            await wait_until(lambda: depth(client, 0), description="nothing is left in the work stream")
        assert running.worker.metrics.errors["lease"] == 0
    assert gated.bodies.count(("long", 1)) == busy
    assert len(gated.bodies) == 1 + busy


async def test_a_purged_work_stream_stops_nobody(app: App, client: Client, workers: Workers):
    """What ran ends, what comes runs; what waited has lost its wake-up, which a later submit of its key brings back."""
    gated = Gated(app)
    async with workers.run(app, concurrency=1) as running, opened_at_last(gated.gate):
        long = await gated.start(client, "long")
        waiting = await client.submit(gated.actor.call(), key="waiting")
        waiting_since = client.now()
        assert isinstance(await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {}), dict)
        gated.gate.set()
        assert await long.result(5) == 1
        assert await (await client.submit(gated.actor.call(), key="after")).result(5) == 1

        await wait_until(
            lambda: client.now() > waiting_since + 2.0, description="it waits for longer than a race can take"
        )
        again = await client.submit(gated.actor.call(), key="waiting")
        assert (again.run_id, again.accepted) == (waiting.run_id, False)
        assert await waiting.result(5) == 1
        assert not running.worker.why_not_ready
    assert gated.bodies == [("long", 1), ("after", 1), ("waiting", 1)]


async def depth(client: Client, number: int) -> bool:
    info = await client.stores.conn.api(f"STREAM.INFO.{client.app.names.work_stream}", {})
    return isinstance(info, dict) and info["state"]["messages"] == number


async def _delivered(client: Client, number: int) -> bool:
    names = client.app.names
    info = await client.stores.conn.api(f"CONSUMER.INFO.{names.work_stream}.{names.consumer('default', 'normal')}", {})
    return isinstance(info, dict) and info["delivered"]["consumer_seq"] >= number


async def delete(client: Client, stream: str) -> None:
    assert isinstance(await client.stores.conn.api(f"STREAM.DELETE.{stream}", {}), dict)


async def set_up_again(client: Client) -> None:
    """``tenure setup``."""
    await ensure(client.stores.conn, client.app.names, client.stores.clock, client.app.config)


async def not_ready_for(running: Running, name: str) -> None:
    """The worker says what is gone and what to do, and goes on running without being busy."""

    def says_so() -> bool:
        why = running.worker.why_not_ready
        return name in why and "tenure setup" in why

    await wait_until(says_so, description="the worker says what is gone")
    assert not running.task.done()


async def test_a_worker_whose_runs_bucket_was_made_anew_ends_and_says_why(app: App, client: Client, workers: Workers):
    """Gone: not ready, no claims. Made anew: revisions count from 1 again, so nothing in hand may be written any more.

    A new run of the same key is at the very revision that the old body holds: its outcome would overwrite it.
    """
    gated = Gated(app)
    async with workers.run(app) as running, opened_at_last(gated.gate):
        await gated.start(client, "long")
        held = (await client.stores.runs.read("long")).revision
        await delete(client, app.names.runs_stream)
        await not_ready_for(running, app.names.runs_bucket)
        await client.stores.conn.put(app.names.work("default", "normal", "ghost", "01JRUN"), b"")
        await wait_until(lambda: _delivered(client, 2), description="its wake-up is delivered")
        assert [live.key for live in running.worker.table.all()] == ["long"], "nothing is claimed meanwhile"
        await set_up_again(client)
        for number in range(held - 1):
            await client.submit(gated.actor.call(), key=f"other{number}", delay=60)
        stranger = await client.submit(gated.actor.call(), key="long", delay=60)
        assert (await client.stores.runs.read("long")).revision == held
        with pytest.raises(ConfigError, match=f"{app.names.runs_bucket} was deleted and made anew"):
            await running.ended()
        status = await client.status("long")
        assert status is not None
        assert (status.run_id, status.phase) == (stranger.run_id, "scheduled")
        assert gated.stopped == ["lease_lost"]
    async with workers.run(app):
        run = await submitted(client, gated, "next")
        assert await run.result(5) == 1


async def test_a_worker_recovers_from_a_work_stream_that_was_deleted(app: App, client: Client, workers: Workers):
    """Records are what counts: what runs ends as ever, and once the stream is back so is the worker."""
    gated = Gated(app)
    async with workers.run(app) as running, opened_at_last(gated.gate):
        long = await gated.start(client, "long")
        await delete(client, app.names.work_stream)
        await not_ready_for(running, app.names.work_stream)
        gated.gate.set()
        assert await long.result(5) == 1
        await set_up_again(client)
        run = await submitted(client, gated, "after")
        assert await run.result(5) == 1
        await ready(running)
    assert gated.bodies == [("long", 1), ("after", 1)]


async def test_a_worker_recovers_from_a_sessions_bucket_that_was_deleted(app: App, client: Client, workers: Workers):
    """No session can be proved: bodies are stopped (``lease_lost``). Once the bucket is back, a new session goes on."""
    gated = Gated(app)
    async with workers.run(app) as running, opened_at_last(gated.gate):
        session = running.worker.lease.id
        await gated.start(client, "long")
        await delete(client, app.names.sessions_stream)
        await not_ready_for(running, app.names.sessions_bucket)
        await wait_until(lambda: gated.stopped == ["lease_lost"], description="the body is stopped")
        await set_up_again(client)
        await wait_until(lambda: not running.worker.why_not_ready, description="ready again", timeout=20)
        run = await client.submit(gated.actor.call(), key="after")
        assert await run.result(5) == 1
        assert running.worker.lease.id != session
