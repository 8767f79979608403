"""A leader that was deposed and does not know it yet answers a read: whoever has a run is told nothing from before that run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import App, Client, Run
from tests.deposed import Deposed
from tests.support import wait_until


@pytest.fixture
def app(app: App) -> App:
    @app.actor
    async def echo(text: str) -> str:
        return text

    return app


async def shows_what_is(app: App, client: Client, patch: pytest.MonkeyPatch) -> Deposed:
    """It still knows the key as it is now."""
    deposed = Deposed(client.stores.conn, patch)
    await deposed.sees(f"STREAM.MSG.GET.{app.names.runs_stream}", {"last_by_subj": app.names.record("k")})
    return deposed


async def made(how: str, app: App, client: Client, other: Client) -> Run[str]:
    call = app.actors["echo"].call("new")
    if how == "replaced":
        return await client.replace(call, key="k", delay=60)
    await other.replace(call, key="k", delay=60)
    if how == "joined":
        return await client.submit(call, key="k")
    return await (client.trigger("k") if how == "triggered" else client.run("k"))


async def kinds(run: Run[str]) -> list[str]:
    """Of its events, until it is over."""
    return [event.kind async for event in run.events()]


@pytest.mark.parametrize("shown", ["nothing", "an older run"])
@pytest.mark.parametrize("how", ["replaced", "joined", "triggered", "looked up"])
async def test_whoever_has_a_run_is_not_told_what_was_before_it(
    how: str, shown: str, app: App, client: Client, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is superseded, finished or never was: it waits, and nobody has done anything to it."""
    async with app.connect(nats_server) as other:
        if shown == "an older run":
            await other.submit(app.actors["echo"].call("old"), key="k", delay=60)
        deposed = await shows_what_is(app, client, monkeypatch)
        run = await made(how, app, client, other)
        await wait_until(lambda: not run._is_fresh(None), description="whoever waits for it reads at once")
        deposed.left = 1
        status = await run.status()
        assert status is not None
        assert status.run_id == run.run_id
        deposed.left = 1
        looking = asyncio.create_task(kinds(run))
        await wait_until(lambda: not deposed.left, description="it was told what was before")
        waiting = asyncio.create_task(run.wait(10))
        deposed.left = 1
        await wait_until(lambda: not deposed.left, description="it was told what was before")
        deposed.left = 1
        assert (await run.cancel(reason="no more")).outcome == "cancelled"
        assert (await waiting).phase == "cancelled"
        assert set(await looking) == {"status"}


async def test_an_old_handle_believes_at_once_that_its_record_is_gone(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No leader is deposed for so long without knowing it; and a record that has expired leaves nothing in the end."""
    run = await client.submit(app.actors["echo"].call("x"), key="k", delay=60)
    stores = client.stores
    await stores.conn.api(f"STREAM.PURGE.{app.names.runs_stream}", {"filter": app.names.record("k")})
    monkeypatch.setattr(run, "_made_at", run._made_at - 61)
    began = stores.clock.steady()
    assert await run.status() is None
    assert (await run.cancel()).outcome == "not_found"
    assert stores.clock.steady() - began < app.config.patience_seconds / 2


async def test_a_handle_that_follows_is_bound_to_no_older_run_than_superseded_it(
    app: App, client: Client, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.connect(nats_server) as other:
        run = await client.submit(app.actors["echo"].call("old"), key="k", delay=60)
        deposed = await shows_what_is(app, client, monkeypatch)
        bound: list[int] = []
        bind = Run._bind

        def noted(run: Run[Any], *about: Any) -> None:
            bind(run, *about)
            bound.append(run.generation)

        monkeypatch.setattr(Run, "_bind", noted)
        following = asyncio.create_task(run.result(10, follow=True))
        deposed.left = 1
        await wait_until(lambda: not deposed.left, description="it waits")
        deposed.left = 2
        newer = await other.replace(app.actors["echo"].call("new"), key="k", delay=60)
        await wait_until(lambda: bound and not deposed.left, description="it follows")
        await newer.cancel()
        with pytest.raises(Exception, match="was cancelled"):
            await following
        assert bound == [2]
