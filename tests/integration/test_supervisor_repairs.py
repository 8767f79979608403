"""What supervisors repair beside takeovers: graces, overstays, outboxes; and how they tell it."""

from __future__ import annotations

import re

import pytest

from tenure import App, Client
from tenure.core import commands as c
from tenure.core.records import Seen
from tenure.nats.runs import Committed
from tests.conftest import Supervisors, Workers
from tests.processes import WITHIN_SECONDS, Process, Site, until_repaired
from tests.proxy import Proxy, Publish, record, wake_up
from tests.support import session_that_is_gone, wait_until

OFTEN = 1_000


@pytest.fixture
def app(site: Site) -> App:
    return site.app


def total(metrics: str, name: str, actor: str = "") -> float:
    """The sum of a counter over its labels."""
    lines = re.findall(rf"^{name}_total\{{(.*)\}} (\S+)$", metrics, re.MULTILINE)
    return sum(float(value) for labels, value in lines if f'actor="{actor}' in labels or not actor)


async def until_gone(client: Client, key: str) -> None:
    """Wait until a key's record has expired."""

    async def gone() -> bool:
        return await client.status(key) is None

    await wait_until(gone, description=f"{key} expires", timeout=WITHIN_SECONDS)


# -- graces ------------------------------------------------------------------------------------------------------------


async def test_a_stop_whose_grace_is_over_ends_cancelled_by_force_and_is_counted_once(
    site: Site, app: App, client: Client, supervisors: Supervisors
) -> None:
    """The body blocks its worker's loop, so that its own worker cannot end it; its session is alive all the while.

    The supervisor does: cancelled, the body void. When it returns at last its value is refused.
    """
    worker = await site.start_worker("--metrics-port", "0")
    run = await client.submit(app.actors["blocks"].call(), key="k")
    await site.wait_for("blocked", "k")
    async with supervisors.run(app) as supervisor:
        await run.cancel(reason="enough")
        status = await run.wait(4.0)
        assert status.phase == "cancelled"
        assert not site.events("ended", "k"), "the body still runs"
        site.open("k")
        await site.wait_for("ended", "k")

        async def fenced() -> bool:
            return total(await worker.metrics(), "tenure_fenced", "blocks") == 1

        await wait_until(fenced, description="its value is refused")
        said = await worker.metrics()
        await until_repaired(supervisor, "forced")
        assert supervisor.metrics.cancelled["blocks", "forced"] == 1
        assert sum(supervisor.metrics.cancelled.values()) == 1
        assert total(said, "tenure_cancelled", "blocks") == 0
        assert supervisor.metrics.outcomes["blocks", "cancelled"] == 1
        assert total(said, "tenure_outcomes", "blocks") == 0
        assert supervisor.metrics.repairs["session"] == 0
        found = await client.stores.runs.read("k")
        assert found.record is not None
        assert found.record.previous == ()


async def test_a_forced_end_that_two_supervisors_try_is_counted_by_the_one_whose_write_it_is(
    site: Site, app: App, client: Client, proxy: Proxy, supervised_behind: Supervisors, supervisors: Supervisors
) -> None:
    """The first one's write is lost; the second one's wins; the first repeats its own, is refused, and reads the end."""
    await site.start_worker()
    run = await client.submit(app.actors["blocks"].call(), key="k")
    await site.wait_for("blocked", "k")
    async with supervised_behind.run(app) as first:
        lost = proxy.lose(record(app, "k", "cancelled"), OFTEN)
        await run.cancel(reason="enough")
        await lost.done.wait()
        async with supervisors.run(app) as second:
            assert (await run.wait(4.0)).phase == "cancelled"
            await until_repaired(second, "forced")
        lost.clear()
        keepers = first._keepers
        assert keepers is not None
        await wait_until(lambda: not keepers._busy, description="the first has its answer")
        assert first.metrics.cancelled["blocks", "forced"] == 0
        assert first.metrics.repairs["forced"] == 0
        assert second.metrics.cancelled["blocks", "forced"] == 1


