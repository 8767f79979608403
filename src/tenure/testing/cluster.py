"""Three real nats-servers that replicate to one another, for tests of what a failing server does to tasks.

Each node is an ``EmbeddedServer`` from the repository's own ``nats.conf`` with a ``cluster`` block added, so a node can
be killed, frozen and started again like any other. This module adds what only a cluster has: who leads a stream or a
consumer, and a leader that steps down.

Routes must be known before a node starts, so their ports are chosen here; another process may take one in the moment
between, then others are tried.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tenure.config import Config
from tenure.core.errors import ConfigError, Unavailable
from tenure.loops import run_loop
from tenure.nats.binary import find_config
from tenure.nats.connection import ApiError, Connection, Lost, NotSent
from tenure.nats.embedded import EmbeddedServer

_SIZE = 3
_POLL_SECONDS = 0.05
_PORT_TRIES = 5
_ASKING = Config(request_timeout_seconds=1.0, connect_timeout_seconds=3.0)


class Cluster:
    """A running cluster. Make it with ``nats_cluster``.

    ``nodes`` are its servers: ``kill`` (-9) and ``start``, ``restart``, ``suspend`` (SIGSTOP) and ``resume`` (SIGCONT).
    Streams made with ``Config(replicas=3)`` have a copy on each. Methods block: from a coroutine call them through
    ``asyncio.to_thread``.
    """

    def __init__(self, nodes: list[EmbeddedServer]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        """Addresses of every node, separated by commas, as ``App.connect`` takes them."""
        return ",".join(node.url for node in self.nodes)

    def leader_of(self, stream: str, consumer: str = "", timeout: float = 30.0) -> EmbeddedServer:
        """The node that leads a stream, or a consumer of it; waits for an election to end.

        Raises Unavailable after ``timeout`` seconds.
        """
        call = f"CONSUMER.INFO.{stream}.{consumer}" if consumer else f"STREAM.INFO.{stream}"
        deadline = time.monotonic() + timeout
        while True:
            answer = self._ask(call)
            name = answer.get("cluster", {}).get("leader", "") if isinstance(answer, dict) else ""
            if name:
                return self.nodes[_NAMES.index(name)]
            if time.monotonic() > deadline:
                raise Unavailable(f"{consumer or stream} has no leader: {answer}")
            time.sleep(_POLL_SECONDS)

    def meta_leader(self) -> EmbeddedServer:
        """The node that places streams and consumers, and answers what is not one stream's alone."""
        with urllib.request.urlopen(f"{self.nodes[0].monitor_url}/jsz", timeout=2.0) as answer:  # noqa: S310  (our own node's http address)
            return self.nodes[_NAMES.index(json.loads(answer.read())["meta_cluster"]["leader"])]

    def step_down(self, stream: str, consumer: str = "") -> None:
        """Have the leader of a stream, or of a consumer of it, hand over. Raises Unavailable if it does not."""
        kind, name = ("CONSUMER", f"{stream}.{consumer}") if consumer else ("STREAM", stream)
        answer = self._ask(f"{kind}.LEADER.STEPDOWN.{name}")
        if not isinstance(answer, dict) or not answer.get("success"):
            raise Unavailable(f"the leader of {name} does not step down: {answer}")

    def wait_healthy(self, timeout: float = 60.0) -> None:
        """Return once every node runs and has caught up with all its streams. Raises Unavailable after ``timeout``."""
        deadline = time.monotonic() + timeout
        for node in self.nodes:
            while (why := _unhealthy(node)) is not None:
                if time.monotonic() > deadline:
                    raise Unavailable(f"{node!r} is not healthy: {why}")
                time.sleep(_POLL_SECONDS)

    def _ask(self, call: str) -> dict[str, Any] | ApiError | str:
        """One call of the JetStream API: its answer, or why there is none."""

        async def ask() -> dict[str, Any] | ApiError | str:
            url = ",".join(node.url for node in self.nodes if node.running)
            try:
                conn = await Connection.open(url, _ASKING, name="tenure-cluster")
            except (Unavailable, ConfigError) as error:  # no meta leader yet looks like no JetStream
                return str(error)
            try:
                return await conn.api(call, {})
            except (NotSent, Lost) as error:
                return str(error)
            finally:
                await conn.close()

        return run_loop(ask())


@contextlib.contextmanager
def nats_cluster(*, advertise: bool = True) -> Iterator[Cluster]:
    """Run three nats-servers on free ports of the loopback interface that keep up to three copies of each stream.

    ``advertise``: whether each tells its clients of the others. Ready in one to two seconds. Raises ConfigError when there
    is no usable nats-server, Unavailable when the cluster is not ready in time.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-cluster-")))
        cluster = Cluster(_start(folder, stack, advertise=advertise))
        cluster.wait_healthy()
        try:
            yield cluster
        finally:
            for node in cluster.nodes:  # what they store is of no use any more, and shutting down in order takes 10 s
                node.kill()


_NAMES = [f"tenure-{number}" for number in range(_SIZE)]


def _start(folder: Path, stack: contextlib.ExitStack, *, advertise: bool) -> list[EmbeddedServer]:
    for remaining in reversed(range(_PORT_TRIES)):
        with contextlib.ExitStack() as attempt:
            try:
                configs = _write_configs(folder, advertise=advertise)
                nodes = [attempt.enter_context(EmbeddedServer(config=config)) for config in configs]
            except ConfigError as error:
                if not remaining or "address already in use" not in str(error):
                    raise
            else:
                stack.push(attempt.pop_all())
                return nodes
    raise AssertionError("the last try returns or raises")


def _write_configs(folder: Path, *, advertise: bool) -> list[Path]:
    ports = free_ports(_SIZE)
    # An include path is always taken as relative to the including file.
    base = os.path.relpath(find_config(), folder.resolve())
    configs = []
    for name, port in zip(_NAMES, ports, strict=True):
        routes = [f"nats://127.0.0.1:{other}" for other in ports]
        cluster: dict[str, Any] = {"name": "tenure", "listen": f"127.0.0.1:{port}", "routes": routes}
        cluster["no_advertise"] = not advertise
        path = folder / f"{name}.conf"
        lines = [f"include {json.dumps(base)}", f"server_name: {name}", f"cluster: {json.dumps(cluster)}", ""]
        path.write_text("\n".join(lines), encoding="utf-8")
        configs.append(path)
    return configs


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on just now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def why_unhealthy(monitor_url: str) -> str | None:
    """Why a node that runs is not healthy, None if it is."""
    try:
        with urllib.request.urlopen(f"{monitor_url}/healthz", timeout=2.0) as answer:  # noqa: S310 - http, our own
            answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode("utf-8", "replace")
    except OSError as error:
        return str(error)
    return None


def _unhealthy(node: EmbeddedServer) -> str | None:
    return why_unhealthy(node.monitor_url) if node.running else "it does not run"
