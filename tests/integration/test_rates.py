"""Rates on a real server: how many bodies start in any window, in which order, and what becomes of those too many."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tenure import App, Client, Context, Limit, RateLimit, Retry, Run, RunCancelled, Snooze
from tenure.core.rates import SECOND
from tenure.pacing import Paces
from tenure.worker.head import Head
from tests import looks
from tests.conftest import Supervisors, Workers
from tests.support import FAST, until_parked, wait_until, wake


@dataclass
class Starts:
    """When bodies have started, by the value that their rate counts by."""

    at: dict[Any, list[float]] = field(default_factory=lambda: defaultdict(list))
    order: list[str] = field(default_factory=list)

    def note(self, value: Any = "", key: str = "") -> None:
        self.at[value].append(looks.started())
        self.order.append(key)


def closest(starts: Sequence[float], n: int) -> float:
    """The shortest time in which n + 1 bodies have started."""
    ordered = sorted(starts)
    return min((later - one for one, later in zip(ordered, ordered[n:], strict=False)), default=1e9)


N_SECONDS_TASKS = pytest.mark.parametrize(("n", "seconds", "tasks"), [(1, 0.2, 8), (5, 0.5, 30), (20, 1.0, 60)])


@N_SECONDS_TASKS
async def test_no_window_ever_holds_more_than_n_starts_and_all_start(
    app: App, client: Client, nats_server: str, workers: Workers, n: int, seconds: float, tasks: int
) -> None:
    """Two clients submit at once, three workers start: n in any window. That it is little less in each: ``test_rates_in_full``."""
    starts = Starts()

    @app.actor(limits=[RateLimit(n, seconds)])
    async def paced(ctx: Context) -> None:
        starts.note()

    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(app.connect(nats_server))
        for _ in range(3):
            await stack.enter_async_context(workers.run(app))
        halves = [[(paced.call(), f"{who}-{i}") for i in range(tasks // 2)] for who in ("a", "b")]
        submitted = await asyncio.gather(client.submit_many(halves[0]), other.submit_many(halves[1]))
        await asyncio.gather(*(run.result(30) for many in submitted for run in many if isinstance(run, Run)))
    print(f"{n} in {seconds} s: {tasks} started, closest {closest(starts.at[''], n):.4f}")
    assert len(starts.at[""]) == tasks
    assert closest(starts.at[""], n) >= seconds


async def test_runs_start_in_the_order_in_which_they_parked_and_keep_no_slot(
    app: App, client: Client, workers: Workers
) -> None:
    starts = Starts()

    @app.actor(limits=[RateLimit(1, 0.3)])
    async def paced(ctx: Context) -> None:
        starts.note("", ctx.key)

    async with workers.run(app, concurrency=1) as running:
        claims = running.worker.metrics.claims
        runs = [await client.submit(paced.call(), key="k0")]
        await runs[0].result(5)
        for i in range(1, 5):
            runs.append(await client.submit(paced.call(), key=f"k{i}"))
            await wait_until(
                lambda: claims["paced", "parked"] + claims["paced", "won"] >= len(runs), description="it was looked at"
            )
        for run in runs:
            await run.result(10)
    assert starts.order == ["k0", "k1", "k2", "k3", "k4"]
    assert closest(starts.at[""], 1) >= 0.3


async def test_whose_turn_has_come_does_not_wait_for_the_backlog_of_its_queue(
    app: App, client: Client, workers: Workers
) -> None:
    """Else nothing starts under a rate before all of a backlog has been looked at and parked: its window stays empty for minutes."""
    starts = Starts()

    @app.actor(limits=[RateLimit(1, 0.3)])
    async def paced(ctx: Context) -> None:
        starts.note("", ctx.key)

    @app.actor
    async def plain(ctx: Context) -> None:
        starts.note("", ctx.key)
        await asyncio.sleep(0.05)  # body: takes its time

    async with workers.run(app, concurrency=1) as running:
        await (await client.submit(paced.call(), key="first")).result(10)
        turn = await client.submit(paced.call(), key="turn")
        await wait_until(
            lambda: running.worker.metrics.claims["paced", "parked"] == 1, description="it waits for its turn"
        )
        runs = await client.submit_many([(plain.call(), f"k{i}") for i in range(40)])
        await asyncio.gather(turn.result(20), *(run.result(20) for run in runs if isinstance(run, Run)))
    assert starts.order.index("turn") < 41, "the last of all"


async def test_a_rate_per_argument_counts_each_value_by_itself(app: App, client: Client, workers: Workers) -> None:
    """Two of each value start, the other two of each wait for its window, which does not end in this test."""
    starts, values = Starts(), ("a", "A", "*", 1, None)

    @app.actor(limits=[RateLimit(2, 600.0, per="customer")])
    async def paced(customer: Any, number: int) -> None:
        starts.note(repr(customer))

    async with workers.run(app), workers.run(app):
        await client.submit_many([(paced.call(customer, i), None) for customer in values for i in range(4)])
        await until_parked(client, 10)
        await wait_until(lambda: len(starts.order) == 10, description="ten have started")
    assert {value: len(at) for value, at in starts.at.items()} == {repr(value): 2 for value in values}


async def test_every_start_counts_also_that_of_a_retry_and_after_a_snooze(
    app: App, client: Client, workers: Workers
) -> None:
    starts = Starts()

    @app.actor(limits=[RateLimit(1, 0.3)], retry=Retry(max_attempts=3, initial=0.0, jitter=0.0))
    async def paced(ctx: Context) -> int:
        starts.note()
        if ctx.attempt == 1:
            raise ValueError
        if ctx.attempt == 2:
            raise Snooze(0.01)
        return ctx.attempt

    async with workers.run(app):
        assert await (await client.submit(paced.call())).result(10) == 3
    assert closest(starts.at[""], 1) >= 0.3


async def test_excess_that_is_dropped_is_told_to_its_submitter_and_never_runs(
    app: App, client: Client, workers: Workers
) -> None:
    """Six at once under three: three run, also through their retries; three end cancelled, with the reason."""
    starts = Starts()
    told: list[str | None] = []

    @app.actor
    async def sorry(outcome: dict[str, Any]) -> None:
        told.append(outcome["reason"])

    @app.actor(
        limits=[RateLimit(3, 1.0, per="who", excess="drop")],
        retry=Retry(max_attempts=2, initial=0.0, jitter=0.0),
        on_cancel=sorry,
    )
    async def paced(ctx: Context, who: str) -> str:
        starts.note(who, ctx.key)
        if ctx.attempt == 1 and ctx.key == "k0":
            raise ValueError
        return ctx.key

    async with workers.run(app) as running:
        runs = [await client.submit(paced.call("me"), key="k0")]
        await wait_until(lambda: starts.order, description="the first one has started")
        runs += [await client.submit(paced.call("me"), key=f"k{i}") for i in range(1, 6)]
        ends = await asyncio.gather(*(run.result(10) for run in runs), return_exceptions=True)
        dropped = [end for end in ends if isinstance(end, RunCancelled)]
        done = [end for end in ends if isinstance(end, str)]
        assert len(dropped) + len(done) == 6
        assert "k0" in done, "its retry waits, but is not dropped"
        assert {end.reason for end in dropped} == {"dropped: its rate allows 3 starts in 1 s for one who"}
        claims, cancelled = running.worker.metrics.claims, running.worker.metrics.cancelled
        await wait_until(lambda: claims["paced", "dropped"] == len(dropped), description="what was stored is counted")
        assert cancelled["paced", "waiting"] == len(dropped) >= 3
        await wait_until(lambda: len(told) == len(dropped), description="their hooks have run")
        again = await client.submit(paced.call("you"), key=next(iter(dropped)).key)
        assert await again.result(5), "the key is free at once"
    assert closest(starts.at["me"], 3) >= 1.0


async def test_a_run_under_several_rates_and_a_limit_keeps_to_all_of_them(
    app: App, client: Client, workers: Workers
) -> None:
    starts, now, most = Starts(), 0, 0

    @app.actor(limits=[RateLimit(3, 0.3), Limit(2), RateLimit(6, 1.2), RateLimit(2, 0.3, per="who")])
    async def paced(who: str, number: int) -> None:
        nonlocal now, most
        starts.note(who)
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)  # body: takes its time
        now -= 1

    async with workers.run(app), workers.run(app):
        runs = await client.submit_many([(paced.call(who, i), None) for i in range(6) for who in ("a", "b")])
        await asyncio.gather(*(run.result(30) for run in runs if isinstance(run, Run)))
    everybody = [at for of_one in starts.at.values() for at in of_one]
    assert (len(everybody), most) == (12, 2)
    assert closest(everybody, 3) >= 0.3
    assert closest(everybody, 6) >= 1.2
    assert all(closest(of_one, 2) >= 0.3 for of_one in starts.at.values())


async def test_parked_runs_that_are_cancelled_replaced_or_purged_use_up_nothing(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N = 1: of five parked runs one is cancelled, one replaced, one purged; each window that passes starts one of the others.

    Windows pass when the test says so: one of ten minutes, which nobody would wait for, is looked at from further ahead.
    """
    starts, ahead, plain = Starts(), 0, Paces.now
    monkeypatch.setattr(Paces, "now", lambda self: plain(self) + ahead)

    @app.actor(limits=[RateLimit(1, 600.0)])
    async def paced(ctx: Context, number: int) -> None:
        starts.note("", f"{ctx.key} {number}")

    async with workers.run(app) as running:
        await (await client.submit(paced.call(0), key="first")).result(5)
        runs = [await client.submit(paced.call(0), key=f"k{i}") for i in range(5)]
        await until_parked(client, 5)
        assert (await client.cancel("k0")).outcome == "cancelled"
        newer = await client.replace(paced.call(1), key="k1")
        await client.cancel("k2")
        await client.purge("k2")
        paces, patience = running.worker.stores.paces, client.stores.runs.patience()
        (name,) = await client.stores.rates.names(patience)
        for number in (2, 3, 4):
            ahead += 601 * SECOND
            await paces.look(name, patience)
            await wait_until(partial(_are, starts.order, number), description=f"{number} have started")
        await asyncio.gather(*(run.result(10) for run in (newer, runs[3], runs[4])))
    assert sorted(starts.order) == ["first 0", "k1 1", "k3 0", "k4 0"]


