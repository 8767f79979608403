"""Superseded and cancelled runs are counted by the write that takes them out of the record: once, over all processes.

A second copy of a wake-up is no second run, whoever gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context
from tenure.core import commands as c
from tenure.core.parts import entry
from tenure.core.records import Count, Failure, Holder, Phase, encode, state_of
from tenure.nats.runs import Committed, Found
from tenure.stores import Stores
from tenure.worker import Worker
from tenure.worker.body import Ended, Raised, Returned, Snoozed
from tenure.worker.tail import Stored, Tail
from tests.conftest import Supervisors, Workers
from tests.gates import opened_at_last
from tests.proxy import Proxy, record
from tests.support import FAST, session_that_is_gone, wait_until, wake


async def wake_again(client: Client, key: str, run_id: str, generation: int) -> None:
    """Store another copy of an older run's wake-up, as a confirm, a repair or a lost answer does.

    It carries an older revision.
    """
    stores = client.stores
    found = await stores.runs.read(key)
    assert found.record is not None
    old = replace(found.record, run_id=run_id, generation=generation, phase=Phase.WAITING, due=0.0)
    await stores.work.wake(old, encode(old), found.revision - 1, client.now(), stores.runs.patience())


async def answered(worker: Worker) -> None:
    """The worker has dealt with every wake-up."""

    async def none_left() -> bool:
        waiting, unanswered = await worker.stores.work.pending("default", "normal")
        return not waiting and not unanswered

    await wait_until(none_left, description="every wake-up is answered")


async def nothing_at_all() -> None:
    """Return."""


def superseded(worker: Worker) -> dict[Any, int]:
    return {label: number for label, number in worker.metrics.superseded.items() if number}


async def test_a_late_copy_for_a_run_that_ended_with_a_successor_is_not_superseded(
    app: App, client: Client, workers: Workers
) -> None:
    """Generation 1 ends and schedules generation 2 in one write; then a copy of 1's wake-up reaches another worker."""

    @app.actor
    async def tick(ctx: Context) -> None:
        ctx.reschedule(delay=60)

    async with workers.run(app):
        first = await client.submit(tick.call(), key="k")
        await first.wait(timeout=5)
    async with workers.run(app) as running:
        await wake_again(client, "k", first.run_id, 1)
        await wait_until(
            lambda: running.worker.metrics.claims["tick", "finished"] == 1, description="the copy is refused"
        )
        await answered(running.worker)
        assert superseded(running.worker) == {}


async def test_a_late_copy_for_a_run_whose_outcome_the_record_has_forgotten_is_not_superseded(
    app: App, client: Client, workers: Workers
) -> None:

    @app.actor
    async def tick(ctx: Context) -> int:
        ctx.reschedule(delay=0.05 if ctx.generation < 3 else 60)
        return ctx.generation

    async with workers.run(app) as running:
        first = await client.submit(tick.call(), key="k")

        async def third_ended() -> bool:
            status = await client.status("k")
            return status is not None and status.generation == 4

        await wait_until(third_ended, description="two more generations have run")
        await wake_again(client, "k", first.run_id, 1)
        await answered(running.worker)
        assert running.worker.metrics.claims["tick", "superseded"] == 1
        assert superseded(running.worker) == {}


async def test_a_replaced_run_is_counted_once_however_often_it_is_woken_and_whoever_is(
    app: App, client: Client, workers: Workers
) -> None:
    nothing = app.actor(name="nothing")(nothing_at_all)
    old = await client.submit(nothing.call(), key="k")
    new = await client.replace(nothing.call(), key="k")
    async with workers.run(app) as first:
        await wake_again(client, "k", old.run_id, 1)
        await new.result(timeout=5)
        await answered(first.worker)
    async with workers.run(app) as second:
        await wake_again(client, "k", old.run_id, 1)
        await answered(second.worker)
        assert second.worker.metrics.claims["nothing", "superseded"] == 1
        assert [superseded(first.worker), superseded(second.worker)] == [{("nothing", "head"): 1}, {}]


async def test_a_cancelled_run_is_counted_once_however_often_it_is_woken_and_whoever_is(
    app: App, client: Client, workers: Workers
) -> None:
    nothing = app.actor(name="nothing")(nothing_at_all)
    run = await client.submit(nothing.call(), key="k")
    await run.cancel()
    for number in (1, 0):
        async with workers.run(app) as running:
            await answered(running.worker)
            assert running.worker.metrics.claims["nothing", "cancelled"] == 1
            assert running.worker.metrics.cancelled["nothing", "waiting"] == number
        await wake_again(client, "k", run.run_id, 1)


