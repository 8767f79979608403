"""A supervisor does not pass over many records again while nothing happens, and does so at once when something does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tenure.supervisor import stillness
from tenure.supervisor.sweep import Sweep
from tests.conftest import Supervisors
from tests.support import FAST, wait_until


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=replace(FAST, sweep_seconds=0.1))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each pass found nothing but records that are over or due later."""
    found: list[bool] = []
    whole = Sweep.whole

    async def counted(self: Sweep, *args: Any) -> int:
        number = await whole(self, *args)
        found.append(self.calm)
        return number

    monkeypatch.setattr(Sweep, "whole", counted)
    monkeypatch.setattr("tenure.supervisor.service.MANY_RECORDS", 1)
    monkeypatch.setattr(stillness, "_SETTLED_SECONDS", 2.5)
    return found


async def test_nothing_is_passed_over_again_while_nothing_happens(
    app: App, client: Client, supervisors: Supervisors, passes: list[bool]
) -> None:
    """A run that is due in an hour; then another; then a message is lost; then one that is due now, for which there is no worker."""

    @app.actor
    async def later() -> None:
        pass

    await client.submit(later.call(), key="a", delay=3_600)
    async with supervisors.run(app) as supervisor:

        async def rests() -> bool:
            before = len(passes)
            await asyncio.sleep(5 * app.config.sweep_seconds)  # work: nothing happens meanwhile
            return len(passes) == before

        await wait_until(rests, description="it rests")
        assert passes[-1]
        assert not supervisor.why_not_ready
        told = supervisor.metrics.swept_at
        await wait_until(lambda: supervisor.metrics.swept_at > told, description="no alert takes its rest for its end")
        before = len(passes)
        await client.submit(later.call(), key="b", delay=3_600)
        await wait_until(lambda: len(passes) > before, description="a new record is looked at")
        await wait_until(rests, description="it rests again")
        purge = await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})
        assert isinstance(purge, dict)
        record = (await client.stores.runs.read("a")).record
        assert record is not None

        async def repaired() -> bool:
            return await client.stores.work.is_stored(record)

        await wait_until(repaired, description="the lost timer is replaced")
        await client.submit(later.call(), key="c")
        await wait_until(lambda: not passes[-1], description="a run that is due is seen")
        before = len(passes)
        await wait_until(lambda: len(passes) > before + 2, description="as long as it waits nothing is taken for still")
