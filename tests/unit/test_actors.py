"""Actors and calls: checked, named and encoded where they are made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tenure import App, ConfigError, Context, InvalidCall, Retry


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


@pytest.fixture
def app() -> App:
    return App("unit")


def test_a_call_is_one_json_object_with_defaults_filled_in(app: App) -> None:
    @app.actor
    async def extract(ctx: Context, path: str, depth: int = 1) -> dict[str, int]:
        return {path: depth}

    assert msgspec.json.decode(extract.call("a.pdf").args) == {"path": "a.pdf", "depth": 1}
    assert msgspec.json.decode(extract.call("a.pdf", depth=2).args) == {"path": "a.pdf", "depth": 2}
    assert extract.decode_args(extract.call(path="b").args) == {"path": "b", "depth": 1}


def test_rich_types_survive_the_way_there_and_back(app: App) -> None:
    @app.actor
    def rich(*, when: datetime, who: UUID, colour: Colour, at: Point, raw: bytes, many: set[int]) -> None: ...

    values: dict[str, Any] = {
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "who": UUID(int=5),
        "colour": Colour.RED,
        "at": Point(1, 2),
        "raw": b"\x00\xff",
        "many": {1, 2},
    }
    assert rich.decode_args(rich.call(**values).args) == values


@pytest.mark.parametrize(
    ("args", "kwargs", "field"),
    [
        ((), {}, "path"),
        ((1,), {}, "path"),
        (("a", "two"), {}, "depth"),
        (("a",), {"path": "b"}, "path"),
        (("a",), {"dept": 3}, "dept"),
        ((object(),), {}, "path"),
        ((threading.Lock(),), {}, "path"),
        (("a", 1, 2), {}, None),
    ],
)
def test_a_wrong_call_names_its_argument(
    app: App, args: tuple[Any, ...], kwargs: dict[str, Any], field: str | None
) -> None:
    @app.actor
    async def extract(ctx: Context, path: str, depth: int = 1) -> None: ...

    with pytest.raises(InvalidCall) as caught:
        extract.call(*args, **kwargs)
    assert caught.value.field == field
    assert "extract" in str(caught.value)


def test_a_nested_wrong_value_names_the_argument_it_is_in(app: App) -> None:
    @app.actor
    def draw(points: list[Point]) -> None: ...

    with pytest.raises(InvalidCall) as caught:
        draw.call([Point(1, "x")])  # type: ignore[arg-type]  # the point of the test
    assert caught.value.field == "points"


@pytest.mark.parametrize("value", [float("nan"), [1.0, float("inf")], {"a": (float("-inf"),)}])
def test_nan_is_refused_not_made_null(app: App, value: Any) -> None:
    @app.actor
    def measure(sample: Any) -> None: ...

    with pytest.raises(InvalidCall) as caught:
        measure.call(value)
    assert caught.value.field == "sample"


def test_the_function_stays_callable_as_written(app: App) -> None:
    @app.actor
    async def double(number: int) -> int:
        return 2 * number

    @app.actor
    def triple(number: int) -> int:
        return 3 * number

    assert asyncio.run(double(4)) == 8
    assert triple(4) == 12


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"queue": "a b"}, "queue"),
        ({"priority": "urgent"}, "priority"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1.0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"every": timedelta(0)}, "every"),
        ({"overlap": "both"}, "overlap"),
        ({"result_ttl": -1}, "result_ttl"),
        ({"grace": float("inf")}, "grace"),
        ({"name": "a.b"}, "actor"),
    ],
)
def test_a_bad_setting_is_named_at_definition(app: App, settings: dict[str, Any], word: str) -> None:
    async def extract(path: str) -> None: ...

    with pytest.raises(ConfigError, match=word):
        app.actor(**settings)(extract)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"factor": 0.5}, "factor"),
        ({"jitter": 2}, "jitter"),
        ({"initial": -1}, "initial"),
    ],
)
def test_a_bad_retry_is_named(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Retry(**settings)


def test_parameters_that_cannot_be_stored_by_name_are_refused(app: App) -> None:
    with pytest.raises(ConfigError, match="rest"):

        @app.actor
        def loose(*rest: int) -> None: ...

    def twice() -> None: ...

    app.actor(twice)
    with pytest.raises(ConfigError, match="registered twice"):
        app.actor(twice)


def test_what_is_no_function_is_no_actor(app: App) -> None:
    with pytest.raises(ConfigError):
        app.actor(name="seven")(7)  # type: ignore[call-overload]  # the point of the test
    with pytest.raises(ConfigError, match="namespace"):
        App("a.b")


def test_a_generator_or_a_class_is_no_actor(app: App) -> None:
    def pieces() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    for function in (pieces, later):
        with pytest.raises(ConfigError, match="generator"):
            app.actor(function)
    with pytest.raises(ConfigError, match="only functions"):
        app.actor(Point)
    assert not app.actors


def test_a_context_that_would_be_taken_for_an_argument_is_refused(app: App) -> None:
    def bare(ctx, path: str) -> None: ...

    def second(path: str, ctx: Context) -> None: ...

    def maybe(ctx: Context | None = None) -> None: ...

    for function in (bare, second, maybe):
        with pytest.raises(ConfigError, match="`ctx: Context`"):
            app.actor(function)


def test_policy_and_arguments_reach_the_record(app: App) -> None:
    @app.actor(retry=Retry(max_attempts=2, initial=1.0), timeout=timedelta(seconds=3), every=60, result_ttl=5)
    def work(number: int) -> None: ...

    policy = work.call(3).task.policy
    assert (policy.max_attempts, policy.initial, policy.timeout, policy.every, policy.result_ttl) == (
        2,
        1.0,
        3.0,
        60.0,
        5.0,
    )


def test_without_retry_there_is_one_attempt(app: App) -> None:
    @app.actor(retry=None)
    def once() -> None: ...

    assert once.call().task.policy.max_attempts == 1
