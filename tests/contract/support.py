"""Tools of the contract suite.

Records in a wanted state, a lane that keeps what comes, further connections, crashes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from tenure import Config
from tenure.clock import SYSTEM
from tenure.core import commands as c
from tenure.core.records import Holder, Phase, Policy, Record, Task
from tenure.core.subjects import Names
from tenure.nats.embedded import EmbeddedServer
from tenure.nats.lane import Lane
from tenure.nats.memory import MemoryServer
from tenure.nats.runs import Committed
from tenure.nats.swaps import IN_FLIGHT
from tenure.nats.work import Delivery
from tenure.stores import Stores
from tests.memory_proxy import MemoryProxy
from tests.proxy import Fault, Proxy
from tests.support import FAST, wait_until

QUICK = replace(FAST, request_timeout_seconds=0.3)
"""An answer is missed soon."""


def submit(key: str = "k", **changes: Any) -> c.Submit:
    """A submit with a run id of its own. ``policy`` and ``args`` as in the task, the rest as in the command."""
    args = msgspec.Raw(msgspec.json.encode(changes.pop("args", {})))
    task = Task(actor="a", args=args, policy=changes.pop("policy", Policy()))
    return c.Submit(key=key, run_id=SYSTEM.new_id(), task=task, **changes)


async def submitted(stores: Stores, key: str = "k", **changes: Any) -> Committed:
    """The stored record of a new run."""
    result = await stores.runs.commit(key, submit(key, **changes))
    assert isinstance(result, Committed), result
    return result


async def claimed(stores: Stores, record: Record) -> Committed:
    """The record of a waiting run once session ``s`` has claimed it."""
    result = await stores.runs.commit(record.key, c.Claim(session="s", run_id=record.run_id, next_run_id=""))
    assert isinstance(result, Committed), result
    return result


async def finished(stores: Stores, record: Record) -> Committed:
    """The record of a waiting run after a claim and an outcome."""
    held = (await claimed(stores, record)).record
    holder = Holder(session="s", run_id=held.run_id, attempt=held.attempt)
    outcome = c.Succeed(holder=holder, next_run_id="", result=msgspec.Raw(b'"done"'))
    result = await stores.runs.commit(held.key, outcome)
    assert isinstance(result, Committed), result
    assert result.record.phase is Phase.SUCCEEDED
    return result


class Pulled:
    """What a lane has delivered; ``at``: when (loop time); ``first`` is set by the first of it."""

    def __init__(self, stores: Stores, queue: str) -> None:
        self.stores = stores
        self.at: list[float] = []
        self.first = asyncio.Event()
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self.lane = Lane(
            stores.conn,
            stores.names,
            stores.work,
            clock=stores.clock,
            queue=queue,
            priority="normal",
            on_delivery=self._received,
        )

    async def _received(self, _lane: Lane, delivery: Delivery) -> None:
        self.at.append(asyncio.get_running_loop().time())
        self.first.set()
        self._queue.put_nowait(delivery)

    async def next(self, timeout: float = 5.0) -> Delivery:
        """The next delivery, taken but not answered."""
        async with asyncio.timeout(timeout):
            return await self._queue.get()


@asynccontextmanager
async def pull(stores: Stores, queue: str = "default", wanted: int = 10) -> AsyncIterator[Pulled]:
    """A lane of ``queue`` that has asked for ``wanted``."""
    pulled = Pulled(stores, queue)
    await pulled.lane.open()
    await pulled.lane.want(wanted)
    try:
        yield pulled
    finally:
        await pulled.lane.close()


async def depth(stores: Stores) -> int:
    """Messages in the work stream."""
    info = await stores.conn.api(f"STREAM.INFO.{stores.names.work_stream}", {})
    assert isinstance(info, dict)
    return int(info["state"]["messages"])


async def is_empty(stores: Stores) -> bool:
    """Whether nothing is left in the work stream."""
    return await depth(stores) == 0


async def consumers(stores: Stores, stream: str) -> int:
    """Consumers of a stream."""
    info = await stores.conn.api(f"STREAM.INFO.{stream}", {})
    assert isinstance(info, dict)
    return int(info["state"]["consumer_count"])


@asynccontextmanager
async def connect(url: str, namespace: str, config: Config = QUICK) -> AsyncIterator[Stores]:
    """Stores of a namespace over another connection."""
    stores = await Stores.open(url, Names(namespace), config, name="contract")
    try:
        yield stores
    finally:
        await stores.close()


class OwnServer:
    """A server that a test may kill and freeze: a real one or one in memory."""

    def __init__(self, server: EmbeddedServer | MemoryServer) -> None:
        self._server = server

    @property
    def url(self) -> str:
        """What to connect to."""
        return self._server.url

    async def _do(self, action: Callable[[], None]) -> None:
        """A real one blocks; one in memory lives on this loop."""
        if isinstance(self._server, MemoryServer):
            action()
            await asyncio.sleep(0.02)  # work: a process takes longer; who is connected notices meanwhile
        else:
            await asyncio.to_thread(action)

    async def kill(self) -> None:
        """SIGKILL."""
        await self._do(self._server.kill)

    async def start(self) -> None:
        """Start again, with what was stored."""
        await self._do(self._server.start)

    def suspend(self) -> None:
        """SIGSTOP."""
        self._server.pause() if isinstance(self._server, MemoryServer) else self._server.suspend()

    def resume(self) -> None:
        """SIGCONT."""
        self._server.resume()


def proxied(url: str) -> Proxy | MemoryProxy:
    """A proxy in front of the server."""
    return MemoryProxy(url) if url.startswith("memory://") else Proxy(url)


async def say_in_flight(proxy: Proxy | MemoryProxy, fault: Fault, times: int) -> None:
    """Answer the publishes that ``fault`` takes as a server does that has another of this subject under way (10164)."""
    error = {"code": 400, "err_code": IN_FLIGHT, "description": "wrong last sequence"}
    for number in range(times):

        def published(number: int = number) -> bool:
            return len(fault.hits) > number

        await wait_until(published, description="published")
        await fault.done.wait()
        await proxy.say(fault.hits[number].reply, b"", msgspec.json.encode({"error": error, "stream": "any", "seq": 0}))


async def crash(server: OwnServer, stores: Stores) -> None:
    """SIGKILL, then a new start; returns when the connection is back."""
    await server.kill()
    await wait_until(lambda: not stores.conn.is_connected, description="the crash is noticed")
    await server.start()
    await wait_until(lambda: stores.conn.is_connected, description="connected again")
