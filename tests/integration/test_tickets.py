"""A run's places under limits while the server goes away: what cannot be tidied up then is nobody's surprise."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from tenure import App, Client, Limit
from tenure.core.errors import Unavailable
from tenure.core.permits import Answer, Take
from tenure.nats.patience import Patience
from tenure.worker.places import Places, Ticket
from tests.proxy import Proxy
from tests.support import wait_until


@pytest.mark.parametrize("asks", [True, False])
async def test_a_removal_that_fails_is_told_to_who_asks_and_to_nobody_else(
    asks: bool, app: App, client: Client, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is given up asks for nothing more: asyncio would log the lost exception as an error of unknown origin."""

    @app.actor(limits=[Limit(1), Limit(1, per="to")])
    async def send(to: str) -> None: ...

    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: lost.append(told))
    await client.submit(send.call("Ada"), key="k")
    async with Proxy(nats_server) as proxy, app.connect(proxy.url) as cut_off:
        stores, away = cut_off.stores, asyncio.Event()
        unpark = stores.gates.unpark

        async def unpark_late(name: str, take: Take, patience: Patience) -> None:
            await away.wait()
            await unpark(name, take, patience)

        monkeypatch.setattr(stores.gates, "unpark", unpark_late)
        found = await stores.runs.read("k")
        assert found.record is not None
        ticket = Ticket(Places(stores, app.actors, 0.0), found.record.run_id, "session", again=True, woken=False)
        assert await ticket.take(found, found.record, Patience(stores.clock, 0.5)) is Answer.GRANTED
        removals = list(ticket._unparking)
        assert len(removals) == 2
        await proxy.take_down()
        away.set()
        await wait_until(lambda: all(one.done() for one in removals), description="both have failed")
        if asks:
            with pytest.raises(Unavailable, match="parked"):
                await ticket.give_back(Patience(stores.clock, 0.5))
        removals.clear()
        del ticket
        gc.collect()
        await asyncio.sleep(0)  # paused: the loop tells what was lost
    assert not lost
