"""No run that is over keeps a place in its process: whatever could not be said to the server when its handling ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure import App, Client, Limit
from tenure.core.errors import Unavailable
from tenure.core.permits import Answer, Give
from tenure.crew import Request
from tenure.gates import Gates
from tenure.worker import handler, head
from tenure.worker.places import Ticket
from tests.conftest import Workers
from tests.support import wait_until


@pytest.fixture
def app(app: App) -> App:
    @app.actor(limits=[Limit(1)])
    async def capped(number: int) -> int:
        return number

    @app.actor(limits=[Limit(1), Limit(1, per="number")])
    async def twice(number: int) -> int:
        return number

    return app


def once(patch: pytest.MonkeyPatch, owner: Any, name: str) -> Callable[[], bool]:
    """The first call of it gets no answer; whether that has been."""
    real, left = getattr(owner, name), [True]

    async def fails(*args: Any, **more: Any) -> Any:
        if left:
            left.clear()
            raise Unavailable("no answer in time")
        return await real(*args, **more)

    patch.setattr(owner, name, fails)
    return lambda: not left


async def test_a_run_whose_parked_message_cannot_be_removed_gives_its_place_back(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every place of its session would be taken by who is over: nobody under that limit would start while the session lives."""
    capped = app.actors["capped"]
    monkeypatch.setattr(head, "Ticket", lambda *args, **more: Ticket(*args, **more | {"again": True}))
    failed = once(monkeypatch, Gates, "unpark")
    async with workers.run(app):
        assert await (await client.submit(capped.call(1))).result(5) == 1
        assert failed()
        assert await (await client.submit(capped.call(2))).result(5) == 2


async def test_a_run_that_cannot_give_one_place_back_leaves_the_others_too(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for each in turn, and the first gets no answer."""
    twice, ask, failed = app.actors["twice"], Gates._ask, list[str]()

    async def asked(gates: Gates, name: str, request: Request) -> Answer:
        if isinstance(request.asked, Give) and not failed:
            failed.append(name)
            raise Unavailable("no answer in time")
        return await ask(gates, name, request)

    monkeypatch.setattr(head, "Ticket", lambda *args, **more: Ticket(*args, **more | {"again": True}))
    monkeypatch.setattr(Gates, "_ask", asked)
    async with workers.run(app):
        assert await (await client.submit(twice.call(1))).result(5) == 1
        await wait_until(lambda: failed, description="it cannot give the first one back")
        assert await (await client.submit(twice.call(1))).result(5) == 1


async def test_a_run_that_is_given_up_before_its_body_and_then_over_leaves_its_place(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trust was over for a moment while its arguments were read."""
    capped = app.actors["capped"]
    failed = once(monkeypatch, handler, "arguments")
    async with workers.run(app):
        first = await client.submit(capped.call(1))
        await wait_until(failed, description="its handling has ended")
        await first.cancel()
        assert await (await client.submit(capped.call(2))).result(5) == 2
