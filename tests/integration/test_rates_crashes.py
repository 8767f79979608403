"""Rates over the end of processes and of the server: never one start too many, and nobody is left waiting."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure import Client, Run
from tenure.nats.embedded import EmbeddedServer
from tests.integration.test_rates import closest
from tests.processes import Event, Process, Site
from tests.proxy import Proxy, Publish, record
from tests.support import wait_until

SUBMITTER = """
import asyncio, sys
from tests.site_app import app

async def main():
    async with app.connect() as client:
        items = [(app.actors[sys.argv[1]].call(), f"{sys.argv[2]}{i}") for i in range(int(sys.argv[3]))]
        left = dict(enumerate(items))
        while left:
            runs = await client.submit_many(left.values())
            left = {n: item for (n, item), run in zip(left.items(), runs) if isinstance(run, Exception)}

asyncio.run(main())
"""
"""A producer that is told that the server is away submits again, under the same keys."""


def submitter(site: Site, actor: str, keys: str, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SUBMITTER, actor, keys, str(number)]
    environment = site.environment() | {"TENURE_NATS_URL": site.url}
    return subprocess.Popen(command, cwd=site.folder, env=environment)


async def submit(site: Site, client: Client, number: int, keys: str = "k") -> list[Run[str]]:
    call = site.app.actors["paced"].call
    return [await client.submit(call(), key=f"{keys}{i}") for i in range(number)]


async def all_started(site: Site, number: int, timeout: float = 25.0) -> list[Event]:
    await wait_until(
        lambda: len({event.key for event in site.events("started")}) >= number,
        description=f"{number} bodies have started",
        timeout=timeout,
    )
    return site.events("started")


def check(events: list[Event], n: int = 3, seconds: float = 1.0) -> None:
    print(
        f"{len(events)} starts in {events[-1].at - events[0].at:.2f} s, closest {closest([e.at for e in events], n):.4f}"
    )
    assert closest([event.at for event in events], n) >= seconds


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def own_site(server: EmbeddedServer, namespace: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, server.url, namespace)
    yield site
    site.close()


@pytest.mark.long
@pytest.mark.one_server("its own server is restarted with its store")
async def test_two_submitters_two_workers_and_a_restart_of_everything(own_site: Site, server: EmbeddedServer) -> None:
    """Two processes submit at once; meanwhile one worker is killed, then the server, then the other one is replaced.

    A wake-up that the killed one has and has not claimed is nobody's until ``ack_wait``.
    """
    site = own_site
    site.settings["ack_wait_seconds"] = 2.0
    await site.start_supervisor()
    first, second = await site.start_worker(), await site.start_worker()
    producers = [submitter(site, "paced", keys, 9) for keys in ("a", "b")]
    try:
        await all_started(site, 4)
        await first.kill()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await all_started(site, 9)
        await site.start_worker()
        await second.end()
        events = await all_started(site, 18)
    finally:
        for producer in producers:
            assert await asyncio.to_thread(producer.wait, 20) == 0
    check(events)


async def test_a_start_whose_process_is_killed_before_the_claim_is_wasted_and_no_more(site: Site, proxy: Proxy) -> None:
    """Kill -9 between the write of the mark and that of the claim: the run starts elsewhere, under a mark of its own."""
    site.settings["ack_wait_seconds"] = 2.0
    await site.start_supervisor()
    doomed = await site.start_worker(url=proxy.url)
    claim = proxy.hold(record(site.app, "k0", "running"), times=100)
    async with site.app.connect(site.url) as client:
        runs = await submit(site, client, 1)
        await claim.done.wait()
        await doomed.kill()
        await site.start_worker()
        runs += await submit(site, client, 6, "after")
        for run in runs:
            await run.result(20)
    check(await all_started(site, 7))


@pytest.mark.long
@pytest.mark.parametrize("also", ["", "MSG.DELETE"])
async def test_a_run_whose_hand_over_is_cut_off_by_a_kill_starts_within_seconds(
    site: Site, proxy: Proxy, also: str
) -> None:
    """Kill -9 after a place is kept for a parked run and before its wake-up; its parked message is gone, or not yet.

    While that place counts, for 8 s, nobody hands the run another one. (A supervisor would hand over just as well: it comes later.)
    """
    doomed = await site.start_worker(url=proxy.url)

    def handing_over(sent: Publish) -> bool:
        return (".work." in sent.subject and sent.says('"p":1')) or bool(also and also in sent.subject)

    async with site.app.connect(site.url) as client:
        held = proxy.hold(handing_over, times=1_000)
        for i in range(3):
            await client.submit(site.app.actors["paced_slowly"].call(), key=f"k{i}")
        await held.done.wait()
        await doomed.kill()
    await site.start_supervisor()
    await site.start_worker()
    first, cut_off, *_ = await all_started(site, 2)
    assert cut_off.key == held.hits[0].subject.split(".")[-2]
    assert 8.0 <= cut_off.at - first.at < 15.0, "it must not wait until its place counts no more"


async def test_who_is_parked_starts_in_time_though_the_process_that_would_wake_it_is_killed(site: Site) -> None:
    """No supervisor, no new traffic: the other worker has dealt with the rate, and looks half a second later.

    Both have parked a run of it when one is killed. A wake-up that is in its hands then is delivered anew after ``ack_wait``;
    what is parked has none.
    """
    site.settings["ack_wait_seconds"] = 2.0
    first, second = [await site.start_worker("--metrics-port", "0") for _ in range(2)]

    async def parked_by(worker: Process) -> bool:
        return 'tenure_claims_total{actor="paced",outcome="parked"}' in await nonzero(worker)

    async with site.app.connect(site.url) as client:
        runs = await submit(site, client, 12)
        for more in range(20):
            if await parked_by(first) and await parked_by(second):
                break
            runs += await submit(site, client, 2, f"more{more}-")
        else:
            pytest.fail("one of the workers is handed nothing")
        await first.kill()
        for run in runs:
            await run.result(30)
        await second.end()
    check(site.events("started"))


async def nonzero(worker: Process) -> set[str]:
    """The series of a worker that are not 0."""
    samples = [line.rsplit(" ", 1) for line in (await worker.metrics()).splitlines() if not line.startswith("#")]
    return {series for series, value in samples if float(value)}


@pytest.mark.one_server("its own server is restarted with its store")
async def test_debounce_and_cooldown_hold_over_a_restart_of_everything(own_site: Site, server: EmbeddedServer) -> None:
    """What is waited for, and since when a key is cool, is in the record alone."""
    site = own_site
    await site.start_supervisor()
    first = await site.start_worker()
    settles, cools = site.app.actors["settles"], site.app.actors["cools"]
    async with site.app.connect(site.url) as client:
        await (await client.submit(cools.call(), key="c")).result(10)
        await client.submit(settles.call(1), key="s")
        await client.submit(settles.call(2), key="s")
        await first.kill()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    await site.start_worker()
    async with site.app.connect(site.url) as client:
        assert not (await client.submit(cools.call(), key="c")).accepted
        run = client.run("s")
        assert await run.result(15) == 2
        await wait_until(lambda: again(client, cools), description="the key has cooled down", timeout=10.0)
    await site.wait_for("started", "c", 2)
    at = [event.at for event in site.events("started", "c")]
    assert [event.what for event in site.events(key="s")] == ["started:2"]
    assert at[1] - at[0] >= 4.0


async def again(client: Client, actor: object) -> bool:
    return (await client.submit(actor.call(), key="c")).accepted  # type: ignore[attr-defined]  # an actor of the site
