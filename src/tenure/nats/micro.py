"""A NATS micro service (ADR-32): discovered and measured by the tools that every NATS client has, asked by request and reply.

nats-py's own answers the requests of an endpoint one after the other, so that one that waits for the server holds up all
others, and tells times that are mostly waiting. Here whoever owns the service takes requests from one bounded queue, as
many at once as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from nats.aio.msg import Msg

from tenure.clock import Clock
from tenure.core.errors import InvalidCall
from tenure.core.subjects import ROOT
from tenure.nats.connection import Connection, Lost, NotSent

GROUP = "tenure"
ERROR, ERROR_CODE = "Nats-Service-Error", "Nats-Service-Error-Code"
_MOST_WAITING = 1_024
_MAX_TEXT = 512
_TYPE = "io.nats.micro.v1."
_NO_INBOX = ("$", f"{ROOT}.")
Close = Callable[[], Awaitable[None]]


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request: JSON, and a code (as of HTTP) and words if it is an error."""

    body: bytes
    code: int = 0
    text: str = ""


class Stats(msgspec.Struct):
    """One endpoint: where it listens and what it did; times in nanoseconds."""

    name: str
    subject: str
    queue_group: str = GROUP
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    average_processing_time: int = 0


class Request(msgspec.Struct, frozen=True):
    """What somebody asked an endpoint."""

    endpoint: Stats
    subject: str
    reply: str
    headers: Mapping[str, str]
    data: bytes


class Micro:
    """One instance of a service. ``endpoints``: (name, subject) of each."""

    def __init__(
        self,
        conn: Connection,
        clock: Clock,
        *,
        name: str,
        version: str,
        description: str,
        endpoints: Iterable[tuple[str, str]],
    ) -> None:
        self._conn = conn
        self._clock = clock
        self._identity = {"name": name, "id": clock.new_id(), "version": version, "metadata": {}}
        self._description = description
        self._started = datetime.fromtimestamp(clock.now(), UTC)
        self.endpoints = [Stats(name, subject) for name, subject in endpoints]
        self._queue: asyncio.Queue[Request] = asyncio.Queue(_MOST_WAITING)

    async def open(self, also: Iterable[str] = ()) -> Close:
        """Listen; returns what ends it. ``also``: subjects on which the same is asked that are nobody else's business."""
        conn, (name, unique) = self._conn, (self._identity["name"], self._identity["id"])
        hidden = {endpoint.name: endpoint for endpoint in self.endpoints}
        wanted = [
            *(
                (f"$SRV.{verb}{whom}", self._discovered(verb, answer), "")
                for verb, answer in (("PING", self._ping), ("INFO", self._info), ("STATS", self._stats))
                for whom in ("", f".{name}", f".{name}.{unique}")
            ),
            *((endpoint.subject, self._asked(endpoint), GROUP) for endpoint in self.endpoints),
            *((subject, self._asked(hidden[subject.split(".")[-2]]), GROUP) for subject in also),
        ]
        subscriptions = [await conn.subscribe(subject, received, group=group) for subject, received, group in wanted]

        async def close() -> None:
            for subscription in subscriptions:
                await conn.unsubscribe(subscription)
            while not self._queue.empty():
                await self._respond(self._queue.get_nowait().reply, Reply(b"{}", 503, "this instance stops"))

        return close

    async def next(self) -> Request:
        """The next request; to be given to ``answer``."""
        return await self._queue.get()

    async def answer(self, request: Request, make: Callable[[Request], Awaitable[Reply]]) -> None:
        """Answer a request with what ``make`` makes of it, and count it."""
        began, endpoint = self._clock.steady(), request.endpoint
        reply = await make(request)
        endpoint.num_requests += 1
        endpoint.processing_time += round((self._clock.steady() - began) * 1_000_000_000)
        endpoint.average_processing_time = endpoint.processing_time // endpoint.num_requests
        if reply.code:
            endpoint.num_errors += 1
            endpoint.last_error = f"{reply.code}:{reply.text}"
        await self._respond(request.reply, reply)

    async def pass_on(self, request: Request, subject: str) -> Reply | None:
        """Have somebody else answer, who listens on ``subject``; None if nobody does, or it did not answer in time."""
        try:
            answer = await self._conn.request(subject, request.data, headers=request.headers or None)
        except (NotSent, Lost, InvalidCall):  # the last: with headers it is a little too large
            return None
        headers = answer.headers or {}
        return Reply(answer.data, int(headers.get(ERROR_CODE, "0")), headers.get(ERROR, ""))

    def _asked(self, endpoint: Stats) -> Callable[[Msg], Awaitable[None]]:
        async def received(msg: Msg) -> None:
            request = Request(endpoint, msg.subject, msg.reply, msg.headers or {}, msg.data)
            try:
                self._queue.put_nowait(request)
            except asyncio.QueueFull:
                endpoint.num_requests += 1
                endpoint.num_errors += 1
                endpoint.last_error = "503:too many requests wait"
                await self._respond(msg.reply, Reply(b"{}", 503, "too many requests wait"))

        return received

    async def _respond(self, to: str, reply: Reply) -> None:
        if not _is_inbox(to):
            return
        headers = None
        if reply.code:
            text = " ".join(reply.text.split())[:_MAX_TEXT]
            headers = {ERROR: text, ERROR_CODE: str(reply.code)}
        await self._conn.publish(to, reply.body, headers=headers)

    # -- discovery ---------------------------------------------------------------------------------------------------

    def _discovered(self, verb: str, answer: Callable[[], dict[str, Any]]) -> Callable[[Msg], Awaitable[None]]:
        async def received(msg: Msg) -> None:
            if _is_inbox(msg.reply):
                said = {"type": f"{_TYPE}{verb.lower()}_response"} | self._identity | answer()
                await self._conn.publish(msg.reply, msgspec.json.encode(said))

        return received

    def _ping(self) -> dict[str, Any]:
        return {}

    def _info(self) -> dict[str, Any]:
        told = ("name", "subject", "queue_group")
        endpoints = [{field: getattr(one, field) for field in told} | {"metadata": {}} for one in self.endpoints]
        return {"description": self._description, "endpoints": endpoints}

    def _stats(self) -> dict[str, Any]:
        return {"started": self._started, "endpoints": self.endpoints}


def _is_inbox(subject: str) -> bool:
    """Whether an answer may go there: not to nobody, nor among Tenure's own subjects or the server's (``$KV``, ``$JS`` ...)."""
    return subject != "" and not subject.startswith(_NO_INBOX)
