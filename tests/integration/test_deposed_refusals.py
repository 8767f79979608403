"""A leader that was deposed and does not know it yet answers whoever reads what is to be decided on.

What it shows is older than what a refused write has just met, or than what the process has written or read itself. Nothing
is decided on that: no outcome is void, no claim another's, no debt paid, no body confirmed and no submit joins what is over.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure import App, Client, Context, Run, RunFailed
from tenure.config import MAX_INLINE_BYTES
from tenure.core import commands as c
from tenure.core.records import Holder, Seen
from tenure.nats.connection import Connection, Lost
from tenure.nats.runs import Committed
from tenure.stores import Stores
from tenure.worker.remnants import Remnants
from tenure.worker.table import Table
from tests.conftest import Workers
from tests.deposed import Deposed
from tests.integration.test_outbox import entry, owes
from tests.support import wait_until

Go = asyncio.Event


@pytest.fixture
def go() -> Go:
    """Lets the body of ``slow`` end."""
    return asyncio.Event()


@pytest.fixture
def app(app: App, go: Go) -> App:
    @app.actor
    async def echo(text: str) -> str:
        return text

    @app.actor
    async def slow(text: str) -> str:
        await go.wait()
        return text

    @app.actor(queue="two")
    async def other(text: str) -> str:
        return text

    return app


async def remembers(stores: Stores, key: str, patch: pytest.MonkeyPatch) -> Deposed:
    """It goes on knowing the key as it is now, and how far it had counted."""
    deposed = Deposed(stores.conn, patch)
    await deposed.sees(f"STREAM.INFO.{stores.names.runs_stream}")
    await deposed.sees(f"STREAM.INFO.{stores.names.runs_stream}", {"subjects_filter": stores.names.record(key)})
    await deposed.sees(f"STREAM.MSG.GET.{stores.names.runs_stream}", {"last_by_subj": stores.names.record(key)})
    return deposed


def asked_at(kind: type, stores: Stores, method: str, deposed: Deposed, patch: pytest.MonkeyPatch) -> None:
    """It answers the first question that comes with a command of this kind."""
    real, left = getattr(stores.runs, method), [True]

    async def stale(key: str, command: Any, *args: Any, **more: Any) -> Any:
        if isinstance(command, kind) and left:
            left.clear()
            deposed.left = 1
        return await real(key, command, *args, **more)

    patch.setattr(stores.runs, method, stale)


async def runs(run: Run[Any]) -> None:
    async def began() -> bool:
        status = await run.status()
        return status is not None and status.phase == "running"

    await wait_until(began, description="its body runs")


async def joins(client: Client, app: App) -> None:
    """Somebody's spawn: the record is written once more while its body runs."""
    call = app.actors["slow"].call("y")
    spawn = c.Submit(
        key="k",
        run_id="r-x",
        task=replace(call.task, args=Raw(call.args)),
        due=0.0,
        seen=Seen(id="o-x", origin="parent"),
    )
    assert isinstance(await client.stores.runs.commit("k", spawn), Committed)


