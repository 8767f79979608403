"""Contract of the blob store: what goes in comes out byte for byte, or an error says what is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest
from msgspec.structs import replace

from tenure.core.errors import TenureError, Unavailable
from tenure.core.records import Blob
from tenure.nats.connection import Connection
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tests.contract.support import QUICK, OwnServer, connect, crash, proxied
from tests.proxy import Publish
from tests.support import wait_until

MIB = 1 << 20
DATA = b"data" * 100_000


async def _sequences(stores: Stores) -> list[int]:
    return [kept.sequence async for kept in stores.blobs.kept(Patience(stores.clock, 5.0))]


async def _parts(stores: Stores) -> set[str]:
    return await stores.blobs.parts(Patience(stores.clock, 5.0))


def _names_a_blob(publish: Publish) -> bool:
    return ".M." in publish.subject


@pytest.mark.parametrize("size", [0, 1, 131_071, 131_072, 131_073, MIB, 5 * MIB])
async def test_a_blob_comes_back_whole(size: int, stores: Stores):
    data = random.Random(size).randbytes(size)
    blob = await stores.blobs.put("run.args", data)
    assert blob == Blob(name="run.args", size=size, digest=hashlib.sha256(data).hexdigest())
    assert await stores.blobs.get(blob) == data


async def test_blobs_of_different_runs_do_not_touch_each_other(stores: Stores):
    blobs = await asyncio.gather(*(stores.blobs.put(f"{n}.args", b"%d" % n * 1_000) for n in range(20)))
    assert await asyncio.gather(*map(stores.blobs.get, blobs)) == [b"%d" % n * 1_000 for n in range(20)]


async def test_storing_the_same_again_changes_nothing(stores: Stores):
    """A put whose answer was lost is simply repeated, and a command that is repeated stores its arguments once more."""
    first = await stores.blobs.put("run.args", DATA)
    before = await _sequences(stores), await _parts(stores)
    assert await stores.blobs.put("run.args", DATA) == first
    assert await stores.blobs.get(first) == DATA
    assert (await _sequences(stores), await _parts(stores)) == before


async def test_storing_something_else_under_its_name_does_not_touch_what_a_run_has(stores: Stores):
    """An id that was used for two commands, or one that was encoded otherwise by who repeats it: a set has no order."""
    first = await stores.blobs.put("run.args", DATA)
    second = await stores.blobs.put("run.args", DATA + b"!")
    assert await stores.blobs.get(first) == DATA
    assert await stores.blobs.get(second) == DATA + b"!"


async def test_a_blob_whose_answer_was_lost_can_be_read(
    nats_server: str, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    """Its name is stored and its own second copy is refused: the chunks are not removed for that."""
    monkeypatch.setattr("tenure.nats.blobs._TRANSFER_SECONDS", 5.0)
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        lost = proxy.lose_answer(_names_a_blob)
        blob = await stores.blobs.put("run.args", DATA)
        assert len(lost.hits) == 1
        assert await _sequences(stores) == [5], (
            "after four chunks: another one who has found it may have named it in a record"
        )
        assert await stores.blobs.get(blob) == DATA


async def test_a_blob_of_unknown_fate_can_be_read_if_it_was_stored(nats_server: str, namespace: str):
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        lost = proxy.lose_answer(_names_a_blob, times=100)
        with pytest.raises(Unavailable, match="no known fate"):
            await stores.blobs.put("run.args", DATA)
        lost.clear()
        blob = await stores.blobs.put("run.args", DATA)
        assert await stores.blobs.get(blob) == DATA


async def test_of_two_that_store_one_blob_both_may_be_read_and_nothing_is_left(nats_server: str, namespace: str):
    """Both have found nothing there: the second name is refused, and its chunks go."""
    async with (
        proxied(nats_server) as proxy,
        connect(proxy.url, namespace) as slow,
        connect(nats_server, namespace) as quick,
    ):
        held = proxy.hold(_names_a_blob)
        putting = asyncio.create_task(slow.blobs.put("run.args", DATA))
        await wait_until(lambda: len(held.hits) == 1, description="the first is about to name its chunks")
        blob = await quick.blobs.put("run.args", DATA)
        await proxy.release(held)
        assert await putting == blob
        assert await quick.blobs.get(blob) == DATA
        assert len(await _parts(quick)) == len(await _sequences(quick)) == 1


async def test_what_was_refused_leaves_no_chunks(stores: Stores, nats_server: str, namespace: str):
    async with connect(nats_server, namespace) as other:
        for n in range(10):
            await asyncio.gather(*(one.blobs.put(f"{n}.args", DATA) for one in (stores, other)))
    assert len(await _parts(stores)) == len(await _sequences(stores)) == 10


async def test_a_blob_that_might_go_before_its_command_is_applied_is_stored_anew(nats_server: str, namespace: str):
    """Whoever reads the old one goes on: its chunks are a supervisor's to remove."""
    async with connect(nats_server, namespace, replace(QUICK, blob_grace_seconds=0.4)) as stores:
        blob = await stores.blobs.put("run.args", DATA)
        before = await _sequences(stores)
        await asyncio.sleep(0.3)  # paused: until it is older than half of the grace
        assert await stores.blobs.put("run.args", DATA) == blob
        after = await _sequences(stores)
        assert len(after) == 1
        assert after > before
        assert len(await _parts(stores)) == 2
        assert await stores.blobs.get(blob) == DATA


