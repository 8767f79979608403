"""Large arguments and results go once nothing names them, and not before: on a real server."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure import App, Client, Context, Fail, KeyIsLive
from tenure.core import commands as c
from tenure.core.records import Entry, Holder
from tenure.metrics import Metrics
from tenure.supervisor.blobs import Leftovers
from tests.conftest import Supervisors, Workers
from tests.support import FAST, wait_until

LARGE = "x" * 100_000
GRACE = 0.4


@pytest.fixture
def app(namespace: str) -> App:
    app = App(namespace, config=replace(FAST, blob_grace_seconds=GRACE))

    @app.actor
    async def double(text: str) -> str:
        return text * 2

    @app.actor(result_ttl=1.0)
    async def brief(text: str) -> str:
        return text * 2

    @app.actor(retry=None)
    async def fail(text: str) -> None:
        raise Fail(f"{len(text)} bytes")

    @app.actor
    async def spawns(ctx: Context, text: str) -> None:
        ctx.spawn(double.call(text), key="child")

    return app


@pytest.fixture
async def leftovers(client: Client) -> Leftovers:
    return Leftovers(client.stores, Metrics("0", {}, ()), lambda: lambda _key: True)


async def stored(client: Client) -> list[str]:
    """What each blob is, in the order in which they were stored."""
    blobs = client.stores.blobs
    return [kept.name.rpartition(".")[2] async for kept in blobs.kept(client.stores.runs.patience())]


async def sweep(leftovers: Leftovers) -> int:
    """Two passes with all blobs old enough; how many were removed."""
    await asyncio.sleep(GRACE)  # paused: until they are
    return await leftovers.remove() + await leftovers.remove()


async def gone(client: Client, key: str) -> None:
    """Once it owes nothing any more."""

    async def purged() -> bool:
        try:
            return await client.purge(key)
        except KeyIsLive:
            return False

    await wait_until(purged, description=f"{key} is purged")


async def test_arguments_and_result_go_with_a_record_that_expires(
    app: App, client: Client, workers: Workers, leftovers: Leftovers
) -> None:
    async with workers.run(app):
        assert await (await client.submit(app.actors["brief"].call(LARGE), key="k")).result(5) == LARGE * 2

    async def expired() -> bool:
        return await client.status("k") is None

    await wait_until(expired, description="the record has expired")
    assert await sweep(leftovers) == 2
    assert await stored(client) == []


async def test_arguments_and_result_go_with_their_record_and_not_before(
    app: App, client: Client, workers: Workers, leftovers: Leftovers
) -> None:
    async with workers.run(app):
        run = await client.submit(app.actors["double"].call(LARGE), key="k")
        assert await run.result(5) == LARGE * 2
        assert await sweep(leftovers) == 0
        assert await run.result(5) == LARGE * 2, "for as long as the record is there"
        assert await stored(client) == ["args", "result"]
        await gone(client, "k")

    assert await sweep(leftovers) == 2
    assert await stored(client) == []
    assert await client.stores.blobs.parts(client.stores.runs.patience()) == set()


async def test_arguments_that_were_replaced_go_and_the_new_ones_stay(
    app: App, client: Client, workers: Workers, leftovers: Leftovers
) -> None:
    double = app.actors["double"]
    await client.submit(double.call(LARGE), key="k", delay=60)
    await client.submit(double.call(LARGE + "?"), key="k", delay=60)  # kept: its arguments are for nothing
    await client.replace(double.call(LARGE + "!"), key="k")
    assert await sweep(leftovers) == 2
    async with workers.run(app):
        assert await client.run("k").result(5) == (LARGE + "!") * 2


async def test_a_dead_letter_keeps_its_arguments_until_it_is_replayed_or_purged(
    app: App, client: Client, workers: Workers, leftovers: Leftovers
) -> None:
    async with workers.run(app):
        await (await client.submit(app.actors["fail"].call(LARGE), key="k")).wait(5)
        await gone(client, "k")
        assert await sweep(leftovers) == 0
        again = await client.dead.replay("k")
        assert again is not None
        assert (await again.wait(5)).error == f"Fail: {len(LARGE)} bytes"
        assert await sweep(leftovers) == 0
        await gone(client, "k")
        assert await sweep(leftovers) == 0
        (letter,) = await client.dead.list()
        await client.dead.purge(letter.run_id)

    assert await sweep(leftovers) == 1


async def test_what_was_spawned_keeps_its_arguments_while_its_origin_owes_it(
    app: App, client: Client, workers: Workers, supervisors: Supervisors, leftovers: Leftovers
) -> None:
    async with workers.run(app):
        await (await client.submit(app.actors["spawns"].call(LARGE), key="parent")).result(5)
        assert await client.run("child").result(5) == LARGE * 2
    assert await sweep(leftovers) == 0
    for key in ("parent", "child"):
        await gone(client, key)
    assert await sweep(leftovers) == 3


async def test_what_is_owed_is_not_yet_named_by_its_own_key(app: App, client: Client, leftovers: Leftovers) -> None:
    """The origin's process is killed between its outcome and the spawned run: only the origin's outbox names the blob."""
    stores, double = client.stores, app.actors["double"]
    run = await client.submit(app.actors["spawns"].call("small"), key="parent")
    blob = await stores.blobs.put("r1.args", LARGE.encode(), key="child", origin="parent")
    entry = Entry(id="o1", key="child", run_id="r1", task=replace(double.task, blob=blob))
    await stores.runs.commit("parent", c.Claim(session="s", run_id=run.run_id, next_run_id=""))
    holder = Holder(session="s", run_id=run.run_id, attempt=1)
    await stores.runs.commit("parent", c.Succeed(holder=holder, next_run_id="", outbox=(entry,)))

    assert await sweep(leftovers) == 0
    await stores.complete(await stores.runs.read("parent"), stores.runs.patience())
    assert await client.status("child") is not None
    assert await sweep(leftovers) == 0
    await client.purge("child")
    assert await sweep(leftovers) == 1


async def test_what_is_young_is_left_alone(app: App, client: Client, leftovers: Leftovers) -> None:
    """Its record may not be written yet."""
    await client.stores.blobs.put("r1.args", b"data", key="k")
    assert await leftovers.remove() + await leftovers.remove() == 0
    assert await stored(client) == ["args"]
    assert await sweep(leftovers) == 1


async def test_a_blob_of_what_can_be_no_key_is_left_alone_and_hides_no_other(
    client: Client, leftovers: Leftovers
) -> None:
    """Somebody else stored it: it ends no pass, and no supervisor."""
    await client.stores.blobs.put("foreign.args", b"data", key="k" * 5_000)
    await client.stores.blobs.put("r1.args", b"data", key="k")
    assert await sweep(leftovers) == 1
    assert await stored(client) == ["args"]


async def test_one_look_is_not_enough(app: App, client: Client, leftovers: Leftovers) -> None:
    """A read may be of the past."""
    await client.stores.blobs.put("r1.args", b"data", key="k")
    await asyncio.sleep(GRACE)  # paused: until it is old
    assert await leftovers.remove() == 0
    await client.submit(app.actors["double"].call("small"), key="k")
    assert await leftovers.remove() == 0, "the record has moved since"
    assert await leftovers.remove() == 1


async def test_a_replay_between_two_looks_is_seen(
    app: App, client: Client, workers: Workers, leftovers: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference goes from letter to record: the record was read before that, the letters after it."""
    async with workers.run(app):
        await (await client.submit(app.actors["fail"].call(LARGE), key="k")).wait(5)
    await gone(client, "k")
    await asyncio.sleep(GRACE)  # paused: until it is old
    look = leftovers._is_in_letters
    replayed = asyncio.Event()

    async def late(blob: object) -> bool:
        if not replayed.is_set():
            replayed.set()
            await client.dead.replay("k")
        return await look(blob)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(leftovers, "_is_in_letters", late)
    assert [await leftovers.remove() for _ in range(3)] == [0, 0, 0]
    assert await stored(client) == ["args"]


