"""Asking JetStream itself: its API, its streams, its consumers."""

from __future__ import annotations

from typing import Any

import msgspec
from nats.aio.msg import Msg

from tenure.nats.connection import ApiError, Connection
from tests.support import wait_until

SECOND = 1_000_000_000


class Asked:
    """Calls of the API for streams whose names begin with ``name``; refusals come back as (err_code, description)."""

    def __init__(self, conn: Connection, name: str) -> None:
        self.conn = conn
        self.name = name
        self.made: list[str] = []

    async def api(self, call: str, body: Any = None) -> Any:
        answer = await self.conn.api(call, body or {})
        return (answer.err_code, answer.description) if isinstance(answer, ApiError) else answer

    async def stream(self, kind: str, **settings: Any) -> str:
        """Make a stream; its name, which is also the first token of its subjects."""
        name = f"{self.name}{kind}"
        spec = {"name": name, "subjects": [f"{name}.>"], "storage": "file", "num_replicas": 1} | settings
        made = await self.api(f"STREAM.CREATE.{name}", spec)
        assert isinstance(made, dict), made
        self.made.append(name)
        return name

    async def bucket(self, **settings: Any) -> str:
        """A stream like those of the records."""
        return await self.stream(
            "B",
            discard="new",
            max_msgs_per_subject=1,
            allow_rollup_hdrs=True,
            allow_msg_ttl=True,
            deny_delete=True,
            **settings,
        )

    async def work(self, **settings: Any) -> str:
        """A stream like that of the wake-ups, with a consumer ``d`` of its subjects under ``w``."""
        name = await self.stream(
            "W", retention="workqueue", allow_msg_schedules=True, allow_rollup_hdrs=True, **settings
        )
        await self.lane(name)
        return name

    async def lane(self, stream: str, action: str = "", **settings: Any) -> Any:
        config = {
            "durable_name": "d",
            "filter_subject": f"{stream}.w.>",
            "ack_policy": "explicit",
            "ack_wait": SECOND,
            "max_deliver": -1,
            "max_ack_pending": -1,
        } | settings
        call = f"CONSUMER.DURABLE.CREATE.{stream}.{config['durable_name']}"
        return await self.api(call, {"stream_name": stream, "config": config, "action": action})

    async def put(self, subject: str, data: bytes = b"x", **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        ack = await self.conn.put(subject, data, named or None)
        return (ack.error.err_code, ack.error.description) if ack.error else ack.seq

    async def waits(self, stream: str, number: int) -> None:
        """Return once so many pulls stand."""

        async def they_stand() -> bool:
            return bool((await self.api(f"CONSUMER.INFO.{stream}.d"))["num_waiting"] == number)

        await wait_until(they_stand, description=f"{number} pulls stand")

    async def last(self, stream: str, subject: str) -> Any:
        answer = await self.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        return answer if isinstance(answer, tuple) else answer["message"]


class Puller:
    """What a consumer sends to an inbox."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.got: list[Msg] = []
        self.inbox = conn.new_inbox()

    async def received(self, msg: Msg) -> None:
        self.got.append(msg)

    async def ask(self, stream: str, consumer: str = "d", **ask: Any) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        await self.conn.publish(subject, msgspec.json.encode(ask), reply=self.inbox)

    async def next(self, number: int = 1) -> list[Msg]:
        """The next messages, once there are so many."""
        await wait_until(lambda: len(self.got) >= number, description=f"{number} messages")
        got, self.got = self.got[:number], self.got[number:]
        return got

    async def status(self) -> tuple[str, str | None]:
        """Status and pending messages of the next one."""
        (msg,) = await self.next()
        assert msg.headers is not None
        return msg.headers["Status"], msg.headers.get("Nats-Pending-Messages")


def place(msg: Msg) -> list[int]:
    """Deliveries, sequence, consumer sequence and what is still to come of a delivery."""
    parts = msg.reply.split(".")
    return [int(parts[at]) for at in (4, 5, 6, 8)]
