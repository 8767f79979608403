"""A look at every record by its header: each once, to the end, and with an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core import commands as c
from tenure.core.errors import Unavailable
from tenure.core.records import Policy
from tenure.stores import Stores
from tests.contract.support import (
    claimed,
    connect,
    proxied,
    submitted,
)

VANISHES = Policy(result_ttl=1.0)


@pytest.mark.parametrize("batch", [1, 7, 35])
async def test_a_scan_in_batches_sees_every_record_once_and_no_marker(batch: int, stores: Stores):
    keys = [f"k {n}" for n in range(35)]
    await asyncio.gather(*(submitted(stores, key) for key in keys))
    await submitted(stores, "purged")
    await stores.runs.commit("purged", c.Purge())
    seen: list[str] = []
    await stores.runs.scan(lambda header: seen.append(header.key), batch)
    assert sorted(seen) == sorted(keys)


async def test_a_paced_scan_ends_at_what_was_stored_when_it_began(stores: Stores):
    """Else it would never end while more is written than it may pass; the next one sees the rest."""
    keys = [f"k{n}" for n in range(10)]
    for key in keys:
        await submitted(stores, key)
    seen: list[str] = []

    async def pace() -> None:
        for _ in range(4):
            await submitted(stores, stores.clock.new_id())

    async with asyncio.timeout(5):
        await stores.runs.scan(lambda header: seen.append(header.key), 2, pace)
    assert seen == keys


async def test_a_scan_that_is_not_paced_sees_what_was_written_again_meanwhile(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
):
    """Of a record that was passed over because it was just being written, ``tenure ls`` would not know at all."""
    keys = [f"k{n}" for n in range(10)]
    for key in keys:
        await submitted(stores, key)
    seen: list[str] = []
    plain = stores.conn.api

    async def api(call: str, *args: Any, **options: Any) -> Any:
        answer = await plain(call, *args, **options)
        if call.startswith("CONSUMER.CREATE"):
            found = await stores.runs.read("k9")
            assert found.record is not None
            await claimed(stores, found.record)
        return answer

    monkeypatch.setattr(stores.conn, "api", api)
    await stores.runs.scan(lambda header: seen.append(header.key), 2)
    assert sorted(seen) == keys


@pytest.mark.parametrize("paced", [False, True])
async def test_a_scan_that_goes_to_the_end_ends_though_others_write_faster_than_it_reads(
    paced: bool, stores: Stores, monkeypatch: pytest.MonkeyPatch
):
    """It meets what was written again until it had come to the first of that, and leaves the rest to its writers."""
    keys = [f"k{n}" for n in range(10)]
    for key in keys:
        await submitted(stores, key)
    seen: list[str] = []
    plain = stores.conn.publish

    async def publish(subject: str, *args: Any, **options: Any) -> None:
        if subject.startswith("$JS.API.CONSUMER.MSG.NEXT."):
            for _ in range(4):
                await submitted(stores, stores.clock.new_id())
        await plain(subject, *args, **options)

    async def pace() -> None:
        """As slow as it is: the writers need no longer."""

    monkeypatch.setattr(stores.conn, "publish", publish)
    async with asyncio.timeout(10):
        await stores.runs.scan(lambda header: seen.append(header.key), 2, pace if paced else None, to_end=True)
    assert seen[:10] == keys
    assert len(seen) == len(set(seen)), "each once, for none was written again"
    assert 10 < len(seen) <= 10 + 4 * 6, "and what was written before it had come to the first new one"


async def test_a_scan_whose_consumer_is_not_known_everywhere_yet_asks_again(nats_server: str, namespace: str):
    """Another member of the cluster answers that nobody hears; a consumer that is gone is told all the same."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        await submitted(stores)
        seen: list[str] = []
        lost = proxy.lose(lambda p: p.subject.startswith("$JS.API.CONSUMER.MSG.NEXT."))
        scan = asyncio.create_task(stores.runs.scan(lambda header: seen.append(header.key)))
        await lost.done.wait()
        await proxy.say(lost.hits[0].reply, b"NATS/1.0 503\r\n\r\n")
        await scan
        assert seen == ["k"]


async def test_a_scan_whose_consumer_is_gone_says_so(stores: Stores, monkeypatch: pytest.MonkeyPatch):
    plain = stores.conn.api

    async def api(call: str, *args: Any, **options: Any) -> Any:
        answer = await plain(call, *args, **options)
        if call.startswith("CONSUMER.CREATE"):
            await plain("CONSUMER.DELETE." + ".".join(call.split(".")[2:4]), {})
        return answer

    await submitted(stores)
    monkeypatch.setattr(stores.conn, "api", api)
    with pytest.raises(Unavailable, match="503"):
        await stores.runs.scan(lambda _header: None)


@pytest.mark.parametrize("status", ["409 Leadership Change", "408 Request Timeout"])
async def test_a_scan_that_the_server_breaks_off_is_not_taken_for_a_whole_one(
    nats_server: str, namespace: str, status: str
):
    """The consumer or its leader went away in the middle: only "no messages" is the end."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        await submitted(stores)
        lost = proxy.lose(lambda p: p.subject.startswith("$JS.API.CONSUMER.MSG.NEXT."))
        scan = asyncio.create_task(stores.runs.scan(lambda _header: None))
        await lost.done.wait()
        await proxy.say(lost.hits[0].reply, f"NATS/1.0 {status}\r\n\r\n".encode())
        with pytest.raises(Unavailable, match=status[:3]):
            await scan
