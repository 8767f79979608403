"""Superseded runs are counted by the refusal that made an end of them: a second copy of a wake-up is no second run."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenure import App, Client, Context
from tenure.core.records import Phase, encode
from tenure.worker import Worker
from tests.conftest import Workers
from tests.support import wait_until


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


async def test_a_late_copy_for_a_run_that_this_worker_ended_is_not_counted_at_all(
    app: App, client: Client, workers: Workers
) -> None:
    """Generation 1's outcome is no longer in the record when the copy comes.

    The worker itself remembers that it ended.
    """

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
        before = dict(running.worker.metrics.claims)
        await wake_again(client, "k", first.run_id, 1)
        await answered(running.worker)
        assert superseded(running.worker) == {}
        assert dict(running.worker.metrics.claims) == before


async def test_a_replaced_run_is_counted_once_however_often_it_is_woken(
    app: App, client: Client, workers: Workers
) -> None:
    @app.actor
    async def nothing() -> None:
        return

    old = await client.submit(nothing.call(), key="k")
    new = await client.replace(nothing.call(), key="k")
    for _ in range(3):
        await wake_again(client, "k", old.run_id, 1)
    async with workers.run(app) as running:
        await new.result(timeout=5)
        await answered(running.worker)
        assert superseded(running.worker) == {("nothing", "head"): 1}
