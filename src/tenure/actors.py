"""Actors and calls: a registered function, its arguments as checked and encoded, its policy.

A call is checked against the function's signature when it is made, so a wrong one never reaches a worker. Values travel
as JSON of their annotated types (everything msgspec knows: str, int, float, bool, None, bytes, datetime, UUID, Decimal,
Enum, list, dict, set, tuple, dataclasses, TypedDict, msgspec Structs).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Never, NoReturn, ParamSpec, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw
from msgspec.structs import replace as with_changes

from tenure.context import Context
from tenure.core.errors import ConfigError, InvalidCall
from tenure.core.records import Overlap, Task
from tenure.core.subjects import check_name
from tenure.isolation import Home
from tenure.payloads import MAX_DEPTH, fault, foreign_class
from tenure.rates import AnyLimit, make_pace, split_limits
from tenure.settings import OVERLAPS, make_limits

Full = ParamSpec("Full")
Args = ParamSpec("Args")
Out = TypeVar("Out")
Res_co = TypeVar("Res_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[Res_co]):
    """A checked and encoded call of an actor, ready to be submitted. Made by ``actor.call(...)``."""

    task: Task
    args: bytes = field(repr=False)
    result_type: Any
    namespace: str
    """Of the actor's app; the call can be made only there."""

    def with_overlap(self, overlap: Overlap) -> Call[Res_co]:
        """The same call under another overlap policy."""
        if overlap not in OVERLAPS:
            msg = f"overlap must be stop, wait or parallel, got {overlap!r}"
            raise InvalidCall(msg, field="overlap")
        if overlap == self.task.policy.overlap:
            return self
        return replace(self, task=with_changes(self.task, policy=with_changes(self.task.policy, overlap=overlap)))


def check_call(call: object, namespace: str) -> None:
    """InvalidCall unless this is a call of an actor of ``namespace``."""
    if not isinstance(call, Call):
        msg = f"call must come from actor.call(...), got {type(call).__name__}"
        if isinstance(call, Coroutine):
            name = getattr(call, "__name__", "actor")
            msg += f": {name}(...) runs the body itself, {name}.call(...) is what to submit"
            call.close()  # it is never awaited: Python would complain of that as well
        raise InvalidCall(msg, field="call")
    if call.namespace != namespace:
        msg = f"actor {call.task.actor} belongs to app {call.namespace!r}, and this is app {namespace!r}: no worker here knows it"
        raise InvalidCall(msg, field="call")


