"""What a newcomer does wrong with two apps, two loops or a string is refused where it is done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import App, Client, ConfigError, Context, InvalidCall, RunFailed, TenureError
from tests.conftest import Workers


async def test_a_call_of_another_apps_actor_is_refused(app: App, client: Client, workers: Workers) -> None:
    """Stored, it would wait for ever: no worker of this namespace knows the actor."""
    other = App("other")

    @other.actor
    async def foreign() -> None: ...

    @app.actor(retry=None)
    async def parent(ctx: Context) -> None:
        ctx.spawn(foreign.call(), key="child")

    with pytest.raises(InvalidCall, match=r"foreign belongs to app 'other'"):
        await client.submit(foreign.call(), key="k")
    assert await client.status("k") is None
    async with workers.run(app):
        run = await client.submit(parent.call())
        with pytest.raises(RunFailed, match=r"foreign belongs to app 'other'"):
            await run.result(timeout=10)


async def test_a_client_in_another_event_loop_says_so_and_does_not_hang(client: Client) -> None:
    def elsewhere() -> None:
        asyncio.run(client.status("k"))

    with pytest.raises(TenureError, match="another event loop"):
        await asyncio.to_thread(elsewhere)


async def test_a_result_that_is_not_there_in_time_says_whose(app: App, client: Client) -> None:
    @app.actor
    async def idle() -> None: ...

    run = await client.submit(idle.call(), key="k")
    with pytest.raises(TimeoutError, match=r"'k' has no outcome yet, after waiting 0\.05 s"):
        await run.result(timeout=0.05)


@pytest.mark.parametrize(
    ("options", "words"), [({"url": 5}, "url must be a str"), ({"queues": "default"}, "list of names")]
)
def test_a_worker_option_of_another_type_is_named(app: App, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        app.worker(**options)
