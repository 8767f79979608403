"""Many submits and many cancels whose server is killed in the middle: they end, say what was done, and go on when asked again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tenure import App, OutcomeUnknown, Run, Unavailable
from tenure.core.records import read_state
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.scan import Header
from tests.support import FAST

pytestmark = pytest.mark.one_server("each kills a server of its own")

_MANY = 1_000
_STOPPED_SECONDS = 0.5


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def app(namespace: str) -> App:
    app = App(namespace, config=replace(FAST, patience_seconds=1.0, request_timeout_seconds=0.4))

    @app.actor(queue="nobody")
    async def waits() -> None:
        """Nobody runs it."""

    return app


async def phases(app: App, url: str) -> Counter[str]:
    """How many keys are in each phase."""
    found: dict[str, str] = {}

    def on_header(header: Header) -> None:
        state = read_state(header.state)
        assert state is not None
        found[header.key] = state.phase.value

    async with app.connect(url) as client:
        await client.stores.runs.scan(on_header)
    return Counter(found.values())


async def test_a_cancel_of_many_ends_soon_without_its_server_and_goes_on_when_it_is_repeated(
    app: App, server: EmbeddedServer
) -> None:
    """Killed with -9 at the three hundredth of a thousand. Each in turn would have waited for it, 128 at a time."""
    waits = app.actors["waits"]
    async with app.connect(server.url) as client:
        await client.submit_many([(waits.call(), f"doc-{i}") for i in range(_MANY)])
        told: list[int] = []

        def on_progress(done: int, _of: int) -> None:
            told.append(done)
            if done == 300:
                server.kill()

        did = await client.cancel_many("doc-*", on_progress=on_progress)
    assert did.matched == _MANY
    assert 300 <= did.cancelled < 300 + 128, "what was done is counted"
    assert did.cancelled + did.failed == _MANY, "and nothing is left out"
    assert did.untried >= _MANY - did.cancelled - 2 * 128
    assert (
        did.problems[0] == f"the server stopped answering: {did.untried} runs were not tried; do it again for the rest"
    )
    assert told[-1] == _MANY - did.untried
    server.restart()
    stored = await phases(app, server.url)
    assert stored["cancelled"] >= did.cancelled, "what was told as cancelled is"
    async with app.connect(server.url) as client:
        again = await client.cancel_many("doc-*")
    assert (again.matched, again.failed) == (_MANY - stored["cancelled"], 0)
    assert await phases(app, server.url) == {"cancelled": _MANY}


async def test_a_submit_of_many_ends_soon_without_its_server_and_each_item_says_what_became_of_it(
    app: App, server: EmbeddedServer
) -> None:
    """Killed with -9 while its first hundreds are on their way: submitted, unknown, or untried; repeated, each is there once."""
    waits = app.actors["waits"]
    items = [(waits.call(), f"doc-{i}") for i in range(_MANY)]
    async with app.connect(server.url) as client:
        submit, begun = client.submit, 0

        async def counted(*args: object, **options: object) -> object:
            nonlocal begun
            begun += 1
            if begun == 400:
                server.kill()
            return await submit(*args, **options)  # type: ignore[arg-type]  # as it was called

        client.submit = counted  # type: ignore[method-assign,assignment]  # it does what the other does
        out = await client.submit_many(items)
    accepted = {one.key for one in out if isinstance(one, Run)}
    untried = [one for one in out if isinstance(one, Unavailable) and "not submitted" in str(one)]
    assert len(accepted) >= 200
    assert len(untried) >= _MANY - len(accepted) - 2 * 128
    assert [one for one in out if not isinstance(one, (Run, Unavailable, OutcomeUnknown))] == []
    server.restart()
    async with app.connect(server.url) as client:
        again = await client.submit_many(items)
    assert {key for one, (_, key) in zip(again, items, strict=True) if not isinstance(one, Run)} == set()
    known = {one.key for one in again if isinstance(one, Run) and not one.accepted}
    assert accepted <= known, "what was told as accepted was there"
    assert await phases(app, server.url) == {"waiting": _MANY}


async def test_a_server_that_stands_still_for_a_moment_ends_no_cancel_of_many(app: App, server: EmbeddedServer) -> None:
    """Stopped for longer than a request may take, within the patience of a call: all are cancelled."""
    waits = app.actors["waits"]
    patient = App(
        app.namespace, config=replace(app.config, patience_seconds=10.0, request_timeout_seconds=_STOPPED_SECONDS / 2)
    )
    async with patient.connect(server.url) as client:
        await client.submit_many([(waits.call(), f"doc-{i}") for i in range(500)])
        loop = asyncio.get_running_loop()

        def on_progress(done: int, _of: int) -> None:
            if done == 100:
                os.kill(server.pid, signal.SIGSTOP)
                loop.call_later(_STOPPED_SECONDS, os.kill, server.pid, signal.SIGCONT)

        did = await client.cancel_many("doc-*", on_progress=on_progress)
    assert (did.cancelled, did.failed, did.untried) == (500, 0, 0)
