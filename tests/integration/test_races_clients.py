"""Interleavings on the client's side: callers that go away in the middle, answers that get lost, processes that start at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, OutcomeUnknown, RunCancelled, Unavailable
from tenure.nats.asking import NO_STREAM
from tenure.nats.topology import ensure
from tests.conftest import Workers
from tests.proxy import Proxy, record
from tests.support import FAST, wait_until

QUICK = replace(FAST, request_timeout_seconds=0.3)


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=QUICK)


@pytest.mark.parametrize("answer", ["there", "lost"])
@pytest.mark.parametrize("how", ["submit", "replace", "cancel", "trigger"])
async def test_a_caller_that_goes_away_in_the_middle_leaves_no_run_without_its_wake_up(
    how: str, answer: str, app: App, proxy: Proxy, workers: Workers
) -> None:
    """The record is written, then the caller is cancelled (a timeout, a closed request) before the effect is.

    Nobody crashed, so nobody repairs: the client itself must finish what it began. Also where it was only by reading that it
    found its write stored.
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
        if how == "trigger":
            await client.submit(work.call(), key="k", delay=3_600)
        if answer == "lost":
            proxy.lose_answer(record(app, "k", "stopping" if how == "cancel" else "waiting"))
        subject = app.names.work_prefix if how != "cancel" else app.names.sessions_prefix + "stop."
        lost = proxy.lose(lambda p: p.subject.startswith(subject))
        calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "submit": lambda: client.submit(work.call(), key="k"),
            "replace": lambda: client.replace(work.call(), key="k"),
            "cancel": lambda: client.cancel("k"),
            "trigger": lambda: client.trigger("k"),
        }
        caller = asyncio.create_task(calls[how]())
        await lost.done.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        if how == "cancel":
            with pytest.raises(RunCancelled):
                await client.run("k").result(3)
        else:
            assert await client.run("k").result(3) == "ran"


@pytest.mark.parametrize("how", ["submit", "replace"])
async def test_a_caller_that_goes_away_before_its_write_arrives_leaves_no_run_without_its_wake_up(
    how: str, app: App, proxy: Proxy, workers: Workers
) -> None:
    """The caller is cancelled while the record's write is still on its way; a read does not show it, then it is applied.

    A read that does not show the write proves nothing: whoever finishes for the caller must look again.
    """

    @app.actor
    async def work() -> str:
        return "ran"

    async with app.connect(proxy.url) as client, workers.run(app):
        late = proxy.hold(record(app, "k", "waiting"))
        start = client.submit(work.call(), key="k") if how == "submit" else client.replace(work.call(), key="k")
        caller = asyncio.create_task(start)
        await late.done.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        for _ in range(2):  # over the same connection: the first read of whoever finishes has been answered by then
            assert await client.status("k") is None
        await proxy.release(late)
        async with app.connect(workers.url) as other:
            await wait_until(lambda: other.status("k"), description="the write is applied")
            assert await other.run("k").result(5) == "ran"


async def test_a_caller_that_goes_away_before_its_trigger_arrives_leaves_no_run_without_its_wake_up(
    app: App, proxy: Proxy, workers: Workers
) -> None:
    """As above: the record shows a run that is due in an hour, and is triggered only then."""

    @app.actor
    async def work() -> str:
        return "ran"

    async with app.connect(proxy.url) as client, workers.run(app):
        run = await client.submit(work.call(), key="k", delay=3_600)
        late = proxy.hold(record(app, "k", "waiting"))
        caller = asyncio.create_task(client.trigger("k"))
        await late.done.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        for _ in range(2):  # as above
            status = await run.status()
            assert status is not None
            assert status.phase == "scheduled"
        await proxy.release(late)
        async with app.connect(workers.url) as other:
            assert await other.run("k").result(5) == "ran"


