"""Harm falls between any two steps: between a read and the write that relies on it, between a store and its answer."""

from __future__ import annotations

import asyncio
import random

from tenure.clock import using
from tenure.core.commands import Replace
from tenure.core.subjects import Names
from tenure.nats.memory import MemoryServer
from tenure.stores import Stores
from tests.contract.conftest import submit
from tests.sim.loop import Process, SimLoop
from tests.sim.machine import SimClock
from tests.sim.server import FragileServer
from tests.support import FAST

_STEPS = range(1, 25)


async def _replace(stores: Stores, run_id: str, done: list[str]) -> None:
    found = await stores.runs.read("k")
    assert found.record is not None
    done.append("read")
    await stores.runs.commit("k", Replace(key="k", run_id=run_id, task=found.record.task), at=found)
    done.append("written")


async def _frozen_before(step: int, loop: SimLoop) -> tuple[list[str], bool, int]:
    """What one has done when it is frozen, whether its write is refused after the other's, and the last generation."""
    clock = SimClock(loop, random.Random(step))
    with using(clock), MemoryServer(f"steps{step}", clock=clock) as server:
        other = await Stores.open(server.url, Names("steps"), FAST, name="other")
        await other.runs.commit("k", submit("k", "first"))
        one, now = Process(loop, "one", 1), asyncio.Event()
        done, by_then, refused = list[str](), list[str](), list[str]()

        def freeze() -> None:
            by_then.extend(done)
            one.freeze()
            now.set()

        async def run() -> None:
            stores = await Stores.open(server.url, Names("steps"), FAST, name="one")
            stores.runs.conflicts = refused.append
            one.fuses.light(step, freeze)
            await _replace(stores, "one's", done)
            for _ in range(100):
                await asyncio.sleep(0.01)  # work: more steps
            await stores.close()

        running = one.start(run())
        await now.wait()
        await _replace(other, "other's", [])
        one.thaw()
        await running
        last = (await other.runs.read("k")).record
        await other.close()
        assert last is not None
        return by_then, bool(refused), last.generation


def test_a_freeze_lands_between_a_read_and_its_write_which_is_then_decided_anew() -> None:
    loop = SimLoop()
    seen = [loop.run_until_complete(_frozen_before(step, loop)) for step in _STEPS]
    loop.close()
    assert {generation for *_, generation in seen} == {3}
    assert (["read"], True) in [(done, refused) for done, refused, _ in seen]
    assert ([], False) in [(done, refused) for done, refused, _ in seen]
    assert (["read", "written"], False) in [(done, refused) for done, refused, _ in seen]


async def _server_killed_at(step: int, loop: SimLoop) -> tuple[list[str], int, int]:
    """What a replace has done when the server is killed, which generation is stored by then, and which one at the end."""
    clock = SimClock(loop, random.Random(step))
    with using(clock), FragileServer(f"fragile{step}", clock=clock) as server:
        stores = await Stores.open(server.url, Names("steps"), FAST, name="one")
        await stores.runs.commit("k", submit("k", "first"))
        done, by_then, stored = list[str](), list[str](), [1]
        server.watch(Names("steps"), lambda seen: stored.append(seen.generation))  # type: ignore[union-attr]  # records alone

        def kill() -> None:
            by_then.extend([*done, f"stored {stored[-1]}"])
            server.kill()
            loop.call_later(0.05, server.start)

        server.fuses.light(step, kill)
        await _replace(stores, "mine", done)
        await asyncio.sleep(1)  # work: more steps
        last = (await stores.runs.read("k")).record
        await stores.close()
        assert last is not None
        return by_then, stored.count(2), last.generation


def test_a_kill_of_the_server_lands_between_a_store_and_its_answer_and_the_write_is_found_not_made_again() -> None:
    loop = SimLoop()
    seen = [loop.run_until_complete(_server_killed_at(step, loop)) for step in range(1, 5)]
    loop.close()
    assert {(times, generation) for _, times, generation in seen} == {(1, 2)}
    assert [by_then for by_then, *_ in seen] == [
        ["stored 1"],
        ["read", "stored 2"],
        ["read", "stored 2"],
        ["read", "written", "stored 2"],
    ]
