"""Claimed, and no body starts: a cancel came first, or its time is over. For bodies of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenure import App, Client, Context, Retry
from tenure.actors import Actor
from tenure.core import commands as c
from tenure.core.records import Record
from tenure.nats.connection import Connection, Lost
from tenure.worker import handler
from tenure.worker.arguments import arguments
from tenure.worker.service import Worker
from tests.conftest import Workers
from tests.isolated import mark
from tests.support import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")
KINDS = pytest.mark.parametrize("kind", ["async", "plain", "process"])
TWICE = Retry(max_attempts=2, initial=0.01)


@pytest.fixture
def app(tasks: Any) -> App:
    found: App = tasks.app
    return found


def hasty(app: App, kind: str) -> Actor[..., Any, Any, Any]:
    """Marks that it has begun; half a second of time, two attempts."""
    if kind == "async":

        @app.actor(timeout=0.5, retry=TWICE)
        async def waits_for_nothing(ctx: Context, path: str) -> int:
            mark(path, str(ctx.attempt))
            return ctx.attempt

    elif kind == "plain":

        @app.actor(timeout=0.5, retry=TWICE)
        def in_a_thread(ctx: Context, path: str) -> int:
            mark(path, str(ctx.attempt))
            return ctx.attempt

    return app.actors[{"async": "waits_for_nothing", "plain": "in_a_thread", "process": "hasty"}[kind]]


@KINDS
async def test_a_cancel_that_is_found_with_ones_own_claim_starts_no_body(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """The claim is stored and its answer lost; a cancel is stored over it, and whoever cancels dies before its signal.

    The worker sends that signal itself then, as what the record that it found owes; it comes back in another thread, before
    or after the body would begin: here never.
    """
    put, cancelled = Connection.put, list[bool]()

    async def unheard(conn: Connection, subject: str, payload: bytes, *args: Any, **kwargs: Any) -> Any:
        ack = await put(conn, subject, payload, *args, **kwargs)
        if not cancelled and b'"phase":"running"' in payload:
            cancelled.append(True)
            await client.stores.runs.commit("k", c.Cancel(reason="enough"))
            raise Lost("the answer")
        return ack

    monkeypatch.setattr(Connection, "put", unheard)
    monkeypatch.setattr(Worker, "_signalled", lambda *_: None)
    path = tmp_path / "started"
    run = await client.submit(hasty(app, kind).call(str(path)), key="k")
    async with workers.run(app):
        assert (await run.wait(15)).phase == "cancelled"
    assert cancelled
    assert not path.exists()


@KINDS
async def test_no_body_starts_after_its_deadline(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Its arguments took all of its time to be read: by now it may be another attempt's, which a supervisor's eviction began."""

    async def slowly(stores: Any, live: Any, record: Record, patience: Any) -> Any:
        over = record.deadline
        if record.attempt == 1 and over is not None:
            await wait_until(lambda: stores.clock.now() > over, description="its time is over")
        return await arguments(stores, live, record, patience)

    monkeypatch.setattr(handler, "arguments", slowly)
    path = tmp_path / "started"
    async with workers.run(app):
        run = await client.submit(hasty(app, kind).call(str(path)))
        assert await run.result(15) == 2
        status = await run.status()
    assert status is not None
    assert (status.failures, path.read_text()) == (1, "2\n")