@pytest.mark.parametrize("shown", ["nothing", "an older run"])
async def test_an_outcome_is_not_void_because_nothing_or_an_older_run_is_shown(
    shown: str, app: App, client: Client, go: Go, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Void, its wake-up was acknowledged: the run stayed `running` for as long as its worker's session lived."""
    async with workers.run(app) as running:
        if shown == "an older run":
            await (await client.submit(app.actors["echo"].call("x"), key="k")).result(5)
        deposed = await remembers(running.worker.stores, "k", monkeypatch)
        run = await client.submit(app.actors["slow"].call("y"), key="k")
        await runs(run)
        await joins(client, app)
        deposed.left = 1
        go.set()
        assert await run.result(10) == "y"
        assert not deposed.left


async def test_a_claim_whose_answer_was_lost_is_known_though_no_such_key_is_shown(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost with its leader, as in any election: the one that was deposed is asked what became of it."""
    lost: list[bool] = []
    async with workers.run(app) as running:
        stores = running.worker.stores
        deposed = await remembers(stores, "k", monkeypatch)
        put = stores.conn.put

        async def unheard(subject: str, *args: Any, **more: Any) -> Any:
            ack = await put(subject, *args, **more)
            if subject == stores.names.record("k") and not lost:
                lost.append(True)
                deposed.left = 1
                raise Lost("no answer in time")
            return ack

        monkeypatch.setattr(stores.conn, "put", unheard)
        run = await client.submit(app.actors["echo"].call("y"), key="k")
        assert await run.result(10) == "y"
    assert lost
    assert not deposed.left


async def test_a_debt_is_not_taken_for_cleared_because_its_key_does_not_show_it(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark was forgotten where it was paid, it was still owed, and paid once more when the key had moved on."""
    stores = client.stores
    deposed = await remembers(stores, "parent", monkeypatch)
    await owes(client, app, entry(app, "other"))
    asked_at(c.ClearOutbox, stores, "commit", deposed, monkeypatch)
    await stores.complete(await stores.runs.read("parent"), stores.runs.patience())
    assert not deposed.left
    record = (await stores.runs.read("parent")).record
    assert record is not None
    assert not record.outbox


async def test_a_body_is_confirmed_though_the_replace_that_it_ends_for_is_not_shown(
    app: App, client: Client, go: Go, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own process alone would know, and does not serve the queue of the run that waits for it."""
    async with workers.run(app, queues=["default"]) as running, workers.run(app, queues=["two"]):
        run = await client.submit(app.actors["slow"].call("y"), key="k")
        await runs(run)
        stores = running.worker.stores
        deposed = await remembers(stores, "k", monkeypatch)
        new = await client.replace(app.actors["other"].call("z"), key="k", overlap="wait")
        asked_at(c.Confirm, stores, "take", deposed, monkeypatch)
        go.set()
        assert await new.result(10) == "z"
        assert not deposed.left


async def test_a_submit_does_not_join_a_run_whose_result_is_known(
    app: App, client: Client, go: Go, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal has named what is there: a run that was seen before that is not the one in its way."""
    async with workers.run(app):
        run = await client.submit(app.actors["slow"].call("y"), key="k")
        await runs(run)
        deposed = await remembers(client.stores, "k", monkeypatch)
        go.set()
        assert await run.result(5) == "y"
        deposed.left = 1
        again = await client.submit(app.actors["slow"].call("z"), key="k")
        assert not deposed.left
        assert again.accepted
        assert await again.result(5) == "z"


async def test_a_refused_write_is_not_made_again_on_what_is_older_than_its_refusal(
    app: App, client: Client, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, as fast as the server could refuse it, for as long as the deposed leader answered."""
    await client.submit(app.actors["slow"].call("y"), key="k", delay=60)
    deposed = await remembers(client.stores, "k", monkeypatch)
    async with app.connect(nats_server) as other:
        await other.replace(app.actors["slow"].call("x"), key="k", delay=60)
    puts, put = list[str](), Connection.put

    async def counted(conn: Connection, subject: str, *args: Any, **more: Any) -> Any:
        if subject == client.stores.names.record("k"):
            puts.append(subject)
        return await put(conn, subject, *args, **more)

    monkeypatch.setattr(Connection, "put", counted)
    deposed.left = 6
    run = await client.replace(app.actors["slow"].call("z"), key="k", delay=60)
    assert run.generation == 3
    assert not deposed.left
    assert len(puts) == 2


async def test_that_an_outcome_cannot_be_stored_is_stored_though_the_run_is_not_shown(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Result, successor and spawned runs fit by themselves, and together not one message."""
    app.config = replace(app.config, inline_limit_bytes=MAX_INLINE_BYTES)
    most = MAX_INLINE_BYTES - 100

    @app.actor
    async def too_much(ctx: Context, text: str) -> str:
        echo = app.actors["echo"]
        for number in range(6):
            ctx.spawn(echo.call("x" * (most - 700)), key=f"child-{number}-{'k' * 240}")
        ctx.reschedule(call=echo.call("x" * most))
        return text

    async with workers.run(app) as running:
        stores = running.worker.stores
        deposed = await remembers(stores, "k", monkeypatch)
        asked_at(c.FailAttempt, stores, "commit", deposed, monkeypatch)
        run = await client.submit(too_much.call("x" * most), key="k")
        with pytest.raises(RunFailed, match="cannot be stored"):
            await run.result(10)
        assert not deposed.left


async def test_an_attempt_that_was_given_up_is_not_over_because_its_key_is_not_shown(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = client.stores
    deposed = await remembers(stores, "k", monkeypatch)
    run = await client.submit(app.actors["echo"].call("x"), key="k", delay=0)
    claimed = await stores.runs.commit("k", c.Claim(session="s", run_id=run.run_id, next_run_id=""))
    assert isinstance(claimed, Committed)

    async def start(_delivery: object) -> None: ...

    remnants = Remnants(stores, Table(), free=lambda: 1, start=start)
    holder = Holder(session="s", run_id=run.run_id, attempt=1)
    deposed.left = 1
    assert not await remnants._is_over(holder, "k", claimed.revision)
    assert not deposed.left


async def test_an_attempt_that_was_given_up_is_confirmed_though_its_replace_is_not_shown(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process has read that it was superseded, and is answered from before that when it writes."""
    stores = client.stores
    run = await client.submit(app.actors["echo"].call("x"), key="k", delay=0)
    claimed = await stores.runs.commit("k", c.Claim(session="s", run_id=run.run_id, next_run_id=""))
    assert isinstance(claimed, Committed)
    deposed = await remembers(stores, "k", monkeypatch)
    await client.replace(app.actors["echo"].call("y"), key="k", overlap="wait")

    async def start(_delivery: object) -> None: ...

    remnants = Remnants(stores, Table(), free=lambda: 1, start=start)
    asked_at(c.Confirm, stores, "take", deposed, monkeypatch)
    assert await remnants._is_over(Holder(session="s", run_id=run.run_id, attempt=1), "k", claimed.revision)
    assert not deposed.left
    record = (await stores.runs.read("k")).record
    assert record is not None
    assert not record.previous
