"""A pause that comes while a run is on its way into its body: claimed, and not started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tenure import App, Client, Context, RateLimit
from tenure.bounds import bound_rows
from tenure.nats.patience import Patience
from tenure.switchboard import Switchboard
from tenure.worker.head import Head, Won
from tenure.worker.slots import Slots
from tests.conftest import Supervisors, Workers
from tests.integration.test_pause import Seen, until_held
from tests.support import wait_until


async def test_a_body_whose_claim_was_under_way_does_not_start(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is stored; before its answer is handled the worker learns of the pause: the run is handed back, uncounted.

    Neither of its failures, nor of its rate.
    """
    look = Head.look

    async def slowly(self: Head, *args: Any) -> Any:
        looked = await look(self, *args)
        if isinstance(looked, Won) and not self._holds.board.rules.board.switches:
            await client.pause(actor="work")
            await wait_until(lambda: self._holds.board.rules.board.switches, description="the worker knows")
        return looked

    monkeypatch.setattr(Head, "look", slowly)
    await is_handed_back(app, client, workers, supervisors, lambda: monkeypatch.setattr(Head, "look", look))


async def test_a_body_that_is_about_to_start_does_not(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start under a rate takes its time, and meanwhile the worker learns of the pause."""
    begin, boards = Slots.begin, list[Switchboard]()
    run = Switchboard.run

    async def noted(self: Switchboard) -> None:
        boards.append(self)
        await run(self)

    async def slowly(self: Slots, patience: Patience) -> bool:
        may = await begin(self, patience)
        await client.pause(actor="work")
        await wait_until(lambda: all(board.rules.board.switches for board in boards), description="the worker knows")
        return may

    monkeypatch.setattr(Switchboard, "run", noted)
    monkeypatch.setattr(Slots, "begin", slowly)
    await is_handed_back(app, client, workers, supervisors, lambda: monkeypatch.setattr(Slots, "begin", begin), used=1)


async def is_handed_back(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, resumed: Callable[[], None], used: int = 0
) -> None:
    """A run whose claim is stored waits for the switch, and starts when that is gone; ``used``: starts that it has used up."""
    seen = Seen()

    @app.actor(limits=[RateLimit(2, 3600.0)])
    async def work(ctx: Context) -> None:
        seen.note(ctx)

    async with workers.run(app) as running, supervisors.run(app):
        run = await client.submit(work.call(), key="k")
        await until_held(client, 1)
        assert not seen.at
        assert running.worker.metrics.outcomes["work", "handed_back"] == 1
        assert sum(row.in_use for row in await bound_rows(client.stores)) == used
        resumed()
        await client.resume(actor="work")
        await run.result(10)
        status = await client.status("k")
    assert status is not None
    assert (status.attempt, status.failures) == (2, 0)
    assert seen.attempts == [2]


async def test_who_waits_to_know_what_is_paused_goes_on_when_its_worker_drains(client: Client) -> None:
    """Nothing more will be told: a claim that was won at the signal waited two seconds to be handed back."""
    board = Switchboard(client.stores)
    following = asyncio.create_task(board.run())
    waiting = asyncio.create_task(board.until_known(60))
    await asyncio.sleep(0)  # paused: until both wait
    assert not board.known
    assert not waiting.done()
    following.cancel()
    assert await asyncio.wait_for(waiting, 10)
    assert following.cancelled()
