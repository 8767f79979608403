"""A worker and a supervisor on three servers, with the defaults: whatever leader dies or hands over, no body is lost or run twice."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import asdict

from tenure import App, Client, Config, Context, OutcomeUnknown, Unavailable
from tenure.cli.root import run
from tenure.core.subjects import Names
from tenure.nats.connection import Connection, NotSent
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.swaps import EXPECT, IN_FLIGHT
from tenure.testing import Cluster, nats_cluster
from tests.conftest import Running, Supervisors, Workers
from tests.gates import opened_at_last
from tests.processes import Site
from tests.support import wait_until

ELECTION_SECONDS = 20.0
"""The server needs 4 to 9; then requests under way are repeated."""


@pytest.fixture(scope="module")
def servers() -> Iterator[Cluster]:
    with nats_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster) -> Cluster:
    """The module's cluster, whole again."""
    for node in servers.nodes:
        node.start()
        node.resume()
    servers.wait_healthy()
    return servers


@pytest.fixture
def app(namespace: str) -> App:
    """With the defaults: what they promise is the point."""
    return App(namespace, config=Config(replicas=3))


@pytest.fixture
async def client(app: App, cluster: Cluster) -> AsyncIterator[Client]:
    async with app.connect(cluster.url) as client:
        yield client


def leader(cluster: Cluster, names: Names, of: str) -> EmbeddedServer:
    if of == "consumer":
        return cluster.leader_of(names.work_stream, names.consumer("default", "normal"))
    return cluster.leader_of({"runs": names.runs_stream, "work": names.work_stream}.get(of, names.sessions_stream))


class Busy:
    """A worker with one body that waits at a gate, and none else."""

    def __init__(self, app: App) -> None:
        self.gate = asyncio.Event()
        self.bodies: list[tuple[str, int]] = []

        @app.actor(name="work")
        async def work(ctx: Context) -> str | None:
            self.bodies.append((ctx.key, ctx.attempt))
            if ctx.key == "long":
                await self.gate.wait()
            return ctx.stop_reason

        self.actor = work

    async def sees_nothing_of(self, fault: Callable[[], object], client: Client, running: Running) -> None:
        """A body runs while it happens, another task comes right after it; nobody is told to stop, nothing runs twice."""
        session = running.worker.lease.id
        async with opened_at_last(self.gate):
            long = await client.submit(self.actor.call(), key="long")
            await wait_until(lambda: self.bodies, description="the body runs")
            await asyncio.to_thread(fault)
            submitting = asyncio.create_task(_patiently(client, self, "after"))
            await wait_until(lambda: ("after", 1) in self.bodies, description="work goes on", timeout=ELECTION_SECONDS)
            self.gate.set()
            assert await long.result(ELECTION_SECONDS) is None
            assert await (await submitting).result(ELECTION_SECONDS) is None
        assert self.bodies == [("long", 1), ("after", 1)]
        assert running.worker.lease.id == session
        assert running.worker.metrics.errors["lease"] == 0
        await wait_until(lambda: not running.worker.why_not_ready, description="ready again", timeout=ELECTION_SECONDS)


async def _patiently(client: Client, busy: Busy, key: str):
    """As a producer does that was told that the servers are away: the same key again; a live run is joined."""
    while True:
        try:
            return await client.submit(busy.actor.call(), key=key)
        except (Unavailable, OutcomeUnknown):
            continue


@pytest.mark.parametrize("of", ["runs", "work", "sessions", "consumer"])
async def test_a_killed_leader_costs_no_body_its_lease(of: str, app: App, client: Client, cluster: Cluster):
    """Kill -9: 4 to 9 s without that stream or consumer.

    The session must outlive that (it is renewed five times in 12 s), the lane must find the new leader of its consumer, and
    outcomes wait for theirs. A supervisor that hears of no renewals meanwhile closes nobody, and takes nothing over.
    """
    busy = Busy(app)
    async with Workers(cluster.url).run(app) as running, Supervisors(cluster.url).run(app) as supervisor:
        node = await asyncio.to_thread(leader, cluster, app.names, of)
        await busy.sees_nothing_of(node.kill, client, running)
        await wait_until(lambda: not supervisor.why_not_ready, description="watching again", timeout=ELECTION_SECONDS)
        assert (supervisor.metrics.repairs["session"], supervisor.metrics.repairs["takeover"]) == (0, 0)


