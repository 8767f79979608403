"""Limits on a real server: how many bodies run at any instant, and that none waits without a reason."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, Limit, Retry, RunFailed, Snooze
from tests.conftest import Workers
from tests.gates import opened_at_last
from tests.support import FAST, no_limit_in_use, until_parked, wait_until, wake


@dataclass
class Seen:
    """How many bodies there are, by the value that they are limited by."""

    now: dict[Any, int] = field(default_factory=lambda: defaultdict(int))
    most: dict[Any, int] = field(default_factory=lambda: defaultdict(int))
    order: list[str] = field(default_factory=list)

    async def body(self, value: Any, seconds: float, key: str = "", gate: asyncio.Event | None = None) -> None:
        self.order.append(key)
        self.now[value] += 1
        self.most[value] = max(self.most[value], self.now[value])
        try:
            if gate is not None:
                await gate.wait()
            await asyncio.sleep(seconds)  # body: takes its time
        finally:
            self.now[value] -= 1


async def parked(claims: dict[tuple[str, str], int], number: int) -> None:
    await wait_until(lambda: claims["capped", "parked"] == number, description=f"{number} have parked")


@pytest.mark.parametrize("n", [1, 2, 5])
async def test_scenario_31_a_limit_of_n_is_n_never_more_and_not_less(
    app: App, client: Client, workers: Workers, n: int
) -> None:
    """taskito#104. A hundred short bodies on three workers: n at once at some time, and never more.

    That n run all the time while others wait: ``test_limits_in_full``.
    """
    seen = Seen()

    @app.actor(limits=[Limit(n)])
    async def capped(ctx: Context) -> None:
        await seen.body("", 0.01, ctx.key)

    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(workers.run(app))
        runs = await client.submit_many([(capped.call(), f"k{i}") for i in range(100)])
        for run in runs:
            assert not isinstance(run, Exception)
            await run.result(30)
        await no_limit_in_use(client)
    assert seen.most[""] == n
    assert len(seen.order) == 100


@pytest.mark.parametrize("n", [1, 10])
async def test_places_that_are_passed_on_within_a_process_are_never_more_than_n(
    app: App, client: Client, workers: Workers, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of short bodies, a hundred in hand: nobody parks, the next ones are claimed before there is room for them."""
    monkeypatch.setattr("tenure.worker.places._LONGEST_WAIT_SECONDS", 30.0)  # however slow the machine is
    seen = Seen()

    @app.actor(limits=[Limit(n)])
    async def capped() -> None:
        await seen.body("", 0.002)

    runs = await client.submit_many([(capped.call(), None)] * 500)
    async with workers.run(app, concurrency=100) as running:
        for run in runs:
            assert not isinstance(run, Exception)
            await run.result(60)
        await no_limit_in_use(client)
        claims = running.worker.metrics.claims
        assert claims["capped", "won"] == 500, "nobody is handed back"
    assert seen.most[""] == n