async def test_a_body_past_its_deadline_and_grace_is_ended_for_its_worker(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Its worker's loop is blocked: the supervisor puts the run back, another worker runs it, the late value is refused.

    The blocked process has pulls at the server, older than the other worker's: the first wake-up of attempt 2 is handed to it,
    and lies there unread for as long as the body goes on, or for an ``ack_wait`` of 30 s. One more comes [31].
    """
    await site.start_worker()
    run = await client.submit(app.actors["overruns"].call(), key="k")
    await site.wait_for("blocked", "k")
    async with workers.run(app), supervisors.run(app) as supervisor:
        assert await run.result(WITHIN_SECONDS) == "attempt 2"
        assert len(site.events("ended", "k")) == 1, "attempt 1 still runs"
        await until_repaired(supervisor, "evicted")
        site.open("k-1")
        await site.wait_for("ended", "k", 2)
        assert await run.result(1.0) == "attempt 2"


async def test_a_successor_is_let_in_after_the_grace_though_the_old_body_goes_on(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Overlap ``stop``; the old body blocks its loop, under a session that lives."""
    await site.start_worker()
    await client.submit(app.actors["blocks"].call(), key="k")
    await site.wait_for("blocked", "k")
    async with workers.run(app), supervisors.run(app) as supervisor:
        run = await client.replace(app.actors["quick"].call(), key="k", overlap="stop")
        assert await run.result(WITHIN_SECONDS) == "attempt 1"
        assert not site.events("ended", "k"), "the old body still runs"
        site.open("k")
        assert supervisor.metrics.repairs["session"] == 0


async def test_a_run_looked_at_while_its_worker_lived_is_taken_over_at_once_when_it_dies(
    site: Site, app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """Past its deadline and within its grace of 60 s, so that a sweep has looked at it before; then its worker is killed.

    The look counts neither as "nothing to do for now" nor as the takeover's wake-up: the message that is stored is in a
    dead process's hands for an ``ack_wait`` of 30 s [31].
    """
    victim = await site.start_worker()
    run = await client.submit(app.actors["lingers"].call(), key="k")
    await site.wait_for("told:timeout", "k")
    async with workers.run(app), supervisors.run(app) as supervisor:
        keepers = supervisor._keepers
        assert keepers is not None
        await wait_until(lambda: "k" in keepers._looked, description="a keeper has looked at it")
        await victim.kill()
        assert await run.result(WITHIN_SECONDS) == "attempt 2"
        assert supervisor.metrics.repairs["takeover"] == 1


async def test_a_session_closed_while_a_keeper_looks_is_not_overlooked(
    site: Site, app: App, client: Client, proxy: Proxy, supervised_behind: Supervisors
) -> None:
    """A keeper has found the holder alive and is held up at the signal; then the worker is killed and its session closed.

    What it found is out of date when it is done: the key must be looked at once more, not in half a minute.
    """
    victim = await site.start_worker()
    run = await client.submit(app.actors["deaf"].call(), key="k")
    await site.wait_for("started", "k")
    found = await client.stores.runs.read("k")
    assert found.record is not None
    command = c.Cancel(run_id=run.run_id)
    assert isinstance(await client.stores.runs.commit("k", command, at=found), Committed)
    held_up = proxy.lose(lambda p: p.subject.startswith(app.names.sessions_prefix + "stop."), OFTEN)
    async with supervised_behind.run(app) as supervisor:
        await held_up.done.wait()
        await victim.kill()
        keepers = supervisor._keepers
        assert keepers is not None
        await wait_until(lambda: "k" in keepers._once_more, description="a rescue asks for the key meanwhile")
        held_up.clear()
        assert (await run.wait(WITHIN_SECONDS)).phase == "cancelled"
        await until_repaired(supervisor, "stop")


# -- what finished runs owe --------------------------------------------------------------------------------------------


async def test_a_finished_record_with_an_outbox_is_paid_and_then_expires(
    site: Site, app: App, client: Client, proxy: Proxy, workers: Workers, supervisors: Supervisors
) -> None:
    """Killed between the outcome and the run that it spawned: that one follows, once; and then both records may go."""
    victim = await site.start_worker(url=proxy.url)
    stored = proxy.lose_answer(record(app, "k", "succeeded"), OFTEN)
    await client.submit(app.actors["briefly_spawns"].call(), key="k")
    await stored.done.wait()
    await victim.kill()
    async with workers.run(app), supervisors.run(app) as supervisor:
        await site.wait_for("started", "k-child", timeout=WITHIN_SECONDS)
        await until_repaired(supervisor, "outbox")
        await until_gone(client, "k")
        await until_gone(client, "k-child")
    assert len(site.events("started", "k-child")) == 1


async def test_a_finished_record_that_remembers_a_spawn_forgets_it_and_then_expires(
    site: Site, app: App, client: Client, proxy: Proxy, workers: Workers, supervisors: Supervisors
) -> None:
    """Killed when the spawn was applied and cleared, and the target not yet told that it may forget.

    One life of the child, of one run: the victim may have had that in hand, so its second attempt may have started as well.
    """

    def forgets(publish: Publish) -> bool:
        return publish.subject == app.names.record("k-child") and not publish.says('"seen"')

    victim = await site.start_worker(url=proxy.url)
    lost = proxy.lose(forgets, OFTEN)
    await client.submit(app.actors["briefly_spawns"].call(), key="k")
    await lost.done.wait()
    await victim.kill()
    async with workers.run(app), supervisors.run(app) as supervisor:
        await until_gone(client, "k-child")
        await until_repaired(supervisor, "seen")
    started = [(event.generation, event.attempt) for event in site.events("started", "k-child")]
    assert started in ([(1, 1)], [(1, 2)], [(1, 1), (1, 2)])


async def test_a_replayed_run_is_woken_though_the_dead_stream_is_gone(
    app: App, client: Client, supervisors: Supervisors
) -> None:
    """A replay was cut down between the run and its wake-up; its letter cannot even be looked for. No keeper waits for that."""
    stores = client.stores
    async with supervisors.run(app) as supervisor:
        await stores.conn.api(f"STREAM.DELETE.{app.names.dead_stream}", {})
        task, run_id = app.actors["quick"].call().task, stores.clock.new_id()
        letter = Seen(id=f"replay.{stores.clock.new_id()}", origin="k")
        await stores.runs.commit("k", c.Submit(key="k", run_id=run_id, task=task, seen=letter))

        async def woken() -> bool:
            found = await stores.runs.read("k")
            return found.record is not None and await stores.work.is_stored(found.record)

        await wait_until(woken, description="its wake-up is stored", timeout=WITHIN_SECONDS)
        await wait_until(
            lambda: supervisor.metrics.errors["server"], description="the keeper has let go", timeout=WITHIN_SECONDS
        )


# -- telling -----------------------------------------------------------------------------------------------------------


async def test_a_takeover_is_counted_once_its_wake_up_is_stored(
    site: Site, client: Client, proxy: Proxy, supervised_behind: Supervisors
) -> None:
    """The work stream takes nothing for a while: each try is one of the same takeover."""
    site.settings = {"patience_seconds": 1.0}
    app = site.app
    run = await client.submit(app.actors["quick"].call(), key="k")
    gone = await session_that_is_gone(client)
    claimed = await client.stores.runs.commit("k", c.Claim(session=gone, run_id=run.run_id, next_run_id=""))
    assert isinstance(claimed, Committed)
    lost = proxy.lose(wake_up(app, "k"), OFTEN)
    async with supervised_behind.run(app) as supervisor:
        await wait_until(lambda: supervisor.metrics.errors["server"] >= 2, description="two tries have failed")
        assert supervisor.metrics.repairs["takeover"] == 0
        lost.clear()
        await until_repaired(supervisor, "takeover")


async def test_repairs_are_counted_and_told(site: Site, app: App, client: Client) -> None:
    """By ``tenure_repairs_total`` and by ``/ready``, of a supervisor alone and of one beside a worker."""
    alone = await site.start_supervisor("--metrics-port", "0")
    assert await alone.ready() == (200, "ready\nrepaired: nothing yet\n")
    assert total(await alone.metrics(), "tenure_repairs") == 0
    victim = await site.start_worker()
    run = await client.submit(app.actors["hold"].call(), key="k")
    await site.wait_for("started", "k")
    await victim.kill()
    site.open("k")
    beside = await site.start_worker("--with-supervisor", "--metrics-port", "0")
    assert await run.result(WITHIN_SECONDS) == "attempt 2"
    for kind in ("session", "takeover"):
        numbers = [await repaired(process, kind) for process in (alone, beside)]
        assert sum(numbers) >= 1, kind
        for process, number in zip((alone, beside), numbers, strict=True):
            code, text = await process.ready()
            assert code == 200
            assert (f"{kind} {int(number)}" in text) == bool(number), text


async def repaired(process: Process, kind: str) -> float:
    match = re.search(rf'^tenure_repairs_total{{kind="{kind}"}} (\S+)$', await process.metrics(), re.MULTILINE)
    assert match is not None
    return float(match[1])
