"""Every server loses power at once: with `deploy/nats/sync-always.conf` nothing that anybody was told of is lost."""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import App, Unavailable
from tenure.nats.embedded import EmbeddedServer
from tests import disks
from tests.accepted import Producer, make_app
from tests.chaos.servers import Servers
from tests.conftest import Workers
from tests.disks import Disks
from tests.support import wait_until

ROOT = Path(__file__).parents[2]
TOLD = 50


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """As it is installed: in one folder with what it includes."""
    for name in ("nats.conf", "deploy/nats/sync-always.conf"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path / "sync-always.conf"


def test_the_profile_flushes_every_write_and_is_nats_conf_otherwise(profile: Path):
    def settings(config: Path | None) -> dict[str, object]:
        with (
            EmbeddedServer(config=config) as server,
            urllib.request.urlopen(f"{server.monitor_url}/varz") as answer,  # noqa: S310  (our own server's)
        ):
            said = json.load(answer)
        own = {"store_dir", "sync_interval", "sync_always"}
        kept = {name: said[name] for name in ("max_payload", "max_connections", "max_pending", "write_deadline")}
        jetstream = said["jetstream"]["config"]
        return (
            kept
            | {name: value for name, value in jetstream.items() if name not in own}
            | {"always": jetstream.get("sync_always", False)}
        )

    assert settings(profile) == settings(None) | {"always": True}


@pytest.fixture
def bodies() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def app(namespace: str, bodies: list[tuple[str, int]]) -> App:
    return make_app(namespace, bodies)


@pytest.fixture
def own(tmp_path: Path, profile: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Servers, Disks]]:
    """Three servers, each with a disk of its own; with ``request.param`` as their configuration."""
    if why := disks.why_not():
        pytest.skip(why)
    servers = Servers(tmp_path, 3, config=profile.with_name(request.param))
    with Disks([servers.store(number) for number in range(3)]) as own:
        servers.start()
        yield servers, own
        servers.stop()


async def fail_amid_submits(producer: Producer, servers: Servers, own: Disks) -> asyncio.Task[None]:
    """What the disks hold is there again, the servers are not; returns who goes on to submit."""
    producing = asyncio.create_task(producer.run())
    await producer.hears(TOLD)
    for node in servers.nodes:
        node.suspend()
    own.lose_power()
    servers.stop()
    own.come_back()
    return producing


def copies(servers: Servers, keys: list[str]) -> list[int]:
    """On how many disks each key is found."""
    found = [0] * len(keys)
    for number in range(3):
        held = b"".join(file.read_bytes() for file in servers.store(number).rglob("*") if file.is_file())
        found = [count + (key.encode() in held) for count, key in zip(found, keys, strict=True)]
    return found


@pytest.mark.long
@pytest.mark.parametrize("own", ["sync-always.conf", "nats.conf"], indirect=True)
async def test_what_was_accepted_is_on_two_of_three_disks_if_each_write_is_flushed(
    own: tuple[Servers, Disks], app: App, request: pytest.FixtureRequest
):
    """And with 5 s between two flushes the last of it is on none: that is what this test can see."""
    servers, disks = own
    async with app.connect(servers.url) as client:
        producer = Producer(client)
        producing = await fail_amid_submits(producer, servers, disks)
        kept = copies(servers, producer.told)
        producing.cancel()
        await asyncio.wait([producing])
    assert min(kept) == 0 if "nats.conf" in request.node.name else min(kept) >= 2


@pytest.mark.long
@pytest.mark.parametrize("own", ["sync-always.conf"], indirect=True)
async def test_three_servers_that_lose_power_at_once_lose_nothing_that_was_accepted(
    own: tuple[Servers, Disks], app: App, bodies: list[tuple[str, int]]
):
    servers, disks = own
    async with app.connect(servers.url) as client:
        producer = Producer(client)
        producing = await fail_amid_submits(producer, servers, disks)
        await asyncio.to_thread(servers.start)
        await producer.hears(TOLD)
        producer.stop()
        await producing
        await wait_until(lambda: can_connect(app, servers), description="each stream has a leader", timeout=60.0)
        async with Workers(servers.url).run(app):
            told = {(key, 1) for key in producer.told}
            await wait_until(lambda: told <= set(bodies), description="all that was accepted runs", timeout=30.0)
    assert len(set(bodies)) == len(bodies)


async def can_connect(app: App, servers: Servers) -> bool:
    try:
        async with app.connect(servers.url):
            return True
    except Unavailable:
        return False
