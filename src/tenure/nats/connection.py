"""One NATS connection, seen as Tenure needs it: requests whose fate is told apart, and news of every reconnect.

Owns the nats-py client, its inbox and the requests in flight. Never decides anything about a key.

A request ends in one of three ways, and the difference is the point of this module: an **answer** came; **nothing
happened** (``NotSent``: the message never left, or the server says that nobody listens); or its fate is **unknown**
(``Lost``: time ran out, or the connection broke while it was under way - nats-py may even send it after we gave up).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import nats.errors
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from tenure.config import Config
from tenure.core.errors import ConfigError, InvalidCall, TenureError, Unavailable
from tenure.nats.deadline import within
from tenure.nats.denied import Denied
from tenure.nats.options import from_environment, wants_tls
from tenure.nats.urls import check_url, scrubbed, without_secrets
from tenure.nats.waiting import Answer, Lost, Waiting
from tenure.nats.wire import QuickClient, make_client
from tenure.telemetry import get_logger

__all__ = ["UNAVAILABLE", "Answer", "ApiError", "Callback", "Connection", "Lost", "NotSent", "PubAck"]

MIN_SERVER = (2, 12)
_HEADER_ROOM = 2_048
"""Bytes kept free below the server's max_payload for headers: it drops the *connection* of whoever exceeds the sum."""

UNAVAILABLE = 503
"""Code of JetStream's error answers that pass by themselves; ``description`` says more."""
_DRAIN_SECONDS = 2.0
_log = get_logger("tenure.nats")
Callback = Callable[[], Awaitable[None] | None]


class WrongServer(ConfigError):
    """The server is reached, and is none that Tenure can use: another server, or another setting of it, is needed."""


class NotSent(TenureError):
    """The request has not happened."""


