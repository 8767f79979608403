"""Scenario 40 for clients: submits, replaces, cancels and purges whose answer is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, OutcomeUnknown, RunCancelled, RunSuperseded, Unavailable
from tests.conftest import Workers
from tests.counted import FAULTS, QUICK, Counted
from tests.proxy import Fault, Matches, Proxy, Publish, record, wake_up
from tests.support import wait_until

HASTY = replace(QUICK, patience_seconds=0.8)
"""For clients that are to give up."""


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=QUICK)


@pytest.mark.parametrize("fault", FAULTS)
async def test_scenario_40_a_submit_whose_answer_is_lost_runs_once_and_knows_it(
    fault: str, app: App, workers: Workers, proxy: Proxy
):
    """Server stored the create, client never heard; one run id per submit, so its repeat finds itself.

    Accepted, generation 1.
    """
    counted = Counted(app)
    async with workers.run(app), app.connect(proxy.url) as client:
        planned: Fault = getattr(proxy, fault)(record(app, "k", "waiting"))
        run = await client.submit(counted.actor.call(), key="k")
        await proxy.release(planned)
        assert (run.accepted, run.generation) == (True, 1)
        assert await run.result(timeout=10) == "by attempt 1"
    assert len(planned.hits) == 1
    assert counted.bodies == [(1, 1)]


@pytest.mark.parametrize("fault", FAULTS)
async def test_scenario_40_a_wake_up_whose_answer_is_lost_is_a_copy_too_many_and_no_second_run(
    fault: str, app: App, workers: Workers, proxy: Proxy
):
    """The wake-up is stored twice, or its first copy arrives long after the run has ended: the record decides."""
    counted = Counted(app)
    async with workers.run(app) as running, app.connect(proxy.url) as client:
        planned: Fault = getattr(proxy, fault)(wake_up(app, "k"))
        run = await client.submit(counted.actor.call(), key="k")
        assert await run.result(timeout=10) == "by attempt 1"
        await proxy.release(planned)
        await wait_until(lambda: depth_is_zero(running.worker.stores), description="every copy is acknowledged")
    assert len(planned.hits) == 1
    assert counted.bodies == [(1, 1)]


async def depth_is_zero(stores: Any) -> bool:
    info = await stores.conn.api(f"STREAM.INFO.{stores.names.work_stream}", {})
    return bool(info["state"]["messages"] == 0)


async def test_scenario_40_a_submit_finds_itself_although_its_run_has_long_ended(
    app: App, workers: Workers, proxy: Proxy
):
    """Stored, run and finished before the client's repeat is refused.

    Still accepted, still this run, never a second one [8].
    """
    counted = Counted(app)
    async with workers.run(app), app.connect(proxy.url) as client:
        planned = proxy.lose_answer(record(app, "k", "waiting"))
        stored = asyncio.create_task(client.submit(counted.actor.call(), key="k"))
        await planned.done.wait()
        async with app.connect(workers.url) as other:
            joined = await other.submit(counted.actor.call(), key="k")
            await other.stores.work.wake(
                *(await _stored(other, "k")), other.now(), other.stores.runs.patience()
            )  # as a supervisor's sweep would
            assert joined.accepted is False
            assert await joined.result(timeout=10) == "by attempt 1"
        run = await stored
        assert (run.accepted, run.run_id) == (True, joined.run_id)
        assert await run.result(timeout=5) == "by attempt 1"
    assert counted.bodies == [(1, 1)]


async def _stored(client: Client, key: str) -> tuple[Any, bytes, int]:
    found = await client.stores.runs.read(key)
    return found.record, b"", found.revision


@pytest.mark.parametrize("how", ["submit", "replace"])
async def test_a_write_that_a_moved_on_record_does_not_show_is_outcome_unknown(
    how: str, app: App, proxy: Proxy, nats_server: str
):
    """Answer lost, and the key has been replaced twice since.

    Repeating it would supersede a newer wish by an older one [14].
    """
    counted = Counted(app)
    async with app.connect(proxy.url) as client, app.connect(nats_server) as other:
        planned = proxy.lose_answer(record(app, "k", "waiting"))
        write = getattr(client, how)
        asked = asyncio.create_task(write(counted.actor.call(), key="k"))
        await planned.done.wait()
        for _ in range(2):
            newest = await other.replace(counted.actor.call(), key="k")
        with pytest.raises(OutcomeUnknown) as caught:
            await asked
        status = await other.status("k")
    assert caught.value.key == "k"
    assert caught.value.run_id not in (None, newest.run_id)
    assert status is not None
    assert (status.run_id, status.generation) == (newest.run_id, 3)


async def test_scenario_40_a_submit_of_a_live_key_whose_answer_is_lost_joins_it(app: App, client: Client, proxy: Proxy):
    """The lost create met a record that had been there before it: certainly not applied, and no reason to give up."""
    counted = Counted(app)
    run = await client.submit(counted.actor.call(), key="k")
    async with app.connect(proxy.url) as other:  # it sees how far the bucket is when it connects
        planned = proxy.lose_answer(record(app, "k", "waiting"))
        joined = await other.submit(counted.actor.call(), key="k")
    assert len(planned.hits) == 1
    assert (joined.accepted, joined.run_id) == (False, run.run_id)


@pytest.mark.parametrize("fault", FAULTS)
async def test_scenario_40_a_cancel_whose_answer_is_lost_says_cancelled(
    fault: str, app: App, client: Client, proxy: Proxy
):
    """Server stored the cancel, client never heard: "finished" would be wrong, it was this cancel that ended it."""
    counted = Counted(app)
    async with app.connect(proxy.url) as canceller:
        run = await client.submit(counted.actor.call(), key="k", delay=60)
        planned: Fault = getattr(proxy, fault)(record(app, "k", "cancelled"))
        cancelled = await canceller.cancel("k", reason="why")
        await proxy.release(planned)
    status = await run.status()
    assert (cancelled.outcome, cancelled.run_id) == ("cancelled", run.run_id)
    assert status is not None
    assert (status.phase, status.reason) == ("cancelled", "why")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("which", ["record", "signal"])
async def test_scenario_40_a_cancel_of_a_running_body_stops_it_whichever_of_its_writes_is_lost(
    which: str, fault: str, app: App, client: Client, workers: Workers, proxy: Proxy
):
    """The record says ``stopping``, then the signal tells the body: each is repeated until the server has it."""
    counted = Counted(app)
    async with workers.run(app) as running, app.connect(proxy.url) as canceller:
        run = await client.submit(counted.actor.call("stop"), key="k")
        await wait_until(lambda: counted.bodies, description="the body runs")
        stops = app.names.stops(running.worker.lease.id).rstrip("*>.")
        matches: Matches = record(app, "k", "stopping") if which == "record" else lambda p: p.subject.startswith(stops)
        planned: Fault = getattr(proxy, fault)(matches)
        cancelled = await canceller.cancel("k", reason="why")
        assert cancelled.outcome == "stopping"
        with pytest.raises(RunCancelled):
            await run.result(5)
        await proxy.release(planned)
        status = await run.status()
        assert running.worker.metrics.cancelled["counted", "running"] == 1
    assert len(planned.hits) == 1
    assert counted.bodies == [(1, 1)]
    assert status is not None
    assert (status.phase, status.reason) == ("cancelled", "why")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("tried", ["create", "replacement"])
async def test_scenario_40_a_replace_whose_answer_is_lost_is_one_generation(
    tried: str, fault: str, app: App, client: Client, workers: Workers, proxy: Proxy
):
    """Over a running body, whose record was there before: so the first try, a create, was not what made the key move on."""
    counted = Counted(app)
    async with workers.run(app) as running, app.connect(proxy.url) as other:
        first = await client.submit(counted.actor.call("stop"), key="k")
        await wait_until(lambda: counted.bodies, description="the body runs")
        assert await other.status("k")

        def over(publish: Publish) -> bool:
            return record(app, "k", "waiting")(publish) and publish.says('"previous"')

        planned: Fault = getattr(proxy, fault)(record(app, "k", "waiting") if tried == "create" else over)
        second = await other.replace(counted.actor.call(), key="k")
        await proxy.release(planned)
        assert (second.accepted, second.generation) == (True, 2)
        assert await second.result(5) == "by attempt 1"
        with pytest.raises(RunSuperseded):
            await first.result(5)
        assert sum(running.worker.metrics.superseded.values()) == 1
    assert len(planned.hits) == 1
    assert counted.bodies == [(1, 1), (2, 1)]


async def test_a_cancel_of_unknown_fate_never_hits_the_next_run(app: App, client: Client, proxy: Proxy):
    """Cancel of run 1 is held, the key is purged and submitted anew.

    The cancel is repeated and arrives late: run 2 lives [10].
    """
    counted = Counted(app)
    first = await client.submit(counted.actor.call(), key="k", delay=60)
    async with app.connect(proxy.url) as canceller:
        held = proxy.hold(record(app, "k", "cancelled"))
        cancelling = asyncio.create_task(canceller.cancel("k"))
        await held.done.wait()
        assert await client.purge("k")
        second = await client.submit(counted.actor.call(), key="k", delay=60)
        cancelled = await cancelling
        await proxy.release(held)
    status = await second.status()
    assert (cancelled.outcome, cancelled.run_id) == ("finished", first.run_id)
    assert status is not None
    assert (status.phase, second.generation) == ("scheduled", 1)


async def test_a_trigger_of_unknown_fate_never_starts_the_next_run(
    app: App, client: Client, workers: Workers, proxy: Proxy
):
    """The answers to a trigger are lost, somebody else wakes its run, which ends: the successor waits for its own time [10]."""
    counted = Counted(app, every=3_600.0)
    async with workers.run(app), app.connect(proxy.url) as triggers:
        first = await client.submit(counted.actor.call(), key="k", delay=1_800.0)
        lost = proxy.lose_answer(record(app, "k", "waiting"), times=4)
        triggering = asyncio.create_task(triggers.trigger("k"))
        await wait_until(lambda: lost.hits, description="the run is due, and nobody was told")
        assert (await client.trigger("k")).accepted
        await first.wait(10.0)
        triggered = await triggering
        status = await client.status("k")
    assert triggered.run_id == first.run_id
    assert status is not None
    assert (status.generation, status.phase) == (2, "scheduled")
    assert counted.bodies == [(1, 1)]


async def test_a_create_that_arrives_after_its_key_was_purged_is_refused(
    app: App, client: Client, workers: Workers, proxy: Proxy
):
    """Create held, client gives up; the key is submitted, runs and is purged.

    Then the old create (expects 0) arrives [8].
    """
    counted = Counted(app)
    hasty = App(app.namespace, config=HASTY)
    async with workers.run(app), hasty.connect(proxy.url) as gives_up:
        held = proxy.hold(record(app, "k", "waiting"), times=1_000)
        with pytest.raises(OutcomeUnknown) as caught:
            await gives_up.submit(counted.actor.call(), key="k")
        run = await client.submit(counted.actor.call(), key="k")
        await run.result(timeout=10)
        await client.purge("k")
        await proxy.release(held)
        assert await client.status("k") is None
    assert (caught.value.key, len(counted.bodies)) == ("k", 1)
    assert len(held.hits) > 1


async def test_a_write_that_surely_did_not_happen_is_unavailable(app: App, proxy: Proxy):
    """No connection at all: nothing was sent, so the caller may simply try again."""
    counted = Counted(app)
    hasty = App(app.namespace, config=HASTY)
    async with hasty.connect(proxy.url) as client:
        await proxy.take_down()
        await wait_until(lambda: not client.stores.conn.is_connected, description="the client has noticed")
        with pytest.raises(Unavailable):
            await client.submit(counted.actor.call(), key="k")
        await proxy.bring_up()
        await wait_until(lambda: client.stores.conn.is_connected, description="the client is back")
        assert await client.status("k") is None
