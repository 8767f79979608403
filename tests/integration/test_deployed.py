"""Which code is the newest where old processes come back: what a release says of when it was deployed decides."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, ConfigError, Context, Limit, RateLimit
from tests.conftest import Supervisors, Workers
from tests.support import FAST, wait_until

OLD, NEW = datetime(2026, 5, 1, 12, tzinfo=UTC), datetime(2026, 5, 2, 12, tzinfo=UTC)
CONFIG = replace(FAST, sweep_seconds=0.2)


async def test_an_old_supervisor_that_comes_back_last_does_not_put_its_schedule_back(
    namespace: str, client: Client, supervisors: Supervisors, caplog: pytest.LogCaptureFixture
) -> None:
    """Its machine restarts in the middle of a rollout, after the first new one has started."""

    def code(every: float, deployed: datetime) -> App:
        app = App(namespace, config=CONFIG, deployed=deployed)

        @app.actor(every=every, autostart=True)
        async def beat() -> None: ...

        return app

    async def every() -> float | None:
        record = (await client.stores.runs.read("beat")).record
        return None if record is None else record.task.policy.every

    async with supervisors.run(code(3_600.0, OLD)):
        await wait_until(lambda: _is(every(), 3_600.0), description="the old schedule")
    async with supervisors.run(code(1_800.0, NEW)):
        await wait_until(lambda: _is(every(), 1_800.0), description="the new one")
        async with supervisors.run(code(3_600.0, OLD)) as older:
            await wait_until(lambda: "schedule.outdated" in caplog.text, description="the old one asks for its own")
            assert older.metrics.repairs["schedule"] == 0
        assert await every() == 1_800.0


@pytest.mark.parametrize("said", [True, False])
async def test_an_old_worker_that_comes_back_last_does_not_put_its_numbers_back(
    namespace: str, nats_server: str, workers: Workers, caplog: pytest.LogCaptureFixture, *, said: bool
) -> None:
    """Where no release says when it was deployed it does, and the log tells."""
    caplog.set_level("INFO", "tenure")
    gate = asyncio.Event()

    def code(n: int, deployed: datetime | None, queue: str) -> tuple[App, Any]:
        app = App(namespace, config=CONFIG, deployed=deployed)

        @app.actor(limits=[Limit(n), RateLimit(10 * n, 600)], queue=queue)
        async def capped() -> None:
            await gate.wait()

        return app, capped

    async def numbers(client: Client) -> tuple[int, int]:
        patience, stores = client.stores.runs.patience(), client.stores
        limit = (await stores.limits.read("capped", patience)).entry
        rate = (await stores.rates.read("capped=600000000us", patience)).entry
        return (0 if limit is None else limit.n), (0 if rate is None else rate.n)

    (old, old_capped), (new, new_capped) = (
        code(2, OLD if said else None, "old"),
        code(5, NEW if said else None, "new"),
    )
    async with new.connect(nats_server) as client, workers.run(new) as newer:
        runs = [await client.submit(new_capped.call(), key="k0")]
        claims = newer.worker.metrics.claims
        await wait_until(lambda: claims["capped", "won"] == 1, description="the new worker has one")
        assert await numbers(client) == (5, 50)
        async with workers.run(old) as older:
            runs.append(await client.submit(old_capped.call(), key="k1"))
            claims = older.worker.metrics.claims
            await wait_until(lambda: claims["capped", "won"] == 1, description="so has the old one, which came last")
            assert await numbers(client) == ((5, 50) if said else (2, 20))
            assert caplog.text.count("limit.changed") == (0 if said else 2)
            gate.set()
            for run in runs:
                await run.result(10)


async def test_of_two_numbers_of_one_deployment_the_smaller_counts(
    namespace: str, nats_server: str, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody forgot to raise it: they do not take turns, whoever asks last."""
    caplog.set_level("INFO", "tenure")

    def code(n: int, deployed: datetime, queue: str) -> tuple[App, Any]:
        app = App(namespace, config=CONFIG, deployed=deployed)

        @app.actor(limits=[Limit(n), RateLimit(10 * n, 600)], queue=queue)
        async def capped() -> None:
            if queue == "later":
                return
            await asyncio.Event().wait()

        return app, capped

    async def numbers(client: Client) -> tuple[int, int]:
        patience, stores = client.stores.runs.patience(), client.stores
        limit = (await stores.limits.read("capped", patience)).entry
        rate = (await stores.rates.read("capped=600000000us", patience)).entry
        return (0 if limit is None else limit.n), (0 if rate is None else rate.n)

    (small, of_small), (large, of_large) = code(2, OLD, "small"), code(5, OLD, "large")
    async with large.connect(nats_server) as client, workers.run(large) as first:
        await client.submit(of_large.call(), key="k0")
        await wait_until(lambda: first.worker.metrics.claims["capped", "won"] == 1, description="the large one's")
        assert await numbers(client) == (5, 50)
        async with workers.run(small) as second:
            await client.submit(of_small.call(), key="k1")
            await wait_until(lambda: second.worker.metrics.claims["capped", "won"] == 1, description="the small one's")
            assert await numbers(client) == (2, 20)
            await client.submit(of_large.call(), key="k2")
            await wait_until(lambda: first.worker.metrics.claims["capped", "parked"] == 1, description="no third place")
            assert await numbers(client) == (2, 20)
            assert caplog.text.count("limit.changed") == 2
            for key in ("k0", "k1", "k2"):
                await client.cancel(key)
        newest, of_newest = code(3, NEW, "later")
        async with workers.run(newest):
            await (await client.submit(of_newest.call(), key="k3")).result(10)
            assert (await numbers(client))[1] == 30, "until the time is raised"