class ApiError(msgspec.Struct, frozen=True):
    """An error answer of JetStream."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class PubAck(msgspec.Struct, frozen=True):
    """The answer to a publish into a stream."""

    stream: str = ""
    seq: int = 0
    error: ApiError | None = None


_puback = msgspec.json.Decoder(PubAck)


class Connection:
    """A connection that reconnects for ever. Open it with ``Connection.open``; close it with ``close``."""

    def __init__(self, config: Config, url: str = "") -> None:
        self.config, self._url = config, url
        self._nc = make_client(url)
        self._quick = self._nc if isinstance(self._nc, QuickClient) else None
        self._connected = asyncio.Event()
        self._waiting = Waiting(config.request_timeout_seconds)
        self._inbox = ""
        self._on_reconnect: list[Callback] = []
        self._on_disconnect: list[Callback] = []
        self._last_error = ""
        self._refusal = ""
        self._denied = Denied()

    # -- life --------------------------------------------------------------------------------------------------------

    @classmethod
    async def open(cls, url: str, config: Config, *, name: str, **options: Any) -> Connection:
        """Connect to ``url`` (several: separated by commas) and check the server.

        ``options`` go to nats-py's ``connect`` (tls, user_credentials, ...), before those of the environment. Raises Unavailable
        if nobody answers within ``connect_timeout_seconds``, ConfigError if the URL cannot be one, or the server is older
        than 2.12, has no JetStream or refuses the credentials.
        """
        check_url(url)
        self = cls(config, url)
        servers = [part.strip() for part in url.split(",")]
        self._nc.must_encrypt = wants_tls(servers, options)
        options = from_environment() | options  # its certificates say whom to trust; tls:// that it must be
        try:
            connect = self._nc.connect(
                servers=servers,
                name=name,
                error_cb=self._note_error,
                disconnected_cb=self._disconnected,
                reconnected_cb=self._reconnected,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.2,  # type: ignore[arg-type]  # annotated int, slept as a float
                connect_timeout=2,
                ping_interval=2,  # a server that froze is left after three of them: within a session's ttl
                max_outstanding_pings=2,
                drain_timeout=5,
                flush_timeout=config.request_timeout_seconds,
                **options,
            )
            await within(config.connect_timeout_seconds, connect)
        except (OSError, nats.errors.Error) as error:  # a TimeoutError too
            await self._abandon()
            raise self._explain(without_secrets(url), scrubbed(str(error), url)) from None
        except (ValueError, TypeError) as error:
            await self._abandon()
            given = f" with {', '.join(options)}" if options else ""
            why = scrubbed(str(error), url)  # as its cause would be: it may quote the URL
            raise ConfigError(f"cannot use the NATS URL {without_secrets(url)!r}{given}: {why}") from None
        except BaseException:  # whoever called has gone away
            await self._abandon()
            raise
        self._connected.set()
        self._nc.was_connected = True
        try:
            self._inbox = self._nc.new_inbox()
            answers = await self._nc.subscribe(self._inbox + ".*", cb=self._answered)
            if self._quick is not None:
                self._quick.take_answers(answers, self._inbox + ".", self._waiting.resolve)
            await self._check_server(without_secrets(url))
        except BaseException:
            await self.close()
            raise
        return self

    async def _check_server(self, url: str) -> None:
        version = re.search(r"(\d+)\.(\d+)[^\s>]*", str(self._nc.connected_server_version))
        if version is None or (int(version[1]), int(version[2])) < MIN_SERVER:
            what = version[0] if version else "of an unknown version"
            raise WrongServer(f"the NATS server at {url} is {what}; Tenure needs 2.12 or newer")
        try:
            info = await self.api("INFO", {}, timeout=self.config.connect_timeout_seconds)
        except NotSent as error:
            msg = f"the NATS server at {url} has no JetStream: start it with `-js` or a `jetstream` block in its configuration"
            raise WrongServer(msg) from error
        except Lost as error:  # a cluster between two leaders says nothing
            raise Unavailable(f"JetStream of the server at {url} does not answer: {error}") from error
        if isinstance(info, ApiError):
            msg = f"JetStream of the server at {url} is not usable: {info.description}"
            raise Unavailable(msg) if info.code == UNAVAILABLE else WrongServer(msg)

    async def close(self) -> None:
        """Close at once; what is in flight is lost. Drain services first."""
        self._waiting.close()
        if self._nc.is_closed:
            return
        self._connected.clear()
        try:
            await self._nc.close()
        finally:  # a reconnect that was under way may have let somebody ask meanwhile
            self._connected.clear()
            self._waiting.close()
        await _call_all(self._on_disconnect)

    async def _abandon(self) -> None:
        try:
            await self._nc.close()
        except Exception as error:  # noqa: BLE001  (a half-open client of nats-py may fail in any way; it is being dropped)
            _log.debug("connection.abandoned", error=repr(error))

    def _explain(self, url: str, error: str) -> TenureError:
        if self._refusal or "authorization" in error.lower():
            return ConfigError(f"the NATS server at {url} refuses these credentials: {self._refusal or error}")
        detail = self._last_error or error or "no answer in time"
        return Unavailable(
            f"cannot reach a NATS server at {url}: {detail}; is it running? (`tenure server` starts one)"
        )

    @property
    def max_payload(self) -> int:
        """Largest payload in bytes that may be published, headers allowed for."""
        return int(self._nc.max_payload) - _HEADER_ROOM

    @property
    def is_connected(self) -> bool:
        """Whether a server is connected right now, and requests are sent."""
        return self._connected.is_set() and bool(self._nc.is_connected)

    @property
    def is_clustered(self) -> bool:
        """Whether the server that is connected, or was last, has peers."""
        return bool(self._nc._server_info.get("cluster"))  # noqa: SLF001  (nats-py has no other name for it)

    @property
    def server_version(self) -> str:
        """Of the server that is connected, or was last."""
        return str(self._nc.connected_server_version).strip("<>").rpartition("v")[2]

    @property
    def last_error(self) -> str:
        """What the last try to connect met, for people; empty if none has failed."""
        return self._last_error

    @property
    def raw(self) -> NatsClient:
        """The nats-py client, for the modules of this package."""
        return self._nc

    async def wait_connected(self) -> None:
        """Return once a server is connected."""
        await self._connected.wait()

    def on_reconnect(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` after each reconnect; returns a function that takes it off."""
        self._on_reconnect.append(callback)
        return lambda: self._on_reconnect.remove(callback)

    def on_disconnect(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` after each loss of the connection and after its close; returns a function that takes it off."""
        self._on_disconnect.append(callback)
        return lambda: self._on_disconnect.remove(callback)

    async def _note_error(self, error: Exception) -> None:
        self._last_error = scrubbed(str(error), self._url) or type(error).__name__
        if "authorization" in self._last_error.lower():
            self._refusal = self._last_error  # kept: a later try may meet a reset before it can read the reason
        if not self._denied.note(self._last_error):
            _log.debug("connection.failed", error=self._last_error)

    async def _disconnected(self) -> None:
        if self._nc.is_closed:
            return
        self._connected.clear()
        self._waiting.fail_all("the connection broke")
        _log.warning("connection.lost", error=self._last_error)
        await _call_all(self._on_disconnect)

    async def _reconnected(self) -> None:
        self._connected.set()
        _log.info("connection.restored")
        await _call_all(self._on_reconnect)

    # -- requests ----------------------------------------------------------------------------------------------------

    async def publish(
        self, subject: str, payload: bytes = b"", *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish and hope: for acks and other hints. Silently dropped while disconnected."""
        if self._connected.is_set():
            quick = self._quick
            try:
                if quick is None or not quick.write(subject, payload, reply, headers):
                    await self._nc.publish(subject, payload, reply, headers)  # type: ignore[arg-type]  # nats-py only reads it
                if self._nc.is_crowded:
                    await self._nc.relieve()
            except nats.errors.Error as error:
                _log.debug("publish.dropped", subject=subject, error=repr(error))

    async def request(
        self, subject: str, payload: bytes, *, headers: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> Answer:
        """Publish and wait for the answer.

        Raises NotSent (it has not happened) or Lost (unknown); InvalidCall if too large.
        """
        if len(payload) > self.max_payload:
            raise InvalidCall(f"{len(payload)} bytes are over the server's limit of {self.max_payload} for one message")
        if not self._connected.is_set():
            raise NotSent("not connected")
        token, future, timer = self._waiting.add(timeout)
        reply, quick = f"{self._inbox}.{token.decode()}", self._quick
        try:
            if quick is None or not quick.write(subject, payload, reply, headers):
                await self._nc.publish(subject, payload, reply, headers)  # type: ignore[arg-type]  # nats-py only reads it
            if self._nc.is_crowded:
                await self._nc.relieve(future)
            answer = await future
        except nats.errors.Error as error:
            raise NotSent(str(error) or type(error).__name__) from error
        except Lost as error:
            if subject in self._denied:
                raise NotSent(f"this user may not publish to {subject}") from error
            raise
        finally:
            self._waiting.forget(token)
            if timer is not None:
                timer.cancel()
        if answer.headers is not None and answer.headers.get("Status") == "503":
            raise NotSent(f"nobody answers on {subject}")
        return answer

    async def put(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> PubAck:
        """Publish into a stream; the PubAck may hold an error. Raises NotSent or Lost as ``request`` does."""
        answer = await self.request(subject, payload, headers=headers, timeout=timeout)
        return _puback.decode(answer.data)

    async def api(self, call: str, body: Any, *, timeout: float | None = None) -> dict[str, Any] | ApiError:
        """Call ``$JS.API.<call>`` with a JSON body. Raises NotSent or Lost."""
        data = msgspec.json.encode(body) if body else b""
        answer = await self.request(f"$JS.API.{call}", data, timeout=timeout)
        decoded: dict[str, Any] = msgspec.json.decode(answer.data)
        error = decoded.get("error")
        return msgspec.convert(error, ApiError) if error is not None else decoded

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]], *, group: str = ""
    ) -> Subscription:
        """Plain subscription; nats-py renews it after a reconnect. Of a ``group`` one gets each message."""
        return await self._nc.subscribe(subject, queue=group, cb=callback)

    async def listen(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """As ``subscribe``, with less ado, for a callback that is quick and asks the server nothing: no answer is read meanwhile."""
        return await (
            self.subscribe(subject, callback) if self._quick is None else self._quick.listen(subject, callback)
        )

    async def unsubscribe(self, subscription: Subscription | None) -> None:
        """End a subscription, also while disconnected (else nats-py would renew it)."""
        if subscription is not None and not self._nc.is_closed:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()
                if self._nc.is_reconnecting:  # what subscribed it may wait to be written; nats-py leaves that alone
                    await self._nc._send_unsubscribe(subscription._id)  # noqa: SLF001  (it has no other way)

    async def drain(self, subscription: Subscription) -> None:
        """End a subscription after its callback has seen everything that was under way (2 s at most)."""
        try:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                if self.is_connected:
                    async with asyncio.timeout(_DRAIN_SECONDS):
                        await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py leaves it unannotated
                    return
            await self.unsubscribe(subscription)
        finally:  # one that was broken off would stay, with its task, and come again after each reconnect
            subscription._stop_processing()  # noqa: SLF001  (it has no other way)
            self._nc._remove_sub(subscription._id)  # noqa: SLF001  (nats-py forgets it only at its own end)

    def new_inbox(self) -> str:
        """A subject that nobody else uses."""
        return self._nc.new_inbox()

    async def _answered(self, msg: Msg) -> None:
        self._waiting.resolve(msg.subject.rpartition(".")[2].encode(), msg.data, msg.headers)


async def _call_all(callbacks: list[Callback]) -> None:
    results = [callback() for callback in list(callbacks)]
    await asyncio.gather(*(result for result in results if result is not None))  # none waits for another's request
