"""Places that a worker keeps for a moment, for whoever asks next."""

from __future__ import annotations

import asyncio

import pytest

from tenure import App, Client, Limit
from tests.conftest import Workers


async def test_a_worker_that_ends_keeps_no_place_for_whoever_might_follow(
    app: App, client: Client, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last place is kept for a moment where runs are short; there is no supervisor to give it back."""
    monkeypatch.setattr("tenure.gates._KEEP_SECONDS", 60.0)
    monkeypatch.setattr("tenure.crew._JUDGED_SECONDS", 1e-6)
    monkeypatch.setattr("tenure.crew._BURST_SECONDS", 0.0)
    monkeypatch.setattr("tenure.crew._FORGET_SECONDS", 60.0)
    monkeypatch.setattr("tenure.crew._AHEAD_SECONDS", 60.0)  # they are short enough, however slow this machine

    @app.actor(limits=[Limit(1, per="value")])
    async def capped(value: int) -> None: ...

    async with workers.run(app, concurrency=20):
        runs = await client.submit_many([(capped.call(i % 4), f"k{i}") for i in range(60)])
        await asyncio.gather(*(run.result(60) for run in runs))  # type: ignore[union-attr]  # none was refused
        kept = [
            await client.stores.limits.read(name, client.stores.runs.patience()) for name in await all_names(client)
        ]
        assert any(found.entry for found in kept), "some are kept"
    for name in await all_names(client):
        assert (await client.stores.limits.read(name, client.stores.runs.patience())).entry is None


async def all_names(client: Client) -> list[str]:
    return await client.stores.limits.names(client.stores.runs.patience())
