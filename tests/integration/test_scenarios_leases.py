"""Scenarios 15 and 16: long is not dead.

Runs outlast the lease's ttl and the message's ``ack_wait`` many times over.
"""

from __future__ import annotations

import asyncio
import time

from msgspec.structs import replace

from tenure import App, Context
from tests.conftest import Running, Workers
from tests.support import FAST, wait_until, wake

TTL = 0.4
SHORT_LEASE = replace(FAST, session_ttl_seconds=TTL, request_timeout_seconds=0.4, ack_wait_seconds=1.0)


def claims(workers: list[Running], actor: str) -> dict[str, int]:
    """What the head checks of all workers said about an actor's wake-ups, zeros left out."""
    sums: dict[str, int] = {}
    for running in workers:
        for (name, outcome), number in running.worker.metrics.claims.items():
            if name == actor and number:
                sums[outcome] = sums.get(outcome, 0) + number
    return sums


async def test_scenario_15_a_run_of_ten_times_the_ttl_is_never_taken_over(namespace: str, workers: Workers) -> None:
    """hexpm#1825.

    Two workers, ttl 0.4 s, an async and a plain body of 4 s each; meanwhile their keys are woken again and again.

    Every other wake-up meets a holder whose session is alive: the other worker must find the run busy, its own must
    know that it has the body, and the lease must still be trusted at the end.
    """
    app = App(namespace, config=SHORT_LEASE)
    reasons: list[str | None] = []
    seconds = 10 * TTL

    @app.actor
    async def patient(ctx: Context) -> int:
        await asyncio.sleep(seconds)  # body: long
        reasons.append(ctx.stop_reason)
        return ctx.attempt

    @app.actor
    def blocking(ctx: Context) -> int:
        time.sleep(seconds)  # body: long, in a thread
        reasons.append(ctx.stop_reason)
        return ctx.attempt

    async with app.connect(workers.url) as client, workers.run(app) as one, workers.run(app) as other:
        sessions = {one.worker.lease.id, other.worker.lease.id}
        runs = [await client.submit(actor.call(), key=actor.name) for actor in (patient, blocking)]
        results = [asyncio.create_task(run.result(20)) for run in runs]

        async def woken_enough() -> bool:
            await wake(client, "patient")
            await wake(client, "blocking")
            await asyncio.sleep(0.4)  # paused: between two repairs
            return all(result.done() for result in results)

        await wait_until(woken_enough, description="both runs end", timeout=20)
        assert [await result for result in results] == [1, 1]
        assert {one.worker.lease.id, other.worker.lease.id} == sessions
        assert one.worker.lease.trusted
        assert other.worker.lease.trusted
        both = [one, other]
        for actor in ("patient", "blocking"):
            counts = claims(both, actor)
            assert counts["won"] == 1
            assert not counts.keys() & {"takeover", "reclaimed", "exhausted"}
            assert counts["busy"], "the other worker was woken meanwhile"
    assert reasons == [None, None]


async def test_scenario_16_longer_than_ack_wait_gives_one_run(namespace: str, workers: Workers) -> None:
    """celery#3270, taskiq-nats#16. Three workers, ``ack_wait`` 1 s: an async and a plain run of 4 s, two delayed runs.

    One is delayed by 3.5 s (a timer at the server), one by 1.8 s (its message lies with the consumer). One run each;
    and what runs is not even delivered again.
    """
    app = App(namespace, config=SHORT_LEASE)
    started: list[str] = []
    seconds = 4 * SHORT_LEASE.ack_wait_seconds

    @app.actor(name="long")
    async def long(ctx: Context) -> int:
        started.append(ctx.key)
        await asyncio.sleep(seconds)  # body: longer than ack_wait
        return ctx.attempt

    @app.actor(name="blocking")
    def blocking(ctx: Context) -> int:
        started.append(ctx.key)
        time.sleep(seconds)  # body: longer than ack_wait, in a thread
        return ctx.attempt

    @app.actor(name="late")
    async def late(ctx: Context) -> int:
        started.append(ctx.key)
        return ctx.attempt

    async with app.connect(workers.url) as client, workers.run(app) as a, workers.run(app) as b, workers.run(app) as c:
        runs = [await client.submit(actor.call(), key=actor.name) for actor in (long, blocking)]
        runs += [await client.submit(late.call(), key=f"late {delay}", delay=delay) for delay in (1.8, 3.5)]
        assert [await run.result(10) for run in runs] == [1, 1, 1, 1]
        assert sorted(started) == ["blocking", "late 1.8", "late 3.5", "long"]
        everywhere = [a, b, c]
        assert claims(everywhere, "long") == claims(everywhere, "blocking") == {"won": 1}
        assert claims(everywhere, "late")["won"] == 2
