"""Spans of OpenTelemetry, where the application has set up a tracer provider; elsewhere it is not even imported.

A submit's span leaves its W3C ``traceparent`` in the task, and so in the record: whoever wakes, claims, retries or takes over
the run finds it there, whatever became of those before. A run that a body spawns is given the span of that body; hooks are
given what their run was given. A successor of its own accord begins a trace anew, or a perpetual key's would never end.

No span holds an argument, a result or the text of an exception: a failure is told by its type.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec.structs import replace

from tenure.core.commands import Replace, Submit

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from tenure.run import Run
    from tenure.status import Cancelled

Got = TypeVar("Got")
Kind = Literal["PRODUCER", "CONSUMER"]
_HEADER = "traceparent"


def find_tracing() -> Tracing | None:
    """What tells of spans; None unless this process has set up a tracer provider by now."""
    if "opentelemetry.trace" not in sys.modules:  # nobody can have set up one
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider) else Tracing()


class Tracing:
    """Makes spans, and carries them over in records."""

    def __init__(self) -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        from tenure import __version__

        self._trace = trace
        self._context = context
        self._carrier = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("tenure", __version__)

    # -- producers ---------------------------------------------------------------------------------------------------

    async def start(
        self, command: Submit | Replace, work: Callable[[Submit | Replace], Awaitable[Run[Any]]]
    ) -> Run[Any]:
        """Have ``work`` submit or replace under a span that is told to the run."""
        task, told = command.task, command.task.trace
        name = f"{type(command).__name__.lower()} {task.actor}"
        about = {"key": command.key, "actor": task.actor}
        with self._producing(name, about, [told] if told else []) as span:  # the letter's, where one is replayed
            run = await work(replace(command, task=replace(task, trace=self.carry(span))))
            outcome = "accepted" if run.accepted else "kept"
            tell(span, outcome, generation=run.generation, run_id=run.run_id)
            return run

    async def cancel(self, key: str, work: Awaitable[Cancelled]) -> Cancelled:
        """Await a cancel under a span."""
        with self._producing("cancel", {"key": key}) as span:
            done = await work
            tell(span, done.outcome)
            return done

    @contextmanager
    def _producing(self, name: str, about: dict[str, Any], links: list[str] | None = None) -> Iterator[Span]:
        span = self.span(name, "PRODUCER", about, links=links or [])
        token = self._context.attach(self._trace.set_span_in_context(span))
        try:
            yield span
        except BaseException as error:
            tell(span, "error", failure=type(error).__name__)
            raise
        finally:
            self._context.detach(token)
            span.end()

    # -- all ---------------------------------------------------------------------------------------------------------

    def span(  # noqa: PLR0917  (one span, each argument another thing)
        self,
        name: str,
        kind: Kind,
        about: dict[str, Any],
        parent: Context | None = None,
        since: int | None = None,
        links: list[str] | None = None,
    ) -> Span:
        """A span that begins now, or began at ``since`` (nanoseconds since the epoch); ``links``: W3C traceparents."""
        others = [self._trace.get_current_span(self.origin(text)).get_span_context() for text in links or ()]
        return self._tracer.start_span(
            name,
            context=parent,
            kind=self._trace.SpanKind[kind],
            attributes={f"tenure.{field}": value for field, value in about.items()},
            links=[self._trace.Link(other) for other in others if other.is_valid],
            start_time=since,
        )

    def carry(self, span: Span) -> str:
        """The W3C traceparent of a span."""
        told: dict[str, str] = {}
        self._carrier.inject(told, self._trace.set_span_in_context(span))
        return told.get(_HEADER, "")

    def origin(self, traceparent: str) -> Context:
        """The context of who sent this; one without a span where it says nothing."""
        return self._carrier.extract({_HEADER: traceparent}, self._context.Context())

    def within(self, span: Span) -> Context:
        """The context of a span's children."""
        return self._trace.set_span_in_context(span)

    async def under(self, context: Context, work: Awaitable[Got]) -> Got:
        """Await ``work``, in this task, in a context."""
        token = self._context.attach(context)
        try:
            return await work
        finally:
            self._context.detach(token)


def tell(span: Span, outcome: str, *, failure: str = "", **about: Any) -> None:
    """Say what came of what a span is about; ``failure``: the type of an error."""
    from opentelemetry.trace import StatusCode

    span.set_attributes({"tenure.outcome": outcome} | {f"tenure.{field}": value for field, value in about.items()})
    if failure:
        span.set_status(StatusCode.ERROR, failure)
