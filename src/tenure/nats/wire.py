"""nats-py's client with a shorter way for what we do a hundred thousand times: publish, and take what arrives.

In nats-py 2.16 a request and its answer cost 14 us of Python, more than everything that Tenure does about it: each
header goes through three regular expressions, each message that arrives through two on a shrinking buffer, and each
answer through a message object, a queue and a task. Here a protocol line is written in one go and read with ``split``,
and an answer without headers goes from the parser straight to whoever waits for it: 5 us.

Whatever is unusual (not connected, too large, odd subjects or headers, every protocol line but MSG and HMSG) takes
nats-py's own way, so nothing behaves differently. This leans on private parts of nats-py: ``make_client`` therefore
gives the plain client for every version that is not listed here, and the tests run against both.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import nats.errors
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from tenure.core.errors import ConfigError
from tenure.nats.deadline import end

TESTED = ("2.16.",)
"""Versions of nats-py whose private parts are known to be as they are used here."""

Heard = Callable[[Msg], Awaitable[None]]
BROKEN_HEADERS = "Tenure-Broken"
"""The header that a message is given whose own ones cannot be read, or are Tenure's and not clear: what is wrong."""

_OURS = b"tenure-"
_USUAL = frozenset(
    {
        "KV-Operation",
        "Nats-Expected-Last-Subject-Sequence",
        "Nats-Last-Sequence",
        "Nats-Marker-Reason",
        "Nats-Msg-Id",
        "Nats-Msg-Size",
        "Nats-Num-Pending",
        "Nats-Sequence",
        "Nats-Stream",
        "Nats-Subject",
        "Nats-TTL",
        "Nats-Time-Stamp",
        "Tenure-Revision",
        "Tenure-State",
    }
)
"""Names that need no second look: they are well formed, and differ in more than their capitals."""
_PING = b"PING\r\n"
_CLOSE_SECONDS = 1.0
"""How long a server that stands still has to take what was written, at the end."""
_PIECE = 65_536
"""What is kept of an incomplete message in bytes before nats-py's parser, which copies less, collects the rest."""


def make_client(url: str = "") -> WaryClient:
    """A client that is not connected: the quick one where nats-py's version is known, else nearly nats-py's own.

    For ``memory://`` one that reaches a server in this process.
    """
    if url.startswith("memory://"):
        from tenure.nats.memory.transport import MemoryClient

        return MemoryClient()
    return QuickClient() if importlib.metadata.version("nats-py").startswith(TESTED) else WaryClient()


