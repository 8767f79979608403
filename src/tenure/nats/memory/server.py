"""The server: its life, its time, and the way of every message through it."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tenure.clock import SYSTEM, Clock
from tenure.core.errors import ConfigError
from tenure.nats.memory.broker import Broker
from tenure.nats.memory.jetstream import JetStream
from tenure.nats.memory.link import Link
from tenure.nats.memory.peer import Ends, Op, Peer
from tenure.nats.memory.registry import SCHEME, register, unregister

VERSION = "2.15.1"
"""The nats-server whose behaviour is reproduced here."""
MAX_PAYLOAD = 1_048_576
_SLACK_SECONDS = 0.000_001
NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"


def _prompt_link(_client: str) -> Link:
    return Link()


class MemoryServer:
    """A NATS server with JetStream in this process, at ``memory://<name>``. Use it as a context manager, inside a loop.

    clock: tells the time of day; timers run by the loop.
    link: makes the way to each client, by the name that it connects with; called again for each reconnect.
    schedule_late, schedule_gap: asked once for each firing of schedules: how much too late it is (a real server's: up to
        0.25 s), and how long the server takes between collecting what is due and storing it. What is replaced or
        cancelled within the gap is fired all the same, and takes a newer schedule on its subject with it.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock = SYSTEM,
        link: Callable[[str], Link] | None = None,
        schedule_late: Callable[[], float] = lambda: 0.0,
        schedule_gap: Callable[[], float] = lambda: 0.0,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ConfigError(f"{name!r} cannot name a memory server: letters, digits, _ and - can")
        self.name = name
        self.clock = clock
        self.link = link or _prompt_link
        self.schedule_late = schedule_late
        self.schedule_gap = schedule_gap
        self.running = False
        self.peers: dict[int, Peer] = {}
        self.broker = Broker()
        self.jetstream = JetStream(self)
        self._paused = False
        self._life = 0
        self._clients = self._connections = self._consumers = 0
        self._posted: deque[tuple[Peer, Op]] = deque()
        self._held: list[tuple[int, Callable[[], None]]] = []
        self._draining: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.Context()

    def __repr__(self) -> str:
        return f"<MemoryServer {self.url}{'' if self.running else ' not running'}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- life --------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """What to connect to."""
        return f"{SCHEME}://{self.name}"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it lives on. Raises RuntimeError before the first start."""
        if self._loop is None:
            raise RuntimeError("this server was never started")
        return self._loop

    def start(self) -> None:
        """Start, or start again after ``kill`` with what was stored. Raises ConfigError if the name is taken."""
        if self.running:
            return
        register(self)
        if self._loop is not asyncio.get_running_loop():  # once: who starts it again may be a process that ends
            self._loop = asyncio.get_running_loop()
            self._context = contextvars.copy_context()
        self.running, self._paused = True, False
        self.jetstream.recover()

    def kill(self) -> None:
        """As SIGKILL: every connection breaks, what was on its way is lost, what was stored stays."""
        if not self.running:
            return
        self.running = False
        for peer in list(self.peers.values()):
            peer.cut()
        self._life += 1
        self._posted.clear()
        self._held.clear()
        self.jetstream.crash()

    def stop(self) -> None:
        """End for good: nothing is kept, the name is free."""
        self.kill()
        unregister(self)
        self.jetstream = JetStream(self)

    def pause(self) -> None:
        """As SIGSTOP: connections stay, and nothing happens any more."""
        self._paused = True

    def resume(self) -> None:
        """As SIGCONT: what came meanwhile is handled now, and what was due."""
        self._paused = False
        held, self._held = self._held, []
        for life, action in held:
            self._run(life, action)
        if self._posted:
            self._drain_soon()

    def disconnect(self, client: str) -> int:
        """Break every connection of the clients of this name; returns how many there were."""
        cut = [peer for peer in self.peers.values() if peer.name == client]
        for peer in cut:
            peer.cut()
        return len(cut)

    # -- connections -------------------------------------------------------------------------------------------------

    def next_client(self) -> int:
        """A number for a client."""
        self._clients += 1
        return self._clients

    def new_consumer_name(self) -> str:
        """A name for a consumer that nobody named."""
        self._consumers += 1
        return f"C{self._consumers}"

    def accept(self, ends: Ends, link: Callable[[str], Link] | None = None) -> Peer:
        """A new connection, over a ``link`` of its own if need be; the greeting follows."""
        self._connections += 1
        peer = self.peers[self._connections] = Peer(self, self._connections, ends, link or self.link)
        self.post(peer, Op("GREET"))
        return peer

    def greeting(self, number: int) -> bytes:
        """The first line that a client gets."""
        info = {
            "server_id": self.name,
            "server_name": self.name,
            "version": VERSION,
            "proto": 1,
            "headers": True,
            "max_payload": MAX_PAYLOAD,
            "jetstream": True,
            "client_id": number,
        }
        return f"INFO {json.dumps(info)}\r\n".encode()

    # -- time --------------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Nanoseconds since the epoch, by the server's clock."""
        return int(self.clock.now() * 1_000_000_000)

    @property
    def due_by(self) -> float:
        """Loop time up to which a timer that fires now counts as due.

        Sums of floats differ in their last digits; and a loop runs a timer a nanosecond early, where virtual time would
        stand still if that were armed again for the rest.
        """
        return self.loop.time() + _SLACK_SECONDS

    def call_soon(self, action: Callable[[], None]) -> asyncio.Handle:
        """Have something happen at the server at the next turn of the loop; otherwise as ``call_later``."""
        return self.loop.call_soon(self._run, self._life, action, context=self._context)

    def call_later(self, delay: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Have something happen at the server: not if it is killed before, and later if it is paused."""
        return self.loop.call_later(max(0.0, delay), self._run, self._life, action, context=self._context)

    def _run(self, life: int, action: Callable[[], None]) -> None:
        if life != self._life:
            return
        if self._paused:
            self._held.append((life, action))
        else:
            action()

    # -- messages ----------------------------------------------------------------------------------------------------

    def post(self, peer: Peer, op: Op) -> None:
        """A message has reached the server."""
        if self.running:
            self._posted.append((peer, op))
            self._drain_soon()

    def _drain_soon(self) -> None:
        if self._draining is None:
            self._draining = self.loop.call_soon(self._drain, context=self._context)

    def _drain(self) -> None:
        self._draining = None
        while self._posted and not self._paused:
            peer, op = self._posted.popleft()
            peer.handle(op)

    def publish(self, peer: Peer | None, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """A message that was published: to JetStream's own subjects, its streams and whoever listens."""
        if len(headers) + len(data) > MAX_PAYLOAD:
            if peer is not None:
                peer.cut()
            return
        taken = self.jetstream.take(subject, reply, headers, data)
        heard = self.broker.deliver(subject, subject, reply, headers, data)
        if not taken and not heard and reply:
            self.broker.deliver(reply, reply, "", NO_RESPONDERS, b"")
