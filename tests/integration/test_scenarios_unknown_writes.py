"""Scenario 40 and its kind.

Every write whose answer is lost, cut or late, through a proxy that does it to exactly that write.

"Wrong last sequence" may be my own write. Whoever wrote it recognises it, and nobody else; else it is OutcomeUnknown.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure import App, Client
from tests.conftest import Workers
from tests.counted import FAULTS, QUICK, Counted
from tests.proxy import Fault, Matches, Proxy, Publish, record
from tests.support import wait_until

HASTY = replace(QUICK, patience_seconds=0.8)
"""For clients that are to give up."""


@pytest.fixture
def app(namespace: str) -> App:
    return App(namespace, config=QUICK)


@pytest.mark.parametrize("fault", FAULTS)
async def test_scenario_40_a_worker_recognises_its_own_claim_and_runs_once(
    fault: str, app: App, client: Client, behind: Workers, proxy: Proxy
):
    """Server committed the claim, worker never heard.

    Its repeat is refused "wrong last sequence", by its own first write.

    Taken for somebody else's it would be busy for ever, or claimed again as attempt 2. ``hold``: the repeat wins and
    the first copy arrives after it.
    """
    counted = Counted(app)
    async with behind.run(app) as running:
        planned: Fault = getattr(proxy, fault)(record(app, "k", "running"))
        run = await client.submit(counted.actor.call(), key="k")
        assert await run.result(timeout=10) == "by attempt 1"
        await proxy.release(planned)
    status = await run.status()
    assert len(planned.hits) == 1
    assert counted.bodies == [(1, 1)]
    assert counted.failures == [0]
    assert status is not None
    assert (status.phase, status.attempt, status.failures) == ("succeeded", 1, 0)
    assert running.worker.metrics.claims["counted", "won"] == 1
    assert running.worker.metrics.outcomes["counted", "succeeded"] == 1


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("ends", ["return", "raise", "snooze"])
async def test_scenario_40_a_worker_recognises_its_own_outcome(
    fault: str, ends: str, app: App, client: Client, behind: Workers, proxy: Proxy
):
    """Server stored the outcome, worker never heard: the refusal of its repeat is not "superseded".

    The wake-up of a retry follows although one is stored: that one is the message in hand, about to be acknowledged.
    """
    state, did, failures = {
        "return": ("succeeded", "succeeded", [0]),
        "raise": ("waiting", "retried", [0, 1]),
        "snooze": ("waiting", "snoozed", [0, 0]),
    }[ends]
    bodies = len(failures)
    counted = Counted(app)
    async with behind.run(app) as running:
        state_of = record(app, "k", state)

        def outcome(publish: Publish) -> bool:
            return state_of(publish) and publish.says('"attempt":1')

        planned: Fault = getattr(proxy, fault)(outcome)
        run = await client.submit(counted.actor.call(ends), key="k")
        assert await run.result(timeout=10) == f"by attempt {bodies}"
        await proxy.release(planned)
        metrics = running.worker.metrics
        await wait_until(lambda: metrics.outcomes["counted", "succeeded"] == 1, description="the outcome is counted")
    status = await run.status()
    assert len(planned.hits) == 1
    assert counted.failures == failures
    assert status is not None
    assert status.phase == "succeeded"
    assert metrics.outcomes["counted", did] == 1
    assert not any(metrics.superseded.values())
    assert not any(metrics.fenced.values())


async def test_scenario_40_an_outcome_is_recognised_although_the_key_has_moved_on(
    app: App, client: Client, behind: Workers, proxy: Proxy
):
    """Generation 1's outcome is stored, its answer lost.

    Generation 2 is submitted over it before the worker reads [23].
    """
    counted = Counted(app)
    async with behind.run(app, concurrency=1) as running:
        metrics = running.worker.metrics
        planned = proxy.lose_answer(record(app, "k", "succeeded"))
        first = await client.submit(counted.actor.call(), key="k")
        await planned.done.wait()
        second = await client.submit(counted.actor.call(), key="k")
        assert second.generation == 2
        assert await second.result(timeout=10) == "by attempt 1"
        await wait_until(lambda: metrics.outcomes["counted", "succeeded"] == 2, description="both are counted")
    assert first.run_id != second.run_id
    assert counted.bodies == [(1, 1), (2, 1)]
    assert not any(metrics.superseded.values())


async def test_scenario_40_a_perpetual_run_recognises_its_outcome_in_its_successor(
    app: App, client: Client, behind: Workers, proxy: Proxy
):
    """Outcome and successor are one write, whose answer is lost.

    One successor, due a period later, and nobody superseded.
    """
    counted = Counted(app, every=0.4)
    async with behind.run(app) as running:
        metrics = running.worker.metrics
        planned = proxy.lose_answer(record(app, "k", "waiting"))
        await client.submit(counted.actor.call(), key="k")
        await wait_until(lambda: len(counted.bodies) == 3, description="three ticks")
        await client.cancel("k")
    assert len(planned.hits) == 1
    assert counted.bodies == [(1, 1), (2, 1), (3, 1)]
    assert not any(metrics.superseded.values())
    assert metrics.outcomes["counted", "rescheduled"] >= 2


async def test_scenario_40_a_drained_worker_recognises_its_own_hand_back(
    app: App, client: Client, behind: Workers, workers: Workers, proxy: Proxy
):
    """The hand-back is stored, its answer lost: the run waits, uncounted, and the next worker runs it."""
    app.config = replace(QUICK, drain_seconds=0.05)
    stopped = Counted(app)
    async with behind.run(app) as running:
        run = await client.submit(stopped.actor.call("stop"), key="k")
        await wait_until(lambda: stopped.bodies, description="the body runs")
        planned = proxy.lose_answer(record(app, "k", "waiting"))
        await running.stop()
    assert len(planned.hits) == 1
    assert running.worker.metrics.outcomes["counted", "handed_back"] == 1
    status = await run.status()
    assert status is not None
    assert (status.phase, status.attempt, status.failures) == ("queued", 1, 0)
    async with workers.run(app):
        await wait_until(lambda: len(stopped.bodies) == 2, description="it runs again")
        await client.cancel("k")
    assert stopped.failures == [0, 0]


async def test_scenario_40_a_superseded_bodys_confirm_is_repeated_until_it_is_stored(
    app: App, client: Client, behind: Workers, proxy: Proxy
):
    """The one confirm of a superseded body is lost on its way.

    Repeated, else the waiting generation waits for its grace [20].
    """
    counted = Counted(app, grace=60.0)
    async with behind.run(app):
        await client.submit(counted.actor.call("stop"), key="k")
        await wait_until(lambda: counted.bodies, description="the first body runs")
        lost = proxy.lose(lambda p: record(app, "k", "waiting")(p) and not p.says('"previous"'))
        second = await client.replace(counted.actor.call(), key="k")
        assert await second.result(timeout=10) == "by attempt 1"
    assert len(lost.hits) == 1
    assert counted.bodies == [(1, 1), (2, 1)]


# -- sessions --------------------------------------------------------------------------------------------------------


def session_write(app: App) -> Matches:
    return lambda p: p.subject.startswith(app.names.sessions_prefix + "session.")


@pytest.mark.parametrize("fault", ["lose_answer", "cut_answer", "lose"])
@pytest.mark.parametrize("which", ["create", "renewal"])
async def test_scenario_40_a_session_survives_lost_answers_to_its_own_writes(
    fault: str, which: str, app: App, client: Client, behind: Workers, proxy: Proxy
):
    """The next renewal is refused by the one whose answer was lost.

    That is read, and is no reason to drop a live session [18].
    """
    if which == "renewal":  # an answer that is missed late still leaves time for a second try within the ttl
        app.config = replace(QUICK, session_ttl_seconds=1.5, request_timeout_seconds=1.2)
    counted = Counted(app)
    plan = getattr(proxy, fault)
    planned: Fault | None = plan(session_write(app)) if which == "create" else None
    async with behind.run(app) as running:
        session = running.worker.lease.id
        planned = planned or plan(session_write(app))
        await asyncio.wait_for(planned.done.wait(), 5)
        trusted = running.worker.lease.trusted_until_epoch
        await wait_until(
            lambda: running.worker.lease.trusted_until_epoch > trusted + 0.5, description="renewals are confirmed again"
        )
        run = await client.submit(counted.actor.call(), key="k")
        assert await run.result(timeout=5) == "by attempt 1"
        assert running.worker.lease.id == session
        assert running.worker.lease.trusted
        assert running.worker.metrics.errors["lease"] == 0
