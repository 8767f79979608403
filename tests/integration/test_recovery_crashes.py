"""Every gap between two steps: real processes are killed exactly there, fresh ones close it.

The proxy loses one chosen write, or its answer, and the process that sent it is killed before it can repeat it.
"""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from tenure import App, Client
from tests.conftest import Supervisors, Workers
from tests.contract.support import is_empty
from tests.processes import TARGET, WITHIN_SECONDS, Site, until_repaired
from tests.proxy import Matches, Proxy, Publish, record
from tests.support import wait_until

OFTEN = 1_000


@pytest.fixture
def app(site: Site) -> App:
    return site.app


async def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    await asyncio.to_thread(process.wait, 10)


def message(app: App) -> Matches:
    """Wake-ups and timers of any key."""
    return lambda p: p.subject.startswith((app.names.work_prefix, app.names.timer_prefix))


def acknowledgement(publish: Publish) -> bool:
    return publish.subject.startswith("$JS.ACK.") and publish.payload.startswith(b"+ACK")


# -- record, then wake-up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", ["0s", "4s"])
async def test_scenario_43_a_crash_between_record_and_wake_up_is_found(
    site: Site, app: App, client: Client, proxy: Proxy, workers: Workers, supervisors: Supervisors, delay: str
) -> None:
    """From flydocs. The producer is killed between its two writes, of a run that is due and of one that is scheduled."""
    lost = proxy.lose(message(app), OFTEN)
    producer = site.command("submit", TARGET, "quick", "--key", "k", "--delay", delay, url=proxy.url)
    await lost.done.wait()
    await kill(producer)
    async with workers.run(app), supervisors.run(app) as supervisor:
        assert await client.run("k").result(WITHIN_SECONDS + float(delay[:-1])) == "attempt 1"
        assert len(site.events("started", "k")) == 1
        await until_repaired(supervisor, "wakeup")
        await wait_until(lambda: is_empty(client.stores), description="no message is left")


# -- claim, body, outcome ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["claim stored", "in the body", "outcome sent"])
async def test_a_worker_killed_between_claim_and_outcome_is_followed_by_another_attempt(
    site: Site, app: App, client: Client, proxy: Proxy, workers: Workers, supervisors: Supervisors, where: str
) -> None:
    """Killed before its body starts, in its middle, and when its outcome is on its way; the message is in its hands."""
    claim = proxy.lose_answer(record(app, "k", "running"), OFTEN if where == "claim stored" else 0)
    outcome = proxy.lose(record(app, "k", "succeeded"), OFTEN)
    process = await site.start_worker(url=proxy.url)
    run = await client.submit(app.actors["hold"].call(), key="k")
    if where == "claim stored":
        await claim.done.wait()
    else:
        await site.wait_for("started", "k")
    if where == "outcome sent":
        site.open("k")
        await outcome.done.wait()
    await process.kill()
    site.open("k")
    async with workers.run(app) as running, supervisors.run(app) as supervisor:
        assert await run.result(WITHIN_SECONDS) == "attempt 2"
        assert running.worker.metrics.takeovers["hold"] == 1
        assert supervisor.metrics.repairs["takeover"] == 1
        assert supervisor.metrics.repairs["session"] == 1
    started = site.events("started", "k")
    assert [e.attempt for e in started] == ([2] if where == "claim stored" else [1, 2])
    assert started[-1].failures == 1
    assert len(site.events("ended", "k")) == (2 if where == "outcome sent" else 1)


async def test_a_worker_that_is_cut_off_for_good_is_followed_by_another_attempt(
    site: Site, app: App, client: Client, proxy: Proxy, behind: Workers, workers: Workers, supervisors: Supervisors
) -> None:
    """Its process lives and its body runs, but no byte of it arrives any more. It stops by itself; nothing of it counts."""
    async with supervisors.run(app), behind.run(app):
        run = await client.submit(app.actors["hold"].call(), key="k")
        await site.wait_for("started", "k")
        await proxy.take_down()
        await site.wait_for("stopped:lease_lost", "k")
        site.open("k")
        async with workers.run(app):
            assert await run.result(WITHIN_SECONDS) == "attempt 2"
    assert [e.attempt for e in site.events("ended", "k")] == [2]


