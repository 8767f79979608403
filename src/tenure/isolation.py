"""Where the code of an actor that runs in a child process is found.

A child is a fresh interpreter: it imports the actor's module and looks the actor up by its qualified name. What a fresh
interpreter cannot find - a script's ``__main__``, what exists only while a function runs - is refused when the actor is
registered, not when its first run fails.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tenure.core.errors import ConfigError

if TYPE_CHECKING:
    from tenure.app import App

Isolation = Literal["thread", "process"]


@dataclass(frozen=True, slots=True)
class Home:
    """``module`` and ``path`` lead to the actor in any interpreter; ``app`` is the app that it belongs to in this one."""

    app: App
    module: str
    path: str


def home_of(app: App, function: Callable[..., Any], name: str, isolation: str) -> Home | None:
    """The home of an actor with ``isolation="process"``, None for ``"thread"``. Raises ConfigError."""
    if isolation == "thread":
        return None
    if isolation != "process":
        raise ConfigError(f"actor {name}: isolation must be thread or process, got {isolation!r}")
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not path:
        raise ConfigError(f"actor {name}: isolation='process' needs a function with a module and a name")
    if module == "__main__":
        raise ConfigError(
            f"actor {name}: isolation='process' imports the actor in a fresh interpreter, and __main__ cannot be imported:"
            " move the actor (and its app) into a module"
        )
    if "<" in path:
        raise ConfigError(
            f"actor {name}: isolation='process' imports the actor in a fresh interpreter, where {path} does not exist:"
            " define it at the top of its module"
        )
    return Home(app, module, path)


def find_actor(module: str, path: str, name: str, namespace: str) -> Any:
    """The actor that ``module`` and ``path`` lead to in this interpreter. Raises ConfigError, and what the import raises."""
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    home = getattr(found, "home", None)
    if home is None or found.name != name:
        raise ConfigError(
            f"a fresh interpreter does not find actor {name!r} as {module}.{path}: put @app.actor(isolation='process') on the"
            " function where it is defined, so that importing the module is all it takes"
        )
    if home.app.namespace != namespace:
        raise ConfigError(
            f"actor {name!r} belongs to namespace {home.app.namespace!r} in a fresh interpreter, and to {namespace!r} in the"
            " worker: give its app the namespace by an environment variable, not in code that only the worker runs"
        )
    return found