class Actor(Generic[Full, Args, Out, Res_co]):
    """A registered function. Callable as written, for unit tests; ``call`` makes what is submitted."""

    def __init__(
        self, function: Callable[Full, Out], name: str, task: Task, scope: dict[str, Any], namespace: str
    ) -> None:
        self.function = function
        self.namespace = namespace
        self.name = check_name("actor", name)
        self.is_async = inspect.iscoroutinefunction(function)
        self.task = task
        self.home: Home | None = None
        """Where a child process finds it, if its bodies run in one."""
        self.__doc__ = function.__doc__
        self.__name__ = name
        self.__module__ = getattr(function, "__module__", "")
        signature = _signature(function, scope)
        parameters = list(signature.parameters.values())
        self.takes_context = bool(parameters) and _is_context(parameters[0].annotation)
        self.parameters = parameters[1:] if self.takes_context else parameters
        _check_no_context(self.name, self.parameters)
        self._codec = _Codec(self.name, self.parameters)
        self.result_type = _result_type(self.name, signature.return_annotation)

    def __call__(self, *args: Full.args, **kwargs: Full.kwargs) -> Out:
        """Run the function itself, here and now; nothing is stored."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Actor {self.name} on queue {self.task.queue}>"

    def call(self, *args: Args.args, **kwargs: Args.kwargs) -> Call[Res_co]:
        """Check and encode a call. Raises InvalidCall that names the argument."""
        data = self._codec.encode(args, kwargs)
        return Call(with_changes(self.task, args=Raw(data)), data, self.result_type, self.namespace)

    def limit(self, limits: Sequence[AnyLimit]) -> None:
        """Bound its bodies: part of its registration, once its arguments are known. Raises ConfigError."""
        at_once, in_time = split_limits(self.name, limits)
        arguments, policy = [parameter.name for parameter in self.parameters], self.task.policy
        bounds, pace = make_limits(self.name, at_once, arguments), make_pace(self.name, in_time, arguments, policy)
        if bounds or pace is not None:
            self.task = with_changes(self.task, policy=with_changes(policy, limits=bounds, pace=pace))

    def decode_args(self, data: bytes) -> dict[str, Any]:
        """Arguments of a stored call. Raises InvalidCall where they do not fit the signature any more."""
        return self._codec.decode(data)


class _Codec:
    """Arguments of one actor: positional and keyword in, one JSON object out, and back."""

    def __init__(self, actor: str, parameters: list[inspect.Parameter]) -> None:
        self._actor = actor
        self._names = [parameter.name for parameter in parameters]
        self._positional = sum(1 for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD)
        try:
            self._type = msgspec.defstruct(
                f"{actor}_arguments", [_field(p) for p in parameters], kw_only=True, forbid_unknown_fields=True
            )
            self._decoder = msgspec.json.Decoder(self._type)
        except (TypeError, NameError) as error:
            msg = f"actor {actor}: an annotation cannot be used for arguments: {error}"
            raise ConfigError(msg) from error
        for parameter in parameters:
            foreign = None if parameter.annotation is parameter.empty else foreign_class(parameter.annotation)
            if foreign is not None:
                _bad_config(
                    f"actor {actor}: parameter {parameter.name!r} cannot be stored: no JSON value becomes a"
                    f" {foreign.__name__}; use a dataclass, a msgspec Struct or a builtin type"
                )

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        if not self._names and not args and not kwargs:
            return b"{}"
        given = self._bind(args, kwargs)
        try:
            filled = self._type(**given)
        except TypeError as error:
            missing = next((name for name in self._names if f"'{name}'" in str(error)), None)
            msg = (
                f"actor {self._actor}: argument {missing!r} is missing" if missing else f"actor {self._actor}: {error}"
            )
            raise InvalidCall(msg, field=missing) from error
        data = self._encoded(filled, given)
        if b"null" in data or fault(None, data):
            self._check_each(filled)
        try:
            self._decoder.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            field = _field_of(str(error), self._names)
            msg = f"actor {self._actor}: argument {field!r}: {_without_value(error)}"
            raise InvalidCall(msg, field=field) from error
        return data

    def _check_each(self, filled: Any) -> None:
        for name in self._names:
            value = getattr(filled, name)
            why = fault(
                value, msgspec.json.encode(value), depth=MAX_DEPTH - 1
            )  # the arguments are an object themselves
            if why:
                msg = f"actor {self._actor}: argument {name!r} {why}"
                raise InvalidCall(msg, field=name)

    def _encoded(self, filled: Any, given: dict[str, Any]) -> bytes:
        try:
            return msgspec.json.encode(filled)
        except Exception as error:
            for name, value in given.items():
                try:
                    msgspec.json.encode(value)
                except Exception as inner:
                    msg = f"actor {self._actor}: argument {name!r} cannot be encoded: {inner}"
                    raise InvalidCall(msg, field=name) from inner
            msg = f"actor {self._actor}: the arguments cannot be encoded: {error}"
            raise InvalidCall(msg) from error

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > self._positional:
            msg = f"actor {self._actor} takes {self._positional} positional arguments, got {len(args)}"
            raise InvalidCall(msg)
        given = dict(zip(self._names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self._names:
                msg = f"actor {self._actor} has no argument {name!r}; it has {', '.join(self._names) or 'none'}"
                raise InvalidCall(msg, field=name)
            if name in given:
                msg = f"actor {self._actor}: argument {name!r} is given twice"
                raise InvalidCall(msg, field=name)
            given[name] = value
        return given

    def decode(self, data: bytes) -> dict[str, Any]:
        if not self._names and data == b"{}":
            return {}
        try:
            filled = self._decoder.decode(data)
        except msgspec.DecodeError as error:
            field = _field_of(str(error), self._names)
            msg = f"actor {self._actor}: the arguments do not fit its signature: {_without_value(error)}"
            raise InvalidCall(msg, field=field) from error
        return {name: getattr(filled, name) for name in self._names}


def module_of(function: Callable[..., Any]) -> str:
    """The module that a function is defined in, as records and their headers name it."""
    return str(getattr(function, "__module__", "")).replace(" ", "_")


def check_autostart(actor: Actor[..., ..., Any, Any]) -> None:
    """ConfigError for an actor that is to start by itself, and that nobody can start without saying more."""
    if not actor.task.policy.autostart:
        return
    try:
        actor.call()
    except InvalidCall as error:
        raise ConfigError(f"{error}: with autostart every argument needs a default") from error


def check_function(function: object) -> None:
    """ConfigError unless an actor can be made of it."""
    if not callable(function) or inspect.isclass(function):
        _bad_config(f"only functions can be actors, got {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        _bad_config(f"actor {function.__name__}: a generator cannot be an actor, for a run has one result: return it")


def _check_no_context(actor: str, parameters: list[inspect.Parameter]) -> None:
    """A context that would be taken for an argument.

    It is only passed to a first parameter with just that annotation.
    """
    for place, parameter in enumerate(parameters):
        kind = parameter.annotation
        bare = place == 0 and kind is parameter.empty and parameter.name in {"ctx", "context"}
        if bare or any(_is_context(part) for part in (kind, *get_args(kind))):
            _bad_config(f"actor {actor}: write the context as its first parameter and annotate it, `ctx: Context`")


def _signature(function: Callable[..., Any], scope: dict[str, Any]) -> inspect.Signature:
    name = getattr(function, "__name__", repr(function))
    try:
        signature = inspect.signature(function, eval_str=True, locals=scope)
    except NameError as error:
        msg = f"actor {name}: an annotation cannot be resolved: {error}; import it at the top of the module"
        raise ConfigError(msg) from error
    except TypeError as error:
        msg = f"actor {name}: only functions can be actors: {error}"
        raise ConfigError(msg) from error
    for parameter in signature.parameters.values():
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            _bad_config(f"actor {name}: parameter {parameter} cannot be stored by name; use plain parameters")
    return signature


def _result_type(actor: str, annotation: Any) -> Any:
    """What results are decoded to. ConfigError for an annotation that says of none what it is."""
    if any(annotation is none for none in (inspect.Signature.empty, NoReturn, Never)):
        return Any
    try:
        msgspec.json.Decoder(annotation)
    except (TypeError, NameError) as error:
        raise ConfigError(f"actor {actor}: the return annotation cannot be used for results: {error}") from error
    return annotation


def _is_context(annotation: Any) -> bool:
    return annotation is Context or get_origin(annotation) is Context


def _field(parameter: inspect.Parameter) -> Any:
    kind = Any if parameter.annotation is parameter.empty else parameter.annotation
    if parameter.default is parameter.empty:
        return (parameter.name, kind)
    default = parameter.default
    if isinstance(default, list | dict | set | bytearray):
        return (parameter.name, kind, msgspec.field(default_factory=lambda: default))
    return (parameter.name, kind, default)


def _field_of(text: str, names: list[str]) -> str | None:
    """The argument that a msgspec message is about.

    It ends in ``- at `$.name...```, or quotes a missing or unknown field.
    """
    path = text.rpartition("`$.")[2]
    return next(
        (name for name in names if path == name + "`" or path.startswith((name + ".", name + "["))), None
    ) or next((name for name in names if f"`{name}`" in text), None)


def _without_value(error: Exception) -> str:
    """What msgspec says of an argument, without the argument: such words end up in logs."""
    return re.sub(r"^(Invalid (?:enum )?value) (?:'.*'|\".*\"|-?\d+)", r"\1", str(error), flags=re.DOTALL)


def _bad_config(text: str) -> None:
    raise ConfigError(text)
