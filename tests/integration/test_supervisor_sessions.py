"""Whom a supervisor closes, and when it must not: its clocks, its own troubles, entries that are missing."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tenure.core.errors import Unavailable
from tenure.core.sessions import Kind, Session
from tenure.core.sweeps import owners, partition_of
from tenure.lease import Lease
from tenure.nats.embedded import EmbeddedServer
from tenure.supervisor import Supervisor
from tenure.supervisor.census import Census
from tests.conftest import Supervisors, Workers
from tests.processes import WITHIN_SECONDS, Site
from tests.proxy import Proxy, Publish
from tests.site_app import QUICK
from tests.support import wait_until, wake

TTL = QUICK.session_ttl(copies=1)


@pytest.fixture
def app(site: Site) -> App:
    return site.app


class Heart:
    """The session of a process that beats when the test says so."""

    def __init__(self, client: Client, ttl: float = TTL, kind: Kind = "worker") -> None:
        self._sessions = client.stores.sessions
        self._patience = client.stores.runs.patience()
        self.session = Session(
            id=client.stores.clock.new_id(), kind=kind, host="h", pid=1, ttl=ttl, started_at=client.now()
        )
        self.revision = 0

    async def start(self) -> Heart:
        self.revision = await self._sessions.create(self.session, self._patience)
        return self

    async def beat(self) -> bool:
        """Renew; whether the bucket took it."""
        self.session = replace(self.session, beat=self.session.beat + 1)
        revision = await self._sessions.write(self.session, self.revision)
        self.revision = revision or self.revision
        return bool(revision)

    async def closed(self) -> str | None:
        """Why it is closed; None while it is open, or where it has no entry."""
        seen = await self._sessions.read(self.session.id)
        return seen.session.closed if seen is not None else None

    async def until_closed(self) -> None:
        await wait_until(self.closed, description="the silent session is closed", timeout=WITHIN_SECONDS)


async def has_seen(supervisor: Supervisor, heart: Heart) -> Census:
    """Wait until a supervisor's clock of a session runs: that it is stored would not say so."""
    census = supervisor._census
    assert census is not None
    await wait_until(lambda: heart.session.id in census._watched, description="it is seen")
    return census


