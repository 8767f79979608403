"""Contract of the blob store: what goes in comes out byte for byte, or an error says what is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from tenure.core.errors import Unavailable
from tenure.core.records import Blob
from tenure.stores import Stores
from tests.contract.support import OwnServer, connect, crash, proxied
from tests.support import wait_until

MIB = 1 << 20


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
    """A put whose answer was lost is simply repeated."""
    first = await stores.blobs.put("run.args", b"data" * 50_000)
    assert await stores.blobs.put("run.args", b"data" * 50_000) == first
    assert await stores.blobs.get(first) == b"data" * 50_000


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