async def test_runs_replaced_before_anybody_heard_of_them_are_counted_by_the_claim_of_the_newest(
    app: App, client: Client, workers: Workers
) -> None:
    """Their wake-ups never come; each is counted under its own actor."""
    nothing, other = (app.actor(name=name)(nothing_at_all) for name in ("nothing", "other"))
    await client.submit(nothing.call(), key="k")
    await client.replace(other.call(), key="k")
    await client.replace(nothing.call(), key="k")
    await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})
    newest = await client.replace(nothing.call(), key="k")
    async with workers.run(app) as running:
        await newest.result(timeout=5)
        assert superseded(running.worker) == {("nothing", "head"): 2, ("other", "head"): 1}


async def test_what_no_wake_up_will_tell_of_soon_is_counted_by_a_supervisor(
    namespace: str, client: Client, supervisors: Supervisors
) -> None:
    app = App(namespace, config=replace(FAST, sweep_seconds=0.3))
    nothing = app.actor(name="nothing")(nothing_at_all)
    await client.submit(nothing.call(), key="replaced", delay=3600)
    await client.replace(nothing.call(), key="replaced", delay=3600)
    await (await client.submit(nothing.call(), key="cancelled", delay=3600)).cancel()
    async with supervisors.run(app) as supervisor:
        metrics = supervisor.metrics
        await wait_until(
            lambda: metrics.superseded["nothing", "head"] and metrics.cancelled["nothing", "waiting"],
            description="both are counted",
        )
        assert (metrics.superseded["nothing", "head"], metrics.cancelled["nothing", "waiting"]) == (1, 1)


async def test_a_superseded_body_that_died_is_counted_once_by_whoever_takes_its_entry_out(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """The claim of its successor, or the supervisor, whichever is first."""
    nothing = app.actor(name="nothing")(nothing_at_all)
    dead = await session_that_is_gone(client)
    runs = []
    async with supervisors.run(app) as supervisor, workers.run(app) as running:
        for number in range(20):
            old = await client.submit(nothing.call(), key=f"k{number}", delay=60)
            held = await client.stores.runs.read(old.key)
            assert held.record is not None
            now = replace(held.record, due=0.0)
            claim = c.Claim(session=dead, run_id=old.run_id, next_run_id="")
            await client.stores.runs.commit(old.key, claim, at=Found(now, held.revision))
            runs.append(await client.replace(nothing.call(), key=old.key))
        for run in runs:
            await run.result(timeout=10)
        counted = [metrics.superseded["nothing", "tail"] for metrics in (supervisor.metrics, running.worker.metrics)]
        assert sum(counted) == 20


async def nobody_listens(_ctx: Context, _done: float, _total: float | None, _note: str) -> None:
    """Progress."""


def counts_of(stores: Stores) -> Counter[str]:
    """What these stores are told to count from now on."""
    counted: Counter[str] = Counter()

    def count(counts: Iterable[Count]) -> None:
        for told in counts:
            counted[f"{told.what} {told.where}"] += told.number

    stores.runs.count = count
    return counted


async def superseded_body(client: Client, session: str) -> Holder:
    """The holder of generation 1 of ``k``, which runs on under generation 2 and was told nothing."""
    call = client.app.actors["nothing"].call()
    run = await client.submit(call, key="k")
    await client.stores.runs.commit("k", c.Claim(session=session, run_id=run.run_id, next_run_id=""))
    await client.replace(call, key="k", overlap="wait")
    return Holder(session=session, run_id=run.run_id, attempt=1)


async def test_a_confirm_that_was_lost_is_not_counted_again_after_a_supervisor_took_the_entry_out(
    app: App, client: Client, proxy: Proxy
) -> None:
    """It never arrives; when it is repeated the entry is gone, which proves nothing: somebody else has counted it."""
    app.actor(name="nothing")(nothing_at_all)
    holder = await superseded_body(client, "S")
    async with app.connect(proxy.url) as behind:
        worker, supervisor = counts_of(behind.stores), counts_of(client.stores)
        lost = proxy.lose(record(app, "k", "waiting"))
        confirming = asyncio.create_task(Tail(behind.stores).confirm("k", holder, behind.stores.runs.patience()))
        await wait_until(lambda: lost.hits, description="the confirm is lost")
        expire = c.ExpirePrevious(closed=frozenset({"S"}), tag="sweep")
        await client.stores.runs.take("k", expire, client.stores.runs.patience())
        await confirming
    assert [worker, supervisor] == [Counter(), Counter({"superseded tail": 1})]


@pytest.mark.parametrize("what", ["confirm", "expire", "take"])
async def test_what_was_taken_out_is_counted_though_the_answer_was_lost(
    app: App, client: Client, proxy: Proxy, what: str
) -> None:
    app.actor(name="nothing")(nothing_at_all)
    holder = await superseded_body(client, "S")
    if what == "take":
        await client.replace(app.actors["nothing"].call(), key="k", overlap="wait")
    commands: dict[str, c.Confirm | c.ExpirePrevious | c.TakeCounts] = {
        "confirm": c.Confirm(holder=holder, where="retry", tag="mine"),
        "expire": c.ExpirePrevious(closed=frozenset({"S"}), tag="mine"),
        "take": c.TakeCounts(tag="mine"),
    }
    async with app.connect(proxy.url) as behind:
        counted = counts_of(behind.stores)
        lost = proxy.lose_answer(record(app, "k", "waiting"))
        await behind.stores.runs.take("k", commands[what], behind.stores.runs.patience())
        assert lost.hits
    where = {"confirm": "retry", "expire": "tail", "take": "head"}[what]
    assert counted == Counter({f"superseded {where}": 1})


async def test_an_end_is_counted_and_told_though_nobody_takes_its_dead_letter(
    app: App, client: Client, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """The outcome is stored, its letter is refused: that the run has failed is true all the same, and counted once.

    One run fails in its body; the other's holder is gone with its last attempt, and the head check ends it.
    """
    caplog.set_level(logging.INFO, "tenure")

    @app.actor(retry=None)
    async def bad() -> None:
        raise ValueError("x")

    stores = client.stores
    lost = await client.submit(bad.call(), key="lost")
    await stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})
    dead = await session_that_is_gone(client)
    await stores.runs.commit("lost", c.Claim(session=dead, run_id=lost.run_id, next_run_id=""))
    async with workers.run(app) as running:
        await stores.conn.api(f"STREAM.DELETE.{app.names.dead_stream}", {})
        await wake(client, "lost")
        failed = await client.submit(bad.call(), key="failed")
        metrics = running.worker.metrics
        for run in (failed, lost):
            assert (await run.wait(5)).phase == "failed"
        await wait_until(lambda: metrics.errors["server"] >= 2, description="neither letter is taken")
        assert metrics.outcomes["bad", "failed"] == 2
        assert metrics.claims["bad", "exhausted"] == 1
        holder = Holder(session=running.worker.lease.id, run_id=failed.run_id, attempt=1)
        assert not running.worker.table.gave_up(holder), "its outcome is stored: there is nothing to be remembered"
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("attempt.failed")]
    assert len(told) == 1, "the other had no attempt here"
    for part in ("key='failed'", f"run_id='{failed.run_id}'", "attempt=1", "error='ValueError'", "retried=False"):
        assert part in told[0]


