"""A supervisor whose server loses what the namespace is made of, or breaks its connections: it says so, and comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from tenure import App, Client, ConfigError
from tenure.core import commands as c
from tenure.core.sessions import Session
from tenure.nats import presence
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.inbox import CONSUMER
from tenure.nats.runs import Committed
from tenure.supervisor import Supervisor
from tests.conftest import Supervisors, Workers
from tests.integration.test_restarts import _settled, cut_once, delete, set_up_again
from tests.proxy import Proxy
from tests.strangers import Stranger, mortal_app, phase, until_empty
from tests.support import wait_until

RECONNECTS = 5


@pytest.fixture
def app(namespace: str) -> App:
    return mortal_app(namespace)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(presence, "_MISSING_LOOK_SECONDS", 0.1)


@dataclass
class Watching:
    """A supervisor and the task that runs it."""

    supervisor: Supervisor
    task: asyncio.Task[None]

    async def says(self, name: str) -> None:
        """Wait until it says what is gone and what to do; it goes on running."""

        def told() -> bool:
            why = self.supervisor.why_not_ready
            return name in why and "tenure setup" in why

        await wait_until(told, description=f"it says that {name} is gone")
        assert not self.task.done()

    async def ready(self) -> None:
        await wait_until(lambda: not self.supervisor.why_not_ready, description="the supervisor is ready", timeout=20)


@pytest.fixture
async def watching(app: App, client: Client, nats_server: str) -> AsyncIterator[Watching]:
    """It runs; what ended it is the test's to expect."""
    async with app.supervisor(nats_server) as supervisor:
        watching = Watching(supervisor, asyncio.create_task(supervisor.run()))
        await watching.ready()
        yield watching
        supervisor.stop()
        with contextlib.suppress(ConfigError):
            await watching.task


async def applied(client: Client, stranger: Stranger, key: str) -> None:
    """A command that is published now is carried out, once."""
    await stranger.send("submit.add", {"one": 1}, Tenure_Key=key)
    await phase(client, key, "queued")
    await until_empty(stranger, client)
    status = await client.status(key)
    assert status is not None
    assert status.generation == 1


async def left_by_a_dead_one(client: Client, key: str) -> str:
    """A run in the hands of a session that is never renewed."""
    stores = client.stores
    session = Session(id=stores.clock.new_id(), kind="worker", host="h", pid=1, ttl=1.0, started_at=client.now())
    await stores.sessions.create(session, stores.runs.patience())
    run = await client.submit(client.app.actors["add"].call(1), key=key)
    claim = c.Claim(session=session.id, run_id=run.run_id, next_run_id="")
    assert isinstance(await stores.runs.commit(key, claim), Committed)
    await stores.conn.api(f"STREAM.PURGE.{stores.names.work_stream}", {})
    return session.id


async def test_a_supervisor_whose_runs_bucket_was_made_anew_ends_and_says_why(
    app: App, client: Client, watching: Watching
) -> None:
    """As a worker does: what it has in hand is at revisions that mean nothing any more."""
    await delete(client, app.names.runs_stream)
    await watching.says(app.names.runs_bucket)
    await set_up_again(client)
    with pytest.raises(ConfigError, match=f"{app.names.runs_bucket} was deleted and made anew"):
        await watching.task
    assert watching.supervisor.why_not_ready == "not running"


async def test_a_supervisor_recovers_from_a_sessions_bucket_that_was_deleted(
    app: App, client: Client, watching: Watching
) -> None:
    """Not ready. Once the bucket is back it has a new session."""
    before = watching.supervisor.lease.id
    await delete(client, app.names.sessions_stream)
    await watching.says(app.names.sessions_bucket)
    await set_up_again(client)
    await wait_until(lambda: watching.supervisor.lease.id != before, description="it has a new session")
    await watching.ready()


async def test_a_session_that_died_with_its_bucket_is_buried_and_its_runs_are_taken_over(
    app: App, client: Client, watching: Watching, workers: Workers
) -> None:
    """Deleted and made anew at once, under the census: it has seen revisions that the new bucket does not have."""
    dead = await left_by_a_dead_one(client, "k")
    census = watching.supervisor._census
    assert census is not None
    await wait_until(lambda: dead in census._watched, description="it has seen the session")
    await delete(client, app.names.sessions_stream)
    await set_up_again(client)
    async with workers.run(app):
        assert await (await client.run("k")).result(15) == 3
    await watching.ready()


async def test_a_supervisor_recovers_from_an_inbox_that_was_deleted(
    app: App, client: Client, watching: Watching, stranger: Stranger
) -> None:
    """Not ready: nothing can be accepted. Once it is back, so are commands."""
    await applied(client, stranger, "before")
    await delete(client, app.names.inbox_stream)
    await watching.says(app.names.inbox_stream)
    await set_up_again(client)
    await watching.ready()
    await applied(client, stranger, "after")


@pytest.mark.parametrize("how", ["its consumer deleted", "purged"])
async def test_a_supervisor_goes_on_with_an_inbox_that_lost_something(
    how: str, app: App, client: Client, watching: Watching, stranger: Stranger
) -> None:
    """The durable consumer is made again and what is stored arrives; of what was purged nothing is left that disturbs."""
    await applied(client, stranger, "before")
    call = f"CONSUMER.DELETE.{app.names.inbox_stream}.{CONSUMER}"
    if how == "purged":
        for number in range(50):
            await stranger.send("submit.nobody", {}, Tenure_Key=f"k-{number}")
        call = f"STREAM.PURGE.{app.names.inbox_stream}"
    assert isinstance(await client.stores.conn.api(call, {}), dict)
    await applied(client, stranger, "after")
    assert not watching.supervisor.why_not_ready
    assert watching.supervisor.metrics.errors["command"] == 0


@pytest.mark.one_server("its own server is restarted with its store")
async def test_scenario_42_reconnects_of_a_supervisor_leak_nothing(namespace: str) -> None:
    """openobserve#13676. Every connection of a supervisor breaks again and again; the server stays, and so would what is left."""
    app = mortal_app(namespace)
    app = App(namespace, config=replace(app.config, session_ttl_seconds=60.0, sweep_seconds=3_600.0))
    with EmbeddedServer() as server:
        async with (
            Proxy(server.url) as proxy,
            app.connect(server.url) as client,
            Supervisors(proxy.url).run(app) as supervisor,
        ):
            before = await _settled(client, server)
            for _ in range(RECONNECTS):
                await cut_once(proxy, supervisor.stores.conn)
            await wait_until(lambda: not supervisor.why_not_ready, description="ready again")
            assert await _settled(client, server) == before