async def test_a_limit_that_newer_code_adds_binds_what_is_submitted_from_then_on(
    namespace: str, nats_server: str, workers: Workers
) -> None:
    """Which limits a run has is in its record: three of before start at once, beside one of those of the new code."""
    gate, started = asyncio.Event(), list[str]()

    def code(*limits: Limit) -> tuple[App, Any]:
        app = App(namespace, config=FAST)

        @app.actor(limits=limits)
        async def work(ctx: Context) -> None:
            started.append(ctx.key)
            await gate.wait()

        return app, work

    (old, before), (new, after) = code(), code(Limit(1))
    async with old.connect(nats_server) as client:
        runs = [await client.submit(before.call(), key=f"old{i}") for i in range(3)]
        runs += [await client.submit(after.call(), key=f"new{i}") for i in range(2)]
        async with workers.run(new) as running:
            claims = running.worker.metrics.claims
            await wait_until(lambda: len(started) == 4 and claims["work", "parked"] == 1, description="one waits")
            assert sorted(key[:3] for key in started) == ["new", "old", "old", "old"]
            gate.set()
            for run in runs:
                await run.result(10)


def test_what_is_no_time_of_a_deployment_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"deployed must be a time with its zone.*2026-05-01T12:00:00"):
        App("docs", deployed=OLD.replace(tzinfo=None))
    monkeypatch.setenv("TENURE_DEPLOYED", "yesterday")
    with pytest.raises(ConfigError, match=r"\$TENURE_DEPLOYED must be a time such as .*'yesterday'"):
        App("docs")
    monkeypatch.setenv("TENURE_DEPLOYED", "2026-05-01")
    with pytest.raises(ConfigError, match="deployed must be a time with its zone"):
        App("docs")


def test_a_deployment_is_told_by_the_app_or_else_the_environment_and_is_never_later_than_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A year that is mistyped would else decide for ever."""
    started = (NEW + timedelta(hours=1)).timestamp()
    assert App("docs").deployed_at(started) == started
    monkeypatch.setenv("TENURE_DEPLOYED", "2026-05-01T14:00:00+02:00")
    assert App("docs").deployed_at(started) == OLD.timestamp()
    assert App("docs", deployed=NEW).deployed_at(started) == NEW.timestamp()
    assert App("docs", deployed=NEW.replace(year=2926)).deployed_at(started) == started


async def _is(found: Any, wanted: object) -> bool:
    return bool(await found == wanted)
