"""Cron keys on a real server: their fires, what was missed, and settings that cannot be."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tenure import App, Client, ConfigError, Context, InvalidCall
from tenure.cli.checkup import examine
from tenure.cli.root import run
from tenure.core import commands as c
from tenure.nats.runs import Committed
from tests.conftest import Supervisors, Workers
from tests.support import FAST, wait_until

EACH_SECOND = "* * * * * *"


async def test_a_cron_key_fires_once_at_each_of_its_seconds(app: App, client: Client, workers: Workers) -> None:
    """The first run is the next fire, not now; each outcome and its successor are one write."""
    ran: list[tuple[int, float]] = []

    @app.actor(cron=EACH_SECOND)
    async def tick(ctx: Context) -> None:
        ran.append((ctx.generation, client.now()))

    async with workers.run(app):
        run = await client.submit(tick.call(), key="k")
        status = await run.status()
        assert status is not None
        due = status.due
        assert due is not None
        assert due.microsecond == 0
        await wait_until(lambda: len(ran) >= 4, description="four fires")
    first = due.timestamp()
    assert [generation for generation, _ in ran[:4]] == [1, 2, 3, 4]
    for number, (_, at) in enumerate(ran[:4]):
        assert first + number <= at < first + number + 1.0


@pytest.mark.parametrize(("catch_up", "at_once"), [("none", 0), ("one", 1), ("all", 4)])
async def test_fires_missed_while_nobody_worked_are_made_up_for_as_asked(
    app: App, client: Client, workers: Workers, catch_up: Any, at_once: int
) -> None:
    """The run of four seconds ago ends half a second past a fire: so many of those missed start in the next 0.3 s."""
    started: list[float] = []

    @app.actor(cron=EACH_SECOND, catch_up=catch_up)
    async def tick() -> None:
        if not started:
            await asyncio.sleep(1.5 - client.now() % 1.0)  # body: it ends half past
        started.append(client.now())

    command = c.Submit(key="k", run_id=client.stores.clock.new_id(), task=tick.call().task, due=client.now() // 1 - 4)
    stored = await client.stores.runs.commit("k", command)
    assert isinstance(stored, Committed)
    await client.stores.carry_out(stored, client.stores.runs.patience())
    async with workers.run(app):
        await wait_until(lambda: len(started) > at_once + 1, description="the fires that follow")
    ended, *after = started
    late = [at for at in after if at < ended + 0.3]
    assert len(late) == at_once if catch_up != "all" else len(late) >= at_once


async def test_a_cron_key_that_is_replaced_starts_with_the_next_fire_of_its_new_schedule(
    app: App, client: Client, workers: Workers
) -> None:
    ran: list[str] = []

    @app.actor(cron="0 0 1 1 *", tz="Europe/Berlin")
    async def yearly() -> None:
        ran.append("yearly")

    @app.actor(cron=EACH_SECOND)
    async def quick() -> None:
        ran.append("quick")

    async with workers.run(app):
        old = await client.submit(yearly.call(), key="k")
        status = await old.status()
        assert status is not None
        assert status.phase == "scheduled"
        assert status.due is not None
        assert (status.due.month, status.due.day, status.due.hour) in {(12, 31, 23), (1, 1, 0)}
        await client.replace(quick.call(), key="k")
        await wait_until(lambda: ran.count("quick") >= 2, description="the new schedule fires")
    assert "yearly" not in ran


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"cron": "61 * * * *"}, "'61 [*]"),
        ({"cron": "0 0 31 2 *"}, "'0 0 31 2"),
        ({"cron": ""}, "''"),
        ({"cron": 5}, "cron and tz must be text"),
        ({"cron": "0 4 * * *", "tz": "Mars/Olympus"}, "Mars/Olympus"),
        ({"cron": "0 4 * * *", "tz": None}, "cron and tz must be text"),
        ({"cron": "0 4 * * *", "every": 5}, "either every= or cron="),
        ({"cron": "0 4 * * *", "catch_up": "some"}, "catch_up must be none, one or all"),
        ({"every": 5, "tz": "Europe/Berlin"}, "tz belongs to cron="),
        ({"every": 5, "overlap": "parallel"}, "its fires never overlap"),
        ({"cron": "* * * * *", "overlap": "parallel"}, "its fires never overlap"),
        ({"every": 1e-9}, "every must be at least a millisecond"),
        ({"every": 1e-310}, "every must be at least a millisecond"),
        ({"every": timedelta(microseconds=999)}, "every must be at least a millisecond"),
        ({"catch_up": "all"}, "belong to a schedule"),
        ({"tz": "Europe/Berlin"}, "belong to a schedule"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_where_the_actor_is_made(settings: dict[str, Any], named: str) -> None:
    app = App("schedules")
    with pytest.raises(ConfigError, match=named) as caught:

        @app.actor(**settings)
        async def report() -> None: ...

    assert "actor report" in str(caught.value)


# -- autostart -----------------------------------------------------------------------------------------------------------


def code(namespace: str, ran: list[str], **schedules: dict[str, Any]) -> App:
    """An app whose schedules start by themselves: as if all of its actors were of the module ``jobs``."""
    app = App(namespace, config=msgspec.structs.replace(FAST, sweep_seconds=0.2))

    async def other() -> None:
        """What is left of the code when every schedule is gone."""

    other.__module__ = "jobs"
    app.actor(other)
    for name, schedule in schedules.items():

        async def work(ctx: Context) -> None:
            ran.append(f"{ctx.key} {ctx.generation}")

        work.__module__ = "jobs"
        app.actor(name=name, autostart=True, **schedule)(work)
    return app


async def test_any_number_of_supervisors_keep_one_chain_alive_and_each_tick_fires_once(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    ran: list[str] = []
    app = code(namespace, ran, beat={"cron": EACH_SECOND})
    async with (
        workers.run(app),
        supervisors.run(app) as one,
        supervisors.run(app) as two,
        supervisors.run(app) as three,
    ):
        await wait_until(lambda: len(ran) >= 4, description="four fires")
        started = sum(supervisor.metrics.repairs["schedule"] for supervisor in (one, two, three))
    assert ran[:4] == ["beat 1", "beat 2", "beat 3", "beat 4"]
    assert started == 1


async def test_a_chain_that_was_cancelled_or_purged_is_started_again(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    ran: list[str] = []
    app = code(namespace, ran, beat={"cron": EACH_SECOND})
    async with workers.run(app), supervisors.run(app):
        await wait_until(lambda: ran, description="it fires")
        await client.cancel("beat")
        before = len(ran)
        await wait_until(lambda: len(ran) >= before + 2, description="it fires again")


async def test_newer_code_changes_a_schedule_though_older_code_still_runs(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    """A rolling deploy: the old supervisor asks for its own schedule all the while."""
    ran: list[str] = []
    old, new = code(namespace, ran, beat={"every": 3_600.0}), code(namespace, ran, beat={"cron": EACH_SECOND})
    async with workers.run(new), supervisors.run(old) as older:
        await wait_until(lambda: ran == ["beat 1"], description="the old schedule runs, and again in an hour")
        async with supervisors.run(new) as newer:
            await wait_until(lambda: len(ran) >= 4, description="the new one fires every second")
            assert newer.metrics.repairs["schedule"] == 1
            assert older.metrics.repairs["schedule"] == 1


async def test_a_schedule_that_newer_code_has_no_more_ends_though_older_code_still_runs(
    namespace: str, client: Client, supervisors: Supervisors
) -> None:
    """Another one of its own, of a module that the newer code does not have, goes on."""
    old, new = code(namespace, [], beat={"every": 3_600.0}), code(namespace, [])
    foreign = App(namespace, config=old.config)

    @foreign.actor(every=3_600.0, autostart=True)
    async def theirs() -> None: ...

    async with supervisors.run(old) as older, supervisors.run(foreign):
        await wait_until(lambda: older.metrics.repairs["schedule"], description="it has a chain")
        async with supervisors.run(new):

            async def ended() -> bool:
                status = await client.status("beat")
                return status is not None and status.phase == "cancelled"

            await wait_until(ended, description="its chain ends")
            await asyncio.sleep(0.6)  # paused: the old supervisor asks twice more
            assert await ended()
        status = await client.status("theirs")
    assert status is not None
    assert status.phase in {"scheduled", "queued"}


async def test_a_schedule_whose_actor_does_not_start_by_itself_any_more_ends(
    namespace: str, client: Client, supervisors: Supervisors
) -> None:
    """``autostart=True`` is taken out of newer code, and the actor stays: a chain that somebody submits is nobody's to end."""
    old, new = code(namespace, [], beat={"every": 3_600.0}), code(namespace, [])

    async def beat() -> None: ...

    beat.__module__ = "jobs"
    actor = new.actor(every=3_600.0)(beat)

    async def phase(key: str) -> str:
        status = await client.status(key)
        return "" if status is None else status.phase

    async with supervisors.run(old) as older:
        await wait_until(lambda: older.metrics.repairs["schedule"], description="it has a chain")
    async with supervisors.run(new) as newer:
        await client.submit(actor.call(), key="by-hand", delay=3_600.0)
        await wait_until(lambda: newer.metrics.repairs["schedule"], description="its chain ends")
        assert await phase("beat") == "cancelled"
        passes = newer.metrics.repairs["schedule"]
        await asyncio.sleep(0.5)  # paused: two sweeps
        assert await phase("by-hand") == "scheduled"
        assert newer.metrics.repairs["schedule"] == passes


