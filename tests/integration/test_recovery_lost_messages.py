"""Live records with nothing to wake them: messages lost, the stream purged, the consumer deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.msg import Msg

from tenure import App, Client
from tenure.clock import SYSTEM
from tenure.core import commands as c
from tenure.core.records import Policy, Task
from tenure.nats.connection import ApiError
from tenure.nats.runs import Committed
from tenure.nats.work import consumer_spec
from tests.conftest import Supervisors, Workers
from tests.contract.support import depth, pull
from tests.processes import WITHIN_SECONDS, Site, until_repaired
from tests.proxy import Proxy
from tests.support import sized, wait_until


@pytest.fixture
def app(site: Site) -> App:
    return site.app


async def purge(client: Client) -> None:
    """Throw away every wake-up and timer."""
    await client.stores.conn.api(f"STREAM.PURGE.{client.stores.names.work_stream}", {})
    assert await depth(client.stores) == 0


@pytest.mark.parametrize("delay", [0.0, 4.0])
async def test_a_run_that_waits_is_woken_once_though_its_message_is_gone(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors, delay: float
) -> None:
    """Queued and scheduled; the stream is purged, with a worker that pulls and a supervisor that sweeps."""
    async with workers.run(app), supervisors.run(app) as supervisor:
        run = await client.submit(app.actors["quick"].call(), key="k", delay=delay + 1.5)
        await purge(client)
        assert await run.result(WITHIN_SECONDS + delay) == "attempt 1"
        await until_repaired(supervisor, "wakeup")
    assert len(site.events("started", "k")) == 1


async def test_a_newer_run_is_woken_though_an_older_one_of_its_key_has_a_message_in_hand(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """The old run's wake-up was given to somebody who does not answer, for an ``ack_wait`` of 30 s.

    Then the key is replaced, and the producer is cut down before the new run's wake-up.
    """
    async with pull(client.stores, wanted=1) as pulled:
        await client.submit(app.actors["quick"].call(), key="k")
        await pulled.next()
    newer = replacing(app, "quick")
    assert isinstance(await client.stores.runs.commit("k", newer), Committed)
    async with workers.run(app), supervisors.run(app) as supervisor:
        await site.wait_for("started", "k", timeout=WITHIN_SECONDS)
        await until_repaired(supervisor, "wakeup")
        await wait_until(lambda: only_one_left(client), description="the old message is still in hand, and no other")
    assert [e.generation for e in site.events("started", "k")] == [2]


async def only_one_left(client: Client) -> bool:
    return await depth(client.stores) == 1


async def test_a_newer_run_gets_its_timer_though_an_older_one_of_its_key_has_one(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """The old one was due in an hour, the newer one in seconds; the producer is cut down before the timer.

    It starts in time: nobody takes the old timer for its own until it is late.
    """
    async with workers.run(app), supervisors.run(app) as supervisor:
        await client.submit(app.actors["quick"].call(), key="k", delay=3600.0)
        newer = replacing(app, "quick", due=client.stores.clock.now() + 5.0)
        assert isinstance(await client.stores.runs.commit("k", newer), Committed)
        await until_repaired(supervisor, "wakeup")
        assert client.stores.clock.now() < newer.due
        assert (await site.wait_for("started", "k")).at < newer.due + 1.0
    assert [e.generation for e in site.events("started", "k")] == [2]


def replacing(app: App, actor: str, *, due: float = 0.0, **policy: Any) -> c.Replace:
    """A replace of ``k`` as the client would store it."""
    return c.Replace(key="k", run_id=SYSTEM.new_id(), task=Task(actor=actor, policy=Policy(**policy)), due=due)


async def test_a_run_is_taken_over_though_its_message_is_gone(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Running; the stream is purged under its worker, and then the worker is killed: no redelivery will ever come."""
    process = await site.start_worker()
    run = await client.submit(app.actors["hold"].call(), key="k")
    await site.wait_for("started", "k")
    await purge(client)
    async with workers.run(app), supervisors.run(app):
        await process.kill()
        site.open("k")
        assert await run.result(WITHIN_SECONDS) == "attempt 2"