async def test_a_name_without_chunks_is_stored_anew(stores: Stores, monkeypatch: pytest.MonkeyPatch):
    """An older Tenure removes the chunks that it has just named, if the answer is lost."""
    monkeypatch.setattr("tenure.nats.blobs._TRANSFER_SECONDS", 5.0)
    blob = await stores.blobs.put("run.args", DATA)
    for parts in await _parts(stores):
        await stores.blobs.remove_parts(parts, Patience(stores.clock, 5.0))
    assert await stores.blobs.put("run.args", DATA) == blob
    assert await stores.blobs.get(blob) == DATA


async def test_a_blob_without_its_chunks_is_gone(stores: Stores, monkeypatch: pytest.MonkeyPatch):
    """Nobody waits for them for ever."""
    monkeypatch.setattr("tenure.nats.blobs._TRANSFER_SECONDS", 0.5)
    blob = await stores.blobs.put("run.args", DATA)
    for parts in await _parts(stores):
        await stores.blobs.remove_parts(parts, Patience(stores.clock, 5.0))
    with pytest.raises(TenureError, match="gone") as caught:
        await stores.blobs.get(blob)
    assert not isinstance(caught.value, Unavailable)


async def test_in_a_cluster_a_blob_is_not_gone_because_one_answer_says_so(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
):
    """A leader that was deposed unnoticed answers from what it knows."""
    monkeypatch.setattr(Connection, "is_clustered", True)
    elsewhere = await stores.blobs.put("other.args", DATA)
    reading = asyncio.create_task(stores.blobs.get(replace(elsewhere, name="run.args")))
    await asyncio.sleep(0.2)  # paused: the first look finds nothing
    await stores.blobs.put("run.args", DATA)
    assert await reading == DATA


async def test_a_blob_outlives_a_crash_of_the_server(own_server: OwnServer, namespace: str):
    async with connect(own_server.url, namespace) as stores:
        blob = await stores.blobs.put("run.args", b"kept" * MIB)
        await crash(own_server, stores)
        assert await stores.blobs.get(blob) == b"kept" * MIB


async def test_a_server_that_is_away_is_unavailable(nats_server: str, namespace: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenure.nats.blobs._TRANSFER_SECONDS", 0.3)
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        blob = await stores.blobs.put("run.args", b"data")
        await proxy.take_down()
        await wait_until(lambda: not stores.conn.is_connected, description="noticed")
        with pytest.raises(Unavailable):
            await stores.blobs.put("other.args", b"data")
        with pytest.raises(Unavailable):
            await stores.blobs.get(blob)
