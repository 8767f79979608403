"""Scenario 44 (flydocs): a hook fires once, and only if the outcome's write won."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tenure import App, Client, Context, Fail, Outcome, Retry
from tenure.core import commands as c
from tenure.core.aftermath import derived_id
from tenure.core.records import TERMINAL, Holder, Phase
from tenure.core.sessions import Session
from tenure.worker import Worker
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.poison import BOOM, held
from tests.proxy import Proxy
from tests.support import wait_until


class Heard:
    """Actors that are hooks, and what they were told."""

    def __init__(self, app: App) -> None:
        self.told: list[Outcome] = []
        self.runs: list[str] = []

        @app.actor
        async def hear(ctx: Context, it: Outcome) -> None:
            self.told.append(it)
            self.runs.append(ctx.run_id)
            assert ctx.key == ctx.run_id

        self.hooks: dict[str, Any] = {"on_success": hear, "on_failure": hear, "on_cancel": hear}

    @property
    def phases(self) -> list[str]:
        return [it.phase for it in self.told]

    async def times(self, number: int) -> None:
        await wait_until(lambda: len(self.told) >= number, description=f"{number} hooks have run")


async def settled(client: Client, key: str) -> None:
    async def nothing_owed() -> bool:
        return not (await held(client, key)).outbox

    await wait_until(nothing_owed, description=f"{key} owes nothing")


async def idle(workers: Workers) -> None:
    for running in workers.running:
        worker = running.worker

        async def done(worker: Worker = worker) -> bool:
            return not len(worker.table) and await worker.puller.idle()

        await wait_until(done, description="every wake-up is answered and nothing is in hand")


# -- it fires --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "phase"),
    [
        ("returns", "succeeded"),
        ("fails at last", "failed"),
        ("says Fail", "failed"),
        ("cancelled", "cancelled"),
        ("cancelled by force", "cancelled"),
        ("times out", "failed"),
    ],
)
async def test_scenario_44_each_end_fires_its_hook_once(
    app: App, client: Client, workers: Workers, ends: str, phase: str
) -> None:
    heard = Heard(app)
    started, release = asyncio.Event(), asyncio.Event()

    @app.actor(
        retry=Retry(max_attempts=2, initial=0.01), grace=0.1, timeout=0.2 if ends == "times out" else 30, **heard.hooks
    )
    async def work(ctx: Context) -> dict[str, int]:
        started.set()
        if ends == "fails at last":
            raise ValueError(ends)
        if ends == "says Fail":
            raise Fail(ends)
        if ends in {"cancelled", "times out"}:
            await ctx.stopping.wait()
        while ends == "cancelled by force" and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return {"pages": 3}

    async with workers.run(app), opened_at_last(release):
        run = await client.submit(work.call(), key="k")
        await started.wait()
        if ends.startswith("cancelled"):
            await run.cancel(reason="enough")
        status = await run.wait(5)
        await heard.times(1)
        release.set()
        await settled(client, "k")
        await idle(workers)
    (it,) = heard.told
    assert (it.key, it.generation, it.run_id, it.actor) == ("k", 1, run.run_id, "work")
    assert (it.phase, it.attempt, it.ended_at) == (phase, status.attempt, status.ended_at)
    assert it.result == ({"pages": 3} if phase == "succeeded" else None)
    assert it.reason == ("enough" if phase == "cancelled" else None)
    assert (it.error_type is not None) == (phase == "failed")
    assert heard.runs == [derived_id(run.run_id, f"{phase}.0")]


async def test_scenario_44_a_waiting_run_that_is_cancelled_fires_by_the_client_alone(app: App, client: Client) -> None:
    """No worker is there: the client's own write owes the hook, and the client submits it."""
    heard = Heard(app)

    @app.actor(**heard.hooks)
    async def work() -> None: ...

    run = await client.submit(work.call(), key="k", delay=60)
    assert (await run.cancel()).outcome == "cancelled"
    status = await client.status(derived_id(run.run_id, "cancelled.0"))
    assert status is not None
    assert (status.phase, status.actor) == ("queued", "hear")
    assert not (await held(client, "k")).outbox


async def test_a_call_is_submitted_as_it_is_and_a_list_in_full(app: App, client: Client, workers: Workers) -> None:
    ran: list[tuple[str, str]] = []

    @app.actor
    async def note(ctx: Context, text: str) -> None:
        ran.append((ctx.run_id, text))

    @app.actor
    async def bare() -> None:
        ran.append(("", "bare"))

    @app.actor(on_success=[note.call("one"), bare, note.call("two")])
    async def work() -> None: ...

    async with workers.run(app):
        run = await client.submit(work.call(), key="k")
        await wait_until(lambda: len(ran) == 3, description="all have run")
        await idle(workers)
    ids = [derived_id(run.run_id, f"succeeded.{n}") for n in range(3)]
    assert sorted(ran) == sorted([(ids[0], "one"), ("", "bare"), (ids[2], "two")])


