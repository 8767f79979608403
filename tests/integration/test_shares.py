"""Priorities and weights on a real server: who gets the slots of a worker while several lanes have work."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tenure import App, Client
from tests.conftest import Workers
from tests.support import wait_until

PRIORITIES = ("high", "normal", "low")


class Ran:
    """What was started, in order; every actor's bodies wait for ``gate``."""

    def __init__(self, app: App, lanes: dict[str, tuple[str, str]]) -> None:
        self.order: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.running = 0
        for name, (queue, priority) in lanes.items():
            self._actor(app, name, queue, priority)

    def _actor(self, app: App, name: str, queue: str, priority: str) -> None:
        @app.actor(name=name, queue=queue, priority=priority)
        async def body() -> None:
            self.order.append(name)
            self.running += 1
            await self.gate.wait()
            await asyncio.sleep(0.002)  # body: some work
            self.running -= 1


async def fill(client: Client, actor: str, number: int) -> None:
    call = client.app.actors[actor].call()
    for one in await client.submit_many([(call, f"{actor}-{n}") for n in range(number)]):
        assert not isinstance(one, Exception)


@pytest.mark.parametrize(
    ("concurrency", "rounds"),
    [(10, 10), pytest.param(1, 30, marks=pytest.mark.long), pytest.param(10, 30, marks=pytest.mark.long)],
)
async def test_high_normal_and_low_share_sixteen_to_four_to_one(
    app: App, client: Client, workers: Workers, concurrency: int, rounds: int
) -> None:
    """A round is 21 starts; the first two are not judged."""
    ran = Ran(app, {p: ("default", p) for p in PRIORITIES})
    for priority, share in zip(PRIORITIES, (16, 4, 1), strict=True):
        await fill(client, priority, share * (rounds + 12))

    async with workers.run(app, concurrency=concurrency):
        await wait_until(lambda: len(ran.order) >= 21 * (rounds + 2), description="all rounds", timeout=30)

    got = Counter(ran.order[42 : 21 * (rounds + 2)])
    assert got["high"] == pytest.approx(16 * rounds, rel=0.06)
    assert got["normal"] == pytest.approx(4 * rounds, rel=0.15)
    assert got["low"] == pytest.approx(rounds, abs=6)


async def test_nothing_starves_behind_high_that_comes_without_end(app: App, client: Client, workers: Workers) -> None:
    """Whatever is finished of high is replaced at once, so its lane is never empty."""
    ran = Ran(app, {p: ("default", p) for p in PRIORITIES})
    await fill(client, "high", 400)
    await fill(client, "normal", 20)
    await fill(client, "low", 20)

    async def refill() -> None:
        number = 0
        while True:
            if ran.order.count("high") + 300 > 400 + number:
                number += 50
                calls = [(app.actors["high"].call(), f"more-{number}-{n}") for n in range(50)]
                await client.submit_many(calls)
            await asyncio.sleep(0.005)  # paused: between two looks

    refilling = asyncio.create_task(refill())
    try:
        async with workers.run(app, concurrency=4):
            await wait_until(lambda: ran.order.count("low") == 20, description="low is done", timeout=30)
            assert ran.order.count("normal") == 20
            assert ran.order.count("high") < 600, "low had its share, not what was left over"
    finally:
        refilling.cancel()


async def test_queues_share_by_their_weights(app: App, client: Client, workers: Workers) -> None:
    ran = Ran(app, {"fast": ("default", "low"), "slow": ("bulk", "high")})
    await fill(client, "fast", 420)
    await fill(client, "slow", 200)

    async with workers.run(app, concurrency=8, queues={"default": 3, "bulk": 1}) as running:
        assert running.worker.queues == ["default", "bulk"]
        await wait_until(lambda: len(ran.order) >= 440, description="110 rounds", timeout=30)

    got = Counter(ran.order[40:440])
    assert got["fast"] == pytest.approx(300, rel=0.08)


async def test_a_queue_that_is_empty_gives_its_share_away(app: App, client: Client, workers: Workers) -> None:
    ran = Ran(app, {"fast": ("default", "normal"), "slow": ("bulk", "normal")})
    ran.gate.clear()
    await fill(client, "fast", 2)
    await fill(client, "slow", 30)

    async with workers.run(app, concurrency=10, queues={"default": 1_000, "bulk": 1}):
        await wait_until(lambda: ran.running == 10, description="no slot is idle")
        assert Counter(ran.order) == {"fast": 2, "slow": 8}
        ran.gate.set()
        await wait_until(lambda: len(ran.order) == 32, description="all have run")


async def test_slots_that_were_kept_for_what_others_took_are_given_away(
    app: App, client: Client, workers: Workers
) -> None:
    """High was known to hold a hundred; another worker (here: a purge) has taken them since. No slot may wait for them."""
    ran = Ran(app, {p: ("default", p) for p in PRIORITIES})
    ran.gate.clear()
    await fill(client, "high", 100)
    await fill(client, "low", 100)
    async with workers.run(app, concurrency=4):
        await wait_until(lambda: ran.running == 4, description="all slots are used")
        names = client.stores.names
        wanted = names.work_filter("default", "high")
        await client.stores.conn.api(f"STREAM.PURGE.{names.work_stream}", {"filter": wanted})
        started = len(ran.order)
        ran.gate.set()
        await wait_until(
            lambda: len(ran.order) >= started + 40, description="low goes on with all the slots", timeout=1.5
        )


async def test_a_message_of_high_does_not_wait_for_what_low_has_in_its_lane(
    app: App, client: Client, workers: Workers
) -> None:
    """One slot, and a backlog of low: high is next but one at the latest."""
    ran = Ran(app, {p: ("default", p) for p in PRIORITIES})
    await fill(client, "low", 300)
    async with workers.run(app, concurrency=1):
        await wait_until(lambda: len(ran.order) >= 20, description="low is under way")
        for number in range(5):
            await fill(client, "high", 0)
            run = await client.submit(app.actors["high"].call(), key=f"h{number}")
            before = len(ran.order)
            await run.wait(5)
            assert ran.order.index("high", before - 1) - before <= 4