@pytest.mark.long
@pytest.mark.parametrize("of", ["runs", "sessions"])
async def test_a_worker_that_dies_with_a_leader_is_taken_over(
    of: str, namespace: str, cluster: Cluster, tmp_path: Path
):
    """Kill -9 of both at once; another worker and the supervisor live. Nobody else is closed, and each body starts once more."""
    site = Site(tmp_path, cluster.url, namespace, **asdict(Config(replicas=3)))
    keys = [f"k-{number}" for number in range(10)]
    with contextlib.closing(site):
        async with site.app.connect(cluster.url) as client, Supervisors(cluster.url).run(site.app) as supervisor:
            victim = await site.start_worker()
            for key in keys:
                await client.submit(site.app.actors["hold"].call(), key=key)
                await site.wait_for("started", key)
            other = await site.start_worker()
            node = await asyncio.to_thread(leader, cluster, site.app.names, of)
            await asyncio.to_thread(node.kill)
            await victim.kill()
            for key in keys:
                again = await site.wait_for("started", key, 2, timeout=2 * ELECTION_SECONDS)
                assert (again.attempt, again.pid) == (2, other.pid)
                site.open(key)
            assert {await client.run(key).result(ELECTION_SECONDS) for key in keys} == {"attempt 2"}
            assert supervisor.metrics.repairs["session"] == 1
        assert len(site.events("started")) == 2 * len(keys)


@pytest.mark.parametrize("of", ["runs", "sessions"])
async def test_a_worker_that_dies_as_a_leader_steps_down_is_taken_over(
    of: str, namespace: str, cluster: Cluster, tmp_path: Path
):
    """The same without the seconds of an election, and with sessions that live as long as on one server."""
    site = Site(tmp_path, cluster.url, namespace, replicas=3)
    names = site.app.names
    stream = names.runs_stream if of == "runs" else names.sessions_stream
    with contextlib.closing(site):
        async with site.app.connect(cluster.url) as client, Supervisors(cluster.url).run(site.app) as supervisor:
            victim = await site.start_worker()
            run = await client.submit(site.app.actors["hold"].call(), key="k")
            await site.wait_for("started", "k")
            victim.process.kill()
            await asyncio.to_thread(cluster.step_down, stream, "")
            await victim.kill()
            async with Workers(cluster.url).run(site.app):
                assert (await site.wait_for("started", "k", 2)).attempt == 2
                site.open("k")
                assert await run.result(5) == "attempt 2"
            assert supervisor.metrics.repairs["session"] == 1
        assert len(site.events("started")) == 2


@pytest.mark.long
async def test_a_frozen_server_costs_no_body_its_lease(app: App, client: Client, cluster: Cluster):
    """SIGSTOP of the sessions' leader, which is also what the worker is connected to.

    Its connections stay open and say nothing: the worker must leave it, and the others elect another leader.
    """
    busy = Busy(app)
    node = await asyncio.to_thread(leader, cluster, app.names, "sessions")
    urls = ",".join(sorted((each.url for each in cluster.nodes), key=lambda url: url != node.url))
    async with Workers(urls).run(app, dont_randomize=True) as running:
        try:
            await busy.sees_nothing_of(node.suspend, client, running)
        finally:
            await asyncio.to_thread(node.resume)


@pytest.mark.parametrize("of", ["runs", "work", "sessions", "consumer"])
async def test_a_leader_that_steps_down_is_hardly_noticed(of: str, app: App, client: Client, cluster: Cluster):
    names = app.names
    busy = Busy(app)
    stream = {"runs": names.runs_stream, "sessions": names.sessions_stream}.get(of, names.work_stream)
    consumer = names.consumer("default", "normal") if of == "consumer" else ""
    async with Workers(cluster.url).run(app) as running:
        led_again = 0.0

        def hand_over() -> None:
            """How long the servers need for it is their matter; what follows is ours."""
            nonlocal led_again
            before = cluster.leader_of(stream, consumer)
            cluster.step_down(stream, consumer)
            assert cluster.leader_of(stream, consumer) is not before
            led_again = time.monotonic()

        await busy.sees_nothing_of(hand_over, client, running)
        assert time.monotonic() - led_again < 5.0


@pytest.mark.long
async def test_a_rolling_restart_is_hardly_noticed(app: App, client: Client, cluster: Cluster):
    """Each server in turn, as an upgrade does it."""
    busy = Busy(app)

    def restart_all() -> None:
        for node in cluster.nodes:
            node.restart()
            cluster.wait_healthy()

    async with Workers(cluster.url).run(app) as running:
        await busy.sees_nothing_of(restart_all, client, running)


