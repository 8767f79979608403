"""Spans: one trace from a submit to all that comes of it, however long that takes and whoever does it; and never an argument."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tenure import App, Client, Context, Retry, RunFailed
from tenure.core.records import Task
from tenure.testing import memory
from tenure.tracing import find_tracing
from tests.conftest import Supervisors, Workers
from tests.strangers import Stranger, phase
from tests.support import close_session, wait_until, wake

MARKER = "marker7f3a"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """What was told so far."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self, name: str = "") -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]

    def won(self, actor: str) -> list[ReadableSpan]:
        """Wake-ups that were claimed: there may be copies, which are looked at and dropped."""
        return [span for span in self.all(f"wake-up {actor}") if about(span)["outcome"] == "won"]

    async def some(self, name: str, number: int = 1) -> list[ReadableSpan]:
        """Those of a name, once they are so many: a span is told a moment after its result can be read."""
        await wait_until(lambda: len(self.all(name)) >= number, description=f"{number} spans {name!r}")
        found = self.all(name)
        assert len(found) == number
        return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """This process has a tracer provider, for one test: it can be set but once, so not by the function for that."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Spans(exporter)
    provider.shutdown()


@pytest.fixture
async def traced(spans: Spans, client: Client) -> Client:
    """A client that found the provider."""
    return client


def about(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("tenure."): value for name, value in (span.attributes or {}).items()}


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def attempt_of(span: ReadableSpan) -> int:
    return int(about(span)["attempt"])


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


async def test_a_retry_and_a_delay_are_in_the_trace_of_their_submit(
    app: App, spans: Spans, traced: Client, workers: Workers
) -> None:
    @app.actor(retry=Retry(max_attempts=2, initial=0.05))
    async def fails(ctx: Context, word: str) -> str:
        if ctx.attempt == 1:
            raise ValueError(word)
        return word

    with trace.get_tracer("site").start_as_current_span("request") as request:
        run = await traced.submit(fails.call(MARKER), key="k", delay=0.2)
    async with workers.run(app):
        assert await run.result(timeout=10) == MARKER
        first, second = await spans.some("run fails", 2)
    (submit,) = spans.all("submit fails")
    wakes = spans.won("fails")
    assert parent_of(submit) == request.get_span_context().span_id
    assert [parent_of(wake) for wake in wakes] == [id_of(submit)] * 2
    assert [parent_of(first), parent_of(second)] == [id_of(wake) for wake in wakes]
    assert {trace_of(span) for span in (submit, *wakes, first, second)} == {request.get_span_context().trace_id}
    named = {"key": "k", "generation": 1, "actor": "fails", "run_id": run.run_id}
    assert about(submit) == named | {"outcome": "accepted"}
    assert about(first) == named | {"attempt": 1, "outcome": "retried"}
    assert about(second) == named | {"attempt": 2, "outcome": "succeeded"}
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "ValueError")
    assert second.status.status_code is StatusCode.UNSET
    assert (submit.kind, wakes[0].kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CONSUMER)
    assert MARKER not in "".join(span.to_json() for span in spans.all())


async def test_a_delay_that_a_stored_timer_keeps_is_in_the_trace_of_its_submit(app: App, spans: Spans) -> None:
    """For a day of virtual time nothing of the run is anywhere but in its record and its timer."""

    @app.actor
    async def remind(word: str) -> str:
        return word

    async with memory(app) as client:
        run = await client.submit(remind.call(MARKER), key="k", delay=timedelta(days=1))
        assert await run.result() == MARKER
        (ran,) = await spans.some("run remind")
    (submit,), wakes = spans.all("submit remind"), spans.all("wake-up remind")
    assert {parent_of(wake) for wake in wakes} == {id_of(submit)}
    assert parent_of(ran) in {id_of(wake) for wake in wakes}
    assert {trace_of(span) for span in (*wakes, ran)} == {trace_of(submit)}


async def test_a_takeover_is_in_the_trace_of_its_submit(
    app: App, spans: Spans, traced: Client, workers: Workers
) -> None:
    """A worker loses its session in a body; another, which knows nothing but the record, goes on."""
    started = asyncio.Event()

    @app.actor
    async def work(ctx: Context) -> str:
        started.set()
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return ctx.session

    async with workers.run(app) as first:
        run = await traced.submit(work.call(), key="k")
        await started.wait()
        lost = first.worker.lease.id
        first.worker.stop()
        await wait_until(lambda: not first.worker.puller.pulling, description="the other one gets the next wake-up")
        async with workers.run(app) as second:
            await close_session(traced, lost)
            await wake(traced, "k")
            assert await run.result(timeout=10) == second.worker.lease.id
            await spans.some("run work", 2)
    (submit,), (succeeded, void) = spans.all("submit work"), sorted(spans.all("run work"), key=attempt_of, reverse=True)
    assert {trace_of(submit)} == {trace_of(succeeded), trace_of(void)}
    assert (about(succeeded)["attempt"], about(succeeded)["outcome"]) == (2, "succeeded")
    assert about(void)["attempt"] == 1
    assert about(void)["outcome"] in {"fenced", "handed_back", "given_up"}, "by how soon it learned of it"


async def test_a_spawned_run_and_a_hook_are_in_the_trace_and_a_successor_begins_its_own(
    app: App, spans: Spans, traced: Client, workers: Workers
) -> None:
    told: list[str] = []

    @app.actor
    async def child() -> str:
        return "done"

    @app.actor
    async def after() -> None: ...

    @app.actor(on_success=after)
    async def parent(ctx: Context) -> None:
        told.append(ctx.trace)
        if len(told) == 1:
            ctx.spawn(child.call(), key="child")
            ctx.reschedule(delay=0)

    async with workers.run(app):
        await traced.submit(parent.call(), key="parent")
        first, second = await spans.some("run parent", 2)
        (spawned,) = await spans.some("run child")
        await spans.some("run after", 2)
    (submit,), (woken,) = spans.all("submit parent"), spans.won("child")
    assert trace_of(submit) == trace_of(first) == trace_of(woken) == trace_of(spawned)
    assert parent_of(woken) == id_of(first)
    assert told[0].split("-")[1:3] == [f"{trace_of(first):032x}", f"{id_of(first):016x}"]
    assert trace_of(second) != trace_of(first)
    assert [trace_of(span) for span in spans.all("run after")].count(trace_of(submit)) == 1


async def test_a_replace_a_cancel_and_a_kept_run_tell_what_came_of_them(
    app: App, spans: Spans, traced: Client, workers: Workers
) -> None:
    started = asyncio.Event()

    @app.actor
    async def hold() -> None:
        started.set()
        await asyncio.Event().wait()

    async with workers.run(app):
        await traced.submit(hold.call(), key="k")
        await started.wait()
        await traced.submit(hold.call(), key="k")
        started.clear()
        await traced.replace(hold.call(), key="k")
        await started.wait()
        await traced.cancel("k")
        first, second = await spans.some("run hold", 2)
    assert [about(span)["outcome"] for span in spans.all("submit hold")] == ["accepted", "kept"]
    assert [about(span) for span in spans.all("cancel")] == [{"key": "k", "outcome": "stopping"}]
    (replaced,) = spans.all("replace hold")
    assert (about(first)["outcome"], trace_of(first)) == ("superseded", trace_of(spans.all("submit hold")[0]))
    assert (about(second)["outcome"], trace_of(second)) == ("cancelled", trace_of(replaced))


async def test_a_body_that_overstays_is_told_of_once_it_has_ended(
    app: App, spans: Spans, traced: Client, workers: Workers
) -> None:
    gate = threading.Event()

    @app.actor(timeout=0.05, grace=0.05, retry=None)
    def deaf() -> None:
        gate.wait(20)

    async with workers.run(app) as running:
        run = await traced.submit(deaf.call(), key="k")
        with pytest.raises(RunFailed):
            await run.result(timeout=10)
        await wait_until(lambda: running.worker.metrics.stuck() == {"deaf": 1}, description="the worker knows it too")
        assert spans.all("run deaf") == []
        gate.set()
        (ran,) = await spans.some("run deaf")
    assert about(ran)["outcome"] == "evicted"


async def test_plain_bodies_and_child_processes_trace_within_their_run(
    tasks: Any, nothing_left: None, spans: Spans, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_TEST_TRACES", "1")
    async with workers.run(tasks.app), tasks.app.connect(workers.url) as client:
        for actor in (tasks.within_thread, tasks.within_process):
            inner = await (await client.submit(actor.call(), key=actor.name)).result(timeout=20)
            (ran,) = await spans.some(f"run {actor.name}")
            assert inner == [f"{trace_of(ran):032x}", f"{id_of(ran):016x}"]


async def test_who_publishes_without_the_library_says_its_trace_in_a_header(
    open_app: App, client: Client, stranger: Stranger, supervisors: Supervisors
) -> None:
    async with supervisors.run(open_app):
        await stranger.send("submit.add", {"one": 1}, Tenure_Key="told", Traceparent=PARENT)
        await stranger.send("submit.add", {"one": 1}, Tenure_Key="nonsense", Traceparent=MARKER)
        for key, expected in (("told", PARENT), ("nonsense", "")):
            await phase(client, key)
            record = (await client.stores.runs.read(key)).record
            assert record is not None
            assert record.task.trace == expected


def test_nothing_is_told_unless_the_application_has_set_up_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_tracing() is None, "the library of OpenTelemetry is imported here, and no provider is set"
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", trace.NoOpTracerProvider())
    assert find_tracing() is None
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(shutdown_on_exit=False))
    assert find_tracing() is not None


async def test_without_opentelemetry_nothing_of_it_is_imported() -> None:
    code = "import sys, tenure, tenure.worker, tenure.supervisor, tenure.cli; from tenure.tracing import find_tracing"
    code += "; assert find_tracing() is None; sys.exit(any('opentelemetry' in name for name in sys.modules))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0


def test_an_older_tenure_reads_a_task_with_a_trace_and_a_newer_one_a_task_without() -> None:
    older = msgspec.defstruct("Task", [("actor", str), ("queue", str, "default")])
    task = Task(actor="a", trace=PARENT)
    assert msgspec.json.decode(msgspec.json.encode(task), type=older) == older("a")
    assert msgspec.json.decode(b'{"actor":"a"}', type=Task) == Task(actor="a")
    assert b"trace" not in msgspec.json.encode(Task(actor="a"))
