"""The nats-servers of a chaos run: one, or three that replicate; each keeps its store and its ports over every restart.

They start from the repository's own ``nats.conf``, or another ``config``. In a ``Network`` each has a namespace of its own and can be
cut off.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from pathlib import Path
from typing import Any, Literal

import nats
import nats.errors
from msgspec import Struct

from tenure.config import Config
from tenure.core.errors import ConfigError, Unavailable
from tenure.core.subjects import PRIORITIES
from tenure.loops import run_loop
from tenure.nats.binary import find_binary, find_config
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.inbox import CONSUMER as INBOX_CONSUMER
from tenure.testing.cluster import free_ports, why_unhealthy
from tests.chaos.apart import app
from tests.chaos.network import Network
from tests.chaos.processes import Child

_ASKING = Config(request_timeout_seconds=1.0, connect_timeout_seconds=3.0, ack_wait_seconds=15.0)
_LOOK_SECONDS = 0.05
_LANES = [app.names.consumer(queue, priority) for queue in ("default", "plain") for priority in PRIORITIES]
_EVERYBODY = {"user": "chaos", "password": "chaos"}
_SYSTEM = {"user": "chaos-system", "password": "chaos"}
"""The one who may depose the meta leader; nobody else says who he is."""
_END_IN_ORDER = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"'
"""The shortest that a server takes, and a tenth of its default."""


class Office(Struct, frozen=True):
    """What one of three servers leads: a stream, a consumer of it, or the placing of all (``meta``)."""

    kind: Literal["stream", "consumer", "meta"]
    stream: str = ""
    consumer: str = ""

    @property
    def call(self) -> str:
        """As it is named in calls of the JetStream API."""
        return {"stream": f"STREAM.{{}}.{self.stream}", "consumer": f"CONSUMER.{{}}.{self.stream}.{self.consumer}"}.get(
            self.kind, "META.{}"
        )


class Servers:
    """``size`` servers. ``start`` returns once all are healthy."""

    def __init__(self, folder: Path, size: int, network: Network | None = None, *, config: Path | None = None) -> None:
        self._folder = folder
        self.network = network
        places = [network.add(f"n{number}") if network else ("", "127.0.0.1") for number in range(size)]
        ports = [free_ports(3) if network is None else [4222, 6222, 8222] for _ in range(size)]
        self._routes = [f"nats://{place[1]}:{port[1]}" for place, port in zip(places, ports, strict=True)]
        self.urls = [f"nats://{place[1]}:{port[0]}" for place, port in zip(places, ports, strict=True)]
        self._monitors = [f"http://{place[1]}:{port[2]}" for place, port in zip(places, ports, strict=True)]
        self._config = config or find_config()
        binary = find_binary()
        self.nodes: list[Child] = []
        for number, (place, port) in enumerate(zip(places, ports, strict=True)):
            config = self._write_config(number, place[1], port)
            self.nodes.append(Child(f"n{number}", [str(binary), "-c", str(config)], folder, netns=place[0]))

    @property
    def url(self) -> str:
        """All of them, separated by commas."""
        return ",".join(self.urls)

    def store(self, number: int) -> Path:
        """Where the node of this number keeps what it stores."""
        return self._folder / f"store-{number}"

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self.wait_healthy()

    def stop(self) -> None:
        for node in self.nodes:
            node.end("kill", 0.0)

    def wait_healthy(self, seconds: float = 60.0) -> None:
        """Return once every node has caught up. Raises Unavailable."""
        until = time.monotonic() + seconds
        for number in range(len(self.nodes)):
            while (why := self._unhealthy(number)) is not None:
                if time.monotonic() > until:
                    raise Unavailable(f"server {number} is not healthy: {why}")
                time.sleep(_LOOK_SECONDS)  # paused: between two looks

    def offices(self, kind: str) -> list[Office]:
        """All of a kind that matter to Tenure."""
        names = app.names
        streams = [names.runs_stream, names.work_stream, names.sessions_stream, names.inbox_stream]
        lanes = [(names.work_stream, lane) for lane in _LANES] + [(names.inbox_stream, INBOX_CONSUMER)]
        match kind:
            case "stream":
                return [Office("stream", stream) for stream in streams]
            case "consumer":
                return [Office("consumer", stream, consumer) for stream, consumer in lanes]
            case _:
                return [Office("meta")]

    def leader_of(self, office: Office) -> int | None:
        """The number of the node that holds an office, None during an election."""
        if office.kind == "meta":
            return self._meta_leader()
        answer = self.ask(office.call.format("INFO"))
        return _number(answer.get("cluster", {}) if isinstance(answer, dict) else {})

    def _meta_leader(self) -> int | None:
        for monitor in self._monitors:
            try:
                with urllib.request.urlopen(f"{monitor}/jsz", timeout=1.0) as answer:  # noqa: S310  (our own server's address)
                    return _number(json.loads(answer.read()).get("meta_cluster", {}))
            except OSError:
                continue
        return None

    def step_down(self, office: Office) -> bool:
        """Have the holder of an office hand it over; whether it says that it does."""
        call = office.call.format("LEADER.STEPDOWN")
        answer = run_loop(self._ask_as_system(call)) if office.kind == "meta" else self.ask(call)
        return isinstance(answer, dict) and bool(answer.get("success"))

    async def _ask_as_system(self, call: str) -> dict[str, Any]:
        """The account that may has no JetStream itself."""

        async def silent(_error: Exception) -> None:
            """It is told by the answer, or by none."""

        try:
            client = await nats.connect(self.urls, **_SYSTEM, connect_timeout=1, allow_reconnect=False, error_cb=silent)
            try:
                answer = await client.request(f"$JS.API.{call}", timeout=1.0)
            finally:
                await client.close()
        except (nats.errors.Error, OSError):
            return {}
        return dict(json.loads(answer.data))

    def ask(self, call: str) -> dict[str, Any] | ApiError | str:
        """One call of the JetStream API: its answer, or why there is none."""

        async def ask() -> dict[str, Any] | ApiError | str:
            try:
                conn = await Connection.open(self.url, _ASKING, name="chaos-nemesis")
            except (Unavailable, ConfigError) as error:  # no meta leader yet looks like no JetStream
                return str(error)
            try:
                return await conn.api(call, {})
            except (NotSent, Lost) as error:
                return str(error)
            finally:
                await conn.close()

        return run_loop(ask())

    def _write_config(self, number: int, host: str, ports: list[int]) -> Path:
        base = os.path.relpath(self._config, self._folder.resolve())
        lines = [
            f"include {json.dumps(base)}",
            f"server_name: tenure-{number}",
            f"store_dir: {json.dumps(str(self.store(number).resolve()))}",
            f'listen: "{host}:{ports[0]}"',
            f'http: "{host}:{ports[2]}"',
            _END_IN_ORDER,
        ]
        if len(self._routes) > 1:
            users = {"APP": {"jetstream": "enabled", "users": [_EVERYBODY]}, "SYS": {"users": [_SYSTEM]}}
            lines += [f"accounts: {json.dumps(users)}", "system_account: SYS", "no_auth_user: chaos"]
            cluster = {"name": "chaos", "listen": f"{host}:{ports[1]}", "routes": self._routes}
            lines.append(f"cluster: {json.dumps(cluster)}")
        path = self._folder / f"n{number}.conf"
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        return path

    def _unhealthy(self, number: int) -> str | None:
        if not self.nodes[number].running:
            return f"it has ended: see {self.nodes[number].log}"
        return why_unhealthy(self._monitors[number])


def _number(told: dict[str, Any]) -> int | None:
    """Of the node that leads, as a server tells of it."""
    name = told.get("leader") or ""
    return int(name.rpartition("-")[2]) if name else None
