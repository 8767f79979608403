"""Scenarios 11, 12, 13, 14, 19, 20, 21, 26 and 27: processes that die, freeze, block and come back, under supervision.

And a server that dies with one.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure import App, Client, RunFailed, RunSuperseded
from tenure.nats.embedded import EmbeddedServer
from tests.conftest import Supervisors, Workers
from tests.processes import TARGET, WITHIN_SECONDS, Site
from tests.proxy import Proxy, record
from tests.site_app import QUICK
from tests.support import wait_until

TTL = QUICK.session_ttl(copies=1)


@pytest.fixture
def app(site: Site) -> App:
    return site.app


@pytest.mark.parametrize("body", ["sleeps", "busy"])
async def test_scenario_11_a_blocked_loop_under_supervision_keeps_its_session_and_its_message(
    site: Site, client: Client, workers: Workers, supervisors: Supervisors, body: str
) -> None:
    """dramatiq#692. A body blocks its worker's loop for 5 x ttl; another worker is free, and a supervisor watches.

    That is 5 x ``ack_wait`` too: the message is given to nobody again.
    """
    site.settings["ack_wait_seconds"] = TTL
    app = site.app
    await site.start_worker()
    run = await client.submit(app.actors[body].call(seconds=5 * TTL), key="k")
    await site.wait_for("started", "k")
    async with workers.run(app), supervisors.run(app) as supervisor:
        assert await run.result(6 * TTL + WITHIN_SECONDS) == "attempt 1"
        assert supervisor.metrics.repairs["session"] == 0
        assert supervisor.metrics.repairs["takeover"] == 0
        lane = f"CONSUMER.INFO.{app.names.work_stream}.{app.names.consumer('default', 'normal')}"
        info = await client.stores.conn.api(lane, {})
    assert len(site.events("started", "k")) == 1
    assert isinstance(info, dict)
    assert info["config"]["ack_wait"] == TTL * 1e9
    assert info["delivered"]["consumer_seq"] == 1, "deliveries"


async def test_scenario_12_a_frozen_process_is_fenced_when_it_wakes(
    site: Site, app: App, client: Client, supervisors: Supervisors
) -> None:
    """dapr#9514. SIGSTOP past the ttl, takeover, SIGCONT: the old write is refused, its body is told ``lease_lost``.

    One of its bodies has its value at hand when it wakes, the other is in its middle. It goes on with a new session.
    """
    async with supervisors.run(app):
        frozen = await site.start_worker("--metrics-port", "0")
        runs = [await client.submit(app.actors["hold"].call(), key=key) for key in ("ready", "middle")]
        for key in ("ready", "middle"):
            await site.wait_for("started", key)
        other = await site.start_worker()
        frozen.freeze()
        for key in ("ready", "middle"):
            assert (await site.wait_for("started", key, 2, timeout=WITHIN_SECONDS)).pid == other.pid
        site.open("ready-1")
        frozen.thaw()
        assert (await site.wait_for("stopped:lease_lost", "middle")).pid == frozen.pid

        async def fenced() -> bool:
            return 'tenure_fenced_total{actor="hold"} 2.0' in await frozen.metrics()

        await wait_until(fenced, description="both writes of the frozen process are refused")
        for run in runs:
            status = await run.status()
            assert status is not None
            assert (status.phase, status.attempt) == ("running", 2)
        site.open("ready")
        site.open("middle")
        assert [await run.result(5) for run in runs] == ["attempt 2", "attempt 2"]
        await other.kill()
        site.open("after")
        await client.submit(app.actors["hold"].call(), key="after")
        assert (await site.wait_for("started", "after", timeout=WITHIN_SECONDS)).pid == frozen.pid
        assert await client.run("after").result(5) == "attempt 1"


async def test_scenario_13_kill_9_loses_nothing_and_leaves_nothing_running(
    site: Site, supervisors: Supervisors
) -> None:
    """celery#3541, saq#127. Killed at a third of its run; attempt 2 starts elsewhere within the ttl and a second or two.

    Pauses between sweeps and ``ack_wait`` are in the proportion of the defaults: twice and three times the ttl. Neither
    may be what it takes.
    """
    site.settings = {"sweep_seconds": 2 * TTL, "ack_wait_seconds": 3 * TTL}
    app = site.app
    async with app.connect(site.url) as client, supervisors.run(app):
        victim = await site.start_worker()
        loop = asyncio.get_running_loop()
        submitted = loop.time()
        runs = [await client.submit(app.actors["hold"].call(), key=f"k-{n}") for n in range(10)]
        for n in range(10):
            await site.wait_for("started", f"k-{n}")
        needed = loop.time() - submitted
        other = await site.start_worker()
        killed = loop.time()
        await victim.kill()
        for n in range(10):
            again = await site.wait_for("started", f"k-{n}", 2)
            assert (again.attempt, again.failures, again.pid) == (2, 1, other.pid)
        took = loop.time() - killed
        assert took < TTL + max(1.5, 1.0 + 3 * needed), f"{took:.2f} s, and the first starts {needed:.2f} s"
        for n in range(10):
            site.open(f"k-{n}")
        assert [await run.result(5) for run in runs] == ["attempt 2"] * 10


@pytest.mark.one_server("its own server is killed and started with its store")
async def test_a_worker_that_dies_with_the_server_is_taken_over(site: Site) -> None:
    """Kill -9 of both at once. The server comes back, the others' clocks start anew; nobody but the dead one is closed."""
    site.settings["session_ttl_seconds"] = TTL / 2
    with EmbeddedServer() as server:
        site.url = server.url
        app = site.app
        async with app.connect(server.url) as client, Supervisors(server.url).run(app) as supervisor:
            victim = await site.start_worker()
            run = await client.submit(app.actors["hold"].call(), key="k")
            await site.wait_for("started", "k")
            victim.process.kill()
            await asyncio.to_thread(server.kill)
            await victim.kill()
            await asyncio.to_thread(server.start)
            async with Workers(server.url).run(app):
                assert (await site.wait_for("started", "k", 2)).attempt == 2
                site.open("k")
                assert await run.result(WITHIN_SECONDS) == "attempt 2"
            assert supervisor.metrics.repairs["session"] == 1
    assert len(site.events("started")) == 2


