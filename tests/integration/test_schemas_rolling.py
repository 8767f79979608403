"""Workers and supervisors of two releases side by side, of which the older cannot read what the newer writes for one actor."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tenure import Client
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
