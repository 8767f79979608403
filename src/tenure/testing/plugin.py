"""The pytest plugin that comes with Tenure: the fixture ``nats_server``.

It is loaded by pytest for every project in an environment with Tenure, so it imports nothing before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def nats_server() -> Iterator[str]:
    """Url of a real nats-server with JetStream: one for the session (with pytest-xdist: one for each worker).

    Tests share it: let each use a namespace of its own.
    """
    from tenure.testing import nats_server as run

    with run() as url:
        yield url