async def test_a_supervisor_that_beats_and_sweeps_nothing_leaves_no_hole(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """[32] One loop of it is stuck, so its session lives and its share of the keys is swept by nobody.

    The others pass over everything now and again: its key, whose wake-up is lost, runs all the same.
    """
    stuck = await Heart(client, kind="supervisor").start()
    async with workers.run(app), supervisors.run(app) as supervisor:
        census = await has_seen(supervisor, stuck)
        await wait_until(lambda: stuck.session.id in census.lively_supervisors(), description="it shares the keys")
        partitions = owners({stuck.session.id, supervisor.lease.id})
        key = next(key for key in map(str, range(1_000)) if partitions[partition_of(key)] == stuck.session.id)
        run = await client.submit(app.actors["quick"].call(), key=key, delay=1.0)
        await client.stores.conn.api(f"STREAM.PURGE.{client.stores.names.work_stream}", {})
        beating = asyncio.create_task(beat_on(stuck))
        try:
            assert await run.result(4 * WITHIN_SECONDS) == "attempt 1"
        finally:
            beating.cancel()


async def beat_on(heart: Heart) -> None:
    """Renew until cancelled."""
    while True:
        await heart.beat()
        await asyncio.sleep(TTL / 5)  # paused: between two renewals


def closes(heart: Heart, app: App) -> object:
    """Writes that close a session."""
    return lambda p: p.subject == app.names.session(heart.session.id) and p.says('"closed"')


def of_a_supervisor(publish: Publish) -> bool:
    return publish.says('"kind":"supervisor"')


async def test_a_renewal_that_a_supervisor_has_not_heard_of_keeps_the_session_open(
    app: App, client: Client, proxy: Proxy, supervised_behind: Supervisors
) -> None:
    """Its watch goes silent, and before it can notice that, a session that is renewed all the time looks dead [16].

    It closes at the revision that it has seen, which is not the session's any more: refused.
    """
    async with supervised_behind.run(app) as supervisor:
        heart = await Heart(client).start()
        census = await has_seen(supervisor, heart)
        proxy.mute(app.names.sessions_stream)

        async def beaten() -> bool:
            assert await heart.beat()
            await asyncio.sleep(TTL / 10)  # paused: between two renewals
            return lively()

        def lively() -> bool:
            return census._silence.is_lively(heart.session.id, client.stores.clock.steady())

        await wait_until(lambda: not lively(), description="what it has seen grows old")
        await wait_until(beaten, description="it has tried, was refused and has looked")
        assert await heart.closed() is None
        assert supervisor.metrics.repairs["session"] == 0


async def test_a_renewal_that_overtakes_a_close_keeps_the_session_open(
    app: App, client: Client, proxy: Proxy, supervised_behind: Supervisors
) -> None:
    """Its close is held up on the way; a renewal that is applied first makes the server refuse it [16]."""
    async with supervised_behind.run(app) as supervisor:
        heart = await Heart(client).start()
        held = proxy.hold(closes(heart, app), 1_000)  # type: ignore[arg-type]  # it is a Matches
        await asyncio.wait_for(held.done.wait(), WITHIN_SECONDS)
        assert await heart.beat()
        held.clear()
        await proxy.release(held)
        assert await heart.beat()
        assert await heart.closed() is None
        assert supervisor.metrics.repairs["session"] == 0
        await heart.until_closed()


@pytest.mark.parametrize("whom", ["tenure-", "tenure-supervisor"])
async def test_clocks_start_anew_after_a_disconnect(
    whom: str, app: App, client: Client, proxy: Proxy, supervised_behind: Supervisors
) -> None:
    """A supervisor and a worker are cut off by the same outage for longer than the ttl: it closes nobody at once after it.

    Also if it is cut off with one connection only, and its own lease is renewed all the while.
    """
    async with supervised_behind.run(app) as supervisor:
        heart = await Heart(client).start()
        census = await has_seen(supervisor, heart)
        await proxy.shut_out(whom)
        await asyncio.sleep(TTL + 0.5)  # paused: an outage
        assert not census._silence.would_have_heard(client.stores.clock.steady())
        proxy.let_in()
        await wait_until(lambda: supervisor.stores.conn.is_connected, description="connected again")
        await asyncio.sleep(TTL / 2)  # paused: the worker is not quite as quick
        assert await heart.beat()
        assert supervisor.metrics.repairs["session"] <= 1, "its own old session at most"
        await heart.until_closed()


@pytest.mark.one_server("its own server is restarted with its store")
async def test_three_restarts_of_the_server_in_a_row_close_nobody(site: Site) -> None:
    """Each is shorter than the ttl, all together are longer; bodies go on and sessions stay what they are."""
    ttl = site.settings["session_ttl_seconds"] = 3 * TTL  # long enough for a server that starts slowly
    with EmbeddedServer() as server:
        site.url = server.url
        app = site.app
        workers, supervisors = Workers(server.url), Supervisors(server.url)
        async with app.connect(server.url) as client, workers.run(app) as running, supervisors.run(app) as supervisor:
            run = await client.submit(app.actors["hold"].call(), key="k")
            await site.wait_for("started", "k")
            sessions = {running.worker.lease.id, supervisor.lease.id}
            for _ in range(3):
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(ttl / 3)  # paused: it is down
                await asyncio.to_thread(server.start)
                back = client.stores.clock.steady()
                for lease in (running.worker.lease, supervisor.lease):
                    await wait_until(
                        lambda: lease.confirmed_at > back,  # noqa: B023  (awaited here)
                        description="it is renewed",
                    )
            await asyncio.sleep(ttl)  # paused: whoever is to be closed is closed by now
            assert {running.worker.lease.id, supervisor.lease.id} == sessions
            assert supervisor.metrics.repairs["session"] == 0
            site.open("k")
            assert await run.result(10) == "attempt 1"


async def test_clocks_start_anew_after_a_freeze(site: Site, client: Client) -> None:
    """SIGSTOP of a supervisor past the ttl, on a host where everything stood still: back again it closes nobody at once."""
    ttl = site.settings["session_ttl_seconds"] = TTL / 2
    supervisor = await site.start_supervisor()
    heart = await Heart(client, ttl).start()
    await asyncio.sleep(0.2)  # paused: it is seen
    supervisor.freeze()
    await asyncio.sleep(ttl + 0.5)  # paused: everything stands still
    supervisor.thaw()
    await asyncio.sleep(ttl / 3)  # paused: the other process is not quite as quick
    assert await heart.beat()
    await heart.until_closed()


async def test_nobody_is_closed_while_the_supervisors_own_renewals_are_not_confirmed(
    site: Site, client: Client, proxy: Proxy, supervised_behind: Supervisors
) -> None:
    """The bucket takes no renewals (a leader is being elected), its watch is alive: silence proves nothing."""
    ttl = site.settings["session_ttl_seconds"] = TTL / 2
    async with supervised_behind.run(site.app) as supervisor:
        heart = await Heart(client, ttl).start()
        await has_seen(supervisor, heart)
        assert await heart.beat()
        lost = proxy.lose(of_a_supervisor, 1_000)
        await asyncio.sleep(2 * ttl)  # paused: nobody's renewals are taken
        assert lost.hits
        assert await heart.closed() is None
        lost.clear()
        await wait_until(lambda: supervisor.lease.trusted, description="its own are taken again")
        await asyncio.sleep(ttl / 3)  # paused: the worker is not quite as quick
        assert await heart.beat()
        await heart.until_closed()


async def test_sessions_of_different_ttl_are_each_closed_on_their_own(
    app: App, client: Client, supervisors: Supervisors
) -> None:
    """One of half the supervisor's ttl, one of twice it; both fall silent at once."""
    loop = asyncio.get_running_loop()
    async with supervisors.run(app):
        short = await Heart(client, TTL / 2).start()
        long = await Heart(client, 2 * TTL).start()
        started = loop.time()
        await short.until_closed()
        assert loop.time() - started < 2 * TTL - 0.3
        assert await long.beat()
        started = loop.time()
        await long.until_closed()
        assert loop.time() - started > 2 * TTL - 0.3


# -- entries that are missing ------------------------------------------------------------------------------------------


async def remove_entry(client: Client, session: str, how: str = "purged") -> None:
    """Remove a session's entry as ``nats stream purge``, ``nats kv del`` and ``nats kv purge`` do, or write over it."""
    stores = client.stores
    subject = stores.names.session(session)
    if how == "purged":
        await stores.conn.api(f"STREAM.PURGE.{stores.names.sessions_stream}", {"filter": subject})
    elif how == "overwritten":
        assert (await stores.conn.put(subject, b"\xff not a session")).error is None
    else:
        headers = {"KV-Operation": how} | ({"Nats-Rollup": "sub"} if how == "PURGE" else {})
        assert (await stores.conn.put(subject, b"", headers)).error is None


async def holder_of(client: Client, key: str) -> str:
    status = await client.status(key)
    assert status is not None
    assert status.holder is not None
    return status.holder


HOW = ["purged", "DEL", "PURGE", "overwritten"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("when", ["while it is watched", "before anybody watched"])
async def test_a_dead_session_without_an_entry_is_buried_and_its_runs_are_taken_over(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors, when: str, how: str
) -> None:
    """Killed, then its entry removed: nothing is left to be closed, and nobody else may conclude that.

    The key-value tools leave an empty marker, at whose revision it must be buried. It ends no loop of anybody.
    """
    loop = asyncio.get_running_loop()
    victim = await site.start_worker()
    run = await client.submit(app.actors["hold"].call(), key="k")
    await site.wait_for("started", "k")
    session = await holder_of(client, "k")
    if when == "before anybody watched":
        await victim.kill()
        await remove_entry(client, session, how)
    since = loop.time()
    async with workers.run(app) as running, supervisors.run(app):
        if when == "while it is watched":
            await victim.kill()
            await remove_entry(client, session, how)
            since = loop.time() - TTL / 3
        await wake(client, "k")  # a worker looks too, and finds nothing to conclude
        site.open("k")
        assert await run.result(WITHIN_SECONDS) == "attempt 2"
        assert running.worker.metrics.errors["handler"] == 0
        assert loop.time() - since >= TTL - 0.1, "it was watched for a ttl first"
        seen = await client.stores.sessions.read(session)
        assert seen is not None
        assert seen.session.closed == "missing"


@pytest.mark.parametrize("how", HOW)
async def test_a_live_worker_whose_entry_was_removed_learns_it_and_goes_on_with_a_new_session(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors, how: str
) -> None:
    """Its next renewal is refused and it finds nothing: its body is told, and the run goes on as another attempt."""
    async with workers.run(app) as running, supervisors.run(app):
        run = await client.submit(app.actors["hold"].call(), key="k")
        await site.wait_for("started", "k")
        session = running.worker.lease.id
        await remove_entry(client, session, how)
        await site.wait_for("stopped:lease_lost", "k", timeout=TTL)
        site.open("k")
        assert await run.result(2 * WITHIN_SECONDS) == "attempt 2"
        assert running.worker.lease.id != session


async def test_a_session_of_its_own_that_is_lost_is_counted_once_however_often_the_next_one_fails_to_open(
    app: App, client: Client, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry is removed; then the bucket takes no new one for a while."""
    async with supervisors.run(app) as supervisor:
        failed: list[Unavailable] = []
        open_ = supervisor._open_lease

        async def fails_twice() -> Lease:
            if len(failed) < 2:
                failed.append(Unavailable("not now"))
                raise failed[-1]
            return await open_()

        monkeypatch.setattr(supervisor, "_open_lease", fails_twice)
        lost = supervisor.lease.id
        await remove_entry(client, lost)
        await wait_until(lambda: supervisor.lease.id != lost, description="another session")
        assert len(failed) == 2
        assert supervisor.metrics.errors["lease"] == 1


# -- two supervisors ---------------------------------------------------------------------------------------------------


async def test_a_supervisor_killed_together_with_a_worker_is_not_counted_on(
    site: Site, workers: Workers, supervisors: Supervisors
) -> None:
    """One host dies: a worker and one of two supervisors at the same instant. The other looks after all partitions.

    No sweep and no redelivery comes in time, so that only what is done about a closed session helps.
    """
    site.settings = {"sweep_seconds": 3_600.0}
    app = site.app
    keys = [f"k-{number}" for number in range(20)]
    async with app.connect(site.url) as client, supervisors.run(app) as survivor:
        other = await site.start_supervisor()
        await wait_until(
            lambda: survivor._census and len(survivor._census.lively_supervisors()) == 2,
            description="they know each other",
        )
        mine = survivor._mine()
        assert 0 < sum(mine(key) for key in keys) < 20, "the partitions are shared"
        victim = await site.start_worker()
        runs = [await client.submit(app.actors["hold"].call(), key=key) for key in keys]
        for key in keys:
            await site.wait_for("started", key)
        async with workers.run(app):
            other.process.kill()
            await victim.kill()
            await other.kill()
            for key in keys:
                await site.wait_for("started", key, 2)
                site.open(key)
            assert [await run.result(5) for run in runs] == ["attempt 2"] * 20
        assert survivor.metrics.repairs["takeover"] == 20