async def test_scenario_14_a_reused_host_name_does_not_keep_a_dead_owner_alive(
    site: Site, app: App, client: Client, supervisors: Supervisors
) -> None:
    """oban#862. Killed and started again on the same host at once: the new process takes the old one's claims over."""
    async with supervisors.run(app):
        first = await site.start_worker()
        run = await client.submit(app.actors["hold"].call(), key="k")
        await site.wait_for("started", "k")
        holder = await run.status()
        await first.kill()
        second = await site.start_worker()
        again = await site.wait_for("started", "k", 2, timeout=WITHIN_SECONDS)
        assert again.pid == second.pid
        site.open("k")
        assert await run.result(5) == "attempt 2"
        assert holder is not None
        seen = await client.stores.sessions.read(str(holder.holder))
        assert seen is not None
        assert seen.session.closed == "expired"


async def test_scenario_19_a_supervisor_with_an_old_snapshot_cannot_undo_an_outcome(
    site: Site, app: App, client: Client, proxy: Proxy, supervised_behind: Supervisors
) -> None:
    """river#1302. A body overstays, a supervisor reads that and is held up before its write; the body ends with a value.

    Then the old write arrives, every copy of it.
    """
    await site.start_worker()
    async with supervised_behind.run(app) as supervisor:
        held = proxy.hold(record(app, "k", "waiting"), 1_000)
        run = await client.submit(app.actors["overruns"].call(), key="k")
        await asyncio.wait_for(held.done.wait(), 10)
        site.open("k")
        assert await run.result(5) == "attempt 1"
        held.clear()
        await proxy.release(held)
        keepers = supervisor._keepers
        assert keepers is not None
        await wait_until(lambda: not keepers.waiting, description="the keeper is done")
        status = await run.status()
        assert status is not None
        assert (status.phase, status.attempt, status.generation) == ("succeeded", 1, 1)
        assert await run.result(1) == "attempt 1"
        assert supervisor.metrics.repairs["evicted"] == 0
    assert len(site.events("started", "k")) == 1


@pytest.mark.parametrize("overlap", ["stop", "wait"])
async def test_scenario_20_an_old_run_found_dead_while_a_newer_one_waits_ends_superseded(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors, overlap: str
) -> None:
    """procrastinate#1446. Kill run g, replace it, let the supervisor act: g + 1 runs, g is superseded, not run again."""
    victim = await site.start_worker()
    old = await client.submit(app.actors["deaf"].call(), key="k")
    await site.wait_for("started", "k")
    await victim.kill()
    new = await client.replace(app.actors["quick"].call(), key="k", overlap=overlap)  # type: ignore[arg-type]  # a parameter
    async with workers.run(app), supervisors.run(app) as supervisor:
        assert await new.result(WITHIN_SECONDS) == "attempt 1"
        with pytest.raises(RunSuperseded) as error:
            await old.result(1)
        assert error.value.by_generation == 2
        assert supervisor.metrics.repairs["previous"] == 1
        assert supervisor.metrics.repairs["takeover"] == 0
    assert [e.generation for e in site.events("started", "k")] == [1, 2]