@pytest.mark.long
async def test_an_idle_worker_hears_of_work_after_the_leader_of_its_consumer_was_killed(
    app: App, client: Client, cluster: Cluster
):
    """Its pull died with that server, which nobody tells a worker that is connected to another."""
    busy = Busy(app)
    async with Workers(cluster.url).run(app):
        node = await asyncio.to_thread(leader, cluster, app.names, "consumer")
        await asyncio.to_thread(node.kill)
        run = await _patiently(client, busy, "k")
        assert await run.result(ELECTION_SECONDS) is None
    assert busy.bodies == [("k", 1)]


async def test_a_hundred_submits_of_one_key_at_once_are_one_run_and_none_is_in_doubt(client: Client, app: App):
    """Most meet a write of the key that is in flight: the server proposes none of them, so each is told what became of its own."""
    busy = Busy(app)
    runs = await asyncio.gather(*(client.submit(busy.actor.call(), key="k") for _ in range(100)))
    assert len({run.run_id for run in runs}) == 1


async def test_a_cluster_stores_nothing_that_it_calls_in_flight(cluster: Cluster, namespace: str):
    """What `nats/swaps.py` rests on: 10164 is said before anything is proposed. Eight connections write to one subject."""
    async with contextlib.AsyncExitStack() as stack:
        conns = [await Connection.open(cluster.url, Config(), name="swaps") for _ in range(8)]
        for conn in conns:
            stack.push_async_callback(conn.close)
        spec = {"name": namespace, "subjects": [f"{namespace}.k"], "num_replicas": 3, "storage": "file"}
        assert isinstance(await conns[0].api(f"STREAM.CREATE.{namespace}", spec), dict)
        answers: dict[str, int] = {}
        newest = 0

        async def is_known_to(conn: Connection) -> bool:
            try:
                return bool((await conn.put(f"{namespace}.k", b"", {EXPECT: "1"})).error)
            except NotSent:  # its server has not heard of the stream yet
                return False

        for conn in conns:
            await wait_until(partial(is_known_to, conn), description="each of the three takes writes")

        async def write(number: int) -> None:
            nonlocal newest
            for turn in range(100):
                text = f"{number} {turn}"
                ack = await conns[number].put(f"{namespace}.k", text.encode(), {EXPECT: str(newest)})
                answers[text] = ack.error.err_code if ack.error else 0
                newest = max(newest, ack.seq)

        await asyncio.gather(*(write(number) for number in range(8)))
        stored = set()
        for sequence in range(1, newest + 1):
            got = await conns[0].api(f"STREAM.MSG.GET.{namespace}", {"seq": sequence})
            assert isinstance(got, dict)
            stored.add(base64.b64decode(got["message"]["data"]).decode())
    assert stored == {text for text, code in answers.items() if code == 0}
    assert IN_FLIGHT in answers.values()


async def test_a_cluster_without_a_quorum_is_unavailable_and_no_configuration_error(app: App, cluster: Cluster):
    """Who starts meanwhile, or needs a new session, may try again: nobody has to change anything."""
    meta = await asyncio.to_thread(cluster.meta_leader)
    other = next(node for node in cluster.nodes if node is not meta)
    for node in (meta, other):  # without the first nobody answers at all; the third cannot elect itself
        await asyncio.to_thread(node.kill)
    with pytest.raises(Unavailable):
        async with app.connect(cluster.url):
            raise AssertionError


def test_setup_takes_the_copies_of_every_stream_from_one_to_three(
    namespace: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    streams: set[str] = set()

    def setup(copies: int) -> list[str]:
        assert run(["setup", "--namespace", namespace, "--url", cluster.url, "--replicas", str(copies), "--json"]) == 0
        changes = json.loads(capsys.readouterr().out)["streams"]
        streams.update(one["stream"] for one in changes)
        return [one["did"] for one in changes]

    async def copies() -> set[int]:
        conn = await Connection.open(cluster.url, Config(), name="copies")
        try:
            infos = [await conn.api(f"STREAM.INFO.{stream}", {}) for stream in streams]
            return {info["config"]["num_replicas"] for info in infos if isinstance(info, dict)}
        finally:
            await conn.close()

    assert set(setup(1)) == {"created"}
    assert asyncio.run(copies()) == {1}
    assert set(setup(3)) == {"updated"}
    assert asyncio.run(copies()) == {3}
    assert set(setup(3)) == {"unchanged"}
