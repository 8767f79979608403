"""Actors and calls: checked, named and encoded where they are made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from typing import Any, NoReturn
from uuid import UUID

import msgspec
import pytest

from tenure import App, ConfigError, Context, InvalidCall, Retry
from tenure.core.records import Task


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
        ({"result_ttl": 0.5}, "result_ttl must be whole seconds"),
        ({"result_ttl": 1.5}, "result_ttl must be whole seconds"),
        ({"result_ttl": timedelta(milliseconds=1500)}, "result_ttl"),
        ({"result_ttl": "1d"}, "result_ttl must be whole seconds"),
        ({"result_ttl": True}, "result_ttl"),
        ({"grace": float("inf")}, "grace"),
        ({"grace": None}, "grace"),
        ({"timeout": True}, "timeout"),
        ({"timeout": 10**400}, "timeout"),
        ({"every": True}, "every"),
        ({"overlap": ["stop"]}, "overlap"),
        ({"name": "a.b"}, "actor"),
        ({"name": 5}, "actor 5"),
        ({"name": ""}, "actor ''"),
        ({"queue": 5}, "queue 5"),
        ({"priority": ["high"]}, "priority"),
        ({"retry": {}}, "retry"),
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
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": 2**63}, "max_attempts"),
        ({"initial": True}, "initial"),
        ({"initial": timedelta(seconds=1)}, "initial"),
        ({"maximum": 10**400}, "maximum"),
        ({"factor": True}, "factor"),
        ({"jitter": False}, "jitter"),
        ({"factor": 0.5}, "factor"),
        ({"jitter": 2}, "jitter"),
        ({"initial": -1}, "initial"),
    ],
)
def test_a_bad_retry_is_named(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Retry(**settings)


class Many(IntEnum):
    TWO = 2


class Seconds(float):
    """As a library of units or of numbers makes them."""


class Where(str, Enum):  # noqa: UP042  (it shows another text than its own: that is the point)
    FAST = "fast"


def test_settings_of_a_class_of_their_own_are_stored_plain(app: App) -> None:
    """The encoder does not know such classes, or the server would be asked for a queue `Where.FAST`."""

    @app.actor(
        queue=Where.FAST,
        retry=Retry(max_attempts=Many.TWO, initial=Seconds(1.5)),
        timeout=Seconds(2.5),
        result_ttl=Seconds(5),
    )
    def work() -> None: ...

    task = work.call().task
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task
    values = (task.queue, task.policy.max_attempts, task.policy.initial, task.policy.timeout, task.policy.result_ttl)
    assert [type(value) for value in values] == [str, int, float, float, float]
    assert f"{task.queue}" == "fast"


@pytest.mark.parametrize("attempts", [1, 10**9, 2**63 - 1])
def test_as_many_attempts_as_are_accepted_are_read_back(app: App, attempts: int) -> None:
    @app.actor(retry=Retry(max_attempts=attempts))
    def work() -> None: ...

    task = work.call().task
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task).policy.max_attempts == attempts


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (msgspec.Raw(b"garbage"), "is no JSON"),
        (msgspec.Raw(b'"\xff"'), "is no JSON"),
        ({"a": msgspec.Raw(b"1 2")}, "is no JSON"),
        (nested(201), "deeper than"),
        ({"x": [nested(800)]}, "deeper than"),
        (Point(1, float("nan")), "holds NaN"),  # type: ignore[arg-type]  # the point of the test
    ],
    ids=["garbage", "text", "inside", "deep", "deeper", "nan in a dataclass"],
)
def test_a_value_that_nobody_could_read_is_refused_by_name(app: App, value: Any, words: str) -> None:
    """In a record it would take the whole key with it."""

    @app.actor
    def take(first: int, sample: Any) -> None: ...

    with pytest.raises(InvalidCall, match=rf"'sample' .*{words}") as caught:
        take.call(1, value)
    assert caught.value.field == "sample"


def test_the_deepest_value_is_read_back(app: App) -> None:
    @app.actor
    def take(sample: Any) -> None: ...

    text = "[" * 1_000 + '\\"' + "{" * 1_000  # brackets in a text are no nesting
    for value in (nested(199), [nested(150)] * 50, [text] * 3):
        assert take.decode_args(take.call(value).args) == {"sample": value}


def test_nan_is_named_where_the_annotation_has_no_null_either(app: App) -> None:
    @app.actor
    def measure(metres: float, spare: float | None = float("nan")) -> None: ...

    with pytest.raises(InvalidCall, match="'metres' holds NaN") as caught:
        measure.call(float("nan"))
    assert caught.value.field == "metres"
    with pytest.raises(InvalidCall, match="'spare' holds NaN"):
        measure.call(1.0)


class Foreign: ...


@dataclass
class Holds:
    many: list[Foreign]


@pytest.mark.parametrize(
    "kind", [Foreign, list[Foreign], Foreign | None, dict[str, Foreign], Holds, complex, Iterator[int]]
)
def test_a_parameter_that_no_stored_value_fits_is_refused_at_definition(app: App, kind: Any) -> None:
    """Else every call of it is refused, and the reason is not seen before the first."""

    def work(path: str, what: Any) -> None: ...

    work.__annotations__["what"] = kind
    with pytest.raises(ConfigError, match="actor work: parameter 'what' cannot be stored"):
        app.actor(work)


@pytest.mark.parametrize("kind", [object, Any, msgspec.Raw, Point, list[Point] | None, Colour, bytes, UUID, datetime])
def test_a_parameter_that_a_stored_value_fits_is_not(app: App, kind: Any) -> None:
    def work(what: Any) -> None: ...

    work.__annotations__["what"] = kind
    app.actor(work)


def test_a_return_annotation_of_which_no_result_can_be_read_is_refused(app: App) -> None:
    def ambiguous() -> Any: ...

    ambiguous.__annotations__["return"] = list[int] | set[int]
    with pytest.raises(ConfigError, match="actor ambiguous: the return annotation cannot be used for results"):
        app.actor(ambiguous)

    @app.actor
    def never() -> NoReturn:
        raise LookupError

    assert never.result_type is Any


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
