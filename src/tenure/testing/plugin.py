"""The pytest plugin that comes with Tenure: the fixtures ``nats_server`` and, with pytest-asyncio, ``tenure_client``.

It is loaded by pytest for every project in an environment with Tenure, so it imports nothing of Tenure before it is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

try:
    from pytest_asyncio import fixture as _async_fixture
except ImportError:  # a project that has no use for it
    _async_fixture = None  # type: ignore[assignment]  # and then no such fixture

if TYPE_CHECKING:
    from tenure.app import App
    from tenure.testing import MemoryClient


@pytest.fixture(scope="session")
def nats_server() -> Iterator[str]:
    """Url of a real nats-server with JetStream: one for the session (with pytest-xdist: one for each worker).

    Tests share it: let each use a namespace of its own.
    """
    from tenure.testing import nats_server as run

    with run() as url:
        yield url


@pytest.fixture
def tenure_app() -> App:
    """The app that ``tenure_client`` runs: define a fixture of this name that returns yours."""
    pytest.fail(
        "tenure_client runs the app of a fixture named tenure_app: define one that returns your App", pytrace=False
    )


if _async_fixture is not None:

    @_async_fixture
    async def tenure_client(tenure_app: App) -> AsyncIterator[MemoryClient]:
        """A client of ``tenure_app``, which runs in memory and in virtual time for the length of a test.

        As ``async with tenure.testing.memory(app) as client``.
        """
        from tenure.testing import memory

        async with memory(tenure_app) as client:
            yield client
