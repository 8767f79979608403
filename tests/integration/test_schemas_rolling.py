"""Workers and supervisors of two releases side by side, of which the older cannot read what the newer writes for one actor."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from tenure import App, Client
from tenure.core.records import PLAIN_SCHEMA, SCHEMA, encode
from tenure.metrics import Metrics
from tenure.nats.handover import Handovers, Reply
from tenure.nats.work import Delivery
from tenure.worker.handover import Offers, readers_of
from tests.conftest import Workers
from tests.integration.test_handover import LONG, deliveries
from tests.newer import NEWER, NewerSite
from tests.processes import TARGET, Site
from tests.support import wait_until

NEW = [f"new-{number}" for number in range(8)]
PLAIN = [f"plain-{number}" for number in range(20)]


@pytest.fixture
def newer(nats_server: str, namespace: str, site: Site) -> Iterator[NewerSite]:
    newer = NewerSite(site.folder, nats_server, namespace)
    yield newer
    newer.close()


@pytest.fixture
def app(site: Site) -> Any:
    return site.app


async def stored(client: Client, key: str) -> dict[str, Any]:
    """A record as it lies there: this release cannot read it."""
    names = client.stores.names
    got = await client.stores.conn.api(f"STREAM.MSG.GET.{names.runs_stream}", {"last_by_subj": names.record(key)})
    assert isinstance(got, dict)
    return dict(json.loads(base64.b64decode(got["message"]["data"])))


async def ended(client: Client, key: str) -> bool:
    return bool((await stored(client, key))["phase"] == "succeeded")


async def test_a_wake_up_whose_record_is_newer_goes_to_who_can_read_it(namespace: str, workers: Workers) -> None:
    """It is offered to readers of just its schema, and is theirs then: with neither an ack nor a look of its own it waits for them."""
    app = App(namespace, config=LONG)
    taken: list[Delivery] = []

    @app.actor
    async def work() -> None:
        raise AssertionError

    async def take(delivery: Delivery) -> bool:
        taken.append(delivery)
        return True

    async with app.connect(workers.url) as client:
        await client.submit(work.call(), key="k")
        found = await client.stores.runs.read("k")
        assert found.record is not None
        newer = msgspec.json.encode(msgspec.json.decode(encode(found.record)) | {"schema": SCHEMA + 4})
        await client.stores.conn.put(app.names.record("k"), newer)
        for schema in (SCHEMA + 3, SCHEMA + 4, SCHEMA + 5):
            await Handovers(client.stores.conn, client.stores.names).listen("default", readers_of(schema), take)
        async with workers.run(app) as running:
            claims = running.worker.metrics.claims
            await wait_until(lambda: claims["", "handed_over"], description="it is another's")
            assert await client.stores.work.pending("default", "normal") == (0, 1)
            assert not claims["", "newer_schema"]
    assert [delivery.to.key for delivery in taken if delivery.to is not None] == ["k"]


async def test_two_of_which_each_knows_half_do_not_pass_a_wake_up_to_and_fro(namespace: str, workers: Workers) -> None:
    """A queue of two services, one of them upgraded: an older worker knows the actor, a newer one reads the record.

    Each would offer it to the other, thousands of times a second, until somebody knows both.
    """
    app = App(namespace, config=LONG)

    @app.actor
    async def work() -> None:
        raise AssertionError

    async with app.connect(workers.url) as client, asyncio.TaskGroup() as group:
        stores = client.stores
        await client.submit(work.call(), key="k")
        found = await stores.runs.read("k")
        assert found.record is not None
        newer = msgspec.json.encode(msgspec.json.decode(encode(found.record)) | {"schema": SCHEMA + 1})
        await stores.conn.put(app.names.record("k"), newer)
        offers = Offers(stores, metrics := Metrics("", (), ()))
        taken: list[Delivery] = []

        async def take(delivery: Delivery) -> bool:
            taken.append(delivery)
            group.create_task(offers.place(delivery, "work"))
            return True

        close = await Handovers(stores.conn, stores.names).listen("default", readers_of(SCHEMA + 1), take)
        async with workers.run(app) as running:
            handed_back = ("work", "unknown_actor")
            await wait_until(lambda: metrics.claims[handed_back] >= 2, description="it is handed back and comes again")
            claims = running.worker.metrics.claims
            assert metrics.claims["work", "handed_over"] == 0
            assert claims["", "handed_over"] <= metrics.claims[handed_back] + 1, "once for each delivery"
        await close()
    assert all(delivery.offered for delivery in taken)


async def test_this_release_takes_what_an_older_one_could_not_read(app: App, client: Client, workers: Workers) -> None:
    """Whichever schema it was that the older one lacked."""
    schemas = range(PLAIN_SCHEMA + 1, SCHEMA + 1)
    runs = [await client.submit(app.actors["quick"].call(), key=f"k{schema}") for schema in schemas]
    async with deliveries(client, *(run.key for run in runs)) as came, workers.run(app):
        offers = Handovers(client.stores.conn, client.stores.names)
        for schema, delivery in zip(schemas, came, strict=True):
            assert await offers.offer(delivery, readers_of(schema), 1.0) is Reply.TAKEN
        assert [await run.result(10.0) for run in runs] == ["attempt 1"] * len(schemas)
        assert await offers.offer(came[0], readers_of(SCHEMA + 1), 1.0) is Reply.NOBODY


@pytest.mark.long
async def test_workers_and_supervisors_of_two_releases_run_every_task_once(
    site: Site, newer: NewerSite, client: Client
) -> None:
    """Half way through an upgrade the only worker of the newer release is killed in the middle of its bodies.

    The older worker gives what it cannot read back, the older supervisor leaves it alone; both go on with all else. Nothing
    that the newer one wrote is lost: its field is still there at the end.
    """
    old, _ = await asyncio.gather(site.start_worker("--concurrency", "2"), site.start_supervisor())
    await asyncio.to_thread(newer.setup)
    assert "set up by a newer Tenure" in (await asyncio.to_thread(site, "setup", TARGET, code=2)).stderr
    first, _ = await asyncio.gather(newer.start_worker(), newer.start_supervisor())
    await asyncio.to_thread(newer.submit, "hold", NEW)
    plain = [await client.submit(client.app.actors["quick"].call(), key=key) for key in PLAIN]
    for key in NEW:
        assert (await site.wait_for("started", key, timeout=40.0)).pid == first.pid
    await first.kill()
    second = await newer.start_worker()
    for key in NEW:
        again = await site.wait_for("started", key, 2, timeout=40.0)
        assert (again.attempt, again.pid) == (2, second.pid)
        site.open(key)
    for key in NEW:
        await wait_until(partial(ended, client, key), description=f"{key} has ended")
        record = await stored(client, key)
        assert (record["schema"], record["task"]["policy"]["tint"], record["attempt"]) == (NEWER, "new", 2)
    assert [await run.result(10.0) for run in plain] == ["attempt 1"] * len(PLAIN)
    started = site.events("started")
    assert sorted(event.key for event in started) == sorted([*NEW, *NEW, *PLAIN])
    assert old.pid not in {event.pid for event in started if event.key in NEW}
