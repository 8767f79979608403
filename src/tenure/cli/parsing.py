"""From words on a command line to values: apps, calls, durations, moments.

Raises ConfigError or InvalidCall with a sentence.
"""

from __future__ import annotations

import importlib
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from tenure.actors import Call
from tenure.app import App
from tenure.cli.problems import complain
from tenure.core.errors import ConfigError, InvalidCall
from tenure.core.shares import check_queues
from tenure.times import seconds_in

_OURS = Path(__file__).parents[1]
_LONG_SECONDS = 5.0


def load_app(target: str) -> App:
    """The App that ``module:attribute`` names; the current folder is looked in first."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{target!r} names no app: write it as module:app, e.g. tenure.examples.documents:app")
    if "/" in module_name or module_name.endswith(".py") or not all(module_name.split(".")):
        raise ConfigError(
            f"{module_name!r} is no module: write {target!r} as module:app, e.g. {_as_module(module_name)}:{attribute}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    value: Any = _import(module_name)
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise ConfigError(f"module {module_name!r} has no {attribute!r}{_apps_of(value)}")
        value = getattr(value, name)
    if not isinstance(value, App):
        raise ConfigError(f"{target!r} is of type {type(value).__name__}, not a tenure.App")
    return value


def _as_module(path: str) -> str:
    parts = path.removesuffix(".py").replace("/", ".").split(".")
    return ".".join(filter(None, parts)) or "tenure.examples.documents"


@contextmanager
def _told_if_it_takes_long(name: str) -> Iterator[None]:
    """A script that runs itself when it is imported, and perhaps waits for the very worker that imports it, looks like a hang."""
    told = f"the import of {name!r} takes long: if it runs something of its own, put that under `if __name__ == '__main__':`"
    timer = threading.Timer(_LONG_SECONDS, complain, [told])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _import(name: str) -> Any:
    try:
        with _told_if_it_takes_long(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(missing + "."):
            raise ConfigError(f"there is no module {name!r} in {Path.cwd()} or among the installed packages") from error
        raise ConfigError(f"module {name!r} cannot be imported: it needs {missing!r}, which is missing") from error
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
        theirs = [frame for frame in frames if not Path(frame.filename).is_relative_to(_OURS)]  # where to mend it
        where = f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
        raise ConfigError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}{where}") from error


def _apps_of(module: Any) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    return f"; its apps: {', '.join(names)}" if names else ""


def make_call(app: App, actor_name: str, pairs: list[str], args_json: str | None) -> Call[Any]:
    """A call of an actor from ``--args`` (a JSON object) and ``--arg name=value`` pairs.

    A value is read as JSON if that fits the actor's signature, else it is the string as written.
    """
    actor = app.actors.get(actor_name)
    if actor is None:
        known = ", ".join(sorted(app.actors)) or "none"
        raise ConfigError(f"app {app.namespace!r} has no actor {actor_name!r}; it has: {known}")
    values = _object(args_json)
    words: dict[str, str] = {}
    for number, pair in enumerate(pairs, 1):
        name, equals, word = pair.partition("=")
        if not equals or not name:
            raise InvalidCall(f"--arg number {number} is not name=value", field=None)
        if name in values:
            raise InvalidCall(f"argument {name!r} is given twice", field=name)
        words[name] = word
        values[name] = _json_or_word(word)
    first: dict[str, InvalidCall] = {}
    while True:
        try:
            return actor.call(**values)
        except InvalidCall as error:
            name = error.field or ""
            if name in first:
                raise first[name] from error
            if name not in words or values[name] == words[name]:
                raise
            first[name] = error
            values[name] = words[name]


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidCall(f"--args must be a JSON object: {error}") from error


def _json_or_word(word: str) -> Any:
    try:
        return msgspec.json.decode(word)
    except msgspec.DecodeError:
        return word


def weighted(queues: list[str] | None) -> dict[str, int] | None:
    """Queues and weights from ``--queue NAME`` and ``--queue NAME=WEIGHT``. Raises ConfigError."""
    if not queues:
        return None
    given: dict[str, object] = {}
    for text in queues:
        name, equals, weight = text.partition("=")
        given[name] = int(weight) if weight.isdecimal() else (weight if equals else 1)
    return check_queues(given)


def duration(text: str | None, option: str) -> float | None:
    """Seconds of a duration such as 500ms, 10s, 2m, 1h30m."""
    if text is None:
        return None
    seconds = seconds_in(text)
    if seconds is None:
        raise InvalidCall(f"{option} {text!r} is no duration: write it like 500ms, 10s, 2m, 1h or 1h30m", field="delay")
    return seconds


def moment(text: str | None, option: str = "--at") -> datetime | None:
    """An aware datetime from ISO 8601 with a time zone."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidCall(
            f"{option} {text!r} is no ISO 8601 time: write it like 2030-01-31T08:00:00Z", field="at"
        ) from error
    if at.tzinfo is None:
        raise InvalidCall(f"{option} {text!r} has no time zone: add Z or an offset such as +02:00", field="at")
    return at
