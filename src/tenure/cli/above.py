"""``queues`` and ``sessions``: what waits where, and who lives. They change nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from tenure.cli import options as o
from tenure.cli.output import print_json, print_table
from tenure.cli.problems import Exit
from tenure.loops import run_loop
from tenure.overview import QueueRow, SessionRow, queue_rows, session_rows, span


def queues(
    *,
    queue: o.OnlyQueue = None,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Tell for each queue and priority what waits, what is in hand, and how many workers there are for it.

    WAITING is ready and was delivered to nobody yet, OLDEST how long the oldest of that has waited; IN HAND was delivered to a
    worker and is not answered. What is not due yet is told by `tenure ls --phase scheduled`, what waits for a limit by `tenure
    limits`, for an actor's pause or a block by `tenure blocks`. With --app its queues are listed too where nothing was ever
    submitted. A queue with no worker keeps what waits until one comes.
    """
    the_app = o.app_for(namespace, app)
    known = {actor.task.queue for actor in the_app.actors.values()}

    async def main() -> list[QueueRow]:
        async with o.looking(the_app, url) as client:
            sessions = await session_rows(client.stores, every=False, count=False)
            return await queue_rows(client.stores, sessions, known)

    rows = [row for row in run_loop(main()) if queue is None or row.queue == queue]
    if as_json:
        print_json(rows)
    else:
        print_table(
            ("QUEUE", "PRIORITY", "WAITING", "IN HAND", "OLDEST", "WORKERS", "STATE"),
            (
                (r.queue, r.priority, r.waiting, r.in_hand, span(r.oldest_seconds), r.workers, queue_state(r))
                for r in rows
            ),
        )
    return Exit.OK


def queue_state(row: QueueRow) -> str:
    """What is to be said of a lane."""
    return "paused" if row.paused else "no worker" if not row.workers and row.waiting else ""


def sessions(
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Also those that ended within a day, and why.", show_default=False)
    ] = False,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Tell which workers and supervisors live, and how many runs each holds; the oldest first.

    BEAT is how long ago the session was last renewed, five times in its ttl. One that was not renewed for a whole ttl is
    `silent`: supervisors close it, and others take its runs over. A closed one says why: `drain` (it ended in order),
    `expired` (it was silent), `lease_lost` (it found itself cut off).
    """
    the_app = o.app_for(namespace, app)
    rows = o.ask(the_app, url, lambda client: session_rows(client.stores, every=every))
    if as_json:
        print_json(rows)
    else:
        print_table(
            ("SESSION", "KIND", "HOST", "PID", "STATE", "AGE", "BEAT", "RUNS", "QUEUES"),
            (
                (r.id, r.kind, r.host, r.pid, session_state(r), span(r.age_seconds), span(r.beat_seconds), r.runs,
                 ", ".join(r.queues))
                for r in rows
            ),
            spare=("BEAT", "PID", "QUEUES"),
        )  # fmt: skip
    return Exit.OK


def session_state(row: SessionRow) -> str:
    """Whether it lives, and if not why it ended."""
    return row.state if row.closed is None else f"closed: {row.closed}"
