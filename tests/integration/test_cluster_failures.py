"""One, two and all of three servers, their disks and the network between them fail amid work: what was accepted is run.

The table of failures in ARCHITECTURE.md (*Clusters*) names each of these.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import disks
from tests.accepted import Producer, make_app
from tests.chaos import network
from tests.chaos.network import Network
from tests.chaos.servers import Office, Servers
from tests.conftest import Supervisors, Workers
from tests.disks import Disks
from tests.support import wait_until

ROOT = Path(__file__).parents[2]
MEANWHILE = 30
"""Submits that are answered while something is broken: with a yes, or with what a caller is told who has to ask again."""
ELECTION_SECONDS = 60.0


@dataclass
class Stand:
    """Three servers, and what may fail them."""

    servers: Servers
    network: Network | None
    disks: Disks | None

    async def fail(self, what: str, which: list[int], producer: Producer) -> None:
        """Something of these servers fails, submits go on, it is whole again."""
        nodes = [self.servers.nodes[number] for number in which]
        if what == "network" and self.network is not None:
            for node in nodes:
                self.network.cut(node.name)
        if what == "disk" and self.disks is not None:
            for node in nodes:
                node.suspend()
            self.disks.lose_power(which)
        if what != "network":
            for node in nodes:
                node.kill()
        await producer.hears(MEANWHILE)
        if what == "network" and self.network is not None:
            for node in nodes:
                self.network.heal(node.name)
        if what == "disk" and self.disks is not None:
            self.disks.come_back()
        await asyncio.to_thread(self.servers.start)


@pytest.fixture
def stand(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stand]:
    what, _, config = request.param
    for name in ("nats.conf", "deploy/nats/sync-always.conf"):
        shutil.copy(ROOT / name, tmp_path)
    why = {"network": network.why_not, "disk": disks.why_not}.get(what, str)()
    if why:
        pytest.skip(why)
    with contextlib.ExitStack() as stack:
        between = stack.enter_context(Network()) if what == "network" else None
        servers = Servers(tmp_path, 3, between, config=tmp_path / config)
        own = Disks([servers.store(number) for number in range(3)]) if what == "disk" else None
        if own is not None:
            stack.enter_context(own)
        stack.callback(servers.stop)
        servers.start()
        yield Stand(servers, between, own)


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "stand",
    [
        pytest.param((what, number, config), id=f"{what}-{number}")
        for what, number, config in (
            ("node", 1, "nats.conf"),
            ("node", 2, "nats.conf"),
            ("node", 3, "nats.conf"),
            ("network", 1, "nats.conf"),
            ("network", 2, "nats.conf"),
            ("disk", 1, "nats.conf"),
            ("disk", 2, "sync-always.conf"),
        )
    ],
    indirect=True,
)
async def test_what_was_accepted_is_run_and_no_attempt_twice(
    stand: Stand, namespace: str, request: pytest.FixtureRequest
):
    """The leader of the runs bucket fails first; of two, one more with it. Nobody who works is started anew."""
    what, number, _ = request.node.callspec.params["stand"]
    bodies: list[tuple[str, int]] = []
    app = make_app(namespace, bodies)
    url = stand.servers.url
    async with app.connect(url) as client, Workers(url).run(app), Supervisors(url).run(app):
        producer = Producer(client)
        producing = asyncio.create_task(producer.run())
        await producer.hears(MEANWHILE)
        first = await asyncio.to_thread(stand.servers.leader_of, Office(kind="stream", stream=app.names.runs_stream))
        which = sorted(range(3), key=lambda each: each != first)[:number]
        await stand.fail(what, which, producer)
        accepted = len(producer.told)
        await wait_until(lambda: len(producer.told) > accepted, description="accepted again", timeout=ELECTION_SECONDS)
        producer.stop()
        await producing

        def all_ran() -> bool:
            return {key for key, _ in bodies} >= set(producer.told)

        await wait_until(all_ran, description="all that was accepted has run", timeout=ELECTION_SECONDS)
        for key in producer.told:
            await client.run(key).result(ELECTION_SECONDS)
    assert len(set(bodies)) == len(bodies)
