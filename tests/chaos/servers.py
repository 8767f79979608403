"""The nats-servers of a chaos run: one, or three that replicate; each keeps its store and its ports over every restart.

They start from the repository's own ``nats.conf``. In a ``Network`` each has a namespace of its own and can be cut off.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tenure.config import Config
from tenure.core.errors import ConfigError, Unavailable
from tenure.loops import run_loop
from tenure.nats.binary import find_binary, find_config
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.testing.cluster import free_ports, why_unhealthy
from tests.chaos.network import Network
from tests.chaos.processes import Child

_ASKING = Config(request_timeout_seconds=1.0, connect_timeout_seconds=3.0, ack_wait_seconds=15.0)
_LOOK_SECONDS = 0.05


class Servers:
    """``size`` servers. ``start`` returns once all are healthy."""

    def __init__(self, folder: Path, size: int, network: Network | None = None) -> None:
        self._folder = folder
        self.network = network
        places = [network.add(f"n{number}") if network else ("", "127.0.0.1") for number in range(size)]
        ports = [free_ports(3) if network is None else [4222, 6222, 8222] for _ in range(size)]
        self._routes = [f"nats://{place[1]}:{port[1]}" for place, port in zip(places, ports, strict=True)]
        self.urls = [f"nats://{place[1]}:{port[0]}" for place, port in zip(places, ports, strict=True)]
        self._monitors = [f"http://{place[1]}:{port[2]}" for place, port in zip(places, ports, strict=True)]
        binary = find_binary()
        self.nodes: list[Child] = []
        for number, (place, port) in enumerate(zip(places, ports, strict=True)):
            config = self._write_config(number, place[1], port)
            self.nodes.append(Child(f"n{number}", [str(binary), "-c", str(config)], folder, netns=place[0]))

    @property
    def url(self) -> str:
        """All of them, separated by commas."""
        return ",".join(self.urls)

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

    def leader_of(self, stream: str) -> int | None:
        """The number of the node that leads a stream, None during an election."""
        answer = self.ask(f"STREAM.INFO.{stream}")
        name = answer.get("cluster", {}).get("leader", "") if isinstance(answer, dict) else ""
        return int(name.rpartition("-")[2]) if name else None

    def step_down(self, stream: str) -> None:
        self.ask(f"STREAM.LEADER.STEPDOWN.{stream}")

    def ask(self, call: str, body: Any = None) -> dict[str, Any] | ApiError | str:
        """One call of the JetStream API: its answer, or why there is none."""

        async def ask() -> dict[str, Any] | ApiError | str:
            try:
                conn = await Connection.open(self.url, _ASKING, name="chaos-nemesis")
            except (Unavailable, ConfigError) as error:  # no meta leader yet looks like no JetStream
                return str(error)
            try:
                return await conn.api(call, body or {})
            except (NotSent, Lost) as error:
                return str(error)
            finally:
                await conn.close()

        return run_loop(ask())

    def _write_config(self, number: int, host: str, ports: list[int]) -> Path:
        base = os.path.relpath(find_config(), self._folder.resolve())
        lines = [
            f"include {json.dumps(base)}",
            f"server_name: tenure-{number}",
            f"store_dir: {json.dumps(str((self._folder / f'store-{number}').resolve()))}",
            f'listen: "{host}:{ports[0]}"',
            f'http: "{host}:{ports[2]}"',
        ]
        if len(self._routes) > 1:
            cluster = {"name": "chaos", "listen": f"{host}:{ports[1]}", "routes": self._routes}
            lines.append(f"cluster: {json.dumps(cluster)}")
        path = self._folder / f"n{number}.conf"
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        return path

    def _unhealthy(self, number: int) -> str | None:
        if not self.nodes[number].running:
            return f"it has ended: see {self.nodes[number].log}"
        return why_unhealthy(self._monitors[number])
