"""DESIGN section 5 with nothing in common between who dies and who repairs: a process is killed in the gap, a fresh one closes it."""

from __future__ import annotations

import pytest

from tenure import App, Client
from tenure.core.aftermath import derived_id
from tests.processes import WITHIN_SECONDS, Site
from tests.proxy import Proxy, Publish, record
from tests.strangers import Stranger, phase, until_empty, until_forgotten
from tests.support import wait_until

OFTEN = 1_000


@pytest.fixture
def app(site: Site) -> App:
    return site.app


@pytest.mark.long
async def test_what_a_failure_for_good_owes_is_found_by_a_fresh_process(
    site: Site, app: App, client: Client, proxy: Proxy
) -> None:
    """Killed between the outcome and its hook and dead letter, and the message is lost as well: a sweep finds the outbox."""
    victim = await site.start_worker(url=proxy.url)
    stored = proxy.lose_answer(record(app, "k", "failed"), OFTEN)
    run = await client.submit(app.actors["hooked"].call(fails=True), key="k")
    await stored.done.wait()
    await victim.kill()
    await client.stores.conn.api(f"STREAM.PURGE.{app.names.work_stream}", {})
    assert await client.dead.list() == []
    hook = derived_id(run.run_id, "failed.0")
    fresh = await site.start_worker("--with-supervisor")
    assert (await site.wait_for("heard:failed", hook, timeout=WITHIN_SECONDS)).pid == fresh.pid
    await wait_until(lambda: owes_nothing(client), description="nothing is owed any more")
    assert await client.run(hook).result(WITHIN_SECONDS) == "attempt 1"
    assert [letter.run_id for letter in await client.dead.list()] == [run.run_id]
    assert len(site.events("heard")) == len(site.events("started")) == 1


async def owes_nothing(client: Client) -> bool:
    found = await client.stores.runs.read("k")
    return found.record is not None and not found.record.outbox and not found.record.previous


@pytest.mark.long
async def test_a_successor_is_let_in_by_a_fresh_process_though_the_old_bodys_confirm_is_lost(
    site: Site, app: App, client: Client, proxy: Proxy
) -> None:
    """Killed when the superseded body has ended and its entry is in ``previous``; both messages are in the dead one's hands."""
    victim = await site.start_worker(url=proxy.url)
    await client.submit(app.actors["hold"].call(), key="k")
    await site.wait_for("started", "k")
    confirm = proxy.lose(record(app, "k", "waiting"), OFTEN)
    run = await client.replace(app.actors["quick"].call(), key="k", overlap="wait")
    site.open("k")
    await confirm.done.wait()
    await victim.kill()
    fresh = await site.start_worker("--with-supervisor")
    assert await run.result(WITHIN_SECONDS) == "attempt 1"
    await wait_until(lambda: owes_nothing(client), description="the entry is gone")
    assert [(event.generation, event.pid) for event in site.events("started", "k")] == [(1, victim.pid), (2, fresh.pid)]


async def test_a_command_whose_supervisor_is_killed_before_its_ack_is_applied_once(
    site: Site, app: App, client: Client, proxy: Proxy, stranger: Stranger
) -> None:
    """Applied, its effects done, SIGKILL; the run is over and the key another's before the message comes again."""

    def acknowledged(publish: Publish) -> bool:
        return publish.subject.startswith(f"$JS.ACK.{app.names.inbox_stream}.") and publish.payload == b"+ACK"

    site.settings = {"ack_wait_seconds": 1.0}
    victim = await site.start_supervisor(url=proxy.url)
    lost = proxy.lose(acknowledged, OFTEN)
    await stranger.send("replace.quick", Tenure_Key="k")
    await lost.done.wait()
    await victim.kill()
    assert await phase(client, "k") == "queued"
    await (await client.run("k")).cancel()
    await client.submit(app.actors["quick"].call(), key="k")
    await site.start_supervisor()
    await until_empty(stranger, client)
    await until_forgotten(client, "k")
    status = await client.status("k")
    assert status is not None
    assert (status.generation, status.phase) == (2, "queued")
