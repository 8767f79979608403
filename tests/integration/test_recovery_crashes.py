"""Workers that are killed or cut off while supervisors look on; each gap between two steps is in ``test_recovery_rows``."""

from __future__ import annotations

import pytest

from tenure import App, Client
from tests.conftest import Supervisors, Workers
from tests.processes import WITHIN_SECONDS, Site, until_repaired
from tests.proxy import Proxy, record
from tests.support import wait_until

OFTEN = 1_000


@pytest.fixture
def app(site: Site) -> App:
    return site.app


async def test_a_worker_killed_while_its_outcome_is_on_its_way_is_followed_by_another_attempt(
    site: Site, app: App, client: Client, proxy: Proxy, workers: Workers, supervisors: Supervisors
) -> None:
    """The write is lost, and the process dies before it can repeat it; the message is in its hands."""
    outcome = proxy.lose(record(app, "k", "succeeded"), OFTEN)
    process = await site.start_worker(url=proxy.url)
    run = await client.submit(app.actors["hold"].call(), key="k")
    site.open("k")
    await outcome.done.wait()
    await process.kill()
    async with workers.run(app) as running, supervisors.run(app) as supervisor:
        assert await run.result(WITHIN_SECONDS) == "attempt 2"
        assert running.worker.metrics.takeovers["hold"] == 1
        assert supervisor.metrics.repairs["takeover"] == 1
        assert supervisor.metrics.repairs["session"] == 1
    assert [(e.attempt, e.failures) for e in site.events("started", "k")] == [(1, 0), (2, 1)]
    assert len(site.events("ended", "k")) == 2


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
