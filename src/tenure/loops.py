"""Event loops: uvloop where it exists, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

try:
    from uvloop import new_event_loop as _fast_loop
except ImportError:  # not on this platform
    _factory: Callable[[], asyncio.AbstractEventLoop] | None = None
else:
    _factory = _fast_loop

T = TypeVar("T")


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``, on the fastest loop there is."""
    with asyncio.Runner(loop_factory=_factory) as runner:
        return runner.run(main)