async def test_a_schedule_whose_whole_module_is_gone_is_told_and_ended_for_good_by_a_cancel(
    namespace: str,
    nats_server: str,
    client: Client,
    supervisors: Supervisors,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another program may have it, so no supervisor ends it, and none starts it again. It is told once nobody has its code."""
    old, new = code(namespace, [], beat={"every": 3_600.0}), App(namespace, config=code(namespace, []).config)

    @new.actor
    async def other() -> None: ...

    async def phase() -> str:
        status = await client.status("beat")
        return "" if status is None else status.phase

    async def listed() -> str:
        await asyncio.to_thread(run, ["ls", "--schedules", "--json", "-n", namespace, "--url", nats_server])
        (row,) = msgspec.json.decode(capsys.readouterr().out)
        return str(row["code"])

    async def noted() -> list[str]:
        return [one.text for one in await examine(new, nats_server, None, 60.0) if one.check == "schedules"]

    async with supervisors.run(new) as newer:
        async with supervisors.run(old) as older:
            await wait_until(lambda: older.metrics.repairs["schedule"], description="it has a chain")
            passes = newer.metrics.swept_at
            await wait_until(lambda: newer.metrics.swept_at > passes + 1.0, description="it is passed over")
            assert (await listed(), await noted()) == ("", [])
            assert "schedule.unknown" not in caplog.text, "a supervisor that lives has its code"
        await wait_until(lambda: "schedule.unknown" in caplog.text, description="it is told")
        assert (await listed(), len(await noted())) == ("unknown", 1)
        assert await phase() in {"scheduled", "queued"}
        await client.cancel("beat")
        assert await noted() == []
        await asyncio.sleep(0.5)  # paused: two sweeps
        assert await phase() == "cancelled"
    assert caplog.text.count("schedule.unknown") == 1


async def test_a_worker_and_supervisor_that_come_back_keep_the_phase_of_an_interval(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    ran: list[str] = []
    app = code(namespace, ran, beat={"every": 3_600.0})
    async with workers.run(app), supervisors.run(app):
        await wait_until(lambda: ran, description="it runs")
    before = await client.status("beat")
    async with workers.run(app), supervisors.run(app):
        await asyncio.sleep(0.5)  # paused: it is asked for a few times
    assert await client.status("beat") == before
    assert ran == ["beat 1"]


async def test_a_trigger_runs_a_key_now_and_leaves_its_schedule(
    namespace: str, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    ran: list[str] = []
    app = code(namespace, ran, beat={"cron": "0 0 1 1 *", "tz": "Europe/Berlin"})
    async with workers.run(app), supervisors.run(app) as supervisor:
        await wait_until(lambda: supervisor.metrics.repairs["schedule"], description="it has a chain")
        before = await client.status("beat")
        run = await client.trigger("beat")
        assert run.accepted
        assert (await run.wait(10.0)).phase == "succeeded"
        after = await client.status("beat")
    assert ran == ["beat 1"]
    assert before is not None
    assert after is not None
    assert (after.generation, after.due) == (2, before.due)


async def test_a_trigger_of_what_does_not_wait_starts_nothing(app: App, client: Client) -> None:
    @app.actor
    async def once() -> None: ...

    with pytest.raises(InvalidCall, match="no key 'nobody'") as caught:
        await client.trigger("nobody")
    assert caught.value.field == "key"
    run = await client.submit(once.call(), key="k", delay=3_600.0)
    await run.cancel()
    assert not (await client.trigger("k")).accepted


def test_an_actor_that_nobody_can_start_without_an_argument_does_not_start_by_itself() -> None:
    app = App("schedules")
    with pytest.raises(ConfigError, match="'name' is missing: with autostart every argument needs a default"):

        @app.actor(every=5.0, autostart=True)
        async def report(name: str) -> None: ...

    with pytest.raises(ConfigError, match="belong to a schedule"):

        @app.actor(autostart=True)
        async def once() -> None: ...
