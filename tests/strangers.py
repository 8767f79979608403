"""Programs that have no Tenure and publish commands; and supervisors that die with one in hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from nats.aio.client import Client as NatsClient

from tenure import App, Client, Context, Run
from tenure.core.dead import Rejected
from tenure.core.marks import is_mark
from tenure.metrics import Metrics
from tenure.stores import Stores
from tenure.supervisor.commands import Commands
from tests.support import FAST, wait_until


class Stranger:
    """A program that has no Tenure."""

    def __init__(self, client: NatsClient, namespace: str) -> None:
        self.client = client
        self.js = client.jetstream()
        self.root = f"tenure.{namespace}"

    async def send(self, what: str, arguments: Any = None, **headers: str) -> int:
        """Publish; returns the sequence of the PubAck."""
        data = b"" if arguments is None else json.dumps(arguments).encode()
        return await self.raw(what, data, {name.replace("_", "-"): value for name, value in headers.items()})

    async def raw(self, what: str, data: bytes, headers: dict[str, str] | None = None) -> int:
        ack = await self.js.publish(f"{self.root}.{what}", data, headers=headers)
        return int(ack.seq)


async def phase(client: Client, key: str, *wanted: str) -> str:
    """Wait for one of these phases of a key."""

    async def look() -> str:
        status = await client.status(key)
        return status.phase if status is not None and (not wanted or status.phase in wanted) else ""

    return str(await wait_until(look, description=f"{key} is {wanted or 'there'}"))


async def run_of(client: Client, key: str) -> Run[Any]:
    await phase(client, key)
    return await client.run(key)


async def rejected(client: Client, number: int = 1) -> list[Rejected]:
    """What was rejected, once it is so much."""

    async def look() -> list[Rejected]:
        found = await client.dead.rejected()
        return found if len(found) >= number else []

    found: list[Rejected] = await wait_until(look, description=f"{number} rejected commands")
    assert len(found) == number
    return found


async def until_forgotten(client: Client, key: str) -> None:
    async def forgotten() -> bool:
        found = await client.stores.runs.read(key)
        return found.record is not None and not any(map(is_mark, found.record.to_forget))

    await wait_until(forgotten, description=f"the marks of {key} are forgotten")


async def until_empty(stranger: Stranger, client: Client) -> None:
    async def empty() -> bool:
        return (await stranger.js.stream_info(client.app.names.inbox_stream)).state.messages == 0

    await wait_until(empty, description="the inbox is empty")


async def is_marked(client: Client, key: str) -> bool:
    found = await client.stores.runs.read(key)
    return found.record is not None and any(map(is_mark, found.record.to_forget))


STATUS = b"NATS/1.0 \xff\xff\xff\r\nTenure-Key: status\r\n\r\n"
"""nats-py decodes the status of a status line, and breaks its connection. JetStream takes the status away."""


class Wire:
    """A client that sends what it likes."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        self._writer.write(b'CONNECT {"verbose":false,"headers":true}\r\nSUB answers 1\r\nPING\r\n')
        while b"PONG" not in await self._reader.readline():
            pass
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def publish(self, subject: str, headers: bytes, data: bytes) -> None:
        size = len(headers) + len(data)
        line = f"HPUB {subject} answers {len(headers)} {size}\r\n"
        self._writer.write(b"".join((line.encode(), headers, data, b"\r\n")))
        await self._writer.drain()

    async def send(self, subject: str, headers: bytes, data: bytes) -> dict[str, Any]:
        """Its PubAck."""
        await self.publish(subject, headers, data)
        while True:
            line = (await self._reader.readline()).decode()
            if line.startswith("MSG answers"):
                answer: dict[str, Any] = json.loads(await self._reader.readline())
                return answer


# -- supervisors that die -----------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone from one instruction to the next."""


def mortal_app(namespace: str) -> App:
    """Whose commands are delivered again soon."""
    app = App(namespace, config=replace(FAST, ack_wait_seconds=1.0, request_timeout_seconds=0.5, sweep_seconds=0.5))

    @app.actor
    async def add(one: int, two: int = 2) -> int:
        return one + two

    @app.actor(result_ttl=1)
    async def brief() -> None:
        pass

    @app.actor(grace=1.0)
    async def hold(ctx: Context) -> None:
        await ctx.stopping.wait()

    return app


@asynccontextmanager
async def another(app: App, url: str) -> AsyncIterator[Commands]:
    """What a supervisor's process does about the inbox, to be killed or frozen in the middle."""
    stores = await Stores.open(url, app.names, app.config, name="another")
    yield Commands(stores, Metrics("0", app.actors, ()), app.actors)
    await stores.close()


async def killed_at(commands: Commands, step: str, patch: pytest.MonkeyPatch) -> None:
    """Let it have one command and die at ``step``."""

    async def die(*_args: object, **_options: object) -> Any:
        raise Killed

    def die_at_once(*_args: object, **_options: object) -> Any:
        raise Killed

    stores = commands._stores
    places: dict[str, tuple[object, str, Any]] = {
        "before the write": (stores.runs, "commit", die),
        "before the effects": (stores, "carry_out", die),
        "before the ack": (stores.inbox, "ack", die),
        "before it is forgotten": (commands.forgetter, "later", die_at_once),
    }
    patch.setattr(*places[step])
    pulling = asyncio.create_task(commands.pull())
    with pytest.raises(Killed):
        await commands.apply()
    pulling.cancel()
    await asyncio.wait([pulling])