class WaryClient(NatsClient):
    """A nats-py client that takes the wish for TLS, and that for an end, for what they are.

    nats-py's own goes on without TLS where none is offered, and may connect once more after its ``close``.
    """

    must_encrypt = was_connected = False
    _relief: asyncio.Future[None] | None = None

    async def close(self) -> None:
        """As nats-py's, but nothing of it runs on, whenever it is called, and however the connection breaks meanwhile."""
        ours = asyncio.current_task()
        try:  # one that is ended may have connected, and that break, and another begin
            while (task := self._reconnection_task) is not None and task is not ours and not task.done():
                await end(task)
        finally:
            await self._close_now()

    async def _process_connect_init(self) -> None:
        """As nats-py's, but a try that fails leaves nothing behind: neither its socket, nor who would read the next one's.

        nats-py goes on as if it were connected where the connection breaks right before the server agrees.
        """
        await self._end_tasks()  # of a try that failed after this
        agreed = False
        try:
            await super()._process_connect_init()
            agreed = self.is_connected
        finally:
            if not agreed:
                await self._end_tasks()
                if self._transport is not None:
                    self._transport.close()  # type: ignore[no-untyped-call]  # nats-py has no types here
        if not agreed:
            raise nats.errors.Error("the connection broke before the server had agreed to it")

    async def _flush_pending(self, force_flush: bool = False) -> Any:  # noqa: FBT001, FBT002  (as nats-py has it)
        """As nats-py's, but nobody waits in here, whatever is crowded: ``relieve`` is for that.

        A reader that waits hears nothing, and one that is not ended by its connection's end leaves the half of a message
        to the next: whoever listens would get that, and the beginning of what comes there, for one. A ping that waits does
        not notice that the server stands still, and a subscribe that is cancelled in its middle leaves its subscription.
        """
        del force_flush
        queue = self._flush_queue
        if queue is None or queue.empty():  # else whoever stands there has all of it written
            await super()._flush_pending()

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """As nats-py's, in its place: there it overtakes what is not flushed yet.

        A subscription's drain then takes the answer for that to its UNSUB, and throws away what still arrives.
        """
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        self._pending.append(_PING)
        self._pending_data_size += len(_PING)
        await self._flush_pending()

    @property
    def is_crowded(self) -> bool:
        """Whether more is waiting to be written than nats-py allows: then ``relieve`` before the next message."""
        return 0 < self._max_pending_size < self._pending_data_size

    async def relieve(self, answer: asyncio.Future[Any] | None = None) -> None:
        """Wait until what waits is written, or the ``answer`` is there, ``flush_timeout`` at most; who reads what arrives does not."""
        queue = self._flush_queue
        if queue is None or not self.is_connected or asyncio.current_task() is self._reading_task:
            return
        if self._relief is None or self._relief.done():
            self._relief = asyncio.get_running_loop().create_future()
            await queue.put(self._relief)
        waited = {self._relief} if answer is None else {self._relief, answer}
        await asyncio.wait(waited, timeout=self._flush_timeout, return_when=asyncio.FIRST_COMPLETED)

    async def _attempt_reconnect(self) -> None:
        """As nats-py's, which first waits until a server that stands still has taken all that was written to it."""
        self._abort()
        await super()._attempt_reconnect()

    def _abort(self) -> None:
        writer = getattr(self._transport, "_io_writer", None)  # TCP's has one
        if writer is not None:
            writer.transport.abort()

    async def _end_tasks(self) -> None:
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                await end(task)

    async def _close_now(self) -> None:
        if not self.is_connected:  # it would be written to the dead socket
            self._pending, self._pending_data_size = [], 0
        patience = asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self._abort)
        try:
            await super().close()
        except OSError:  # nats-py then leaves its subscriptions' tasks behind
            for subscription in self._subs.values():
                subscription._stop_processing()  # noqa: SLF001  (it has no other way)
            self._subs.clear()
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # nats-py has no types here
        finally:
            patience.cancel()

    def _connect_command(self) -> bytes:
        """As nats-py's, which makes it when it has encrypted the connection or never will; nothing was sent before."""
        scheme = self._current_server.uri.scheme if self._current_server is not None else ""
        encrypted = self._server_info.get("tls_required") or self.options["tls_handshake_first"]
        if self.must_encrypt and scheme != "wss" and (scheme == "ws" or not encrypted):
            text = (
                "the server does not offer TLS, which was asked for (by tls:// or a tls option): nothing was sent to it"
            )
            raise nats.errors.Error(text) if self.was_connected else ConfigError(text)
        return super()._connect_command()

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """As nats-py's, but for headers that anybody may have written.

        Those neither break the connection, which nats-py's would, nor are passed over in silence.
        """
        try:
            fields: dict[str, str] | None = await super()._process_headers(headers)
        except (ValueError, IndexError) as error:
            return {BROKEN_HEADERS: f"they cannot be read: {error}"}
        fault = _header_fault(headers) if headers is not None and _OURS in headers.lower() else ""
        return fields if not fault else (fields or {}) | {BROKEN_HEADERS: fault}


def _header_fault(block: bytes) -> str:
    """Why a block with headers of Tenure does not say clearly what its writer meant; empty if it does."""
    names: set[bytes] = set()
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        name = name.strip().lower()
        if line and not colon:
            return f"{line[:40]!r} is no header"
        if not name.startswith(_OURS):
            continue
        if name in names:
            return f"{name.decode(errors='replace')} is given twice"
        names.add(name)
        try:
            value.decode()
        except UnicodeDecodeError:
            return f"{name.decode(errors='replace')} is no UTF-8"
    return ""


def _plain_fields(block: bytes) -> dict[str, str] | None:
    """The headers of a block as everybody writes them, with names that differ; None: for nats-py to read."""
    try:
        first, *lines, last, end = block.decode("ascii").split("\r\n")
    except ValueError:  # not ASCII, or too short
        return None
    if first != "NATS/1.0" or last or end:
        return None
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(": ")
        if not colon or value.strip() != value:
            return None
        fields[name] = value
    if not fields or len(fields) < len(lines):
        return None
    if fields.keys() <= _USUAL:
        return fields
    clear = all(name.replace("-", "").isalnum() for name in fields) and len({name.lower() for name in fields}) == len(
        lines
    )
    return fields if clear else None


class Ear(Subscription):
    """A subscription whose callback is called where messages are read: a queue and a task in between may cost more than it does."""

    def __init__(self, client: QuickClient, number: int, subject: str, heard: Heard) -> None:
        super().__init__(client, number, subject, cb=heard)
        self.heard = heard


