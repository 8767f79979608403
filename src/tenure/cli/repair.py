"""``repair``: one sweep now, with a supervisor's means."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.app import App, default_url
from tenure.cli import options as o
from tenure.cli.output import print_fields, print_json, print_table
from tenure.cli.problems import Exit, complain
from tenure.core.errors import Unavailable
from tenure.loops import run_loop
from tenure.overview import SessionRow, session_rows, span

if TYPE_CHECKING:
    from tenure.supervisor.suspects import Suspect

_SHOWN = 100


def repair(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what it would look at; change nothing.", show_default=False)
    ] = False,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Do one sweep now, as a supervisor does every few seconds, and tell what it repaired.

    Sessions that are silent for their ttl are closed (it waits so long if there is one), the runs of closed ones are taken over,
    lost wake-ups and signals stored again, overdue bodies ended, what is owed paid, places under limits given back. It runs beside
    supervisors and workers without harm, and where none lives. It starts no schedules and applies no commands of the inbox.
    Exit 3 if something could not be repaired.
    """
    the_app = o.app_for(namespace, app)
    if dry_run:
        return run_loop(_dry(the_app, url, as_json=as_json))
    return run_loop(_wet(the_app, url, as_json=as_json))


async def _wet(app: App, url: str | None, *, as_json: bool) -> int:
    from tenure.supervisor.once import Repair

    async with o.looking(app, url):  # a mistyped namespace must not create streams
        pass
    async with Repair(app, url or default_url()) as one:
        await one.run()
    done = one.done
    if done is None:
        raise Unavailable("the sweep did not come to its end")
    if as_json:
        print_json(done)
    else:
        print_fields({"records": done.records, "repaired": sum(done.repairs.values())})
        if done.repairs:
            print_table(("KIND", "REPAIRED"), done.repairs.items())
    if done.failed:
        complain(f"{done.failed} things could not be repaired now: try again, or run a supervisor, which does")
        return Exit.UNAVAILABLE
    return Exit.OK


def gone_by(rows: list[SessionRow]) -> Callable[[str], bool]:
    """Tells by these sessions, all that are stored, whether one is gone: closed, silent, or not there."""
    alive = {row.id for row in rows if row.state == "alive"}
    return lambda session: session not in alive


async def _dry(app: App, url: str | None, *, as_json: bool) -> int:
    from tenure.supervisor.suspects import suspects

    async with o.looking(app, url) as client:
        rows = await session_rows(client.stores, every=True, count=False)
        stored = await client.stores.work.stored(client.stores.runs.patience())
        found = await suspects(client.stores, gone_by(rows), stored)
    silent = [row for row in rows if row.state == "silent"]
    if as_json:
        print_json({"sessions": silent, "keys": found})
        return Exit.OK
    print_fields({"would close sessions": len(silent), "would look at keys": len(found)})
    if silent:
        print_table(
            ("SESSION", "KIND", "HOST", "PID", "SILENT FOR"),
            ((row.id, row.kind, row.host, row.pid, span(row.beat_seconds)) for row in silent),
        )
    if found:
        print_suspects(found)
    return Exit.OK


def print_suspects(found: list[Suspect]) -> None:
    """As a table, the longest unchanged first."""
    print_table(
        ("KEY", "PHASE", "ACTOR", "UNCHANGED", "WHY"),
        ((one.key, one.phase, one.actor, span(one.unchanged_seconds), one.why) for one in found[:_SHOWN]),
    )
    if len(found) > _SHOWN:
        complain(f"{len(found) - _SHOWN} more are not shown: --json has all")
