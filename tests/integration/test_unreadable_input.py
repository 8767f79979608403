"""What could not be read back is refused where it is given, by name, and never reaches a record: else its key is ruined."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, StrEnum
from typing import Any

import msgspec
import pytest

from tenure import App, Client, Context, InvalidCall, RunFailed
from tenure.core import commands as c
from tests.conftest import Workers
from tests.inputs import is_well, register

# -- every argument of every door ------------------------------------------------------------------------------------

SURROGATE = "\ud800"
Ask = Callable[[Any, Any], Awaitable[object]]
DOORS: dict[str, tuple[Ask, str]] = {
    "cancel: key": (lambda cl, _: cl.cancel(5), "key"),
    "cancel: reason None": (lambda cl, _: cl.cancel("k", reason=None), "reason"),
    "cancel: reason number": (lambda cl, _: cl.cancel("k", reason=5), "reason"),
    "cancel: reason bytes": (lambda cl, _: cl.cancel("k", reason=b"why"), "reason"),
    "cancel: reason surrogate": (lambda cl, _: cl.cancel("k", reason=SURROGATE), "reason"),
    "cancel: reason huge": (lambda cl, _: cl.cancel("k", reason="x" * 3_000_000), "reason"),
    "cancel: reason just over": (lambda cl, _: cl.cancel("k", reason="\u00e4" * 2_049), "reason"),
    "cancel: run_id empty": (lambda cl, _: cl.cancel("k", run_id=""), "run_id"),
    "cancel: run_id number": (lambda cl, _: cl.cancel("k", run_id=5), "run_id"),
    "cancel: run_id none": (lambda cl, _: cl.cancel("k", run_id="the last one"), "run_id"),
    "run.cancel: reason": (lambda cl, _: cl.run("k").cancel(reason=5), "reason"),
    "result: timeout text": (lambda cl, _: cl.run("k").result(timeout="x"), "timeout"),
    "result: timeout negative": (lambda cl, _: cl.run("k").result(timeout=-1), "timeout"),
    "result: timeout nan": (lambda cl, _: cl.run("k").result(timeout=float("nan")), "timeout"),
    "result: timeout bool": (lambda cl, _: cl.run("k").result(timeout=True), "timeout"),
    "wait: timeout": (lambda cl, _: cl.run("k").wait(timeout=-0.5), "timeout"),
    "status: key": (lambda cl, _: cl.status(None), "key"),
    "purge: key": (lambda cl, _: cl.purge(b"k"), "key"),
    "submit: key": (lambda cl, call: cl.submit(call, key=5), "key"),
    "submit: delay beyond float": (lambda cl, call: cl.submit(call, key="k", delay=10**400), "delay"),
    "replace: key": (lambda cl, call: cl.replace(call, key=None), "key"),
    "replace: overlap": (lambda cl, call: cl.replace(call, key="k", overlap="x"), "overlap"),
    "replace: overlap list": (lambda cl, call: cl.replace(call, key="k", overlap=["stop"]), "overlap"),
    "submit_many: nothing": (lambda cl, _: cl.submit_many(None), "items"),
    "submit_many: number": (lambda cl, _: cl.submit_many(5), "items"),
    "dead.list: limit text": (lambda cl, _: cl.dead.list(limit="x"), "limit"),
    "dead.list: limit bool": (lambda cl, _: cl.dead.list(limit=True), "limit"),
    "dead.list: limit 0": (lambda cl, _: cl.dead.list(limit=0), "limit"),
    "dead.list: key": (lambda cl, _: cl.dead.list(key=5), "key"),
    "dead.get: key": (lambda cl, _: cl.dead.get(5), "key"),
    "dead.replay: key": (lambda cl, _: cl.dead.replay(None), "key"),
    "dead.purge: key": (lambda cl, _: cl.dead.purge(""), "key"),
}


@pytest.mark.parametrize("door", DOORS)
async def test_a_wrong_argument_is_refused_by_name_and_harms_no_run(door: str, app: App, client: Client):
    """Asked about a queued run, whose record must stay as it is: what cannot be read back would ruin its key for ever."""
    register(app)
    call = app.actors["typed"].call("p")
    await client.submit(call, key="k")
    before = await client.stores.runs.read("k")
    ask, field = DOORS[door]
    with pytest.raises(InvalidCall, match=field) as caught:
        await ask(client, call)
    assert caught.value.field == field
    assert await client.stores.runs.read("k") == before


async def test_the_longest_reason_is_kept_as_it_is(app: App, client: Client):
    register(app)
    await client.submit(app.actors["typed"].call("p"), key="k")
    reason = "\u00e4" * 2_048
    assert (await client.cancel("k", reason=reason)).outcome == "cancelled"
    status = await client.status("k")
    assert status is not None
    assert status.reason == reason


class Named(str, Enum):  # noqa: UP042  (it shows another text than its own: that is the point)
    A = "a"


class Keys(StrEnum):
    A = "a"


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("key", [Named.A, Text("a"), Keys.A])
async def test_a_key_of_a_class_of_its_own_is_the_same_key(key: str, app: App, client: Client, workers: Workers):
    """Stored, counted and addressed as its plain text, whichever of the two comes first."""
    bodies = register(app)
    call = app.actors["typed"].call("p")
    run = await client.submit(call, key=key)
    assert not (await client.submit(call, key="a")).accepted
    for name in (key, "a"):
        status = await client.status(name)
        assert status is not None
        assert (status.run_id, type(status.key)) == (run.run_id, str)
    assert (await client.cancel(key, reason=Text("enough"))).outcome == "cancelled"
    again = await client.submit(call, key="a")
    async with workers.run(app):
        assert await again.result(timeout=5) == "p/1"
    assert bodies == ["a"]


UNREADABLE: dict[str, c.Command] = {
    "type": c.Cancel(reason=5),  # type: ignore[arg-type]  # the point of the test
    "text": c.Cancel(reason=SURROGATE),
    "unknown type": c.Cancel(reason=object()),  # type: ignore[arg-type]  # the point of the test
}


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_a_record_that_could_not_be_read_back_is_never_written(kind: str, app: App, client: Client):
    """The last line of defence, past every check of arguments."""
    register(app)
    await client.submit(app.actors["typed"].call("p"), key="k")
    before = await client.stores.runs.read("k")
    with pytest.raises(InvalidCall, match="'k' could not be read back"):
        await client.stores.runs.commit("k", UNREADABLE[kind])
    assert await client.stores.runs.read("k") == before


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


RESULTS: dict[str, Any] = {
    "no json": msgspec.Raw(b"garbage"),
    "no json inside": {"a": [msgspec.Raw(b'{"b":')]},
    "no text": msgspec.Raw(b'"\xff"'),
    "two values": msgspec.Raw(b"1 2"),
    "nothing": msgspec.Raw(b""),
    "too deep": nested(400),
}


@pytest.mark.parametrize("kind", RESULTS)
async def test_a_result_that_nobody_could_read_fails_its_run(kind: str, app: App, client: Client, workers: Workers):
    """Stored, it would make its whole record unreadable: neither status nor purge nor another run of the key."""
    register(app)

    @app.actor(retry=None)
    async def strange() -> Any:
        return RESULTS[kind]

    async with workers.run(app) as running:
        run = await client.submit(strange.call(), key="k")
        with pytest.raises(RunFailed, match="result"):
            await run.result(timeout=5)
        await is_well(client)
        assert running.worker.metrics.errors["handler"] == 0
    status = await client.status("k")
    assert status is not None
    assert status.phase == "failed"
    assert await client.purge("k")


async def test_a_deep_result_within_the_limit_comes_back(app: App, client: Client, workers: Workers):
    @app.actor(retry=None)
    async def deep(value: Any) -> Any:
        return value

    async with workers.run(app):
        run = await client.submit(deep.call(nested(150)))
        assert await run.result(timeout=5) == nested(150)


async def test_an_exception_with_an_impossible_name_is_a_failed_attempt(app: App, client: Client, workers: Workers):
    register(app)
    odd = type("Odd" + "x" * 100_000, (Exception,), {"__module__": SURROGATE})

    @app.actor(retry=None)
    async def fails() -> None:
        raise odd(SURROGATE)

    async with workers.run(app) as running:
        run = await client.submit(fails.call(), key="k")
        with pytest.raises(RunFailed, match="Odd") as caught:
            await run.result(timeout=5)
        assert running.worker.metrics.errors["handler"] == 0
    assert len(caught.value.error_type) < 1_000


PROGRESS: dict[str, tuple[tuple[Any, ...], str]] = {
    "text": (("x",), "done"),
    "nan": ((float("nan"),), "done"),
    "bool": ((True,), "done"),
    "beyond float": ((10**400,), "done"),
    "total": ((1, float("inf")), "total"),
    "note": ((1, 2, 5), "note"),
    "note surrogate": ((1, 2, SURROGATE), "note"),
}


@pytest.mark.parametrize("kind", PROGRESS)
async def test_a_wrong_progress_is_refused_where_it_is_told(kind: str, app: App, client: Client, workers: Workers):
    """Published, it would make the status of its run unreadable while it runs."""
    args, field = PROGRESS[kind]
    seen: list[str | None] = []

    @app.actor(retry=None)
    async def tells(ctx: Context) -> bool:
        await ctx.progress(1, 2, "fine" * 1_000)
        with pytest.raises(InvalidCall) as caught:
            await ctx.progress(*args)
        seen.append(caught.value.field)
        return await client.status(ctx.key) is not None

    async with workers.run(app):
        assert await (await client.submit(tells.call(), key="k")).result(timeout=5)
    assert seen == [field]


async def test_foreign_progress_does_not_hide_a_status(app: App, client: Client, workers: Workers):
    @app.actor(retry=None)
    async def looks(ctx: Context) -> bool:
        await client.stores.conn.put(app.names.progress(ctx.key, ctx.run_id), b'{"done":null}')
        status = await client.status(ctx.key)
        return status is not None and status.progress is None

    async with workers.run(app):
        assert await (await client.submit(looks.call(), key="k")).result(timeout=5)
