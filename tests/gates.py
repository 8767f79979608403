"""Gates that the bodies of a test wait at.

And the one way to make sure that a test that fails does not hang at them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def opened_at_last(*gates: asyncio.Event | threading.Event) -> AsyncIterator[None]:
    """Open every gate on the way out: enter it after the worker, so that it is left before the worker drains."""
    try:
        yield
    finally:
        for gate in gates:
            gate.set()
