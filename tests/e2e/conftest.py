"""An app in a folder, its namespace on the server, and a worker for it: for tests that run commands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.commands import Cli, Worker


@pytest.fixture(scope="module")
def cli(nats_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    folder = tmp_path_factory.mktemp("cli")
    cli = Cli(folder, nats_server, f"cli-{folder.name}-{time.time_ns()}")
    yield cli
    cli.close()


@pytest.fixture(scope="module")
def worker(cli: Cli) -> Iterator[Worker]:
    """One worker for every test that only needs its runs to be run."""
    with cli.worker() as worker:
        yield worker


@pytest.fixture
def own(nats_server: str, namespace: str, tmp_path: Path) -> Iterator[Cli]:
    """An app and a folder for one test, with a short drain."""
    cli = Cli(tmp_path, nats_server, namespace, drain=0.5)
    yield cli
    cli.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Commands run on uvloop here too, which swallows what a signal's handler raises: their time is kept by a thread."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(method="thread"))