# -- outcome, effects, ack ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closer", ["sweep", "redelivery"])
@pytest.mark.parametrize("effect", ["spawn", "successor", "successor's timer", "retry's timer"])
async def test_effects_of_a_stored_outcome_follow_though_its_worker_was_killed(
    site: Site, proxy: Proxy, workers: Workers, supervisors: Supervisors, effect: str, closer: str
) -> None:
    """The server stores the outcome, the worker never hears of it and is killed: spawn, wake-up or timer is missing.

    Whoever gets the un-acknowledged message next does what is owed, with no supervisor at all; and where that is lost as
    well, a sweep finds it.
    """
    site.settings = {"ack_wait_seconds": 2.0 if closer == "redelivery" else 60.0}
    app = site.app
    name, arguments, phase, last, then = {
        "spawn": ("spawns", {}, "succeeded", "k-child", "attempt 1"),
        "successor": ("chains", {"delay": 0.0}, "waiting", "k", "generation 2"),
        "successor's timer": ("chains", {"delay": 4.0}, "waiting", "k", "generation 2"),
        "retry's timer": ("fails_once", {}, "waiting", "k", "attempt 2"),
    }[effect]
    stored = proxy.lose_answer(record(app, "k", str(phase)), OFTEN)
    process = await site.start_worker(url=proxy.url)
    async with app.connect(workers.url) as client:
        await client.submit(app.actors[str(name)].call(**arguments), key="k")
        await stored.done.wait()
        await process.kill()
        async with workers.run(app):
            if closer == "sweep":
                await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})
                async with supervisors.run(app):
                    await ends_with(client, str(last), str(then))
            else:
                await ends_with(client, str(last), str(then))
                await wait_until(lambda: is_empty(client.stores), description="no message is left", timeout=3.0)
    assert len(site.events("started", str(last))) == (1 if effect == "spawn" else 2)
    if effect == "spawn":
        assert len(site.events("started", "k")) == 1


async def ends_with(client: Client, key: str, value: str) -> None:
    """Wait until ``key`` exists and has ended with ``value``."""

    async def ended() -> bool:
        status = await client.status(key)
        return status is not None and status.phase == "succeeded"

    await wait_until(ended, description=f"{key} has ended", timeout=WITHIN_SECONDS + 4.0)
    assert await client.run(key).result(1) == value


async def test_a_finished_run_whose_ack_is_missing_is_not_run_again(site: Site, proxy: Proxy, workers: Workers) -> None:
    """Killed between the outcome and the ack: the message comes again, finds the record finished and is acknowledged."""
    site.settings = {"ack_wait_seconds": 2.0}
    app = site.app
    lost = proxy.lose(acknowledgement, OFTEN)
    process = await site.start_worker(url=proxy.url)
    async with app.connect(workers.url) as client:
        run = await client.submit(app.actors["quick"].call(), key="k")
        await lost.done.wait()
        await process.kill()
        assert await run.result(1) == "attempt 1"
        assert not await is_empty(client.stores)
        async with workers.run(app) as running:
            await wait_until(lambda: is_empty(client.stores), description="the message is gone")
            assert running.worker.metrics.claims["quick", "finished"] == 1
    assert len(site.events("started")) == 1


# -- cancel, replace ---------------------------------------------------------------------------------------------------


