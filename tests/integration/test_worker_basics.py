"""What a worker does with a run: attempts, delays, queues, progress, and what it counts."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import generate_latest

import tenure
from tenure import App, Client, Context, Fail, Retry, RunFailed, Snooze, TenureError
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.support import wait_until


async def test_a_failed_attempt_runs_again_after_a_growing_pause(app: App, client: Client, workers: Workers) -> None:
    """Two failures, pauses of 0.1 s and 0.2 s, a value.

    Each attempt sees its number, its failures and a higher fence.
    """
    seen: list[tuple[int, int, int]] = []
    times: list[float] = []
    fences: list[int] = []

    @app.actor(retry=Retry(max_attempts=3, initial=0.1, factor=2.0, jitter=0.0))
    async def flaky(ctx: Context) -> str:
        times.append(time.time())
        fences.append(ctx.fence)
        seen.append((ctx.attempt, ctx.failures, ctx.generation))
        if ctx.attempt < 3:
            raise ValueError(f"attempt {ctx.attempt}")
        return "value"

    async with workers.run(app) as running:
        run = await client.submit(flaky.call(), key="k")
        assert await run.result(5) == "value"
        status = await run.status()
        await wait_until(lambda: not len(running.worker.table), description="everything is counted")
        outcomes = running.worker.metrics.outcomes
    assert seen == [(1, 0, 1), (2, 1, 1), (3, 2, 1)]
    assert fences == sorted(set(fences))
    assert times[1] - times[0] >= 0.1
    assert times[2] - times[1] >= 0.2
    assert times[2] - times[0] < 1.5
    assert status is not None
    assert (status.phase, status.attempt, status.failures, status.error) == ("succeeded", 3, 2, None)
    assert (outcomes["flaky", "retried"], outcomes["flaky", "succeeded"]) == (2, 1)


async def test_a_run_whose_attempts_are_used_up_fails_with_the_last_error(
    app: App, client: Client, workers: Workers
) -> None:
    """Three attempts fail; the caller gets the last one's type, message and traceback, and nothing runs any more."""
    attempts: list[int] = []

    @app.actor(retry=Retry(max_attempts=3, initial=0.01, jitter=0.0))
    def broken(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise LookupError(f"attempt {ctx.attempt} of {ctx.key}")

    async with workers.run(app):
        run = await client.submit(broken.call(), key="k")
        with pytest.raises(RunFailed) as error:
            await run.result(5)
        final = await run.wait(1)
    assert attempts == [1, 2, 3]
    assert (error.value.error_type, error.value.message) == ("LookupError", "attempt 3 of k")
    assert "in broken" in error.value.traceback
    assert (final.phase, final.attempt, final.error) == ("failed", 3, "LookupError: attempt 3 of k")


async def test_fail_ends_the_run_without_a_retry(app: App, client: Client, workers: Workers) -> None:
    """A body raises ``Fail`` in its first of five attempts."""
    attempts: list[int] = []

    @app.actor
    async def hopeless(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise Fail("no such document")

    async with workers.run(app):
        run = await client.submit(hopeless.call())
        with pytest.raises(RunFailed, match="no such document"):
            await run.result(5)
    assert attempts == [1]


async def test_snooze_costs_no_retry(app: App, client: Client, workers: Workers) -> None:
    """arq#267. One attempt is allowed; the body snoozes three times before it returns. It is not early, either."""
    seen: list[tuple[int, int]] = []
    times: list[float] = []

    @app.actor(retry=None)
    async def sleepy(ctx: Context) -> str:
        seen.append((ctx.attempt, ctx.failures))
        times.append(time.time())
        if len(seen) < 4:
            raise Snooze(0.1)
        return "awake"

    async with workers.run(app) as running:
        run = await client.submit(sleepy.call())
        assert await run.result(5) == "awake"
        assert running.worker.metrics.outcomes["sleepy", "snoozed"] == 3
    assert seen == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert all(later - earlier >= 0.1 for earlier, later in itertools.pairwise(times))


async def test_an_attempt_that_takes_too_long_fails_and_is_told_so(app: App, client: Client, workers: Workers) -> None:
    """Timeout 0.1 s, two attempts: both are cancelled, both see their deadline, the run fails as AttemptTimeout."""
    seen: list[tuple[int, str | None]] = []

    @app.actor(timeout=0.1, retry=Retry(max_attempts=2, initial=0.01, jitter=0.0))
    async def slow(ctx: Context) -> None:
        assert ctx.deadline is not None
        assert 0 < ctx.deadline.timestamp() - time.time() <= 0.1
        try:
            await asyncio.sleep(30)  # body: too long
        finally:
            seen.append((ctx.attempt, ctx.stop_reason))

    async with workers.run(app):
        run = await client.submit(slow.call())
        with pytest.raises(RunFailed) as error:
            await run.result(5)
    assert error.value.error_type == "AttemptTimeout"
    assert seen == [(1, "timeout"), (2, "timeout")]


@pytest.mark.parametrize(
    ("how", "told"), [("obeys", "AttemptTimeout"), ("overstays", "AttemptTimeout"), ("raises", "TimeoutError")]
)
async def test_a_timeout_of_the_attempt_is_told_apart_from_one_of_the_bodys_own(
    app: App, client: Client, workers: Workers, how: str, told: str
) -> None:
    release = asyncio.Event()

    @app.actor(timeout=5.0 if how == "raises" else 0.05, grace=0.05, retry=None)
    async def slow() -> None:
        if how == "raises":
            async with asyncio.timeout(0.01):
                await release.wait()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                if how == "obeys":
                    raise

    async with workers.run(app):
        with pytest.raises(RunFailed) as failed:
            await (await client.submit(slow.call())).result(5)
        release.set()
    assert failed.value.error_type == told


async def test_the_current_context_is_found_anywhere_below_a_body_and_nowhere_else(
    app: App, client: Client, workers: Workers
) -> None:
    """Side by side: async bodies, a task and a thread below one, and a plain body; each finds its own run."""

    def where() -> str:
        return tenure.current().key

    @app.actor
    async def nested() -> list[str]:
        await asyncio.sleep(0.01)  # body: others run in between
        return [where(), await asyncio.to_thread(where), await asyncio.create_task(deeper())]

    async def deeper() -> str:
        return where()

    @app.actor
    def plain() -> str:
        return where()

    async with workers.run(app):
        runs = [await client.submit(nested.call(), key=f"n{n}") for n in range(5)]
        assert [await run.result(5) for run in runs] == [[f"n{n}"] * 3 for n in range(5)]
        run = await client.submit(plain.call(), key="p")
        assert await run.result(5) == "p"
    with pytest.raises(TenureError, match="outside a running body"):
        tenure.current()


async def test_progress_shows_in_the_status_and_in_the_events(app: App, client: Client, workers: Workers) -> None:
    """A body tells its progress faster than it may be published.

    The newest value arrives; it is gone from a finished run.
    """
    started, told, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.actor
    async def steps(ctx: Context) -> None:
        await started.wait()
        for done in range(1, 101):
            await ctx.progress(done, 100, note=f"page {done}")
        told.set()
        await end.wait()

    kinds: list[tuple[str, Any]] = []

    async with workers.run(app):
        run = await client.submit(steps.call(), key="k")

        async def follow() -> None:
            async for event in run.events():
                started.set()  # the first event is the status as it is
                kinds.append(
                    (event.kind, event.progress.done if event.progress else event.status and event.status.phase)
                )

        following = asyncio.create_task(follow())
        await told.wait()

        async def newest() -> Any:
            status = await client.status("k")
            return status and status.progress and status.progress.done == 100 and status

        status = await wait_until(newest, description="the newest progress is stored")
        assert (status.progress.total, status.progress.note, status.progress.attempt) == (100, "page 100", 1)
        await wait_until(lambda: ("progress", 100.0) in kinds, description="the newest progress is an event")
        end.set()
        async with asyncio.timeout(5):
            await following
        final = await client.status("k")
    assert kinds[-1] == ("status", "succeeded")
    assert len([kind for kind, _ in kinds if kind == "progress"]) < 10
    assert final is not None
    assert final.progress is None


async def test_a_plain_body_reports_its_progress(app: App, client: Client, workers: Workers) -> None:
    """From its thread, faster than the loop turns; the newest value arrives."""
    end = threading.Event()

    @app.actor
    def steps(ctx: Context) -> None:
        for done in range(1, 1_001):
            ctx.report(done, 1_000, f"page {done}")
        end.wait()

    async def newest() -> bool:
        status = await client.status("k")
        return status is not None and status.progress is not None and status.progress.note == "page 1000"

    async with workers.run(app), opened_at_last(end):
        await client.submit(steps.call(), key="k")
        await wait_until(newest, description="the newest progress is stored")


@pytest.mark.parametrize("delay", [0.3, 2.6])
async def test_a_delayed_run_starts_at_its_time(app: App, client: Client, workers: Workers, delay: float) -> None:
    """By ``delay`` and by ``at``; a short delay waits with the consumer, a long one as a schedule of the server."""

    @app.actor
    async def work() -> float:
        return time.time()

    async with workers.run(app):
        asked = time.time()
        runs = [
            await client.submit(work.call(), key="delay", delay=delay),
            await client.submit(work.call(), key="timedelta", delay=timedelta(seconds=delay)),
            await client.submit(work.call(), key="at", at=datetime.now(UTC) + timedelta(seconds=delay)),
        ]
        status = await client.status("delay")
        assert status is not None
        assert status.phase == "scheduled"
        late = [await run.result(10) - asked - delay for run in runs]
    assert min(late) >= 0
    assert max(late) < 0.4, late


async def test_every_priority_and_every_queue_of_a_worker_is_worked_on_and_no_other(
    app: App, client: Client, workers: Workers
) -> None:
    """Three priorities on one queue, and a second queue that only a second worker has."""
    ran: list[str] = []

    @app.actor(priority="high")
    async def high() -> None:
        ran.append("high")

    @app.actor
    async def normal() -> None:
        ran.append("normal")

    @app.actor(priority="low")
    async def low() -> None:
        ran.append("low")

    @app.actor(queue="reports")
    async def report() -> str:
        return "report"

    async with workers.run(app, queues=["default"]):
        elsewhere = await client.submit(report.call(), key="r")
        runs = [await client.submit(actor.call()) for actor in (high, normal, low)]
        for run in runs:
            await run.result(5)
        assert sorted(ran) == ["high", "low", "normal"]
        status = await client.status("r")
        assert status is not None
        assert (status.phase, status.queue) == ("queued", "reports")
        async with workers.run(app, queues=["reports"]):
            assert await elsewhere.result(5) == "report"


async def test_run_until_idle_works_off_what_there_is_and_returns(app: App, client: Client, workers: Workers) -> None:
    """Sixty runs on five slots, some failing once, some spawning; what is due in a minute is left alone.

    Twice with one worker.
    """
    ran: list[str] = []

    @app.actor(retry=Retry(max_attempts=2, initial=0.05, jitter=0.0))
    async def work(ctx: Context, number: int) -> None:
        if number % 10 == 1 and ctx.attempt == 1:
            raise ValueError("once")
        if number % 10 == 2:
            ctx.spawn(work.call(0), key=f"spawned {number}")
        ran.append(ctx.key)

    runs = await client.submit_many([(work.call(n), f"k{n}") for n in range(60)])
    assert not [run for run in runs if isinstance(run, TenureError)]
    later = await client.submit(work.call(0), key="later", delay=60)
    async with app.worker(workers.url, concurrency=5) as worker:
        async with asyncio.timeout(20):
            await worker.run_until_idle()
        assert len(ran) == len(set(ran)) == 66
        await client.submit(work.call(0), key="again")
        async with asyncio.timeout(10):
            await worker.run_until_idle()
    assert ran[66:] == ["again"]
    status = await later.status()
    assert status is not None
    assert status.phase == "scheduled"


async def test_the_counters_match_what_happened(app: App, client: Client, workers: Workers) -> None:
    """Three runs succeed, one fails after a retry, one is cancelled while it waits, one while it runs.

    One is superseded.
    """
    started = asyncio.Event()

    @app.actor
    async def fine() -> None: ...

    @app.actor(retry=Retry(max_attempts=2, initial=0.01, jitter=0.0))
    async def broken() -> None:
        raise ValueError("broken")

    @app.actor
    async def endless() -> None:
        started.set()
        await asyncio.sleep(30)  # body: until it is cancelled

    waiting = await client.submit(fine.call(), key="waiting")
    await waiting.cancel()
    await client.submit(fine.call(), key="replaced")
    replaced = await client.replace(fine.call(), key="replaced")
    async with workers.run(app) as running:
        run = await client.submit(endless.call(), key="running")
        await wait_until(started.is_set, description="it runs")
        await run.cancel()
        failing = await client.submit(broken.call(), key="failing")
        for done in [run, failing, replaced, await client.submit(fine.call()), await client.submit(fine.call())]:
            await done.wait(5)
        metrics = running.worker.metrics
        await wait_until(lambda: not len(running.worker.table), description="nothing is in hand")
        await wait_until(
            lambda: metrics.claims["fine", "cancelled"], description="the cancelled run's message has been looked at"
        )
        text = generate_latest(metrics.registry).decode()

    for line in (
        'tenure_outcomes_total{actor="fine",outcome="succeeded"} 3.0',
        'tenure_outcomes_total{actor="broken",outcome="retried"} 1.0',
        'tenure_outcomes_total{actor="broken",outcome="failed"} 1.0',
        'tenure_outcomes_total{actor="endless",outcome="cancelled"} 1.0',
        'tenure_cancelled_total{actor="fine",where="waiting"} 1.0',
        'tenure_cancelled_total{actor="endless",where="running"} 1.0',
        'tenure_superseded_total{actor="fine",where="head"} 1.0',
        'tenure_claims_total{actor="broken",outcome="won"} 2.0',
        'tenure_run_seconds_count{actor="broken"} 2.0',
        'tenure_runs_in_progress{actor="endless"} 0.0',
        'tenure_fenced_total{actor="fine"} 0.0',
        'tenure_build_info{version="' + tenure.__version__ + '"} 1.0',
    ):
        assert line in text, line
