"""What is collected at the end is whole: what was not read would be taken for what is not there."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.errors import Unavailable
from tests.chaos import collect
from tests.contract.support import connect, proxied, submitted


async def test_a_consumer_that_is_not_known_everywhere_yet_does_not_end_a_reading(nats_server: str, namespace: str):
    """In a cluster of three one pull in thirty, right after the consumer is made, is told that nobody hears it."""
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        await submitted(stores)
        lost = proxy.lose(lambda p: p.subject.startswith("$JS.API.CONSUMER.MSG.NEXT."))
        reading = asyncio.create_task(collect.records(stores))
        await lost.done.wait()
        await proxy.say(lost.hits[0].reply, b"NATS/1.0 503\r\n\r\n")
        assert set(await reading) == {"k"}


@pytest.mark.parametrize("status", ["409 Leadership Change", "408 Request Timeout"])
async def test_a_reading_that_the_server_breaks_off_is_not_taken_for_a_whole_one(
    nats_server: str, namespace: str, status: str
):
    async with proxied(nats_server) as proxy, connect(proxy.url, namespace) as stores:
        await submitted(stores)
        lost = proxy.lose(lambda p: p.subject.startswith("$JS.API.CONSUMER.MSG.NEXT."))
        reading = asyncio.create_task(collect.records(stores))
        await lost.done.wait()
        await proxy.say(lost.hits[0].reply, f"NATS/1.0 {status}\r\n\r\n".encode())
        with pytest.raises(Unavailable, match=status[:3]):
            await reading
