"""``permissions``: what each role may do on the server, written for its configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from tenure.cli import options as o
from tenure.cli.output import print_json
from tenure.cli.problems import Exit


def permissions(
    *,
    actor: Annotated[
        list[str] | None,
        typer.Option(
            "--actor", "-a", help="Let guests submit tasks of this actor only; may be repeated.", show_default=False
        ),
    ] = None,
    nkeys: Annotated[
        bool, typer.Option("--nkeys", help="Know users by their nkeys instead of passwords.", show_default=False)
    ] = False,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    as_json: o.AsJson = False,
) -> int:
    """Print the accounts and users of a namespace for nats-server's configuration, with what each role may do and no more.

    To be included in its `accounts` block. Roles: producer, worker, supervisor (also for pause, block, dead, repair), setup, viewer
    (commands that only look) and guest (the inbox alone). Secrets come from the server's environment, such as $DOCS_WORKER. With
    --json only the permissions, by role. It asks no server.
    """
    from tenure.nats import accounts

    names = o.app_for(namespace, app).names
    actors = actor or ["*"]
    if as_json:
        print_json(accounts.permissions(names, actors))
    else:
        print(accounts.configuration(names, actors, nkeys=nkeys), end="")
    return Exit.OK