async def test_scenario_21_a_submit_to_a_dead_holder_with_budget_left_joins_a_run_that_goes_on(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """prefect#20729. Kill, submit the same key before the repair: the caller gets the live run, and that run runs."""
    victim = await site.start_worker()
    first = await client.submit(app.actors["hold"].call(), key="k")
    await site.wait_for("started", "k")
    await victim.kill()
    again = await client.submit(app.actors["hold"].call(), key="k")
    assert (again.accepted, again.run_id) == (False, first.run_id)
    site.open("k")
    async with workers.run(app), supervisors.run(app):
        assert await again.result(WITHIN_SECONDS) == "attempt 2"


async def test_scenario_21_a_submit_to_a_dead_holder_without_budget_starts_a_new_generation(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """prefect#20729. The only attempt is lost and its session closed, nobody has taken the run over.

    The submit is not swallowed by a run that can only fail.
    """
    victim = await site.start_worker()
    first = await client.submit(app.actors["once"].call(), key="k")
    await site.wait_for("started", "k")
    await victim.kill()
    async with supervisors.run(app) as supervisor:
        await wait_until(lambda: supervisor.metrics.repairs["session"], description="its session is closed")
        again = await client.submit(app.actors["once"].call(), key="k")
        assert (again.accepted, again.generation) == (True, 2)
        with pytest.raises(RunFailed) as error:
            await first.result(1)
        assert error.value.error_type == "WorkerLost"
        site.open("k")
        async with workers.run(app):
            assert await again.result(WITHIN_SECONDS) == "attempt 1"


async def test_scenario_26_crashes_count(site: Site, app: App, client: Client, supervisors: Supervisors) -> None:
    """hindsight#2786. The body ends its process, which is restarted each time; three attempts and no more."""
    async with supervisors.run(app):
        run = await client.submit(app.actors["exits"].call(), key="k")
        for attempt in range(1, 4):
            process = site.command("worker", TARGET)
            event = await site.wait_for("started", "k", attempt, timeout=WITHIN_SECONDS)
            assert (event.attempt, event.failures) == (attempt, attempt - 1)
            assert await asyncio.to_thread(process.wait, 10) == 1
        await site.start_worker()
        with pytest.raises(RunFailed) as error:
            await run.result(WITHIN_SECONDS)
        assert error.value.error_type == "WorkerLost"
        status = await run.status()
        assert status is not None
        assert (status.phase, status.attempt, status.failures) == ("failed", 3, 3)
        (letter,) = await client.dead.list(key="k")
        assert (letter.run_id, letter.failure.type, letter.attempts) == (run.run_id, "WorkerLost", 3)
    assert len(site.events("started", "k")) == 3


async def test_scenario_27_a_worker_that_does_not_know_an_actor_does_not_lose_its_task(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """docket#438. An old and a new worker on one queue: everything runs on the new one.

    The new one is killed with a perpetual run in its hands, and the old one is all there is for a while: it keeps handing
    the supervisor's wake-up back. The chain heals when a new one comes.
    """
    old = App(app.namespace, config=replace(app.config, ack_wait_seconds=2.0))

    @old.actor
    async def older() -> None: ...

    async with workers.run(old, queues=["default"], concurrency=1) as running, supervisors.run(app):
        new = await site.start_worker()
        runs = [await client.submit(app.actors["quick"].call(), key=f"k-{n}") for n in range(20)]
        assert [await run.result(10) for run in runs] == ["attempt 1"] * 20
        await client.submit(app.actors["ticks"].call(), key="ticks")
        await site.wait_for("started", "ticks", 2)
        await client.replace(app.actors["hold"].call(), key="held")
        await site.wait_for("started", "held")
        await new.kill()
        ticked = len(site.events("started", "ticks"))
        site.open("held")
        claims = running.worker.metrics.claims
        known = claims["hold", "unknown_actor"]
        await wait_until(lambda: claims["hold", "unknown_actor"] > known, description="the old worker hands it back")
        await site.start_worker()
        await site.wait_for("started", "ticks", ticked + 3)
        assert await client.run("held").result(5) == "attempt 2"
    generations = [e.generation for e in site.events("started", "ticks")]
    assert sorted(set(generations)) == list(range(1, max(generations) + 1))
    assert {e.key for e in site.events("started")} == {"ticks", "held", *(f"k-{n}" for n in range(20))}
