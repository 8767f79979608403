"""Spans of what a worker does with a wake-up: from its delivery to its claim, and from there on its body's.

The wake-up's span belongs to the trace that the record names, the run's to its wake-up. A wake-up that came to nothing and
names no trace is not worth one of its own.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tenure.context import Context
from tenure.core.records import Record
from tenure.nats.work import Delivery
from tenure.tracing import Tracing, tell
from tenure.worker.body import Ended
from tenure.worker.head import Drop, Looked, Won
from tenure.worker.tail import Stored, Void

if TYPE_CHECKING:
    from opentelemetry import context as contexts
    from opentelemetry.trace import Span

    from tenure.worker.table import Live


class RunSpans:
    """Those of one delivery. ``tell`` says what came of the run; what is never told is over when its handling is."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._since = time.time_ns()
        self._claimed: contexts.Context | None = None
        self._span: Span | None = None
        self._until: int | None = None

    def woken(self, live: Live, delivery: Delivery, looked: Looked) -> None:
        """The head check is over."""
        record = looked.committed.record if isinstance(looked, Won) else _meant(live, delivery, looked)
        if record is None or not (record.task.trace or isinstance(looked, Won)):
            return
        name, outcome = f"wake-up {record.task.actor}", "won" if isinstance(looked, Won) else looked.outcome
        origin = self._tracing.origin(record.task.trace)
        span = self._tracing.span(name, "CONSUMER", _about(record), origin, self._since)
        tell(span, outcome)
        span.end()
        self._claimed = self._tracing.within(span)

    async def around(self, body: Awaitable[Ended], record: Record, context: Context) -> Ended:
        """Run a body under its run's span."""
        self._span = self._tracing.span(f"run {record.task.actor}", "CONSUMER", _about(record), self._claimed)
        context.trace = self._tracing.carry(self._span)
        try:
            return await self._tracing.under(self._tracing.within(self._span), body)
        finally:
            self._until = time.time_ns()

    def tell(self, done: Stored | Void) -> None:
        """The run's outcome is stored, or refused."""
        if self._span is None:  # its body was never started
            return
        if isinstance(done, Void):
            tell(self._span, done.why.value)
        else:
            tell(self._span, done.did, failure=done.failure.type if done.failure is not None else "")
        self._end()

    def close(self, outcome: str) -> None:
        """The run's handling is over; ``outcome``: of a run of which nothing was told."""
        if self._span is not None:
            tell(self._span, outcome)
            self._end()

    def _end(self) -> None:
        if self._span is not None:
            self._span.end(self._until)
            self._span = None


def _meant(live: Live, delivery: Delivery, looked: Looked) -> Record | None:
    """The record of the run that the wake-up is for: the key may be at another by now."""
    found = delivery.found.record if delivery.found is not None else None
    seen = looked.record if isinstance(looked, Drop) else None
    return next((record for record in (seen, found) if record is not None and record.run_id == live.run_id), None)


def _about(record: Record) -> dict[str, str | int]:
    return {
        "key": record.key,
        "generation": record.generation,
        "attempt": record.attempt,
        "run_id": record.run_id,
        "actor": record.task.actor,
    }
