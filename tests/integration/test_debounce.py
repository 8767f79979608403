"""Debounce and Cooldown on a real server: submitters at once, lost answers, long waits, every door, restarts between."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from msgspec.structs import replace

from actors import polite
from tenure import App, Client, Context, Cooldown, Debounce, RateLimit, Retry, Run, RunCancelled
from tests.conftest import Supervisors, Workers
from tests.proxy import Proxy, record
from tests.strangers import Stranger
from tests.support import FAST, wait_until


def debounced(app: App, settle: float = 0.4, max_wait: float = 5.0, **more: Any) -> tuple[Any, list[tuple[float, int]]]:
    ran: list[tuple[float, int]] = []

    @app.actor(limits=[Debounce(settle, max_wait)], **more)
    async def index(ctx: Context, number: int) -> int:
        ran.append((time.time(), number))
        return number

    return index, ran


async def test_submits_at_once_make_one_run_of_the_last_ones_arguments(
    app: App, client: Client, nats_server: str, workers: Workers
) -> None:
    """Two clients, a hundred submits at once, then one more: who is first is accepted, all get the same run."""
    index, ran = debounced(app)
    async with workers.run(app), workers.run(app), app.connect(nats_server) as other:
        runs = await asyncio.gather(
            *(who.submit(index.call(i), key="doc") for i in range(50) for who in (client, other))
        )
        last = time.time()
        run = await client.submit(index.call(1_000), key="doc")
        assert await run.result(10) == 1_000
        assert [(number, 0.4 <= at - last < 3.0) for at, number in ran] == [(1_000, True)]
    assert sum(one.accepted for one in runs) == 1
    assert {one.run_id for one in [*runs, run]} == {run.run_id}


async def test_who_never_stops_submitting_does_not_put_it_off_for_ever(
    app: App, client: Client, workers: Workers
) -> None:
    index, ran = debounced(app, settle=0.3, max_wait=1.0)
    async with workers.run(app):
        began, number = time.time(), 0
        while len(ran) < 2:
            await client.submit(index.call(number), key="doc")
            number += 1
            assert time.time() - began < 10
            await asyncio.sleep(0.02)  # paused: between two saves
    assert 0.99 <= ran[0][0] - began < 3.0
    assert ran[1][0] - ran[0][0] >= 0.99, "the next burst begins anew"


@pytest.mark.long
async def test_a_long_wait_is_one_timer_and_nobody_looks_meanwhile(app: App, client: Client, workers: Workers) -> None:
    """Moved on by submits, its wake-up comes too soon: it is exchanged for a timer, not handed back again and again."""
    index, ran = debounced(app, settle=4.0, max_wait=60.0)
    async with workers.run(app) as running:
        claims = running.worker.metrics.claims
        run = await client.submit(index.call(0), key="doc")
        end = time.time() + 3.7
        while time.time() < end:
            await client.submit(index.call(1), key="doc")
            await asyncio.sleep(0.05)  # paused: between two saves
        last = time.time()

        async def put_off() -> bool:
            stored = await client.stores.work.stored(client.stores.runs.patience())
            return stored.timers.has("doc", run.run_id) and not stored.wakeups.has("default.doc", run.run_id)

        await wait_until(put_off, description="it has a timer instead", timeout=2.5)
        assert await run.result(15) == 1
    assert -0.3 <= ran[0][0] - last - 4.0 < 0.5
    assert claims["index", "not_due"] <= 4


async def test_a_submit_whose_answer_is_lost_is_known_by_its_trace(
    namespace: str, nats_server: str, proxy: Proxy, workers: Workers
) -> None:
    """Server committed, client never heard: it is told of the run that took it in, and nothing is of unknown fate."""
    app = App(namespace, config=FAST)
    index, ran = debounced(app)
    async with app.connect(nats_server) as client, app.connect(proxy.url) as cut:
        run = await client.submit(index.call(0), key="doc")
        stored = record(app, "doc", "waiting")
        fault = proxy.lose_answer(lambda sent: stored(sent) and not sent.says("Last-Subject-Sequence: 0"))
        late = await cut.submit(index.call(1), key="doc")
        assert fault.hits
        assert (late.accepted, late.run_id) == (False, run.run_id)
        async with workers.run(app):
            assert await late.result(10) == 1
    assert [number for _, number in ran] == [1]


async def test_spawned_hooked_replaced_and_published_runs_are_debounced_too(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, stranger: Stranger
) -> None:
    index, ran = debounced(app, settle=0.6)

    @app.actor
    async def saves(ctx: Context) -> None:
        ctx.spawn(index.call(2), key="doc")

    @app.actor(on_success=index.call(9))
    async def hooked() -> float:
        return time.time()

    async with workers.run(app), supervisors.run(app):
        await client.submit(index.call(1), key="doc")
        await (await client.submit(saves.call())).result(5)
        run = client.run("doc")
        await stranger.send("submit.index", {"number": 3}, Tenure_Key="doc")
        await wait_until(lambda: taken(client, 3), description="the command is taken in")
        assert await run.result(10) == 3
        first = await client.submit(index.call(4), key="doc")
        newer = await client.replace(index.call(5), key="doc")
        assert first.accepted
        assert await newer.result(10) == 5
        ended = await (await client.submit(hooked.call())).result(5)
        await wait_until(lambda: ran[-1][1] == 9, description="the hook has run")
    assert [number for _, number in ran] == [3, 5, 9]
    assert ran[-1][0] - ended >= 0.6


async def taken(client: Client, number: int) -> bool:
    found = (await client.stores.runs.read("doc")).record
    return found is not None and bytes(found.task.args) == b'{"number":%d}' % number


async def test_a_run_whose_first_submitter_died_before_its_wake_up_starts_all_the_same(
    namespace: str, nats_server: str, proxy: Proxy, workers: Workers, supervisors: Supervisors
) -> None:
    """Kill between the record and its wake-up; later submits move a run that nothing wakes."""
    app = App(namespace, config=replace(FAST, patience_seconds=0.5, request_timeout_seconds=0.2))
    index, ran = debounced(app, settle=0.5)
    async with app.connect(proxy.url) as dying, app.connect(nats_server) as client:
        proxy.lose(lambda publish: ".work." in publish.subject, times=1_000)
        with pytest.raises(Exception, match="takes effect late"):
            await dying.submit(index.call(0), key="doc")
        run = await client.submit(index.call(1), key="doc")
        async with workers.run(app), supervisors.run(app):
            assert await run.result(15) == 1
    assert len(ran) == 1


async def test_after_a_run_a_key_is_cool_for_its_window_whoever_submits(
    app: App, client: Client, nats_server: str, workers: Workers
) -> None:
    ran: list[float] = []

    @app.actor(limits=[Cooldown(1.0)], result_ttl=0)
    async def report() -> int:
        ran.append(time.time())
        return len(ran)

    async with workers.run(app), app.connect(nats_server) as other:
        runs = await asyncio.gather(*(who.submit(report.call(), key="r") for who in [client, other] * 20))
        assert await runs[0].result(5) == 1
        while len(ran) < 2:
            run = await other.submit(report.call(), key="r")
            if not run.accepted and len(ran) == 1:
                assert await run.result(5) == 1
            await asyncio.sleep(0.02)  # paused: between two looks
    assert sum(one.accepted for one in runs) == 1
    assert 1.0 <= ran[1] - ran[0] < 3.0


async def test_a_key_cools_down_through_every_door_but_those_of_people(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, stranger: Stranger
) -> None:
    ran: list[int] = []

    @app.actor(limits=[Cooldown(30.0)], retry=None)
    async def report(number: int) -> int:
        ran.append(number)
        if number == 7:
            raise ValueError
        return number

    @app.actor
    async def asks(ctx: Context) -> None:
        ctx.spawn(report.call(2), key="r")

    async with workers.run(app), supervisors.run(app) as supervisor:
        await (await client.submit(report.call(1), key="r")).result(5)
        await (await client.submit(asks.call())).result(5)
        await stranger.send("submit.report", {"number": 3}, Tenure_Key="r")
        commands = supervisor.metrics.commands
        await wait_until(lambda: commands["submit", "kept"] == 1, description="the command is answered")
        many = await client.submit_many([(report.call(4), "r")])
        assert [isinstance(one, Run) and one.accepted for one in many] == [False]
        assert ran == [1]
        assert await (await client.replace(report.call(5), key="r")).result(5) == 5
        failed = await client.submit(report.call(7), key="f")
        assert (await failed.wait(5)).phase == "failed"
        assert not (await client.submit(report.call(8), key="f")).accepted
        again = await client.dead.replay("f")
        assert again is not None
        assert (await again.wait(5)).phase == "failed"
    assert ran == [1, 5, 7, 7]


# -- the example -----------------------------------------------------------------------------------------------------


@pytest.fixture
def example(app: App) -> App:
    """The example under a namespace of this test, its times scaled down."""
    shorter: dict[str, list[Any]] = {
        "send": [RateLimit(5, 1.0, per="customer"), RateLimit(100, 1)],
        "remind": [RateLimit(1, 60.0, per="customer", excess="drop")],
        "index": [Debounce(settle=0.3, max_wait=3.0)],
        "report": [Cooldown(60.0)],
    }
    assert shorter.keys() == polite.app.actors.keys()
    for name, limits in shorter.items():
        app.actor(limits=limits, retry=Retry(max_attempts=2, initial=0.05))(polite.app.actors[name].function)
    return app


async def test_the_example_is_polite(example: App, client: Client, workers: Workers) -> None:
    polite.outbox.clear()
    send, remind, index, report = (example.actors[name] for name in ("send", "remind", "index", "report"))
    async with workers.run(example), workers.run(example):
        runs = await client.submit_many([(send.call(who, f"{i}"), None) for i in range(8) for who in ("ann", "bob")])
        await asyncio.gather(*(run.result(10) for run in runs if isinstance(run, Run)))
        for who in ("ann", "bob"):
            at = sorted(mail.at.timestamp() for mail in polite.outbox if mail.customer == who)
            assert len(at) == 8
            assert min(later - one for one, later in zip(at, at[5:], strict=False)) >= 1.0
        first = await client.submit(remind.call("cat"))
        await first.result(5)
        with pytest.raises(RunCancelled, match="its rate allows 1 starts in 60 s for one customer"):
            await (await client.submit(remind.call("cat"))).result(5)
        for text in ("one", "one two", "one two three"):
            saved = await client.submit(index.call("notes", text), key="index-notes")
        assert await saved.result(5) == 3
        made = await (await client.submit(report.call("north"), key="north")).result(5)
        asked = await client.submit(report.call("north"), key="north")
        assert (asked.accepted, await asked.result(5)) == (False, made)