@pytest.mark.long
async def test_a_fenced_end_is_counted_though_its_confirm_does_not_come_through(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    """Another attempt has the run; the write that takes the old body's entry out finds no server until trust is over."""
    gate = asyncio.Event()

    @app.actor
    async def waits() -> None:
        await gate.wait()

    async with behind.run(app) as running, opened_at_last(gate):
        run = await client.submit(waits.call(), key="k")
        await wait_until(lambda: running.worker.metrics.in_progress["waits"], description="the body runs")
        found = await client.stores.runs.read("k")
        assert found.record is not None
        assert found.record.holder is not None
        void = entry(found.record, found.record.holder, client.now() + 30, counted=True)
        holder = Holder(session="other", run_id=run.run_id, attempt=2)
        other = replace(found.record, attempt=2, holder=holder, previous=(void,))
        # As if an eviction and a claim by somebody else had come between.
        await client.stores.conn.put(app.names.record("k"), encode(other), {"Tenure-State": state_of(other)})
        lost = proxy.lose(record(app, "k", "running"), times=1_000)
        gate.set()
        await lost.done.wait()
        assert running.worker.metrics.fenced["waits"] == 1


@pytest.mark.parametrize(
    ("ended", "did"),
    [
        (Returned(b"1"), "succeeded"),
        (Raised(Failure(type="E", message="m"), final=False), "retried"),
        (Raised(Failure(type="E", message="m"), final=True), "failed"),
        (Snoozed(5.0), "snoozed"),
    ],
)
async def test_an_outcome_that_is_found_stored_already_is_counted_as_what_it_is(
    app: App, client: Client, ended: Ended, did: str
) -> None:
    """Its write was sent twice around a reconnect, and the refusal is of the second copy."""
    nothing = app.actor(name="nothing")(nothing_at_all)
    stores = client.stores
    run = await client.submit(nothing.call(), key="k")
    claim = c.Claim(session="S", run_id=run.run_id, next_run_id="")
    claimed = await stores.runs.commit("k", claim)
    assert isinstance(claimed, Committed)
    context = Context(
        app=app, record=claimed.record, fence=claimed.revision, session="S", now=client.now, progress=nobody_listens
    )
    at, task = Found(claimed.record, claimed.revision), claimed.record.task
    for _ in range(2):
        stored = await Tail(stores).store(context, task, ended, at, stores.runs.patience())
        assert isinstance(stored, Stored)
        assert stored.did == did