async def test_every_outcome_of_a_perpetual_chain_fires(app: App, client: Client, workers: Workers) -> None:
    heard = Heard(app)

    @app.actor(every=0.05, retry=None, **heard.hooks)
    async def tick(ctx: Context) -> int:
        if ctx.generation == 2:
            raise ValueError("once")
        return ctx.generation

    async with workers.run(app):
        await client.submit(tick.call(), key="k")
        await heard.times(4)
        await client.cancel("k")
        await wait_until(lambda: "cancelled" in heard.phases, description="its end is told")
        await idle(workers)
    told = sorted(heard.told, key=lambda it: it.generation)
    assert [it.generation for it in told] == list(range(1, len(told) + 1))
    assert [it.phase for it in told] == ["succeeded", "failed", *["succeeded"] * (len(told) - 3), "cancelled"]


async def test_hooks_of_a_run_that_a_worker_without_its_actor_ends_are_fired(
    app: App, client: Client, workers: Workers
) -> None:
    """The policy in the record is enough: the one who submits the hook knows neither actor."""
    heard = Heard(app)

    @app.actor(**heard.hooks)
    async def work() -> None: ...

    run = await client.submit(work.call(), key="k", delay=60)
    async with App(app.namespace, config=app.config).connect(workers.url) as stranger:
        await stranger.cancel("k")
    assert await client.status(derived_id(run.run_id, "cancelled.0")) is not None


async def test_a_result_too_large_for_the_hooks_is_left_to_be_read(app: App, client: Client, workers: Workers) -> None:
    """Five hooks are told, and each would carry a copy: the value goes to a blob, and nothing fails."""
    heard = Heard(app)

    @app.actor(on_success=[app.actors["hear"]] * 5)
    async def work() -> str:
        return "x" * 60_000

    async with workers.run(app):
        run = await client.submit(work.call(), key="k")
        await heard.times(5)
        assert [it.result for it in heard.told] == [None] * 5
        assert len(await run.result(5)) == 60_000


async def test_spawned_runs_and_hooks_that_do_not_fit_one_record_fail_the_run_and_fire_its_hooks(
    app: App, client: Client, workers: Workers
) -> None:
    """Twelve spawned runs fit by themselves; with the hooks' own arguments they do not. All or nothing."""
    heard = Heard(app)
    big = "x" * 60_000

    @app.actor
    async def child(text: str) -> None: ...

    @app.actor(on_success=child.call(big), on_failure=app.actors["hear"])
    async def parent(ctx: Context) -> None:
        for n in range(12):
            ctx.spawn(child.call(big), key=f"child-{n}")

    async with workers.run(app):
        run = await client.submit(parent.call(), key="k")
        error = (await run.wait(10)).error
        assert error is not None
        assert error.startswith("InvalidCall: 12 spawned runs and 1 hooks take about")
        await heard.times(1)
        assert heard.phases == ["failed"]
        assert await client.status("child-0") is None
        assert await client.status(derived_id(run.run_id, "succeeded.0")) is None
        assert await client.dead.get("k") is not None


# -- only if the outcome's write won ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["returns", "fails"])
async def test_scenario_44_a_run_that_is_superseded_before_its_outcome_fires_nothing(
    app: App, client: Client, workers: Workers, ends: str
) -> None:
    heard = Heard(app)
    started, release = asyncio.Event(), asyncio.Event()

    @app.actor(retry=None, **heard.hooks)
    async def work(ctx: Context) -> str:
        if ctx.generation == 1:
            started.set()
            await release.wait()
            if ends == "fails":
                raise Fail
        return "newer"

    async with workers.run(app), opened_at_last(release):
        await client.submit(work.call(), key="k")
        await started.wait()
        newer = await client.replace(work.call(), key="k", overlap="parallel")
        assert await newer.result(5) == "newer"
        release.set()
        await heard.times(1)
        await idle(workers)
    assert [(it.generation, it.phase) for it in heard.told] == [(2, "succeeded")]
    assert await client.dead.list() == []


