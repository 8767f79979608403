"""``tenure.testing.context``: an actor's function called as written, and what it did."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tenure
from tenure import App, Context, InvalidCall, Stopped
from tenure.testing import Progressed, context

app = App("unit")


@app.actor
async def refine(path: str) -> None:
    raise NotImplementedError(path)


@app.actor
async def extract(ctx: Context, path: str) -> str:
    assert tenure.current() is ctx
    await ctx.progress(1, 2, "half")
    await ctx.progress(2)
    ctx.spawn(refine.call(path), key="r")
    ctx.reschedule(delay=60)
    return f"{path} {ctx.key} {ctx.generation}.{ctx.attempt}.{ctx.failures} {ctx.fence}"


@app.actor
def plain(ctx: Context) -> str:
    ctx.check()
    ctx.report(1, 2)
    return "went on"


async def test_a_body_is_called_as_written_and_tells_what_it_did() -> None:
    ctx = context(app, key="doc-1", generation=3, attempt=2, failures=1, fence=9)
    ctx.enter()
    assert await extract(ctx, "a.pdf") == "a.pdf doc-1 3.2.1 9"
    assert ctx.progressed == [Progressed(1, 2, "half"), Progressed(2, None, "")]
    (spawned,) = ctx.spawned
    assert (spawned.call, spawned.key, spawned.due) == (refine.call("a.pdf"), "r", 0.0)
    assert ctx.rescheduled is not None
    assert ctx.rescheduled.call is None
    assert ctx.rescheduled.due > datetime.now(UTC).timestamp()


async def test_what_a_body_asks_for_wrongly_is_refused_as_by_a_worker() -> None:
    ctx = context(app)
    with pytest.raises(InvalidCall, match="another key"):
        ctx.spawn(refine.call("a"), key=ctx.key)
    with pytest.raises(InvalidCall) as refused:
        await ctx.progress(float("nan"))
    assert refused.value.field == "done"
    with pytest.raises(InvalidCall):
        ctx.report(1, note="\ud800")


@pytest.mark.parametrize("reason", ["cancel", "superseded", "timeout", "drain", "lease_lost"])
async def test_a_body_is_stopped(reason: Any) -> None:
    ctx = context(app)
    assert plain(ctx) == "went on"
    waiting = asyncio.create_task(ctx.stopping.wait())
    await asyncio.sleep(0)  # paused: it waits now
    ctx.stop(reason)
    assert await waiting
    assert ctx.stop_reason == reason
    with pytest.raises(Stopped, match=reason):
        plain(ctx)


def test_a_drain_that_begins_lets_a_plain_body_go_on() -> None:
    ctx = context(app)
    ctx.tell("drain")
    assert (ctx.stop_reason, plain(ctx)) == ("drain", "went on")
    assert ctx.progressed == [Progressed(1, 2, "")]


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("key", ""),
        ("deadline", datetime(2026, 1, 1)),  # noqa: DTZ001  (that is the mistake)
        ("deadline", "2030"),
        ("deadline", 5.0),
        ("generation", "a"),
        ("generation", 0),
        ("attempt", 0),
        ("attempt", True),
        ("failures", -1),
        ("failures", None),
        ("fence", 0),
        ("fence", 1.0),
    ],
)
def test_what_no_context_can_have_is_named(field: str, wrong: Any) -> None:
    with pytest.raises(InvalidCall, match=f"^{field} ") as refused:
        context(app, **{field: wrong})
    assert refused.value.field == field


@pytest.mark.parametrize("wrong", [None, "unit", App])
def test_a_context_needs_an_app(wrong: Any) -> None:
    with pytest.raises(InvalidCall, match=r"^app must be a tenure\.App") as refused:
        context(wrong)
    assert refused.value.field == "app"


@pytest.mark.parametrize("wrong", ["nonsense", "", None, ["cancel"]])
def test_a_body_is_stopped_for_no_reason_that_a_worker_never_gives(wrong: Any) -> None:
    ctx = context(app)
    for call in (ctx.stop, ctx.tell):
        with pytest.raises(InvalidCall, match=r"must be one of cancel, superseded") as refused:
            call(wrong)
        assert refused.value.field == "reason"
    assert (ctx.stop_reason, plain(ctx)) == (None, "went on")


def test_a_deadline_is_what_the_body_sees() -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=5)
    assert context(app).deadline is None
    assert context(app, deadline=deadline).deadline == deadline
