"""Many cancels at once: which runs are meant, what became of each, and races with what happens meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import App, Client, Context, OutcomeUnknown
from tests.conftest import Workers
from tests.support import wait_until


async def test_each_phase_is_counted_and_ends_as_a_cancel_ends_it(app: App, client: Client, workers: Workers) -> None:
    """Waiting, scheduled, running, over, and others': a dry run changes nothing and counts the same."""
    gate = asyncio.Event()

    @app.actor
    async def work() -> str:
        return "done"

    @app.actor(grace=5.0)
    async def hold(ctx: Context) -> None:
        gate.set()
        await ctx.stopping.wait()

    @app.actor(queue="nobody")
    async def waits() -> None:
        return

    async with workers.run(app, queues=["default"]):
        done = await client.submit(work.call(), key="doc-done")
        await done.result(10)
        running = await client.submit(hold.call(), key="doc-running")
        await gate.wait()
        queued = [await client.submit(waits.call(), key=f"doc-queued-{i}") for i in range(5)]
        scheduled = [await client.submit(work.call(), key=f"doc-later-{i}", delay=3600) for i in range(3)]
        other = await client.submit(waits.call(), key="other")
        dry = await client.cancel_many("doc-*", dry_run=True)
        assert dry.dry_run
        assert (dry.matched, dry.phases) == (9, {"running": 1, "queued": 5, "scheduled": 3})
        assert len(dry.keys) == 9
        assert dry.cancelled == dry.stopping == 0
        assert (await queued[0].status()).phase == "queued"  # type: ignore[union-attr]  # it is there
        told: list[tuple[int, int]] = []
        did = await client.cancel_many("doc-*", reason="all of them", on_progress=lambda *so_far: told.append(so_far))
        assert (did.matched, did.cancelled, did.stopping, did.finished, did.failed) == (9, 8, 1, 0, 0)
        assert told == [(n, 9) for n in range(1, 10)]
        for key in (running.key, *(run.key for run in queued), *(run.key for run in scheduled)):
            status = await client.run(key).wait(10)
            assert (status.phase, status.reason) == ("cancelled", "all of them")
        assert (await done.wait(1)).phase == "succeeded"
        assert (await other.status()).phase == "queued"  # type: ignore[union-attr]  # it is there


async def test_what_is_given_must_all_fit(app: App, client: Client) -> None:
    @app.actor(queue="a")
    async def one() -> None:
        return

    @app.actor(queue="b")
    async def two() -> None:
        return

    for i in range(4):
        await client.submit(one.call(), key=f"one-{i}", delay=3600 if i % 2 else None)
        await client.submit(two.call(), key=f"two-{i}")

    async def matched(**given: Any) -> int:
        return (await client.cancel_many(**given, dry_run=True)).matched

    assert await matched(actor="one") == 4
    assert await matched(queue="b") == 4
    assert await matched(phase="scheduled") == 2
    assert await matched(actor="one", phase="queued") == 2
    assert await matched(pattern="*-1") == 2
    assert await matched(pattern="*-1", queue="b") == 1
    assert await matched(pattern="*-1", queue="b", actor="one") == 0
    assert await matched(pattern="[ot]*-?") == 8


async def test_what_ends_or_comes_anew_after_the_look_is_left_alone(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen running, finished by the time of its cancel; seen waiting, submitted anew; seen waiting, forgotten."""
    gate = asyncio.Event()

    @app.actor
    async def work() -> str:
        await gate.wait()
        return "done"

    @app.actor(queue="nobody")
    async def waits() -> None:
        return

    find = type(client)._find
    async with workers.run(app, queues=["default"]) as running:
        ends = await client.submit(work.call(), key="doc-ends")
        await wait_until(lambda: len(running.worker.table), description="it runs")
        for key in ("doc-anew", "doc-gone", "doc-stays"):
            await client.submit(waits.call(), key=key)

        async def slowly(self: Client, wanted: Any) -> Any:
            found = await find(self, wanted)
            gate.set()
            await ends.result(10)
            await client.replace(waits.call(), key="doc-anew")
            await client.purge("doc-gone")
            return found

        monkeypatch.setattr(type(client), "_find", slowly)
        did = await client.cancel_many("doc-*")
        assert (did.matched, did.finished, did.not_found, did.cancelled) == (4, 2, 1, 1)
        assert (await ends.wait(1)).phase == "succeeded"
        anew = await client.status("doc-anew")
        assert anew is not None
        assert (anew.generation, anew.phase) == (2, "queued"), "a run that came later is not meant"


async def test_five_thousand_are_cancelled_128_at_a_time_and_one_that_fails_stops_nothing(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.actor(queue="nobody")
    async def waits() -> None:
        return

    await client.submit_many([(waits.call(), f"doc-{i}") for i in range(5_000)])
    cancel, now, most = type(client).cancel, [0], [0]

    async def counted(self: Client, key: str, **more: Any) -> Any:
        now[0] += 1
        most[0] = max(most[0], now[0])
        try:
            if key == "doc-77":
                raise OutcomeUnknown("the server went away", key=key)
            return await cancel(self, key, **more)
        finally:
            now[0] -= 1

    monkeypatch.setattr(type(client), "cancel", counted)
    did = await client.cancel_many("doc-*")
    assert (did.matched, did.cancelled, did.failed) == (5_000, 4_999, 1)
    assert did.problems == ("the server went away",)
    assert most[0] == 128
    monkeypatch.setattr(type(client), "cancel", cancel)
    assert (await client.cancel_many("doc-*")).cancelled == 1, "repeated, it does the rest"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "pattern is missing"),
        ({"pattern": "*"}, "fits every key"),
        ({"pattern": "TENURE_*"}, "keep for themselves"),
        ({"pattern": 5}, "pattern must be a str"),
        ({"actor": "a b"}, "a b"),
        ({"queue": ""}, "queue"),
        ({"phase": "succeeded"}, "phase must be one of"),
        ({"pattern": "a*", "reason": 5}, "reason"),
    ],
)
async def test_what_cannot_be_meant_is_refused_by_name(client: Client, given: dict[str, Any], named: str) -> None:
    with pytest.raises(Exception, match=named) as refused:
        await client.cancel_many(**given)
    assert type(refused.value).__name__ in {"InvalidCall", "ConfigError"}
