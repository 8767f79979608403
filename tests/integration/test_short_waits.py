"""A retry or a snooze that is due at once starts at once: its wake-up comes while the attempt before is still being put away.

Outcome stored, wake-up published and delivered, and only then the answer to that publish is read and the old wake-up
acknowledged. Taken for a second delivery of the attempt that ends, it would be handed back for a tenth of a second and more.
Here the answer is thrown away, so that the delivery comes first for certain.
"""

from __future__ import annotations

import pytest

from tenure import App, Context, Retry, Snooze
from tests.conftest import Workers
from tests.counted import QUICK
from tests.proxy import Proxy, wake_up
from tests.support import wait_until


@pytest.fixture
def sessions() -> list[str]:
    """Under which session each attempt of ``again`` ran."""
    return []


@pytest.fixture
def app(namespace: str, sessions: list[str]) -> App:
    app = App(namespace, config=QUICK)

    @app.actor(retry=Retry(max_attempts=2, initial=0.001, jitter=0.0))
    async def again(ctx: Context, how: str) -> int:
        sessions.append(ctx.session)
        if ctx.attempt == 1:
            raise RuntimeError if how == "retry" else Snooze(0.001)
        return ctx.attempt

    return app


@pytest.mark.parametrize("how", ["snooze", "retry"])
async def test_a_run_that_goes_on_at_once_meets_nobody_in_its_way(
    how: str, app: App, workers: Workers, behind: Workers, proxy: Proxy
) -> None:
    async with behind.run(app) as running, app.connect(workers.url) as client:
        planned = proxy.lose_answer(wake_up(app, "k"))
        run = await client.submit(app.actors["again"].call(how), key="k")
        await planned.done.wait()
        assert await run.result(timeout=10) == 2
        # The first copy waited for the end of what it follows; the second one may have met it there.
        assert running.worker.metrics.claims["", "busy"] <= 1


async def test_a_wake_up_that_waits_for_its_forerunner_starts_nothing_after_the_drain_signal(
    app: App, workers: Workers, behind: Workers, proxy: Proxy, sessions: list[str]
) -> None:
    async with behind.run(app) as draining, app.connect(workers.url) as client:
        proxy.lose_answer(wake_up(app, "k"))
        run = await client.submit(app.actors["again"].call("snooze"), key="k")
        table = draining.worker.table

        def follows() -> bool:
            live = table.get(run.run_id)
            return live is not None and live.follower is not None

        await wait_until(follows, description="the next wake-up waits")
        await draining.stop()
        assert len(sessions) == 1
        async with workers.run(app):
            assert await run.result(timeout=10) == 2
    assert sessions[0] != sessions[1]
