"""Canaries: texts that users gave in every way there is, and where they turn up at the server."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

_SHOWN = 500_000


def _forms(canary: str) -> tuple[bytes, ...]:
    """As it may lie there: as it is, and in base64 wherever it begins."""
    plain = canary.encode()
    shifted = (base64.b64encode(b"\0" * shift + plain) for shift in range(3))
    return plain, plain.hex().encode(), *(form[4:-4] for form in shifted)


@dataclass
class Canaries:
    """``canaries("args")`` is a text that is nowhere else."""

    made: dict[str, str] = field(default_factory=dict)

    def __call__(self, where: str) -> str:
        return self.made.setdefault(where, f"canary-{where}-{uuid.uuid4().hex}")

    def found_in(self, data: bytes) -> set[str]:
        """Which of them are there."""
        return {where for where, canary in self.made.items() if any(form in data for form in _forms(canary))}


async def messages(url: str) -> bytes:
    """Everything that is stored in any stream: subjects, headers, bodies."""
    client = await nats.connect(url)
    try:
        return b"\n".join([part async for part in _stored(client)])
    finally:
        await client.close()


async def _stored(client: NatsClient) -> Any:
    listed = json.loads((await client.request("$JS.API.STREAM.NAMES", b"")).data)
    for name in listed["streams"]:
        sequence = 1
        while True:
            asked = json.dumps({"seq": sequence, "next_by_subj": ">"}).encode()
            answer = json.loads((await client.request(f"$JS.API.STREAM.MSG.GET.{name}", asked)).data)
            message = answer.get("message")
            if message is None:
                break
            sequence = message["seq"] + 1
            yield message["subject"].encode()
            yield base64.b64decode(message.get("hdrs", ""))
            yield base64.b64decode(message.get("data", ""))


def files(store: Path) -> bytes:
    """Everything in a server's store, its consumers' and streams' settings too."""
    return b"\n".join(_contents(store))


def _contents(store: Path) -> Iterator[bytes]:
    for path in sorted(store.rglob("*")):
        if path.is_file():
            yield path.name.encode()
            yield path.read_bytes()


@dataclass
class Eavesdropper:
    """Hears what is said on the server beside what is stored: events, progress, who was refused."""

    heard: list[bytes] = field(default_factory=list)

    async def hear(self, msg: Msg) -> None:
        headers = json.dumps(dict(msg.headers or {}))
        self.heard.append(b"\n".join((msg.subject.encode(), headers.encode(), msg.data)))
