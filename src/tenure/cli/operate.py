"""``server`` and ``setup``: the embedded server in the foreground, and the streams of a namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tenure.app import App, default_url
from tenure.cli import options as o
from tenure.cli.output import print_json, print_table
from tenure.cli.problems import Exit, ports_explained
from tenure.clock import SYSTEM
from tenure.core.errors import ConfigError
from tenure.loops import run_loop
from tenure.nats.connection import Connection
from tenure.nats.topology import Topology, ensure


def server(
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="DIR", help="Where its data live. Default ./nats-data.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="0: a free one. Default 4222.", show_default=False),
    ] = None,
) -> int:
    """Run a nats-server with JetStream in the foreground: $TENURE_NATS_SERVER, else the installed wheel's, else PATH's."""
    from tenure.nats.embedded import serve_foreground

    with ports_explained():
        return serve_foreground(store, port, report=lambda text: print(text, flush=True))


def setup(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="The app, as module:app.", show_default=False)
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas", min=1, max=5, help="Copies of each stream. Default: as they are, or 1.", show_default=False
        ),
    ] = None,
    namespace: o.Namespace = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Create what is missing on the server, change what may be changed, and say so for each stream.

    To be run before each deploy: it brings older streams to what this release needs, and refuses (exit 2) where a newer one has
    been. What is stored stays. With --replicas copies of each stream, on as many servers.
    """
    if target is None and not namespace:
        raise ConfigError("say what to set up: TARGET (module:app) or --namespace NAME (or $TENURE_NAMESPACE)")
    app = o.app_for(namespace, target)
    kept_days = app.config.dead_kept_days if target is not None else None
    topology = run_loop(_ensure(app, url or default_url(), replicas, kept_days))
    if as_json:
        print_json({"namespace": app.namespace, "streams": msgspec.to_builtins(topology.changes)})
    else:
        rows = ((change.stream, change.did, "; ".join(change.details)) for change in topology.changes)
        print_table(("STREAM", "STATE", "WHAT DIFFERED"), rows)
    return Exit.OK


async def _ensure(app: App, url: str, replicas: int | None, kept_days: float | None) -> Topology:
    connection = await Connection.open(url, app.config, name=f"tenure-setup-{app.namespace}")
    try:
        return await ensure(
            connection, app.names, SYSTEM, app.config, replicas=replicas, dead_kept_days=kept_days, migrate=True
        )
    finally:
        await connection.close()
