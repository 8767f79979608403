"""``show``, ``ls`` and ``watch``: what is stored, and what changes. They change nothing."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from tenure.cli import options as o
from tenure.cli.history import tell_history
from tenure.cli.output import print_fields, print_json, print_table
from tenure.cli.problems import Exit, NotFound, complain, no_key
from tenure.cli.waits import in_words, told_if_it_waits
from tenure.client import Client
from tenure.core.errors import EncryptedRecord
from tenure.core.moments import moment_of
from tenure.core.records import read_state
from tenure.core.sessions import Progress
from tenure.core.subjects import encode_key
from tenure.loops import run_loop
from tenure.nats.runs import Found
from tenure.nats.scan import Header
from tenure.overview import schedules_unknown, session_rows, span
from tenure.status import Event, Status, far, status_of
from tenure.together import each

_AT_ONCE = 32
_COLUMNS = {
    "KEY": "key", "PHASE": "phase", "GEN": "generation", "ACTOR": "actor", "QUEUE": "queue", "DUE": "due",
}  # fmt: skip
_SCHEDULE_COLUMNS = {
    "KEY": "key", "SCHEDULE": "schedule", "PHASE": "phase", "DUE": "due", "LAST": "last", "LAST AT": "last_at",
    "HELD BY": "held_by", "CODE": "code", "GEN": "generation", "ACTOR": "actor", "QUEUE": "queue",
}  # fmt: skip


class Phase(StrEnum):
    """Phases as people see them."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Row(msgspec.Struct, frozen=True):
    """One key as a scan of headers tells it. ``due`` as in ``Status``."""

    key: str
    phase: str
    generation: int
    actor: str
    queue: str
    due: datetime | None
    schedule: str = ""


class ScheduleRow(Row, frozen=True):
    """A perpetual key: also what holds it back (``held_by``, such as ``actor report``), and its latest outcome, if it has one.

    ``code``: ``unknown`` of one that starts by itself and that the code of no supervisor has.
    """

    code: str = ""
    held_by: str = ""
    last: str = ""
    last_at: datetime | None = None


def row_of(key: str, text: str, now: float) -> Row | None:
    """Read a record's state header (``records.read_state``); None for one that this version does not know, or that has expired."""
    state = read_state(text)
    if state is None or state.is_over(now):
        return None
    phase, due = state.phase.value, None
    if phase == "waiting":
        phase = Phase.SCHEDULED if state.due > now else Phase.QUEUED
        due = moment_of(state.due) if state.due else None
    expression, at, zone = state.schedule.partition("@")
    schedule = expression.replace("_", " ") + at + zone  # a zone may have a "_" of its own
    return Row(key, str(phase), state.generation, state.actor, state.queue, due, schedule)


def _in_words(name: str, value: Any) -> Any:
    """What stands in a table; of a schedule, which is stored as ``every:900.0`` or ``cron:30 2 * * *@UTC``, the words."""
    if name != "schedule":
        return value
    kind, _, rest = value.partition(":")
    return f"every {span(float(rest))}" if kind == "every" else rest.replace("@", " ")


