"""When a body was let start under its rates: what the last look at the clock has said, right before it.

What lies between that look and the body's first line is the machine's: it may hold up a process there for as long as it likes.
So who judges starts judges these looks; where nobody has looked, a body has started when it says so. Importing this has the
workers of this process remember their looks.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from weakref import WeakKeyDictionary

from tenure.core.rates import SECOND
from tenure.nats.patience import Patience
from tenure.pacing import Paces
from tenure.worker.slots import Slots

_looked: WeakKeyDictionary[asyncio.Task[Any], float] = WeakKeyDictionary()
"""By the task that runs the body."""
_now, _begin = Paces.now, Slots.begin
_said = 0


def _remembered(self: Paces) -> int:
    global _said  # noqa: PLW0603  (what a clock said last has no other place)
    _said = _now(self)
    return _said


async def _begun(self: Slots, patience: Patience) -> bool:
    """Between its last look and its end nothing else runs in this thread."""
    marked, may = self.marked, await _begin(self, patience)
    task = asyncio.current_task()
    if marked and may and task is not None:
        _looked[task] = _said / SECOND
    return may


Paces.now = _remembered  # type: ignore[method-assign]  # as it was, and remembered
Slots.begin = _begun  # type: ignore[method-assign]  # as it was, and remembered


def started() -> float:
    """When the body that asks has started (seconds since the epoch). Its first question counts; later ones are told the time."""
    task = asyncio.current_task()
    return time.time() if task is None else _looked.pop(task, 0.0) or time.time()
