"""First in, first out: within a lane bodies start in the order in which their wake-ups were stored.

And those that may start do so before the ends of others are dealt with.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.msg import Msg

from tenure import App, Client, Context
from tenure.nats.work import Delivery, Work
from tenure.worker.head import Head, Looked
from tenure.worker.tail import Stored, Tail, Void
from tests.conftest import Workers
from tests.support import wait_until

RUNS = 24


@pytest.mark.parametrize("slots", [1, 5])
async def test_what_was_stored_first_in_a_lane_starts_first(
    slots: int, app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog of two lanes, and what comes to it while it is worked on. How the lanes share the slots is another matter.

    What both lanes bring for one slot goes back, and may be overtaken: that is no promise.
    """
    started: list[str] = []
    keys: dict[str, str] = {}
    went_back: set[str] = set()
    opened, handed_back = Work.open, Work.nak

    def noted(work: Work, msg: Msg) -> Delivery:
        delivery = opened(work, msg)
        keys[delivery.reply] = delivery.to.key if delivery.to is not None else ""
        return delivery

    async def back(work: Work, reply: str, delay: float = 0.0) -> None:
        went_back.add(keys[reply])
        await handed_back(work, reply, delay)

    monkeypatch.setattr(Work, "open", noted)
    monkeypatch.setattr(Work, "nak", back)

    @app.actor(name="normal")
    async def normal(ctx: Context) -> None:
        started.append(ctx.key)

    @app.actor(name="high", priority="high")
    async def high(ctx: Context) -> None:
        started.append(ctx.key)

    async def submit(numbers: range) -> None:
        for number in numbers:
            lane = "high" if number % 3 else "normal"
            await client.submit(app.actors[lane].call(), key=f"{lane}-{number:02}")

    await submit(range(RUNS))
    async with workers.run(app, concurrency=slots):
        await submit(range(RUNS, 2 * RUNS))
        await wait_until(lambda: len(started) == 2 * RUNS, description="each has started")
    for lane in ("high", "normal"):
        kept = [key for key in started if key.startswith(lane) and key not in went_back]
        assert kept == sorted(kept)
        assert len(kept) > RUNS / 4, "hardly any goes back"


async def test_bodies_that_may_start_do_so_before_the_outcomes_of_others_are_stored(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers to claims come many at a time. What each body costs after its end must not be waited for by those behind it."""
    happened: list[str] = []
    looked, store, ready = Head.look, Tail.store, asyncio.Barrier(8)

    async def look(*args: Any) -> Looked:
        found = await looked(*args)
        await ready.wait()
        return found

    async def stored(*args: Any) -> Stored | Void:
        happened.append("stored")
        return await store(*args)

    @app.actor
    async def note() -> None:
        happened.append("started")

    monkeypatch.setattr(Head, "look", look)
    monkeypatch.setattr(Tail, "store", stored)
    async with workers.run(app):
        for key in range(8):
            await client.submit(note.call(), key=f"k{key}")
        await wait_until(lambda: len(happened) == 16, description="all have ended")
    assert happened == ["started"] * 8 + ["stored"] * 8