def show(
    key: o.Key,
    *,
    history: Annotated[
        bool, typer.Option("--history", help="Tell what happened to it instead, the oldest first.", show_default=False)
    ] = False,
    namespace: o.KeyNamespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Show a key: phase, generation, attempt, holder, progress, error, and what holds it back.

    Phases: scheduled (not due yet), queued (waits for a worker), running, stopping (told to stop), succeeded, failed,
    cancelled. The holder is the session of the process that runs it (`tenure sessions`). With --history what happened to it,
    refused outcomes of older attempts included, as far as `history_days` goes back.
    """
    encode_key(key)
    the_app = o.app_at(namespace, app, url)
    if history:
        return run_loop(tell_history(the_app, url, key, as_json=as_json))

    async def main() -> int:
        sealed: str | None = None
        async with o.looking(the_app, url) as client:
            try:
                status = await client.status(key)
            except EncryptedRecord as error:
                if error.record is None:
                    raise
                status, sealed = status_of(error.record, client.now()), f"key id {error.key_id!r}"
                complain(str(error))
            waits = status is not None and sealed is None and status.phase in {"scheduled", "queued"}
            hold = await client.held_by(key) if waits else None
        if status is None:
            raise no_key(key, the_app.namespace)
        if as_json:
            more = {"held_by": hold, "encrypted": sealed}
            print_json(msgspec.to_builtins(status) | {name: said for name, said in more.items() if said is not None})
        else:
            print_fields(
                {name: getattr(status, name) for name in status.__struct_fields__}
                | {"progress": _far(status), "held_by": None if hold is None else in_words(hold), "encrypted": sealed}
            )
        return Exit.OK

    return run_loop(main())


def _far(status: Status) -> str | None:
    progress = status.progress
    if progress is None:
        return None
    return far(progress) + (f" ({progress.note})" if progress.note else "")


def ls(
    *,
    phase: Annotated[Phase | None, typer.Option("--phase", "-p", help="Only this phase.", show_default=False)] = None,
    actor: o.OnlyActor = None,
    queue: o.OnlyQueue = None,
    schedules: Annotated[
        bool,
        typer.Option(
            "--schedules", help="Only perpetual keys: schedule, what holds it, last outcome.", show_default=False
        ),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Print at most so many keys.")] = 100,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """List keys, the longest unchanged first: phase, generation, actor, queue, and when what waits is due.

    With --schedules also what became of each schedule's latest run, what holds it back, and, under CODE, whether the code
    of no supervisor has it any more (`tenure cancel` ends it).
    """
    the_app = o.app_for(namespace, app)

    async def main() -> int:
        found: dict[str, Row] = {}
        async with o.looking(the_app, url) as client:

            def on_header(header: Header) -> None:
                row = row_of(header.key, header.state, client.now())
                found.pop(header.key, None)  # a key that changes meanwhile is met again
                if (
                    row is not None
                    and (phase, actor, queue)
                    == (
                        phase and row.phase,
                        actor and row.actor,
                        queue and row.queue,
                    )
                    and (row.schedule or not schedules)
                ):
                    found[header.key] = row

            await client.stores.runs.scan(on_header)
            rows = list(found.values())
            shown: Sequence[Row] = rows[:limit]
            if schedules:
                shown = await _with_outcomes(client, shown)
        if as_json:
            print_json(shown)
        else:
            columns = _SCHEDULE_COLUMNS if schedules else _COLUMNS
            cells = ([_in_words(name, getattr(row, name)) for name in columns.values()] for row in shown)
            print_table([*columns], cells, spare=("QUEUE", "GEN", "ACTOR"))
        if len(rows) > limit:
            complain(f"{len(rows) - limit} more keys are not shown; raise --limit")
        return Exit.OK

    return run_loop(main())


async def _with_outcomes(client: Client, rows: Sequence[Row]) -> list[ScheduleRow]:
    """What their headers do not tell."""
    stores = client.stores
    unknown = await schedules_unknown(stores, await session_rows(stores, every=False, count=False))

    async def look(row: Row) -> ScheduleRow:
        try:
            record = (await client.stores.runs.read(row.key)).record
            hold = await client.held_by(row.key)
        except EncryptedRecord as error:
            record, hold = error.record, None
        last = None if record is None else record.last
        return ScheduleRow(
            **msgspec.structs.asdict(row),
            code="unknown" if row.key in unknown else "",
            held_by="" if hold is None else str(hold),
            last="" if last is None else last.phase.value,
            last_at=None if last is None else moment_of(last.at),
        )

    return await each(rows, look, _AT_ONCE)


# -- watch -----------------------------------------------------------------------------------------------------------


def watch(
    key: Annotated[
        str, typer.Argument(metavar="KEY|PATTERN", help="With * ? or [: every key that fits.", show_default=False)
    ],
    namespace: o.KeyNamespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Print each change of a key until its run is over (exit 1 unless it succeeded).

    Or of all keys that fit a pattern.
    """
    many = any(char in key for char in "*?[")
    if not many:
        encode_key(key)
    the_app = o.app_at(namespace, app, url)

    async def main() -> int:
        async with o.looking(the_app, url) as client:
            if many:
                return await _watch_many(client, key, as_json=as_json)
            return await _watch_one(client, key, as_json=as_json)

    try:
        return run_loop(main())
    except KeyboardInterrupt:
        if many:  # there is no other end to it
            return Exit.OK
        raise


async def _watch_one(client: Client, key: str, *, as_json: bool) -> int:
    run = await o.existing(client, key)
    last: Event | None = None
    async with told_if_it_waits(client, key):
        async for event in run.events():
            _print_event(event, as_json=as_json)
            last = event
    if last is None:
        raise NotFound(f"{key!r} vanished while it was watched")
    return Exit.OK if last.status is not None and last.status.phase == "succeeded" else Exit.FAILED


async def _watch_many(client: Client, pattern: str, *, as_json: bool) -> int:
    """Never returns by itself.

    Printing happens outside the subscription's callback, so that a slow terminal blocks nothing.
    """
    changes: asyncio.Queue[tuple[str, Found | Progress]] = asyncio.Queue()
    generations: dict[str, tuple[str, int]] = {}

    def on_change(key: str, change: Found | Progress) -> None:
        if fnmatch.fnmatchcase(key, pattern):
            changes.put_nowait((key, change))

    async with contextlib.AsyncExitStack() as ends:
        ends.push_async_callback(await client.stores.runs.follow_all(on_change))
        ends.push_async_callback(await client.stores.sessions.follow_all_progress(on_change))
        while True:
            key, change = await changes.get()
            if isinstance(change, Progress):
                run_id, generation = generations.get(key, ("", 0))
                if run_id == change.run_id or not run_id:  # what a superseded body says is not this run's
                    _print_event(_progress_event(key, generation, change), as_json=as_json)
            elif change.record is None:
                generations.pop(key, None)
                _print_line(f"{key}  gone", {"kind": "gone", "key": key}, as_json=as_json)
            else:
                status = status_of(change.record, client.now())
                if status.is_over:
                    generations.pop(key, None)
                else:
                    generations[key] = (status.run_id, status.generation)
                _print_event(_status_event(status), as_json=as_json)


def _progress_event(key: str, generation: int, progress: Progress) -> Event:
    """``generation`` is 0 where no status of the run was seen since the watch began."""
    return Event(kind="progress", key=key, generation=generation, run_id=progress.run_id, progress=progress)


def _status_event(status: Status) -> Event:
    return Event(kind="status", key=status.key, generation=status.generation, run_id=status.run_id, status=status)


def _print_event(event: Event, *, as_json: bool) -> None:
    _print_line(str(event), event, as_json=as_json)


def _print_line(text: str, data: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(data)
    else:
        print(text, flush=True)
