"""Writes that were stored but whose writer does not know it, or whose effects meet an obstacle: nothing owed may be forgotten."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import Actor, App, Client, Context, Retry
from tenure.core import commands as c
from tenure.core.errors import Unavailable
from tenure.core.records import Entry
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed
from tenure.stores import Stores
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.proxy import Proxy, record, wake_up
from tests.support import FAST, session_that_is_gone, wait_until, wake

QUICK = replace(FAST, request_timeout_seconds=0.3, ack_wait_seconds=20.0)
"""``ack_wait`` is long: a redelivery must not be what helps."""


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=QUICK)


def overstays(app: App, release: asyncio.Event) -> Actor[..., [], Any, str]:
    """An actor whose first attempt hears nothing until ``release`` is set: it is evicted."""

    @app.actor(timeout=0.2, grace=0.1, retry=Retry(max_attempts=2, initial=0.01))
    async def deaf(ctx: Context) -> str:
        while ctx.attempt == 1 and not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return f"attempt {ctx.attempt}"

    return deaf


@pytest.mark.parametrize("times", [1, 4])
async def test_an_eviction_whose_answer_is_lost_still_wakes_the_next_attempt(
    app: App, client: Client, behind: Workers, proxy: Proxy, times: int
) -> None:
    """The body overstays for ever; its eviction is stored, the answer lost, the repeat refused: by its own first write.

    So are more answers than a client would wait for: an eviction that is given up then would never be counted.
    """
    app.config = replace(QUICK, patience_seconds=0.5)
    release = asyncio.Event()
    deaf = overstays(app, release)
    async with behind.run(app) as running, opened_at_last(release):
        lost = proxy.lose_answer(record(app, "k", "waiting"), times)
        run = await client.submit(deaf.call(), key="k")
        assert await run.result(5) == "attempt 2"
        assert len(lost.hits) == times
        assert running.worker.metrics.outcomes["deaf", "retried"] == 1


async def test_a_body_that_ends_while_it_is_evicted_leaves_its_retry_awake(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    """The eviction is stored; before its wake-up is, the body ends and is fenced. Attempt 2 follows and each end is counted."""
    release = asyncio.Event()
    deaf = overstays(app, release)
    async with behind.run(app) as running, opened_at_last(release):
        metrics = running.worker.metrics
        run = await client.submit(deaf.call(), key="k")
        held = proxy.lose(lambda p: p.subject.startswith(app.names.sessions_prefix + "stop."))
        await held.done.wait()
        release.set()
        assert await run.result(5) == "attempt 2"
        await wait_until(lambda: metrics.outcomes["deaf", "succeeded"], description="counted")
        assert metrics.fenced["deaf"] == 1
        await wait_until(lambda: metrics.outcomes["deaf", "retried"] == 1, description="so is the eviction")
        await wait_until(lambda: not len(running.worker.table), description="nothing is in hand")

        async def idle() -> bool:
            return await running.worker.puller.idle()

        await wait_until(idle, description="every wake-up is answered", timeout=5)


async def test_a_claim_that_was_superseded_before_its_answer_came_blocks_nobody(
    app: App, client: Client, behind: Workers, proxy: Proxy, workers: Workers
) -> None:
    """The claim is stored, its answer lost, then a replace with overlap ``wait`` comes over it, for another queue.

    The new generation waits for a body that never was, in a process that never sees the new generation's wake-up.
    """
    ran: list[str] = []

    @app.actor(queue="a")
    async def old() -> None:
        ran.append("old")

    @app.actor(queue="b")
    async def new() -> str:
        ran.append("new")
        return "new"

    async with behind.run(app, queues=["a"]), workers.run(app, queues=["b"]):
        lost = proxy.lose_answer(record(app, "k", "running"))
        await client.submit(old.call(), key="k")
        await lost.done.wait()
        run = await client.replace(new.call(), key="k", overlap="wait")
        assert await run.result(3) == "new"
    assert ran == ["new"]


async def test_a_confirm_whose_answer_is_lost_still_wakes_who_waits(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    """The old body has ended and its entry is gone, but its process does not know that it was its own write.

    The waiting generation has been handed back for longer and longer; it must not wait that out.
    """
    started, release = asyncio.Event(), asyncio.Event()

    @app.actor
    async def old() -> None:
        started.set()
        await release.wait()

    @app.actor
    async def new() -> str:
        return "new"

    async with behind.run(app) as running, opened_at_last(release):
        await client.submit(old.call(), key="k")
        await started.wait()
        run = await client.replace(new.call(), key="k", overlap="wait")
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["new", "busy"] >= 5, description="handed back for 1.6 s and more")
        lost = proxy.lose_answer(record(app, "k", "waiting"))
        release.set()
        assert await run.result(1.2) == "new"
        assert len(lost.hits) == 1


@pytest.mark.long
async def test_an_older_body_that_the_wake_up_shows_and_the_record_does_not_keeps_nobody_waiting(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    """The old body's confirm is stored, the wake-up that follows it is lost.

    The first wake-up comes again as it was stored, with the old body in it. Taken at its word, it would be handed back for ever.
    """
    started, release = asyncio.Event(), asyncio.Event()

    @app.actor
    async def old() -> None:
        started.set()
        await release.wait()

    @app.actor
    async def new() -> str:
        return "new"

    async with behind.run(app) as running, opened_at_last(release):
        await client.submit(old.call(), key="k")
        await started.wait()
        run = await client.replace(new.call(), key="k", overlap="wait")
        claims = running.worker.metrics.claims
        await wait_until(lambda: claims["new", "busy"] >= 2, description="handed back")
        lost = proxy.lose(wake_up(app, "k"), 1_000)
        release.set()
        assert await run.result(10) == "new"
        assert lost.done.is_set()


async def test_the_successor_of_an_exhausted_run_is_counted_by_itself(
    app: App, client: Client, workers: Workers
) -> None:
    """A perpetual run is lost with its last attempt: its end and its successor are one write, of two runs."""

    @app.actor(every=1.5, retry=None)
    async def tick() -> None: ...

    @app.actor
    async def other() -> str:
        return "ran"

    stores = client.stores
    run = await client.submit(tick.call(), key="k")
    await stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})
    dead = await session_that_is_gone(client)
    await stores.runs.commit("k", c.Claim(session=dead, run_id=run.run_id, next_run_id=""))
    async with workers.run(app) as running:
        await wake(client, "k")
        metrics = running.worker.metrics
        await wait_until(lambda: metrics.outcomes["tick", "failed"] == 1, description="the lost run has ended")
        following = await client.replace(other.call(), key="k")
        assert await following.result(5) == "ran"
        await wait_until(
            lambda: sum(metrics.superseded[name, "head"] for name in ("tick", "other")) == 1,
            description="the successor's wake-up is counted as superseded",
        )


async def test_an_old_debt_that_cannot_be_paid_does_not_keep_a_run_from_running(
    app: App, client: Client, workers: Workers
) -> None:
    """A generation carries the spawn of an older one, whose target has been rewritten by a newer Tenure meanwhile."""

    @app.actor
    async def work(ctx: Context) -> str:
        return f"attempt {ctx.attempt}"

    stores, names = client.stores, app.names
    patience = stores.runs.patience()
    run = await client.submit(work.call(), key="k")
    claimed = await stores.runs.commit("k", c.Claim(session="s", run_id=run.run_id, next_run_id=""))
    holder = claimed.record.holder  # type: ignore[union-attr]  # it is waiting: the claim is won
    assert holder is not None
    owed = Entry(id="1", key="target", run_id=stores.clock.new_id(), task=work.call().task)
    await stores.runs.commit("k", c.Succeed(holder=holder, next_run_id="", outbox=(owed,)), patience=patience)
    await stores.conn.put(
        names.record("target"), b'{"schema": 1000}', {"Tenure-State": "waiting - - - - work default 1"}
    )
    again = c.Submit(key="k", run_id=stores.clock.new_id(), task=work.call().task)
    await stores.runs.commit("k", again, patience=patience)
    await wake(client, "k")
    async with workers.run(app):
        assert await client.run("k").result(3) == "attempt 1"


async def test_a_payment_that_finds_no_server_leaves_no_other_on_its_own(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs are owed; one payment fails while the other is under way: whoever pays does not leave before both ended."""

    @app.actor
    async def work() -> None: ...

    stores = client.stores
    run = await client.submit(work.call(), key="k")
    claimed = await stores.runs.commit("k", c.Claim(session="s", run_id=run.run_id, next_run_id=""))
    holder = claimed.record.holder  # type: ignore[union-attr]  # it is waiting: the claim is won
    assert holder is not None
    owed = tuple(Entry(id=key, key=key, run_id=stores.clock.new_id(), task=work.call().task) for key in ("a", "b"))
    stored = await stores.runs.commit("k", c.Succeed(holder=holder, next_run_id="", outbox=owed))
    assert isinstance(stored, Committed)
    failed, gate, paid = asyncio.Event(), asyncio.Event(), asyncio.Event()
    apply = Stores._apply_one

    async def one_fails(this: Stores, origin: str, revision: int, entry: Entry, patience: Patience) -> None:
        if entry.key == "a":
            failed.set()
            raise Unavailable("nobody answers")
        await gate.wait()
        await apply(this, origin, revision, entry, patience)
        paid.set()

    monkeypatch.setattr(Stores, "_apply_one", one_fails)
    paying = asyncio.create_task(stores.carry_out(stored, stores.runs.patience()))
    await failed.wait()
    await asyncio.sleep(0.01)  # paused: time enough to leave
    early = paying.done()
    gate.set()
    with pytest.raises(Unavailable):
        await paying
    assert not early
    assert paid.is_set()


async def test_a_debt_that_another_has_paid_is_not_paid_again_once_its_key_is_gone(app: App, client: Client) -> None:
    """[7] Whoever read the origin while it owed was asleep since: the spawned run has ended, and its key was purged."""

    @app.actor
    async def work() -> None: ...

    stores = client.stores
    patience = stores.runs.patience()
    run = await client.submit(work.call(), key="k")
    claimed = await stores.runs.commit("k", c.Claim(session="s", run_id=run.run_id, next_run_id=""))
    holder = claimed.record.holder  # type: ignore[union-attr]  # it is waiting: the claim is won
    assert holder is not None
    owed = Entry(id="1", key="target", run_id=stores.clock.new_id(), task=work.call().task)
    await stores.runs.commit("k", c.Succeed(holder=holder, next_run_id="", outbox=(owed,)), patience=patience)
    owing = await stores.runs.read("k")
    await stores.complete(owing, patience)
    assert (await client.cancel("target")).outcome == "cancelled"
    await stores.runs.commit("target", c.ForgetSeen(ids=frozenset({"1"})), patience=patience)
    assert await client.purge("target")
    await stores.complete(owing, patience)
    assert await client.status("target") is None
