"""A look at every record by its header alone: what ``tenure ls`` shows and what a sweep looks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from nats.aio.msg import Msg

from tenure.clock import here
from tenure.core.errors import InvalidCall, Unavailable
from tenure.core.subjects import Names, decode_key
from tenure.nats.acks import parse_ack
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.patience import Patience

STATE = "Tenure-State"
"""Header of a record that says what ``records.state_of`` says."""

_PREFIX = "s"
"""Of the name of a consumer that a scan reads through."""
_INACTIVE_SECONDS = 30
_NO_MESSAGES, _NOBODY = "404", "503"


class _End:
    """Where a pass ends: at what was stored when it began, or ``again``: at what was stored when it had come so far.

    So it meets what was written again meanwhile, and ends: who reads slower than others write would read for ever.
    """

    def __init__(self, conn: Connection, stream: str, *, again: bool) -> None:
        self._conn = conn
        self._stream = stream
        self._more = again
        self._sequence = 0

    async def set(self) -> None:
        """To what is stored now. Raises Unavailable."""
        self._sequence = int((await _call(self._conn, f"STREAM.INFO.{self._stream}", {}))["state"]["last_seq"])

    async def is_before(self, sequence: int) -> bool:
        """Whether this message comes after the end. Raises Unavailable."""
        if sequence > self._sequence and self._more:
            self._more = False
            await self.set()
        return sequence > self._sequence


class _NotHeard(Unavailable):
    """Nobody took the request: in a cluster the consumer that was just made is not known everywhere yet."""


class Header(msgspec.Struct, frozen=True):
    """One record by its header: ``state`` is for ``records.read_state``, ``stored_at`` the server's clock at its last write."""

    key: str
    revision: int
    stored_at: float
    state: str


OnHeader = Callable[[Header], None]


async def scan(
    conn: Connection,
    names: Names,
    on_header: OnHeader,
    batch: int,
    pace: Callable[[], Awaitable[None]] | None = None,
    *,
    to_end: bool = False,
) -> None:
    """Call ``on_header`` for every record; see ``Runs.scan``."""
    inbox = conn.new_inbox()
    name = _PREFIX + inbox.rpartition(".")[2]
    stream = names.runs_stream
    arrived: asyncio.Queue[Msg] = asyncio.Queue()

    async def received(msg: Msg) -> None:
        arrived.put_nowait(msg)

    config = {
        "name": name,
        "ack_policy": "none",
        "deliver_policy": "last_per_subject",
        "filter_subject": names.runs_prefix + "*",
        "headers_only": True,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _INACTIVE_SECONDS * 1_000_000_000,
    }
    pull = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    end = _End(conn, stream, again=pace is None or to_end)
    await end.set()
    subscription = await conn.subscribe(inbox, received)
    try:
        await _call(
            conn, f"CONSUMER.CREATE.{stream}.{name}.{names.runs_prefix}*", {"stream_name": stream, "config": config}
        )
        more, patience = True, Patience(here(), conn.config.request_timeout_seconds)
        while more:
            await conn.publish(pull, msgspec.json.encode({"batch": batch, "no_wait": True}), reply=inbox)
            try:
                more = await _page(conn, names, arrived, on_header, batch=batch, end=end)
            except _NotHeard:
                if not await patience.pause():
                    raise
                continue
            if pace is not None:
                await pace()
        await _call(conn, f"CONSUMER.DELETE.{stream}.{name}", {})
    finally:
        await conn.unsubscribe(subscription)


async def watch_scans(conn: Connection, names: Names, began: Callable[[], object], ended: Callable[[], object]) -> None:
    """Call these whenever anybody's scan begins or ends from now on: the server tells of the consumer that each has of its own."""

    async def tell(msg: Msg) -> None:
        *_, what, _, name = msg.subject.split(".")
        if name.startswith(_PREFIX) and what in calls:
            calls[what]()

    calls = {"CREATED": began, "DELETED": ended}
    await conn.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.*.{names.runs_stream}.*", tell)


async def _page(
    conn: Connection, names: Names, arrived: asyncio.Queue[Msg], on_header: OnHeader, *, batch: int, end: _End
) -> bool:
    """Take one batch; False once there are no more before the ``end``. Raises Unavailable."""
    for number in range(batch):
        msg = await _arrival(conn, arrived) if arrived.empty() else arrived.get_nowait()
        headers = msg.headers or {}
        if "Status" in headers:
            if headers["Status"] == _NO_MESSAGES:
                return False
            text = f"the server broke a scan off: {headers['Status']} {headers.get('Description', '')}"
            raise _NotHeard(text) if headers["Status"] == _NOBODY and not number else Unavailable(text)
        ack = parse_ack(msg.reply)
        if ack is not None and await end.is_before(ack.stream_sequence):
            return False
        key = _key(msg.subject[len(names.runs_prefix) :])
        if STATE in headers and ack is not None and key is not None:
            on_header(Header(key, ack.stream_sequence, ack.stored_at, headers[STATE]))
    return True


async def _arrival(conn: Connection, arrived: asyncio.Queue[Msg]) -> Msg:
    try:
        async with asyncio.timeout(conn.config.request_timeout_seconds):
            return await arrived.get()
    except TimeoutError as error:
        text = "the server stopped answering in the middle of a scan"
        raise Unavailable(text) from error


def _key(token: str) -> str | None:
    """The key of a record, None for what no Tenure can have stored: one foreign entry must not hide all others."""
    try:
        return decode_key(token)
    except (ValueError, InvalidCall):
        return None


async def _call(conn: Connection, call: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        answer = await conn.api(call, body)
    except (NotSent, Lost) as error:
        raise Unavailable(str(error)) from error
    if isinstance(answer, ApiError):
        raise Unavailable(answer.description)
    return answer
