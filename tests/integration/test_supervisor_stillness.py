"""A supervisor does not pass over all records again while nothing happens, and does so at once when something does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tenure.core import sweeps
from tenure.core.permits import Entry, Permit
from tenure.nats.patience import Patience
from tenure.supervisor import Supervisor, stillness
from tenure.supervisor.keepers import Keepers
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


async def test_what_is_due_is_looked_for_then_whatever_its_timer_says(
    app: App, client: Client, supervisors: Supervisors, passes: list[bool]
) -> None:
    """Its timer is one for an hour later: it was triggered by a client that died before the wake-up; or the server fires none."""

    @app.actor
    async def later() -> None:
        pass

    run = await client.submit(later.call(), key="a", delay=4)
    stores = client.stores
    record = (await stores.runs.read("a")).record
    assert record is not None
    assert isinstance(await stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {}), dict)
    assert (await stores.conn.put(app.names.timer("a", run.run_id, 0), b"")).error is None
    async with supervisors.run(app):
        await wait_until(lambda: passes and passes[-1], description="nothing is to be done yet")

        async def woken() -> bool:
            return await stores.work.is_awake(record)

        await wait_until(woken, description="it is due, and has a wake-up", timeout=15)


async def test_what_no_stream_would_tell_of_keeps_it_from_resting(
    app: App, client: Client, supervisors: Supervisors, passes: list[bool]
) -> None:
    """A wake-up may be left below its consumer's floor, and a place under a limit by a run that is over, with nothing written."""

    @app.actor
    async def later() -> None:
        pass

    run = await client.submit(later.call(), key="a", delay=3_600)
    stores = client.stores
    patience = Patience(stores.clock, 5.0)
    wakeup = app.names.work("default", "normal", "a", run.run_id)
    assert (await stores.conn.put(wakeup, b"")).error is None
    async with supervisors.run(app):
        await wait_until(lambda: len(passes) > 2, description="passes with a wake-up that waits for its time")
        assert not any(passes)
        assert isinstance(await stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {"filter": wakeup}), dict)
        await wait_until(lambda: passes[-1], description="nothing is left but a timer")
        place = Permit(key="b", run_id=run.run_id, attempt=1, session="", at=stores.clock.now() + 3_600)
        written, _, *_ = await stores.limits.write("later", Entry(n=1, permits=(place,)), 0, patience)
        assert written
        await wait_until(lambda: not passes[-1], description="a place is held")
        before = len(passes)
        await wait_until(
            lambda: len(passes) > before + 2, description="as long as it is there is a pass after the other"
        )
        assert not any(passes[before:])


async def test_a_pass_by_one_of_several_is_enough_to_rest_and_none_is_while_anybodys_key_owes_something(
    app: App, client: Client, supervisors: Supervisors, passes: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All keys are another's, whose run has lost its timer; between two passes it gets a new one."""

    @app.actor
    async def later() -> None:
        pass

    await client.submit(later.call(), key="a", delay=3_600)
    stores = client.stores
    found = await stores.runs.read("a")
    record = found.record
    assert record is not None
    assert isinstance(await stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {}), dict)
    whole, lost = Sweep.whole, 4

    async def and_then(self: Sweep, *args: Any) -> int:
        number = await whole(self, *args)
        if len(passes) == lost:
            await stores.work.wake(record, b"", found.revision, stores.clock.now(), Patience(stores.clock, 5.0))
        return number

    monkeypatch.setattr(Sweep, "whole", and_then)
    monkeypatch.setattr(sweeps, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(stillness, "_SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(Supervisor, "_mine", lambda _self: lambda _key: False)
    monkeypatch.setattr(Keepers, "ask", lambda *_: True)
    async with supervisors.run(app):
        await wait_until(lambda: len(passes) > lost, description="the pass that finds nothing")
        await asyncio.sleep(5 * app.config.sweep_seconds)  # work: there is no other
        assert passes == [False] * lost + [True]
