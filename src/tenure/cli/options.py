"""Options and arguments that several commands share, and what they lead to: an app, a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from tenure.app import App, default_url
from tenure.cli.problems import NotFound, no_key
from tenure.client import Client
from tenure.config import Config
from tenure.core.errors import ConfigError, TenureError
from tenure.loops import run_loop
from tenure.run import Run

T = TypeVar("T")
_WHICH = "say which namespace: --namespace NAME (or $TENURE_NAMESPACE), or --app module:app"
_NAMED = 20

Target = Annotated[str, typer.Argument(metavar="TARGET", help="The app, as module:app.", show_default=False)]
ActorName = Annotated[str, typer.Argument(metavar="ACTOR", help="Name of one of the app's actors.", show_default=False)]
Key = Annotated[str, typer.Argument(metavar="KEY", show_default=False)]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="TENURE_NATS_URL", help="NATS server; several: by commas. Default nats://127.0.0.1:4222.",
        show_default=False,
    ),
]  # fmt: skip
OnlyActor = Annotated[str | None, typer.Option("--actor", "-a", help="Only this actor.", show_default=False)]
OnlyQueue = Annotated[str | None, typer.Option("--queue", "-q", help="Only this queue.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", show_default=False)]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", envvar="TENURE_NAMESPACE", help="The app's namespace.", show_default=False),
]
KeyNamespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", envvar="TENURE_NAMESPACE", help="The app's namespace. Default: the only one on the server.",
        show_default=False,
    ),
]  # fmt: skip
AppTarget = Annotated[
    str | None,
    typer.Option("--app", metavar="TARGET", help="The app itself, instead of its namespace.", show_default=False),
]
Pairs = Annotated[
    list[str] | None,
    typer.Option(
        "--arg", metavar="NAME=VALUE", help="An argument: JSON if that fits its type, else text.", show_default=False
    ),
]
Args = Annotated[
    str | None, typer.Option("--args", metavar="JSON", help="Arguments as one JSON object.", show_default=False)
]
Delay = Annotated[
    str | None, typer.Option("--delay", metavar="DURATION", help="Start later: 500ms, 10s, 2m, 1h.", show_default=False)
]
At = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="Start at an ISO 8601 time with zone.", show_default=False)
]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="DURATION", help="Wait at most so long (then exit 3).", show_default=False),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for the result; exit 1 unless it succeeds.", show_default=False)
]


class LogLevel(StrEnum):
    """Least severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Level = Annotated[LogLevel, typer.Option("--log-level", help="Least severity that is logged.")]
LogJson = Annotated[
    bool,
    typer.Option("--log-json", help="Say what it says in JSON, and log so even to a terminal.", show_default=False),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", "-q", metavar="NAME[=WEIGHT]", help="Queue to work on; may be repeated. Default: the app's.",
        show_default=False,
    ),
]  # fmt: skip
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65_535,
        help="Serve /metrics, /health and /ready; 0: a free port, printed.",
        show_default=False,
    ),
]
MetricsHost = Annotated[
    str, typer.Option("--metrics-host", help="Address to serve them on: this machine alone unless you say 0.0.0.0.")
]
StopWithStdin = Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)]
Concurrency = Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Bodies at once.")]


def app_for(namespace: str | None, target: str | None) -> App:
    """The app that a command without TARGET is about: ``--app``, else an app without actors of ``--namespace``."""
    from tenure.cli.parsing import load_app

    if target is not None:
        return load_app(target)
    if not namespace:
        raise ConfigError(_WHICH)
    return App(namespace)


def app_at(namespace: str | None, target: str | None, url: str | None) -> App:
    """As ``app_for``, for a command about one key; where neither is given, of the only namespace on the server."""
    if namespace is not None or target is not None:
        return app_for(namespace, target)
    return App(run_loop(_only_namespace(url or default_url())))


async def _only_namespace(url: str) -> str:
    from tenure.nats.connection import Connection
    from tenure.nats.topology import namespaces
    from tenure.nats.urls import without_secrets

    connection = await Connection.open(url, Config(), name="tenure-cli")
    try:
        found = await namespaces(connection)
    except TenureError as error:  # these credentials may not ask, say
        raise ConfigError(_WHICH) from error
    finally:
        await connection.close()
    if not found:
        raise NotFound(f"there is no namespace on {without_secrets(url)}: nothing was ever submitted there")
    if len(found) > 1:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise ConfigError(f"{_WHICH}; {without_secrets(url)} has {', '.join(found[:_NAMED])}{more}")
    return found[0]


@asynccontextmanager
async def looking(app: App, url: str | None) -> AsyncIterator[Client]:
    """A client for commands that only look at, or end, what exists: a mistyped namespace must not create streams."""
    from tenure.nats.connection import Connection
    from tenure.nats.topology import exists
    from tenure.nats.urls import without_secrets

    url = url or default_url()
    connection = await Connection.open(url, app.config, name=f"tenure-cli-{app.namespace}")
    try:
        if not await exists(connection, app.names):
            where = without_secrets(url)
            raise NotFound(f"there is no namespace {app.namespace!r} on {where}: nothing was ever submitted to it")
    finally:
        await connection.close()
    async with app.connect(url) as client:
        yield client


def ask(app: App, url: str | None, question: Callable[[Client], Awaitable[T]]) -> T:
    """What a client answers to one question, or what comes of the one thing that it is to do."""

    async def main() -> T:
        async with looking(app, url) as client:
            return await question(client)

    return run_loop(main())


async def existing(client: Client, key: str) -> Run[Any]:
    """The current run of a key. Raises NotFound if there is no such key."""
    if await client.status(key) is None:
        raise no_key(key, client.app.namespace)
    return await client.run(key)