async def test_a_run_that_is_stopping_ends_though_its_message_is_gone(
    site: Site, app: App, client: Client, supervisors: Supervisors
) -> None:
    """Told and deaf; its message purged, its worker killed. There is no other worker: a supervisor ends it by itself."""
    process = await site.start_worker()
    run = await client.submit(app.actors["deaf"].call(), key="k")
    await site.wait_for("started", "k")
    await run.cancel(reason="enough")
    await purge(client)
    async with supervisors.run(app) as supervisor:
        await process.kill()
        status = await run.wait(WITHIN_SECONDS)
        assert (status.phase, status.attempt) == ("cancelled", 1)
        await until_repaired(supervisor, "stop")
        assert supervisor.metrics.cancelled["deaf", "running"] == 1


async def test_a_run_that_waits_for_its_retry_is_retried_though_its_timer_is_gone(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Attempt 1 has failed, attempt 2 is due in 3 s; the timer is purged."""
    async with workers.run(app) as running, supervisors.run(app):
        run = await client.submit(app.actors["fails_once"].call(), key="k")
        metrics = running.worker.metrics
        await wait_until(lambda: metrics.outcomes["fails_once", "retried"], description="attempt 1 has failed")
        await wait_until(lambda: not len(running.worker.table), description="its wake-up is acknowledged")
        await purge(client)
        assert await run.result(WITHIN_SECONDS + 3.0) == "attempt 2"
    assert [e.attempt for e in site.events("started", "k")] == [1, 2]


async def test_a_deleted_consumer_loses_nothing(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """The queue's consumer is deleted while a worker pulls from it and runs are waiting: all of them run, once."""
    consumer = f"CONSUMER.DELETE.{app.names.work_stream}.{app.names.consumer('default', 'normal')}"
    async with workers.run(app), supervisors.run(app):
        await client.stores.conn.api(consumer, {})
        runs = [await client.submit(app.actors["quick"].call(), key=f"k-{number}") for number in range(20)]
        assert [await run.result(WITHIN_SECONDS + 4.0) for run in runs] == ["attempt 1"] * 20
    assert len(site.events("started")) == 20


async def filter_to(client: Client, priority: str) -> None:
    """Let the normal lane's consumer select another lane, or its own again, as an operator may."""
    names = client.stores.names
    settings = consumer_spec(names, "default", "normal", client.stores.config.ack_wait_seconds)
    settings["filter_subject"] = names.work_filter("default", priority)
    call = f"CONSUMER.DURABLE.CREATE.{names.work_stream}.{settings['durable_name']}"
    answer = await client.stores.conn.api(call, {"stream_name": names.work_stream, "config": settings})
    assert not isinstance(answer, ApiError), answer.description


async def overtake(client: Client, app: App, priority: str = "high") -> None:
    """Have the normal lane's consumer deliver a message of another lane: its ack floor rises over all that is stored."""
    names = client.stores.names
    await filter_to(client, priority)
    await client.stores.conn.put(names.work("default", priority, "foreign", "r1"), b"")
    inbox = client.stores.conn.new_inbox()
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await client.stores.conn.subscribe(inbox, arrived.put)
    consumer = names.consumer("default", "normal")
    await client.stores.conn.publish(f"$JS.API.CONSUMER.MSG.NEXT.{names.work_stream}.{consumer}", b"1", reply=inbox)
    await client.stores.conn.request((await asyncio.wait_for(arrived.get(), 5.0)).reply, b"+ACK")
    await client.stores.conn.unsubscribe(subscription)
    await filter_to(client, "normal")


async def test_a_wake_up_below_its_consumers_ack_floor_is_replaced(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """The server delivers it to nobody any more, and it is stored: its run looked as if it had a wake-up, for ever."""
    run = await client.submit(app.actors["quick"].call(), key="k")
    await overtake(client, app)
    async with workers.run(app), supervisors.run(app) as supervisor:
        assert await run.result(WITHIN_SECONDS) == "attempt 1"
        await until_repaired(supervisor, "stray")
        assert supervisor.metrics.repairs["stray"] == 1
    assert await depth(client.stores) == 0
    assert len(site.events("started")) == 1


async def test_a_stray_wake_up_of_a_run_that_is_over_is_removed(
    app: App, client: Client, supervisors: Supervisors
) -> None:
    """Litter: nobody waits for it, and a work stream that never empties hides what is wrong."""
    run = await client.submit(app.actors["quick"].call(), key="k")
    await overtake(client, app)
    await run.cancel()
    async with supervisors.run(app) as supervisor:
        await until_repaired(supervisor, "stray")
        assert supervisor.metrics.repairs["wakeup"] == 0
    assert await depth(client.stores) == 0


async def test_messages_outside_of_every_lane_are_removed_and_nothing_else(
    app: App, client: Client, supervisors: Supervisors
) -> None:
    """No consumer matches them: no worker throws them away. One passes for a wake-up of a run that has lost its own.

    A queue that nobody works on, and a run that waits for its time, keep what they have.
    """

    @app.actor(queue="nobodys")
    async def unserved() -> None:
        raise NotImplementedError

    names, conn = client.stores.names, client.stores.conn
    await client.submit(unserved.call(), key="waits")
    later = await client.submit(app.actors["quick"].call(), key="later", delay=600)
    lost = await client.submit(app.actors["quick"].call(), key="lost")
    wakeup = names.work("default", "normal", "lost", lost.run_id)
    await conn.api(f"STREAM.PURGE.{names.work_stream}", {"filter": wakeup})
    for rest in ("work.x", f"work.default.urgent.lost.{lost.run_id}", "timer.x", "park.x", "work.x", "work.>"):
        await conn.put(f"{names.root}.{rest}", b"junk")
    async with supervisors.run(app) as supervisor:
        await until_repaired(supervisor, "wakeup")
        assert supervisor.metrics.repairs["foreign"] == 6
    info = await conn.api(f"STREAM.INFO.{names.work_stream}", {"subjects_filter": ">"})
    assert isinstance(info, dict)
    left = {tuple(subject.removeprefix(f"{names.root}.").split(".")[:-1]) for subject in info["state"]["subjects"]}
    assert left == {
        ("work", "nobodys", "normal", "waits"),
        ("work", "default", "normal", "lost"),
        ("timer", "later", later.run_id),
    }


async def test_a_stop_signal_that_is_purged_before_anybody_sees_it_is_sent_again(
    site: Site, app: App, client: Client, proxy: Proxy, supervisors: Supervisors
) -> None:
    """The worker is cut off for a moment; meanwhile the signal is stored, and then gone. Back again, the body is told."""
    await site.start_worker(url=proxy.url)
    run = await client.submit(app.actors["hold"].call(), key="k")
    await site.wait_for("started", "k")
    await proxy.take_down()
    await run.cancel()
    found = await client.stores.runs.read("k")
    assert found.record is not None
    assert found.record.holder is not None
    holder = found.record.holder
    subject = app.names.stop(holder.session, holder.run_id, holder.attempt)
    await client.stores.conn.api(f"STREAM.PURGE.{app.names.sessions_stream}", {"filter": subject})
    await proxy.bring_up()
    async with supervisors.run(app) as supervisor:
        await site.wait_for("stopped:cancel", "k", timeout=WITHIN_SECONDS)
        assert (await run.wait(WITHIN_SECONDS)).phase == "cancelled"
        await until_repaired(supervisor, "signal")
        assert supervisor.metrics.repairs["session"] == 0


async def test_a_backlog_without_a_worker_gets_no_second_message(
    app: App, client: Client, supervisors: Supervisors
) -> None:
    """Thousands of runs wait, and nobody works; of some the message is in the hands of one that does not answer.

    Several supervisors pass over them again and again, all at once, and publish nothing.
    """
    number, in_hand = sized(1_500, 5_000), 50
    results = await client.submit_many([(app.actors["quick"].call(), f"k-{n}") for n in range(number)])
    assert not [result for result in results if isinstance(result, Exception)]
    before = await last_sequence(client)
    async with pull(client.stores, wanted=in_hand) as pulled:
        for _ in range(in_hand):
            await pulled.next()
        async with supervisors.run(app) as one, supervisors.run(app) as other, supervisors.run(app) as third:
            await asyncio.gather(*(sweeps(each, sized(6, 12)) for each in (one, other, third)))
            for each in (one, other, third):
                assert each.metrics.swept_records == number
                assert sum(each.metrics.repairs.values()) == 0
        assert await last_sequence(client) == before
        assert await depth(client.stores) == number


async def last_sequence(client: Client) -> int:
    """How many messages the work stream was ever given."""
    info = await client.stores.conn.api(f"STREAM.INFO.{client.stores.names.work_stream}", {})
    assert isinstance(info, dict)
    return int(info["state"]["last_seq"])


async def sweeps(supervisor: object, number: int) -> None:
    """Wait for some whole passes."""
    for _ in range(number):
        before = supervisor._swept_at  # type: ignore[attr-defined]  # passes are seen nowhere else
        await wait_until(
            lambda: supervisor._swept_at != before,  # type: ignore[attr-defined]  # noqa: B023  # as above; awaited here
            description="another pass",
        )