async def test_scenario_44_an_attempt_that_was_fenced_fires_nothing(app: App, client: Client, workers: Workers) -> None:
    """It overstays, is evicted, and returns while attempt 2 runs: one outcome, one hook."""
    heard = Heard(app)
    release = asyncio.Event()

    @app.actor(timeout=0.1, grace=0.1, retry=Retry(max_attempts=2, initial=0.01), **heard.hooks)
    async def deaf(ctx: Context) -> str:
        while ctx.attempt == 1 and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return f"attempt {ctx.attempt}"

    async with workers.run(app), opened_at_last(release):
        run = await client.submit(deaf.call(), key="k")
        assert await run.result(5) == "attempt 2"
        release.set()
        await heard.times(1)
        await idle(workers)
    assert [it.result for it in heard.told] == ["attempt 2"]


# -- once, whoever crashes -------------------------------------------------------------------------------------------


def success(holder: Holder) -> c.Command:
    return c.Succeed(holder=holder, next_run_id="", result=Raw(b'"done"'))


def failure(holder: Holder) -> c.Command:
    return c.FailAttempt(holder=holder, next_run_id="", failure=BOOM, jitter=0.5, final=True)


def stop(holder: Holder) -> c.Command:
    return c.Cancel(run_id=holder.run_id, reason="enough")


@pytest.mark.parametrize(("end", "phase"), [(success, "succeeded"), (failure, "failed"), (stop, "cancelled")])
@pytest.mark.parametrize("by", ["a fresh worker", "whoever finds it", "a newer submit"])
async def test_scenario_44_a_hook_owed_by_a_process_that_died_is_fired_by_whoever_comes(
    app: App, client: Client, workers: Workers, end: Callable[[Holder], c.Command], phase: str, by: str
) -> None:
    """The outcome is stored, its writer is gone before any effect: the record alone tells what is owed."""
    heard = Heard(app)

    @app.actor(**heard.hooks)
    async def work() -> str:
        return "newer"

    stores = client.stores
    gone = Session(id=stores.clock.new_id(), kind="worker", host="h", pid=1, ttl=1.0, started_at=client.now())
    revision = await stores.sessions.create(gone, stores.runs.patience())
    run = await client.submit(work.call(), key="k")
    holder = Holder(session=gone.id, run_id=run.run_id, attempt=1)
    await stores.runs.commit("k", c.Claim(session=gone.id, run_id=run.run_id, next_run_id=""))
    await stores.runs.commit("k", end(holder))
    await stores.sessions.write(replace(gone, closed="expired"), revision)
    if (await held(client, "k")).phase not in TERMINAL:
        await stores.runs.commit("k", c.HandBack(holder=holder))
    assert (await held(client, "k")).outbox
    async with app.connect(workers.url) as fresh:
        if by == "a newer submit":
            await fresh.submit(work.call(), key="k", delay=60)
            await settled(client, "k")
        elif by == "whoever finds it":
            await stores.complete(await stores.runs.read("k"), stores.runs.patience())
        async with workers.run(app):
            await heard.times(1)
            await idle(workers)
    assert heard.phases == [phase]
    assert heard.runs == [derived_id(run.run_id, f"{phase}.0")]


async def test_scenario_44_a_hook_that_two_fire_at_once_runs_once(app: App, client: Client, workers: Workers) -> None:
    heard = Heard(app)

    @app.actor(**heard.hooks)
    async def work() -> None: ...

    run = await client.submit(work.call(), key="k", delay=60)
    await client.stores.runs.commit("k", c.Cancel(run_id=run.run_id))
    async with app.connect(workers.url) as one, app.connect(workers.url) as other, workers.run(app):
        stale = await client.stores.runs.read("k")
        await asyncio.gather(*(who.stores.complete(stale, who.stores.runs.patience()) for who in (one, other) * 3))
        await heard.times(1)
        await client.run(heard.runs[0]).result(5)
        for who in (one, other):  # one that was frozen meanwhile, and still has the old record in hand
            await who.stores.complete(stale, who.stores.runs.patience())
        await idle(workers)
    assert heard.phases == ["cancelled"]


async def test_scenario_44_an_outcome_whose_answer_is_lost_fires_once(
    app: App, client: Client, behind: Workers, proxy: Proxy
) -> None:
    heard = Heard(app)

    @app.actor(**heard.hooks)
    async def work() -> str:
        return "done"

    app.config = replace(app.config, request_timeout_seconds=0.3)
    async with behind.run(app):
        lost = proxy.lose_answer(lambda p: p.subject == app.names.record("k") and p.says(Phase.SUCCEEDED.value))
        run = await client.submit(work.call(), key="k")
        assert await run.result(5) == "done"
        await heard.times(1)
        await idle(behind)
        assert lost.hits
    assert heard.phases == ["succeeded"]
