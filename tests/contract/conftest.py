"""The stores of a fresh namespace on a real server. Another implementation joins by parametrising ``stores``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure.core.commands import Submit
from tenure.core.records import Policy, Task
from tenure.core.subjects import Names
from tenure.stores import Stores
from tests.support import FAST


@pytest.fixture
async def stores(namespace: str, nats_server: str) -> AsyncIterator[Stores]:
    stores = await Stores.open(nats_server, Names(namespace), FAST, name="contract")
    try:
        yield stores
    finally:
        await stores.close()


def submit(key: str, run_id: str, **policy: Any) -> Submit:
    """A submit of an actor that nobody runs."""
    return Submit(key=key, run_id=run_id, task=Task(actor="nobody", policy=Policy(**policy)))
