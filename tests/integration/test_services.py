"""What a worker and a supervisor do alike: opened once, run once at a time, seen to their end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest

from tenure import App, Client, TenureError
from tenure.lease import Lease
from tenure.supervisor import Supervisor
from tenure.worker import Worker
from tests.support import wait_until


@pytest.fixture(params=["worker", "supervisor"])
def service(request: pytest.FixtureRequest, app: App, nats_server: str) -> Worker | Supervisor:
    return app.worker(nats_server) if request.param == "worker" else app.supervisor(nats_server)


@asynccontextmanager
async def running(service: Worker | Supervisor) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(service.run())
    await wait_until(lambda: not service.why_not_ready or task.done(), description="it is ready")
    yield task
    if not task.done():  # a stop that nobody waits for would end the next run at once
        service.stop()
        await task


async def test_a_service_that_is_not_open_says_how_to_open_it(service: Worker | Supervisor) -> None:
    kind = service.kind
    how = re.escape(f"the {kind} is not open: use it as `async with app.{kind}() as {kind}`")
    with pytest.raises(TenureError, match=how):
        _ = service.stores
    with pytest.raises(TenureError, match=how):
        _ = service.lease
    with pytest.raises(TenureError, match=how):
        await service.run()


async def test_a_service_is_opened_once(service: Worker | Supervisor) -> None:
    """Else the first session and connection would stay open for ever."""
    async with service:
        session = service.lease.id
        with pytest.raises(TenureError, match=f"the {service.kind} is already open"):
            await service.__aenter__()
        assert service.lease.id == session


async def test_a_service_runs_once_at_a_time(service: Worker | Supervisor) -> None:
    """Two would do everything twice, and the first to end would close what the other needs."""
    async with service, running(service) as first:
        with pytest.raises(TenureError, match=f"the {service.kind} already runs"):
            await asyncio.wait_for(service.run(), 5)
        assert not first.done()
        assert not service.why_not_ready


async def test_a_service_that_ends_closes_its_session_and_the_next_one_has_another(
    service: Worker | Supervisor, client: Client
) -> None:
    """So nobody waits for a ttl: what it handed back, or gave up, is another's at once, and nothing that it held is counted failed."""
    sessions: list[str] = []
    for _ in range(2):
        async with service, running(service):
            sessions.append(service.lease.id)
            open_one = await client.stores.sessions.read(sessions[-1])
            assert open_one is not None
            assert open_one.session.closed is None
        ended = await client.stores.sessions.read(sessions[-1])
        assert ended is not None
        assert ended.session.closed == "drain"
    assert sessions[0] != sessions[1]


async def test_a_run_that_was_cancelled_has_ended_once_it_says_so(service: Worker | Supervisor) -> None:
    """It can be run again at once: with what was cancelled still at work, that would be refused."""
    async with service:
        for _ in range(2):
            async with running(service) as task:
                assert not service.why_not_ready
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert service.why_not_ready


async def test_a_service_can_be_scraped_while_its_session_closes(service: Worker | Supervisor) -> None:
    """/metrics answers until the very end: until then its last session is what it has to tell of."""
    await service.__aenter__()
    name = "tenure_session_trusted_until_timestamp_seconds"
    before = service.metrics.registry.get_sample_value(name)
    closing = asyncio.create_task(service.__aexit__(None, None, None))
    await asyncio.sleep(0)  # paused: one step of it is made
    try:
        assert not closing.done()
        assert service.metrics.registry.get_sample_value(name) == pytest.approx(before, abs=60)
    finally:
        await closing


async def test_a_close_that_is_cancelled_leaves_nothing_open(
    service: Worker | Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the session closes, which may take long: its thread ends by itself, the connection must not stay."""
    await service.__aenter__()
    closing = asyncio.Event()
    close = Lease.close

    async def noting(lease: Lease, reason: str) -> None:
        closing.set()
        await close(lease, reason)

    monkeypatch.setattr(Lease, "close", noting)
    leaving = asyncio.create_task(service.__aexit__(None, None, None))
    await closing.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    left = not service.stores.conn.raw.is_closed
    if left:
        await service.stores.close()
    assert not left


async def test_bodies_see_what_whoever_called_run_has_set(app: App, client: Client, nats_server: str) -> None:
    """Also what was set after the worker had connected, and nothing that an earlier body has."""
    who = ContextVar("who", default="nobody")

    @app.actor
    async def own() -> str:
        seen = who.get()
        who.set("a body")
        return seen

    @app.actor
    def plain() -> str:
        return who.get()

    runs = [await client.submit(actor.call()) for actor in (own, own, plain)]
    async with app.worker(nats_server, concurrency=1) as worker:
        who.set("the application")
        await worker.run_until_idle()
    assert [await run.result(2) for run in runs] == ["the application"] * 3