async def test_a_run_that_was_claimed_ahead_is_handed_back_if_its_place_does_not_come(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N = 1: after a hundred short bodies a long one. Who was claimed in the hope of a short one runs once, later."""
    monkeypatch.setattr("tenure.worker.places._LONGEST_WAIT_SECONDS", 0.2)
    monkeypatch.setattr("tenure.crew._AHEAD_SECONDS", 10.0)  # however slow the machine is
    seen = Seen()

    @app.actor(limits=[Limit(1)])
    async def capped(ctx: Context, seconds: float) -> None:
        await seen.body("", seconds, ctx.key)

    times = [0.005] * 100 + [1.5] + [0.0] * 40  # half a second: by then their pace is known
    runs = await client.submit_many([(capped.call(seconds), f"k{i}") for i, seconds in enumerate(times)])
    async with workers.run(app, concurrency=60):
        statuses = []
        for run in runs:
            assert not isinstance(run, Exception)
            statuses.append(await run.wait(30))
        await no_limit_in_use(client)
    assert seen.most[""] == 1
    assert sorted(seen.order) == sorted(f"k{i}" for i in range(len(times)))
    assert {(status.phase, status.failures) for status in statuses} == {("succeeded", 0)}
    handed_back = sum(status.attempt > 1 for status in statuses)
    print(f"{handed_back} were handed back")
    assert handed_back


async def test_runs_get_their_places_in_the_order_in_which_they_parked(
    app: App, client: Client, workers: Workers
) -> None:
    """N = 1: one body runs, five runs park one after the other, and start in that order."""
    seen = Seen()
    gate = asyncio.Event()

    @app.actor(limits=[Limit(1)])
    async def capped(ctx: Context) -> None:
        if ctx.key == "first":
            await gate.wait()
        await seen.body("", 0.0, ctx.key)

    async with workers.run(app) as running:
        claims = running.worker.metrics.claims
        runs = [await client.submit(capped.call(), key="first")]
        await wait_until(lambda: claims["capped", "won"] == 1, description="the first one runs")
        for i in range(5):
            runs.append(await client.submit(capped.call(), key=f"k{i}"))
            await parked(claims, i + 1)
        assert not len(running.worker.table) - 1, "who is parked keeps no slot"
        gate.set()
        for run in runs:
            await run.result(10)
    assert seen.order == ["first", "k0", "k1", "k2", "k3", "k4"]


async def test_who_is_handed_a_place_does_not_wait_behind_the_backlog_of_its_queue(
    app: App, client: Client, workers: Workers
) -> None:
    """N = 1, two slots, 200 tasks of 20 ms queued: the place is used when a few of them have run, not when all have."""
    gate = asyncio.Event()
    done: list[str] = []

    @app.actor(limits=[Limit(1)], priority="low")
    async def capped(ctx: Context) -> None:
        if ctx.key == "first":
            await gate.wait()
        done.append(ctx.key)

    @app.actor
    async def nap() -> None:
        await asyncio.sleep(0.02)  # body: takes its time
        done.append("")

    async with workers.run(app, concurrency=2) as running:
        claims = running.worker.metrics.claims
        await client.submit(capped.call(), key="first")
        await wait_until(lambda: claims["capped", "won"] == 1, description="the first one runs")
        second = await client.submit(capped.call(), key="second")
        await parked(claims, 1)
        await client.submit_many([(nap.call(), None)] * 200)
        gate.set()
        await second.result(20)
    assert len(done[: done.index("second")]) < 40


async def test_a_limit_per_argument_counts_each_value_by_itself(app: App, client: Client, workers: Workers) -> None:
    """Values that only JSON, a digest or a subject could mix up are told apart; equal ones are one."""
    seen = Seen()
    values: list[Any] = [
        "a",
        "A",
        "a.b",
        "*",
        ">",
        "ü \n",
        "1",
        1,
        1.0,
        None,
        [1, "x"],
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        "",
    ]

    @app.actor(limits=[Limit(1, per="value")])
    async def capped(ctx: Context, value: Any, number: int) -> None:
        await seen.body(repr(sorted(value.items()) if isinstance(value, dict) else value), 0.05)

    async with workers.run(app, concurrency=100):
        runs = [await client.submit(capped.call(value, i)) for value in values for i in range(3)]
        for run in runs:
            await run.result(20)
        await no_limit_in_use(client)
    assert set(seen.most.values()) == {1}
    assert len(seen.most) == 13


async def test_a_run_under_several_limits_needs_a_place_under_each(app: App, client: Client, workers: Workers) -> None:
    """At most two for each customer, three in all; whoever lacks one of them keeps none.

    The first bodies wait until all others are parked: then three run, whatever the machine does.
    """
    seen, gate = Seen(), asyncio.Event()

    @app.actor(limits=[Limit(2, per="customer"), Limit(3)])
    async def capped(customer: str, number: int) -> None:
        seen.now["all"] += 1
        seen.most["all"] = max(seen.most["all"], seen.now["all"])
        await seen.body(customer, 0.03, gate=gate)
        seen.now["all"] -= 1

    async with workers.run(app), workers.run(app), opened_at_last(gate):
        runs = [await client.submit(capped.call("a", i)) for i in range(8)]
        await until_parked(client, 6)
        await wait_until(lambda: seen.now["a"] == 2, description="two of one customer run")
        runs += [await client.submit(capped.call(customer, i)) for customer in ("b", "c") for i in range(8)]
        await until_parked(client, 21)
        await wait_until(lambda: seen.now["all"] == 3, description="three run")
        gate.set()
        for run in runs:
            await run.result(30)
        await no_limit_in_use(client)
    assert seen.most.pop("all") == 3
    assert max(seen.most.values()) == 2


@pytest.mark.parametrize("values", [100, pytest.param(2_000, marks=pytest.mark.long)])
async def test_thousands_of_values_leave_nothing_behind(
    app: App, client: Client, workers: Workers, values: int
) -> None:
    """Each is used once: afterwards there is no entry, no parked message, and no process remembers it."""

    @app.actor(limits=[Limit(1, per="value")])
    async def capped(value: int) -> None: ...

    async with workers.run(app, concurrency=100) as running:
        runs = await client.submit_many([(capped.call(i), f"k{i}") for i in range(values)])
        await asyncio.gather(*(run.result(60) for run in runs))  # type: ignore[union-attr]  # none was refused
        await no_limit_in_use(client)
        await wait_until(lambda: not running.worker.stores.gates.known, description="nothing is remembered of them")


async def test_a_failed_attempt_gives_its_place_to_others_until_its_retry(
    app: App, client: Client, workers: Workers
) -> None:
    """N = 1: one run waits for its retry for 0.5 s, or snoozes; meanwhile the other one runs."""
    order: list[str] = []

    @app.actor(limits=[Limit(1)], retry=Retry(max_attempts=2, initial=0.5, jitter=0.0))
    async def capped(ctx: Context, how: str) -> None:
        order.append(f"{ctx.key} {ctx.attempt}")
        if ctx.attempt == 1 and how == "fails":
            raise ValueError
        if ctx.attempt == 1 and how == "snoozes":
            raise Snooze(0.5)

    async with workers.run(app):
        for how in ("fails", "snoozes"):
            order.clear()
            runs = [await client.submit(capped.call(what), key=what) for what in (how, "other")]
            for run in runs:
                await run.result(10)
            assert order == [f"{how} 1", "other 1", f"{how} 2"]
        await no_limit_in_use(client)


async def test_a_cancelled_or_replaced_run_that_is_parked_keeps_nobody_waiting(
    app: App, client: Client, workers: Workers
) -> None:
    """N = 1: of four parked runs one is cancelled, one replaced, one purged; the rest, and the new one, run."""
    gate = asyncio.Event()
    ran: list[str] = []

    @app.actor(limits=[Limit(1)])
    async def capped(ctx: Context, number: int) -> None:
        ran.append(f"{ctx.key} {number}")
        await gate.wait()

    async with workers.run(app) as running:
        claims = running.worker.metrics.claims
        runs = [await client.submit(capped.call(0), key=f"k{i}") for i in range(5)]
        await wait_until(lambda: claims["capped", "parked"] == 4, description="four are parked")
        first = ran[0].split()[0]
        a, b, c, d = (run for run in runs if run.key != first)
        assert (await client.cancel(a.key)).outcome == "cancelled"
        newer = await client.replace(capped.call(1), key=b.key)
        await client.cancel(c.key)
        await client.purge(c.key)
        gate.set()
        await asyncio.gather(newer.result(10), d.result(10))
        await no_limit_in_use(client)
    assert sorted(ran) == sorted([f"{first} 0", f"{b.key} 1", f"{d.key} 0"])


async def test_a_replaced_body_keeps_its_place_until_it_has_ended(app: App, client: Client, workers: Workers) -> None:
    """N = 1, overlap parallel: the newer generation waits for the older body all the same, for the limit's sake."""
    seen = Seen()

    @app.actor(limits=[Limit(1)], grace=5.0)
    async def capped(ctx: Context) -> None:
        await seen.body("", 0.3, f"{ctx.generation}")

    async with workers.run(app), workers.run(app):
        await client.submit(capped.call(), key="k")
        await wait_until(lambda: seen.order, description="the first one runs")
        newer = await client.replace(capped.call(), key="k", overlap="parallel")
        await newer.result(10)
        await no_limit_in_use(client)
    assert (seen.order, seen.most[""]) == (["1", "2"], 1)


async def test_n_can_be_changed_while_runs_wait(namespace: str, nats_server: str, workers: Workers) -> None:
    """The code of the worker that was started last counts: 1, then 3, then 2, whatever the runs were submitted with."""
    seen = Seen()

    def code(n: int) -> tuple[App, Any]:
        app = App(namespace, config=FAST)

        @app.actor(limits=[Limit(n)])
        async def capped(ctx: Context) -> None:
            await seen.body("", 0.05, ctx.key)

        return app, capped

    app, capped = code(1)
    async with app.connect(nats_server) as client, workers.run(app):
        runs = [await client.submit(capped.call(), key=f"k{i}") for i in range(80)]
        await wait_until(lambda: len(seen.order) >= 5, description="some have run")
        assert seen.most[""] == 1
        async with workers.run(code(3)[0]):
            await wait_until(lambda: seen.most[""] == 3, description="three run at once")
            async with workers.run(code(2)[0]) as newest:
                claims = newest.worker.metrics.claims
                await wait_until(lambda: claims["capped", "won"], description="the newest worker has asked")
                number = len(seen.order)
                await wait_until(lambda: len(seen.order) > number + 3, description="who was inside has left")
                number = len(seen.order)
                seen.most.clear()
                await wait_until(lambda: len(seen.order) > number + 8, description="more have run")
                assert seen.most[""] <= 2
                for run in runs:
                    await run.result(20)
        await no_limit_in_use(client)


async def test_a_limited_run_whose_arguments_are_gone_fails_and_holds_nothing(
    namespace: str, nats_server: str, workers: Workers
) -> None:
    """Its blob was deleted: nobody can say which limit it falls under, and it must end all the same."""
    app = App(namespace, config=replace(FAST, inline_limit_bytes=1_024, wake_limit_bytes=2_048))

    @app.actor(limits=[Limit(1, per="text")], retry=None)
    async def capped(text: str) -> int:
        return len(text)

    async with app.connect(nats_server) as client:
        run = await client.submit(capped.call("x" * 5_000), key="k")
        record = (await client.stores.runs.read("k")).record
        assert record is not None
        assert record.task.blob is not None
        await client.stores.conn.api(f"STREAM.PURGE.{client.stores.names.blobs_stream}", {})
        async with workers.run(app):
            with pytest.raises(RunFailed):
                await run.result(10)
            await no_limit_in_use(client)


async def test_many_copies_of_a_wake_up_neither_share_nor_lose_a_place(
    app: App, client: Client, workers: Workers
) -> None:
    """[33] n = 2, two workers, three copies of each wake-up."""
    seen = Seen()

    @app.actor(limits=[Limit(2)])
    async def capped(ctx: Context) -> None:
        await seen.body("", 0.05, ctx.key)

    runs = [await client.submit(capped.call(), key=f"k{i}") for i in range(12)]
    for _ in range(2):
        for run in runs:
            await wake(client, run.key)
    async with workers.run(app), workers.run(app):
        for run in runs:
            await run.result(20)
        await no_limit_in_use(client)
    assert seen.most[""] == 2
    assert sorted(seen.order) == sorted(run.key for run in runs)