def _are(started: list[str], number: int) -> bool:
    return len(started) == number


async def test_many_copies_of_a_wake_up_start_one_body_each(app: App, client: Client, workers: Workers) -> None:
    starts = Starts()

    @app.actor(limits=[RateLimit(3, 0.3)])
    async def paced(ctx: Context) -> None:
        starts.note("", ctx.key)

    runs = [await client.submit(paced.call(), key=f"k{i}") for i in range(9)]
    for run in [*runs, *runs]:
        await wake(client, run.key)
    async with workers.run(app), workers.run(app):
        for run in runs:
            await run.result(20)
    assert sorted(starts.order) == sorted(run.key for run in runs)
    assert closest(starts.at[""], 3) >= 0.3


async def test_a_slow_claim_starts_no_body_too_late(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N = 1 in 0.5 s. The first claim takes 0.6 s: by then another body may have started, so it asks anew, or waits."""
    starts = Starts()
    plain, slow = Head._claim, [0.6, 0.2]

    async def claim(self: Head, key: str, command: Any, *more: Any) -> Any:
        won = await plain(self, key, command, *more)
        if command.permit and slow:
            await asyncio.sleep(slow.pop(0))  # work: on its way
        return won

    monkeypatch.setattr(Head, "_claim", claim)

    @app.actor(limits=[RateLimit(1, 0.5)])
    async def paced(ctx: Context) -> None:
        starts.note("", ctx.key)

    async with workers.run(app), workers.run(app):
        runs = [await client.submit(paced.call(), key=f"k{i}") for i in range(4)]
        for run in runs:
            await run.result(20)
    assert closest(starts.at[""], 1) >= 0.5
    assert len(starts.order) == 4


async def test_a_start_that_has_no_time_at_all_is_asked_for_again(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every mark has passed when its body is about to start: it is moved until it has not."""
    starts = Starts()
    monkeypatch.setattr(Paces, "within", lambda *_: 1)

    @app.actor(limits=[RateLimit(4, 0.3)])
    async def paced() -> None:
        starts.note()

    async with workers.run(app), workers.run(app):
        runs = await client.submit_many([(paced.call(), None) for _ in range(16)])
        await asyncio.gather(*(run.result(20) for run in runs if isinstance(run, Run)))
    assert closest(starts.at[""], 4) >= 0.3


@pytest.mark.long
async def test_a_rate_leaves_nothing_behind(app: App, client: Client, workers: Workers) -> None:
    """Five hundred values, each used once: every entry goes by itself once it does not count any more."""

    @app.actor(limits=[RateLimit(1, 0.05, per="value")])
    async def paced(value: int) -> None: ...

    async with workers.run(app, concurrency=100):
        runs = await client.submit_many([(paced.call(i), None) for i in range(500)])
        await asyncio.gather(*(run.result(60) for run in runs if isinstance(run, Run)))
        names, asked = client.stores.names, {"subjects_filter": f"{client.stores.names.rate_prefix}*"}
        info = await client.stores.conn.api(f"STREAM.INFO.{names.runs_stream}", asked)
        assert isinstance(info, dict)
        prefix = len(names.rate_prefix)
        entries = [subject[prefix:] for subject in info["state"]["subjects"]]
        assert len(entries) == 500
        rates, patience = client.stores.rates, client.stores.runs.patience()

        async def gone() -> bool:
            return not any([(await rates.read(name, patience)).entry for name in entries[::50]])

        await wait_until(gone, description="they have expired", timeout=15.0)


async def test_n_can_be_changed_while_runs_wait(namespace: str, nats_server: str, workers: Workers) -> None:
    """The code of the worker that was started last counts, whatever the runs were submitted with."""
    starts = Starts()

    def code(n: int) -> tuple[App, Any]:
        app = App(namespace, config=FAST)

        @app.actor(limits=[RateLimit(n, 0.3)])
        async def paced(ctx: Context) -> None:
            starts.note()

        return app, paced

    app, paced = code(1)
    async with app.connect(nats_server) as client, workers.run(app):
        runs = [await client.submit(paced.call(), key=f"k{i}") for i in range(40)]
        await wait_until(lambda: len(starts.at[""]) >= 3, description="some have run")
        assert closest(starts.at[""], 1) >= 0.3
        async with workers.run(code(10)[0]):
            await asyncio.gather(*(run.result(10) for run in runs))
    assert closest(starts.at[""], 10) >= 0.3


async def test_parked_runs_start_in_time_when_nobody_is_left_who_would_wake_them(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Their workers are gone; a supervisor that is started later wakes them for the workers that come."""
    starts = Starts()

    @app.actor(limits=[RateLimit(1, 1.0)])
    async def paced(ctx: Context) -> None:
        starts.note("", ctx.key)

    async def only_parked() -> bool:
        stored = await client.stores.work.stored(client.stores.runs.patience())
        return bool(stored.parked) and not stored.wakeups

    runs: list[Run[None]] = []
    for _ in range(20):  # a worker may wake one just before its end
        runs += [await client.submit(paced.call(), key=f"k{len(runs) + i}") for i in range(3)]
        async with workers.run(app):
            await wait_until(only_parked, description="nobody has a wake-up")
        if await only_parked():
            break
    async with supervisors.run(app), workers.run(app):
        for run in runs:
            await run.result(20)
    assert closest(starts.at[""], 1) >= 1.0
