"""``doctor``: what is missing, differs or stands still, and what to do about it. It changes nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.app import default_url
from tenure.cli import options as o
from tenure.cli.output import print_json, print_table
from tenure.cli.parsing import duration
from tenure.cli.problems import Exit
from tenure.loops import run_loop
from tenure.nats.urls import check_url

if TYPE_CHECKING:
    from tenure.cli.checkup import Finding


class Role(StrEnum):
    """Whose permissions must be complete."""

    PRODUCER = "producer"
    WORKER = "worker"
    SUPERVISOR = "supervisor"
    SETUP = "setup"
    VIEWER = "viewer"


def doctor(
    *,
    role: Annotated[
        Role | None,
        typer.Option("--role", help="Complain if these credentials lack a permission for it.", show_default=False),
    ] = None,
    stuck_after: Annotated[
        str, typer.Option("--stuck-after", metavar="DURATION", help="How long nobody may have repaired a key.")
    ] = "30s",
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Examine server, streams, permissions, clocks, processes and runs, and say what to do about what is wrong.

    States: ok; note (good to know); wrong (settings, permissions or streams: a person must change something); down (something does
    not answer, does not run or stands still). Exit 0 if nothing is wrong or down, 2 if anything is wrong, else 3. Permissions are
    those of the credentials in --url: try each role with its own.
    """
    from tenure.cli.checkup import examine

    the_app = o.app_for(namespace, app)
    seconds = duration(stuck_after, "--stuck-after") or 0.0
    address = url or default_url()
    check_url(address)
    found = run_loop(examine(the_app, address, None if role is None else role.value, seconds))
    if as_json:
        print_json({"namespace": the_app.namespace, "ok": not _worst(found), "findings": found})
    else:
        rows = ((one.check, one.state, f"{one.text}; {one.todo}" if one.todo else one.text) for one in found)
        print_table(("CHECK", "STATE", "WHAT"), rows)
    return _worst(found)


def _worst(found: list[Finding]) -> Exit:
    states = {one.state for one in found}
    return Exit.USAGE if "wrong" in states else Exit.UNAVAILABLE if "down" in states else Exit.OK
