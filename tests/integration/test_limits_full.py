"""A limit whose entry has no room for one more name."""

from __future__ import annotations

import pytest

from tenure import App, Client, Context, Limit
from tenure.core.permits import Entry, Permit
from tests.conftest import Workers
from tests.support import wait_until


async def test_a_run_whose_name_does_not_fit_the_entry_any_more_waits_and_keeps_nobody_out(
    app: App, client: Client, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """The entry, of places that are held elsewhere, has room for one more name, and not for a long one; both ask at once."""
    ran: list[str] = []

    @app.actor(limits=[Limit(2_000)])
    async def capped(ctx: Context) -> None:
        ran.append(ctx.key)

    limits, patience = client.stores.limits, client.stores.runs.patience()
    much = Permit(key="k" * (client.stores.conn.max_payload - 600), run_id="r", attempt=1, session="s", at=1.0)
    assert (await limits.write("capped", Entry(n=2_000, permits=(much,)), 0, patience))[0]
    long = await client.submit(capped.call(), key="\n" * 250)
    short = await client.submit(capped.call(), key="k")
    async with workers.run(app) as running:
        await short.result(10)
        await wait_until(lambda: "limit.full" in caplog.text, description="it is told why the long one waits")
        status = await long.status()
        assert status is not None
        assert status.phase == "queued"
        await wait_until(lambda: not running.worker.why_not_ready, description="it is ready, as before")
    assert ran == ["k"]
    assert "limit capped names as many runs as fit one message" in caplog.text
