"""What a run has leave for - places, starts, no switch - is what its body does, however the two are changed in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tenure import App, Client, Context, Debounce, Limit, RateLimit
from tenure.core.permits import Answer
from tenure.core.records import Phase, Record
from tenure.nats.patience import Patience
from tenure.nats.runs import Found
from tenure.worker.handler import Handler
from tenure.worker.places import Ticket
from tenure.worker.slots import Slots
from tests.conftest import Supervisors, Workers
from tests.support import FAST, wait_until

QUICK = Debounce(0.05, 0.1)


async def settled(client: Client, key: str) -> None:
    """What waits under this key is due."""

    async def due() -> bool:
        record = (await client.stores.runs.read(key)).record
        return record is not None and record.due < client.now()

    await wait_until(due, description=f"{key} is due")


async def test_a_place_is_taken_for_the_arguments_that_run(app: App, client: Client, workers: Workers) -> None:
    """The wake-ups carry the arguments of the first submits; later ones bring others, and all of them the same."""
    inside: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @app.actor(limits=[Limit(1, per="who"), QUICK])
    async def work(who: str) -> None:
        inside[who] += 1
        most[who] = max(most[who], inside[who])
        await asyncio.sleep(0.05)  # body: others may come
        inside[who] -= 1

    for number in range(10):
        await client.submit(work.call(f"a{number}"), key=f"doc{number}")
    await settled(client, "doc9")
    runs = [await client.submit(work.call("b"), key=f"doc{number}") for number in range(10)]
    async with workers.run(app):
        for run in runs:
            assert (await run.wait(10)).phase == "succeeded"
    assert most == {"b": 1}


async def test_a_run_is_not_dropped_for_the_arguments_that_it_had(app: App, client: Client, workers: Workers) -> None:
    bodies: list[str] = []

    @app.actor(limits=[RateLimit(1, 60.0, per="who", excess="drop"), QUICK])
    async def work(who: str) -> None:
        bodies.append(who)

    async with workers.run(app):
        await (await client.submit(work.call("a"), key="first")).wait(5)
    await client.submit(work.call("a"), key="doc")
    await settled(client, "doc")
    run = await client.submit(work.call("b"), key="doc")
    async with workers.run(app):
        assert (await run.wait(5)).phase == "succeeded"
    assert bodies == ["a", "b"]


async def test_a_place_is_given_back_by_a_run_whose_newer_arguments_have_no_limit(
    namespace: str, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its place already when code without the limit submits; there is no supervisor that would find what is left."""
    old, new = App(namespace, config=FAST), App(namespace, config=FAST)
    take, overtaken = Ticket.take, asyncio.Event()
    bodies: list[int] = []

    async def body(number: int) -> None:
        bodies.append(number)

    before, after = old.actor(limits=[Limit(1), QUICK])(body), new.actor(limits=[QUICK])(body)
    async with old.connect(workers.url) as client, new.connect(workers.url) as other:

        async def late(ticket: Ticket, found: Found, record: Record, patience: Patience) -> Answer:
            answer = await take(ticket, found, record, patience)
            if not overtaken.is_set():
                overtaken.set()
                assert answer is Answer.GRANTED
                await other.submit(after.call(2), key="doc")
                await settled(client, "doc")
            return answer

        monkeypatch.setattr(Ticket, "take", late)
        run = await client.submit(before.call(1), key="doc")
        async with workers.run(old):
            assert (await run.wait(10)).phase == "succeeded"
            assert (await (await client.submit(before.call(3), key="last")).wait(10)).phase == "succeeded"
    assert bodies == [2, 3]


async def test_a_defect_between_claim_and_body_takes_no_place_with_it(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, hits = Handler._body, asyncio.Event()

    async def broken(handler: Handler, live: Any, *args: Any) -> Any:
        if live.key == "x" and not hits.is_set():
            hits.set()
            raise RuntimeError("a defect")
        return await body(handler, live, *args)

    monkeypatch.setattr(Handler, "_body", broken)

    @app.actor(limits=[Limit(1)])
    async def work() -> None:
        """Return."""

    async with workers.run(app):
        await client.submit(work.call(), key="x")
        await hits.wait()
        await client.cancel("x")
        assert (await (await client.submit(work.call(), key="y")).wait(5)).phase == "succeeded"


async def test_a_start_that_a_pause_prevents_is_not_counted(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused between claim and body: resumed, it need not wait for a window in which nothing has started."""
    body, hits = Handler._body, asyncio.Event()

    async def paused_first(handler: Handler, live: Any, *args: Any) -> Any:
        if not hits.is_set():
            await client.pause(actor="work")
            await wait_until(lambda: not handler._holds.board.idle, description="the worker knows")
            hits.set()
        return await body(handler, live, *args)

    monkeypatch.setattr(Handler, "_body", paused_first)

    @app.actor(limits=[RateLimit(1, 60.0)])
    async def work() -> None:
        """Return."""

    async with supervisors.run(app), workers.run(app):
        run = await client.submit(work.call(), key="x")
        await hits.wait()
        await client.resume(actor="work")
        assert (await run.wait(10)).phase == "succeeded"


async def test_a_pause_that_comes_while_a_start_is_written_is_seen(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, paused = Slots.begin, asyncio.Event()
    bodies: list[str] = []

    async def slow(slots: Slots, patience: Patience) -> bool:
        done = await begin(slots, patience)
        if not paused.is_set():
            await client.pause(actor="work")
            await wait_until(lambda: not running.worker.stores.conn.is_connected or knows(), description="it is known")
            paused.set()
        return done

    monkeypatch.setattr(Slots, "begin", slow)

    @app.actor(limits=[RateLimit(100, 60.0)])
    async def work(ctx: Context) -> None:
        bodies.append(ctx.key)

    async with workers.run(app) as running:

        def knows() -> bool:
            handler = running.worker._handler
            return handler is not None and not handler._holds.board.idle

        await client.submit(work.call(), key="x")
        await paused.wait()

        async def parked() -> bool:
            record = (await client.stores.runs.read("x")).record
            return record is not None and record.phase is Phase.WAITING

        await wait_until(parked, description="it is handed back")
        assert not bodies


async def test_nothing_is_claimed_ahead_that_a_crash_would_end(app: App, client: Client, workers: Workers) -> None:
    """With one attempt to make, a claim without a body would be its last."""

    @app.actor(limits=[Limit(2)], retry=None)
    async def work() -> None:
        await asyncio.sleep(0.01)  # body: so that there is a pace

    claimed: set[str] = set()
    at_once: list[int] = []

    def saw(key: str, found: Found) -> None:
        """Every write of every record, in the order in which the server stored them."""
        if found.record is not None and found.record.phase is Phase.RUNNING:
            claimed.add(key)
        else:
            claimed.discard(key)
        at_once.append(len(claimed))

    runs = [await client.submit(work.call(), key=f"k{number}") for number in range(150)]
    stop = await client.stores.runs.follow_all(saw)
    async with workers.run(app):
        ended = await asyncio.gather(*(run.wait(20) for run in runs))
    await stop()
    assert {status.phase for status in ended} == {"succeeded"}
    assert max(at_once) == 2