class QuickClient(WaryClient):
    """A nats-py client that writes and reads with less ado. To be made in the loop that it is used in."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._ps = QuickParser(self)
        self._answers_sid = b""
        self._answers_skip = 0
        self._answered: Callable[[bytes, bytes], None] = lambda _token, _data: None

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """As nats-py's, which looks at each character of each name: 40 us for a message of the server's."""
        fields = _plain_fields(headers) if headers is not None else None
        return await super()._process_headers(headers) if fields is None else fields

    async def listen(self, subject: str, heard: Heard) -> Ear:
        """Have ``heard`` called for what arrives on a subject of our own making."""
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        self._sid += 1
        ear = self._subs[self._sid] = Ear(self, self._sid, subject, heard)
        await self._send_subscribe(ear)
        return ear

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        """As nats-py's, but for who listens."""
        ear = self._subs.get(sid)
        if not isinstance(ear, Ear):
            await super()._process_msg(sid, subject, reply, data, headers)  # type: ignore[arg-type]  # None for no headers
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        try:
            await ear.heard(Msg(self, subject.decode(), reply.decode(), data, await self._process_headers(headers)))
        except Exception as error:  # noqa: BLE001  (as of any callback of a subscription: the connection goes on)
            await self._error_cb(error)

    def take_answers(self, subscription: Subscription, prefix: str, answered: Callable[[bytes, bytes], None]) -> None:
        """Call ``answered(subject without prefix, data)`` for what arrives for ``subscription`` without headers."""
        self._answered = answered
        self._answers_skip = len(prefix)
        self._answers_sid = b"%d" % subscription._id  # noqa: SLF001  (nats-py has no other name for it)

    def write(self, subject: str, payload: bytes, reply: str, headers: Mapping[str, str] | None) -> bool:
        """Hand a message to the task that writes to the server.

        False, and nothing done, if that is for nats-py's ``publish``.

        ``reply`` must be an inbox or have come from the server: it is not looked at.
        """
        queue, flusher, size = self._flush_queue, self._flusher_task, len(payload)
        text = "NATS/1.0\r\n" + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]) if headers else ""
        if (
            self._status != NatsClient.CONNECTED
            or queue is None
            or flusher is None
            or flusher.done()
            or size > self._max_payload
            or not (subject and subject.isprintable())
            or " " in subject
            or (headers is not None and not text.count("\r") == text.count("\n") == len(headers) + 1)
        ):
            return False
        if headers is None:
            command = b"".join((f"PUB {subject} {reply} {size}\r\n".encode(), payload, b"\r\n"))
        else:
            head = f"{text}\r\n".encode()
            line = f"HPUB {subject} {reply} {len(head)} {len(head) + size}\r\n".encode()
            command = b"".join((line, head, payload, b"\r\n"))
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += size
        self._pending.append(command)
        self._pending_data_size += len(command)
        if queue.empty():
            queue.put_nowait(self._loop.create_future())
        return True

    async def _process_pong(self) -> None:
        """As nats-py's, but for a ping that nobody waits for any more: it would raise in the read loop, and break the connection."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    def is_answer(self, sid: bytes, subject: bytes, data: bytes) -> bool:
        """Hand a message without headers to whoever waits for it, if it is an answer."""
        if sid != self._answers_sid:
            return False
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        self._answered(subject[self._answers_skip :], data)
        return True


class QuickParser(Parser):
    """nats-py's parser, with its messages taken out of what was read as a whole."""

    def __init__(self, client: QuickClient) -> None:
        super().__init__(client)
        self._client = client

    async def parse(self, data: bytes = b"") -> None:
        """Dispatch the messages in ``data``.

        One that is not complete waits in ``buf`` for the next call, as in nats-py.
        """
        if self.state != AWAITING_CONTROL_LINE or len(self.buf) > _PIECE:
            await super().parse(data)  # a long message comes in pieces
            return
        if self.buf:
            data = bytes(self.buf) + data
            self.buf.clear()
        at, end = 0, len(data)
        while at < end:
            line = data.find(b"\r\n", at)
            words = data[at:line].split(b" ") if line > 0 else []
            count = len(words)
            if not count or not words[-1].isdigit():
                break
            if (count == 4 or count == 5) and words[0] == b"MSG":  # noqa: PLR2004, PLR1714  (with or without a reply subject)
                start = body = line + 2
            elif (count == 5 or count == 6) and words[0] == b"HMSG":  # noqa: PLR2004, PLR1714  (with or without a reply subject)
                start = line + 2
                body = start + int(words[-2])
            else:
                break
            stop = start + int(words[-1])
            if stop + 2 > end:
                self.buf.extend(data[at:])
                return
            at = stop + 2
            if body > start or not self._client.is_answer(words[2], words[1], data[start:stop]):
                reply = words[3] if count == (6 if body > start else 5) else b""
                headers = data[start:body] if body > start else None
                await self._client._process_msg(int(words[2]), words[1], reply, data[body:stop], headers)  # noqa: SLF001  (nats-py's parser calls it too)
        if at < end:
            await super().parse(data[at:])
