"""The history of a key on a real server: who claimed, who was refused and why, generation by generation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tenure import App, Client, Config, Context, Fail, Snooze, Step, TenureError
from tenure.nats import history as kept
from tenure.nats.topology import ensure
from tests.conftest import Supervisors, Workers
from tests.processes import WITHIN_SECONDS, Site
from tests.proxy import Proxy
from tests.strangers import Stranger
from tests.support import FAST, until_mirrored, wait_until, wake

KEYS = ["plain", "a b", "a.b.>", "ключ/€", "*", "\U0001f600", "x" * 256]


def what(steps: list[Step]) -> list[tuple[str, int, int]]:
    return [(one.what, one.generation, one.attempt) for one in steps]


async def history(client: Client, key: str, until: str, number: int = 1) -> list[Step]:
    """The history, once it has so many steps ``until``: a mirror is a moment behind.

    If the server's first try to fill a new one fails, it makes the next some ten seconds later.
    """

    async def read() -> list[Step]:
        steps = await client.history(key)
        return steps if sum(one.what == until for one in steps) >= number else []

    found: list[Step] = await wait_until(read, description=f"{until} is in the history of {key!r}", timeout=30.0)
    return found


@pytest.fixture
def gate() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def app(app: App, gate: asyncio.Event) -> App:
    @app.actor(result_ttl=1.0)
    async def quick() -> str:
        return "done"

    @app.actor
    async def flaky(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError("first")
        if ctx.attempt == 2:
            raise Snooze(0.01)
        raise Fail("for good")

    @app.actor(grace=5.0)
    async def holds(ctx: Context) -> int:
        """Ends when it is let, whatever it was told."""
        waiting = asyncio.ensure_future(gate.wait())
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                continue
        return ctx.generation

    return app


@pytest.fixture(autouse=True)
async def mirrored(client: Client) -> None:
    await until_mirrored(client.stores)


@pytest.mark.parametrize("key", KEYS)
async def test_a_run_is_told_under_any_key(app: App, client: Client, workers: Workers, key: str) -> None:
    async with workers.run(app) as running:
        run = await client.submit(app.actors["quick"].call(), key=key)
        await run.result(5)
        session = running.worker.lease.id
        found = await history(client, key, "succeeded")

    assert what(found) == [("submitted", 1, 0), ("claimed", 1, 1), ("succeeded", 1, 1)]
    assert [one.who for one in found] == ["", session, session]
    assert {one.run_id for one in found} == {run.run_id}


async def test_times_and_numbers_are_those_of_the_writes(app: App, client: Client, workers: Workers) -> None:
    """However late a mirror gets them: here it is made after everything has happened."""
    names = client.stores.names
    async with workers.run(app):
        await (await client.submit(app.actors["quick"].call(), key="k")).result(5)
    await client.stores.conn.api(f"STREAM.DELETE.{names.history_stream}", {})
    record = await client.stores.runs.read("k")
    ended = await client.status("k")
    assert ended is not None
    assert ended.ended_at is not None
    await asyncio.sleep(0.3)  # paused: so that a copy's own time would be another
    await ensure(client.stores.conn, names, client.stores.clock, client.stores.config)
    found = await history(client, "k", "kept_from")

    assert found[0].revision == record.revision
    assert abs((found[0].at - ended.ended_at).total_seconds()) < 0.25


async def test_a_retry_a_snooze_and_the_end(app: App, client: Client, workers: Workers) -> None:
    async with workers.run(app):
        run = await client.submit(app.actors["flaky"].call(), key="k")
        await run.wait(10)
        found = await history(client, "k", "failed")

    assert what(found) == [
        ("submitted", 1, 0),
        ("claimed", 1, 1),
        ("retried", 1, 1),
        ("claimed", 1, 2),
        ("snoozed", 1, 2),
        ("claimed", 1, 3),
        ("failed", 1, 3),
    ]
    assert found[2].why == "ValueError: first"
    assert found[-1].why == "Fail: for good"
    assert [one.at for one in found] == sorted(one.at for one in found)


async def test_a_replace_a_cancel_and_the_stale_body_that_is_refused(
    app: App, client: Client, workers: Workers, gate: asyncio.Event
) -> None:
    async with workers.run(app):
        holds = app.actors["holds"]
        await client.submit(holds.call(), key="k")
        await wait_until(lambda: _runs(client, "k", 1), description="the first body runs")
        await client.replace(holds.call(), key="k", overlap="parallel")
        await wait_until(lambda: _runs(client, "k", 2), description="the second body runs beside it")
        await client.cancel("k", reason="enough")
        gate.set()
        for awaited in ("cancelled", "ended", "refused"):
            found = await history(client, "k", awaited)

    assert what(found[:5]) == [
        ("submitted", 1, 0),
        ("claimed", 1, 1),
        ("replaced", 2, 0),
        ("claimed", 2, 1),
        ("stopping", 2, 1),
    ]
    told = {(one.what, one.generation): one for one in found[5:]}
    assert told["cancelled", 2].why == "enough"
    assert told["refused", 1].why == "tail: a newer generation has the key"
    assert (told["refused", 1].attempt, told["refused", 1].who) == (1, found[1].who)
    assert ("ended", 1) in told


async def _runs(client: Client, key: str, generation: int) -> bool:
    status = await client.status(key)
    return status is not None and (status.phase, status.generation) == ("running", generation)


async def test_a_stale_wake_up_is_told(app: App, client: Client, workers: Workers) -> None:
    async with workers.run(app):
        await (await client.submit(app.actors["quick"].call(), key="k")).result(5)
        await wake(client, "k")
        found = await history(client, "k", "refused")

    assert found[-1].why == "head: the run was over"
    assert what(found)[-2:] == [("succeeded", 1, 1), ("refused", 1, 0)]


async def test_a_takeover_after_kill_9_names_the_dead_and_the_living(site: Site, supervisors: Supervisors) -> None:
    app = site.app
    async with app.connect(site.url) as client, supervisors.run(app):
        await until_mirrored(client.stores)
        first = await site.start_worker()
        await client.submit(app.actors["hold"].call(), key="k")
        await site.wait_for("started", "k")
        await site.start_worker()
        await first.kill()
        await site.wait_for("started", "k", 2, timeout=WITHIN_SECONDS)
        found = await history(client, "k", "taken_over")
        site.open("k")

    assert what(found) == [("submitted", 1, 0), ("claimed", 1, 1), ("taken_over", 1, 2)]
    assert found[2].why == f"from {found[1].who}"
    assert found[2].who != found[1].who


async def test_a_command_that_was_rejected_is_told_under_its_key(
    app: App, client: Client, supervisors: Supervisors, stranger: Stranger
) -> None:
    async with supervisors.run(app):
        await stranger.send("submit.quick", {"no": 1}, Tenure_Key="k")
        found = await history(client, "k", "refused")

    assert found[0].why.startswith("inbox: arguments: ")


async def test_it_is_told_of_a_key_that_has_expired(app: App, client: Client, workers: Workers) -> None:
    async with workers.run(app):
        await (await client.submit(app.actors["quick"].call(), key="k")).result(5)
        found = await history(client, "k", "expired")
        assert await client.status("k") is None
        await (await client.submit(app.actors["quick"].call(), key="k")).result(5)
        again = await history(client, "k", "succeeded", 2)

    assert what(found) == [("submitted", 1, 0), ("claimed", 1, 1), ("succeeded", 1, 1), ("expired", 1, 1)]
    assert what(again)[:7] == [*what(found), ("submitted", 1, 0), ("claimed", 1, 1), ("succeeded", 1, 1)]


async def test_a_purge_is_told_and_what_was_before_it_stays(app: App, client: Client) -> None:
    await client.submit(app.actors["quick"].call(), key="k")
    assert await client.purge("k")
    await client.submit(app.actors["quick"].call(), key="k")
    found = await history(client, "k", "submitted", 2)

    assert what(found) == [("submitted", 1, 0), ("purged", 1, 0), ("submitted", 1, 0)]


async def test_one_busy_key_does_not_push_the_others_out(
    namespace: str, nats_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "PER_KEY", 5)
    app = App(f"{namespace}-few", config=FAST)

    @app.actor
    async def quick() -> None: ...

    async with app.connect(nats_server) as client:
        await until_mirrored(client.stores)
        await client.submit(quick.call(), key="seldom")
        for _ in range(20):
            await client.replace(quick.call(), key="often")
        found = await history(client, "often", "replaced", 4)

        async def last() -> bool:
            return (await client.history("often"))[-1].generation == 20

        await wait_until(last, description="the mirror has all")
        found = await client.history("often")
        assert [one.generation for one in found] == [16, 17, 18, 19, 20]
        assert found[0].what == "kept_from"
        assert what(await client.history("seldom")) == [("submitted", 1, 0)]


async def test_without_history_nothing_is_made_or_sent(namespace: str, nats_server: str) -> None:
    app = App(f"{namespace}-none", config=replace(FAST, history_days=0))

    @app.actor
    async def quick() -> None: ...

    async with app.connect(nats_server) as client:
        await client.submit(quick.call(), key="k")
        with pytest.raises(TenureError, match="no history is kept"):
            await client.history("k")


@pytest.mark.parametrize("setting", [{"max_age": 86_400 * 10**9}, {"max_msgs": 10}])
async def test_other_caps_stop_nobody_and_setup_changes_what_it_may(
    app: App, client: Client, nats_server: str, setting: dict[str, Any]
) -> None:
    stores = client.stores
    name = stores.names.history_stream
    info = await stores.conn.api(f"STREAM.INFO.{name}", {})
    assert isinstance(info, dict)
    await stores.conn.api(f"STREAM.UPDATE.{name}", info["config"] | setting)
    async with app.connect(nats_server):
        pass
    made = await ensure(stores.conn, stores.names, stores.clock, stores.config, dead_kept_days=30.0, migrate=True)
    assert [change.did for change in made.changes if change.stream == name] == ["updated"]


async def test_a_history_that_does_not_answer_stops_nobody(app: App, client: Client, proxy: Proxy) -> None:
    """Between two leaders, on a cluster: nothing depends on it."""
    hasty = App(app.namespace, config=replace(app.config, connect_timeout_seconds=0.3))
    lost = proxy.lose(lambda p: p.subject.endswith(client.stores.names.history_stream), times=100)
    async with hasty.connect(proxy.url):
        pass
    assert lost.hits


async def test_a_history_of_a_bucket_that_was_made_anew_is_made_anew_by_setup(app: App, client: Client) -> None:
    stores, names = client.stores, client.stores.names
    await client.submit(app.actors["quick"].call(), key="k")
    await stores.conn.api(f"STREAM.DELETE.{names.runs_stream}", {})
    told = await ensure(stores.conn, names, stores.clock, stores.config)
    assert [change.did for change in told.changes if change.stream == names.history_stream] == ["differs"]
    made = await ensure(stores.conn, names, stores.clock, stores.config, migrate=True)
    assert [change.did for change in made.changes if change.stream == names.history_stream] == ["created"]


def test_bad_settings_are_refused() -> None:
    for bad, words in (
        ({"history_days": -1}, "history_days"),
        ({"history_days": 0.01}, "history_days"),
        ({"history_revisions": 5}, "history_revisions"),
    ):
        with pytest.raises(TenureError, match=words):
            Config(**bad)