async def test_half_a_blob_goes_too(app: App, client: Client, leftovers: Leftovers) -> None:
    """A process that is killed while it stores one leaves chunks without a name."""
    stores = client.stores
    await stores.conn.put(f"$O.{stores.names.blobs_bucket}.C.halfway", b"x" * 1_000)
    assert await leftovers.remove() + await leftovers.remove() == 0
    await asyncio.sleep(GRACE)  # paused: until it is old
    assert await leftovers.remove() == 1
    assert await stores.blobs.parts(stores.runs.patience()) == set()


async def test_a_blob_that_was_stored_anew_survives_the_removal_of_the_old_one(app: App, client: Client) -> None:
    blobs, patience = client.stores.blobs, client.stores.runs.patience()
    await blobs.put("r1.args", b"data", key="k")
    (old,) = [one async for one in blobs.kept(patience)]
    await asyncio.sleep(GRACE / 2)  # paused: until it is not relied upon any more
    again = await blobs.put("r1.args", b"data", key="k")
    await blobs.remove(old, patience)
    assert await blobs.get(again) == b"data"


async def test_a_supervisor_does_it_by_itself(
    app: App, client: Client, workers: Workers, supervisors: Supervisors
) -> None:
    async with workers.run(app), supervisors.run(app) as supervisor:
        await (await client.submit(app.actors["brief"].call(LARGE), key="k")).result(5)

        async def empty() -> bool:
            return await stored(client) == []

        await wait_until(empty, description="both blobs are gone")
        await wait_until(lambda: supervisor.metrics.repairs["blob"] == 2, description="both are counted")