async def test_a_cancel_whose_caller_was_killed_before_the_signal_is_obeyed(
    site: Site, app: App, client: Client, proxy: Proxy, supervisors: Supervisors
) -> None:
    """The record says ``stopping``, the body was never told: a sweep sends the signal."""
    await site.start_worker()
    run = await client.submit(app.actors["hold"].call(), key="k")
    await site.wait_for("started", "k")
    lost = proxy.lose(lambda p: p.subject.startswith(app.names.sessions_prefix + "stop."), OFTEN)
    command = site.command("cancel", "k", url=proxy.url)
    await lost.done.wait()
    await kill(command)
    status = await run.status()
    assert status is not None
    assert status.phase == "stopping"
    async with supervisors.run(app) as supervisor:
        assert (await run.wait(WITHIN_SECONDS)).phase == "cancelled"
        await until_repaired(supervisor, "signal")
        assert supervisor.metrics.repairs["stop"] == 0
    assert len(site.events("stopped:cancel", "k")) == 1


async def test_a_cancelled_run_whose_worker_is_killed_ends_cancelled_without_waiting_for_its_grace(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Grace 60 s; told, deaf, and looked at by a sweep while its worker lives. Killed then: over within the ttl and seconds.

    That the key was looked at a moment ago must not count once its session is closed.
    """
    process = await site.start_worker()
    run = await client.submit(app.actors["deaf"].call(), key="k")
    await site.wait_for("started", "k")
    async with supervisors.run(app) as supervisor, workers.run(app):
        assert (await run.cancel()).outcome == "stopping"
        await site.wait_for("told:cancel", "k")
        await looked_at(supervisor, "k")
        await process.kill()
        assert (await run.wait(WITHIN_SECONDS)).phase == "cancelled"
        await until_repaired(supervisor, "stop")
        assert supervisor.metrics.cancelled["deaf", "running"] == 1
    assert len(site.events("started", "k")) == 1


async def looked_at(supervisor: object, key: str) -> None:
    """Wait until a keeper has looked at the key."""
    keepers = supervisor._keepers  # type: ignore[attr-defined]  # what a sweep does is seen nowhere else
    await wait_until(lambda: key in keepers._looked, description=f"a keeper has looked at {key}")


@pytest.mark.parametrize("overlap", ["wait", "stop"])
async def test_a_superseded_body_whose_worker_is_killed_before_its_confirm_blocks_nobody(
    site: Site, app: App, client: Client, proxy: Proxy, workers: Workers, supervisors: Supervisors, overlap: str
) -> None:
    """Generation 1 was replaced and its body has ended; its one write is lost and its process killed.

    Generation 2 waits for a body that is gone: until the session is closed, not for a grace, not for ever.
    """
    process = await site.start_worker("--queue", "default", url=proxy.url)
    await client.submit(app.actors["hold"].call(), key="k")
    await site.wait_for("started", "k")
    lost = proxy.lose(record(app, "k", "waiting"), OFTEN)
    run = await client.replace(app.actors["quick"].call(), key="k", overlap=overlap)  # type: ignore[arg-type]  # a parameter
    site.open("k")
    await lost.done.wait()
    await process.kill()
    async with workers.run(app), supervisors.run(app):
        assert await run.result(WITHIN_SECONDS) == "attempt 1"
    status = await client.status("k")
    assert status is not None
    assert status.generation == 2


@pytest.mark.parametrize("overlap", ["wait", "stop"])
async def test_a_successor_is_let_in_when_the_session_of_the_old_body_is_closed(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors, overlap: str
) -> None:
    """The old body ignores its stop (grace 60 s) or is never told; sweeps look at the key again and again; its worker dies."""
    process = await site.start_worker()
    await client.submit(app.actors["deaf"].call(), key="k")
    await site.wait_for("started", "k")
    async with workers.run(app), supervisors.run(app) as supervisor:
        run = await client.replace(app.actors["quick"].call(), key="k", overlap=overlap)  # type: ignore[arg-type]  # a parameter
        await looked_at(supervisor, "k")
        await process.kill()
        assert await run.result(WITHIN_SECONDS) == "attempt 1"
        assert supervisor.metrics.repairs["previous"] == 1