async def test_a_write_that_was_stored_is_never_called_undone_because_it_cannot_be_read(
    namespace: str, proxy: Proxy
) -> None:
    """The create is stored, its answer lost; its repeat is refused, and then no read is answered: not Unavailable."""
    app = App(namespace, config=replace(QUICK, patience_seconds=0.8))

    @app.actor
    async def work() -> None: ...

    async with app.connect(proxy.url) as client:
        proxy.lose_answer(record(app, "k", "waiting"))
        proxy.lose(lambda p: f"STREAM.MSG.GET.{app.names.runs_stream}" in p.subject, times=100)
        with pytest.raises(OutcomeUnknown):
            await client.submit(work.call(), key="k")


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


@pytest.mark.long
async def test_an_unknown_fate_is_told_of_what_the_caller_asked_for(app: App, proxy: Proxy) -> None:
    """The cancel is stored; of the hook that it owes no write is answered. That is nothing about another key to its caller."""

    @app.actor
    async def told() -> None: ...

    @app.actor(on_cancel=told)
    async def work() -> None: ...

    async with app.connect(proxy.url) as client:
        run = await client.submit(work.call(), key="k", delay=60)
        hook = proxy.lose_answer(
            lambda p: p.subject.startswith(app.names.runs_prefix) and p.subject != app.names.record("k"), 1_000
        )
        with pytest.raises(OutcomeUnknown, match="what was asked of 'k' is stored") as caught:
            await client.cancel("k")
        assert hook.done.is_set()
        assert (caught.value.key, caught.value.run_id) == ("k", run.run_id)
        hook.clear()
        assert (await client.cancel("k")).outcome == "finished"


async def test_whoever_waits_hears_that_the_client_is_closed(app: App, client: Client, workers: Workers) -> None:
    """``result()`` without a timeout in one task, ``close`` in another: it must end, with an error."""

    @app.actor
    async def work() -> None: ...

    async with app.connect(workers.url) as other:
        run = await other.submit(work.call(), key="k")
        waiting = asyncio.create_task(run.result())
        async for _ in run.events():
            break
        assert not waiting.done()
    async with asyncio.timeout(2):
        with pytest.raises(Unavailable):
            await waiting


async def test_processes_that_start_at_once_on_a_new_server_all_succeed(app: App, client: Client) -> None:
    """Each sees no stream and creates it, with an incarnation of its own.

    One wins, the others take over what it made.
    """
    fresh = App(app.namespace + "-new", config=QUICK)
    stores = client.stores
    made = await asyncio.gather(*(ensure(stores.conn, fresh.names, stores.clock, fresh.config) for _ in range(8)))
    assert len({topology.incarnation for topology in made}) == 1


async def test_a_stream_that_another_process_makes_just_now_is_waited_for(
    app: App, client: Client, proxy: Proxy
) -> None:
    """A member of a cluster that does not show it yet says that there is none, and to its creation that there is one."""
    async with app.connect(proxy.url) as other:
        conn, names, clock = other.stores.conn, other.stores.names, other.stores.clock
        unseen = proxy.lose(lambda p: p.subject == f"$JS.API.STREAM.INFO.{names.runs_stream}", times=3)

        async def say_there_is_none() -> None:
            error = {"code": 404, "err_code": NO_STREAM, "description": "stream not found"}
            for number in range(3):

                def asked(number: int = number) -> bool:
                    return len(unseen.hits) > number

                await wait_until(asked, description="it is asked for")
                await unseen.done.wait()
                await proxy.say(unseen.hits[number].reply, b"", msgspec.json.encode({"error": error}))

        async with asyncio.TaskGroup() as group:
            group.create_task(say_there_is_none())
            found = await ensure(conn, names, clock, app.config)
    assert {change.did for change in found.changes} == {"unchanged"}


async def test_a_stream_that_is_without_a_leader_for_a_moment_is_asked_again(app: App, client: Client, proxy: Proxy):
    """Nobody answers then, not even later: one who only waits for the answer waits in vain."""
    patient = App(app.namespace, config=replace(app.config, connect_timeout_seconds=30.0))
    lost = proxy.lose(lambda p: p.subject == f"$JS.API.STREAM.INFO.{client.stores.names.work_stream}")
    async with asyncio.timeout(10), patient.connect(proxy.url):
        pass
    assert len(lost.hits) == 1
