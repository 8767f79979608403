"""The pytest plugin that comes with Tenure: the fixtures ``nats_server`` and, with pytest-asyncio, ``tenure_client``.

``tenure_client`` runs the app that a fixture ``tenure_app`` returns; the project defines that one.

It is loaded by pytest for every project in an environment with Tenure, so it imports nothing of Tenure before it is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

_async_fixture: Any = None
with contextlib.suppress(ImportError):  # a project may have no use for it
    import pytest_asyncio

    _async_fixture = pytest_asyncio.fixture

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

    @_async_fixture  # type: ignore[untyped-decorator]  # it is pytest-asyncio's, where that is installed
    async def tenure_client(tenure_app: App) -> AsyncIterator[MemoryClient]:
        """A client of the app of the fixture ``tenure_app``, which runs in memory and in virtual time for the length of a test.

        As ``async with tenure.testing.memory(app) as client``; in the event loop of the test, so
        ``asyncio_default_fixture_loop_scope`` and ``asyncio_default_test_loop_scope`` must be the same.
        """
        from tenure.testing import memory

        async with memory(tenure_app) as client:
            yield client

else:

    @pytest.fixture
    def tenure_client() -> None:
        """It cannot be had here."""
        pytest.fail("tenure_client needs pytest-asyncio: pip install pytest-asyncio", pytrace=False)
