"""``cancel``: one key's run, or every one that fits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from tenure.app import App
from tenure.bulk import CancelledMany, OnProgress, Wanted
from tenure.cli import options as o
from tenure.cli.output import print_answer, print_fields, print_json
from tenure.cli.problems import Exit, NotFound, complain, no_key
from tenure.client import Client
from tenure.core.errors import ConfigError, EncryptedRecord, KeyIsLive
from tenure.core.subjects import encode_key
from tenure.loops import run_loop


class Live(StrEnum):
    """Phases of runs that can be cancelled."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    STOPPING = "stopping"


def cancel(
    key: Annotated[str | None, typer.Argument(metavar="KEY", show_default=False)] = None,
    *,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN_ID", help="Cancel exactly this run, or nothing.", show_default=False),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", help="Every key that fits, with * ? or [...]: 'doc-*'.", show_default=False),
    ] = None,
    actor: o.OnlyActor = None,
    queue: o.OnlyQueue = None,
    phase: Annotated[Live | None, typer.Option("--phase", "-p", help="Only this phase.", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.", show_default=False)] = False,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the outcome.", show_default=False)] = "",
    lost_key: Annotated[
        bool,
        typer.Option(
            "--lost-key", help="Its encryption key is lost: end it without, and forget it.", show_default=False
        ),
    ] = False,
    namespace: o.KeyNamespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Cancel a key's run, or every live run that fits a pattern, an actor, a queue, a phase: all that are given.

    Cancelled (it will never run), stopping (its body is told), finished, or not_found (exit 2, of one key). Of many: how
    many each; exit 3 if some could not be cancelled, to be repeated. With --lost-key a key that nobody can read any more goes
    for good: no hook of it is run, what it owes to other keys is lost. While a body of it may run (stopping) it is not
    forgotten yet (exit 3): repeat it.
    """
    wanted = Wanted(pattern, actor, queue, None if phase is None else phase.value)
    if key is None:
        if run is not None or lost_key:
            raise ConfigError("--run and --lost-key go with a KEY")
        if wanted == Wanted():
            raise ConfigError("say what to cancel: a KEY, or every run of a --pattern, --actor, --queue or --phase")
        wanted = wanted.check()
        the_app = o.app_for(namespace, app)  # what ends many runs is to be said in full
        return _cancel_many(the_app, url, wanted, reason=reason, dry_run=dry_run, as_json=as_json)
    if wanted != Wanted() or dry_run:
        raise ConfigError("give a KEY, or --pattern, --actor, --queue, --phase and --dry-run: not both")
    encode_key(key)
    if lost_key:
        return _give_up(o.app_at(namespace, app, url), url, key, run, reason, as_json=as_json)
    return _cancel_one(o.app_at(namespace, app, url), url, key, run, reason=reason, as_json=as_json)


def _cancel_one(app: App, url: str | None, key: str, run: str | None, *, reason: str, as_json: bool) -> int:
    done = o.ask(app, url, lambda client: client.cancel(key, run_id=run, reason=reason))
    fields = msgspec.to_builtins(done)
    if done.outcome == "not_found":
        if as_json:
            print_json(fields)
        if any(char in key for char in "*?["):
            raise NotFound(f"{no_key(key, app.namespace)}: for every key that fits, say --pattern {key!r}")
        raise no_key(key, app.namespace)
    print_answer(fields, as_json=as_json)
    return Exit.OK


def _give_up(app: App, url: str | None, key: str, run: str | None, reason: str, *, as_json: bool) -> int:
    if run is not None or reason:
        raise ConfigError("--lost-key takes the whole key, and keeps no reason: leave --run and --reason out")

    async def end(client: Client) -> dict[str, Any]:
        try:
            if await client.status(key) is None:
                raise no_key(key, app.namespace)
        except EncryptedRecord:
            done = await client.cancel(key, encrypted=True)
            forgotten = False
            try:
                if done.run_id:  # and not what is submitted meanwhile
                    forgotten = await client.purge(key, run_id=done.run_id, encrypted=True)
                if not forgotten:
                    complain(f"{key!r} has no such run any more: look at it again")
            except KeyIsLive as error:
                complain(str(error))
            told: dict[str, Any] = msgspec.to_builtins(done)
            return told | {"forgotten": forgotten}
        raise ConfigError(f"{key!r} is not encrypted, or this process has its key: cancel it without --lost-key")

    told = o.ask(app, url, end)
    print_answer(told, as_json=as_json)
    return Exit.OK if told["forgotten"] else Exit.UNAVAILABLE


def _cancel_many(app: App, url: str | None, wanted: Wanted, *, reason: str, dry_run: bool, as_json: bool) -> int:
    async def main() -> CancelledMany:
        async with o.looking(app, url) as client:
            with _progress(shown=not (as_json or dry_run)) as on_progress:
                return await client.cancel_many(
                    wanted.pattern,
                    actor=wanted.actor,
                    queue=wanted.queue,
                    phase=wanted.phase,
                    reason=reason,
                    dry_run=dry_run,
                    on_progress=on_progress,
                )

    done = run_loop(main())
    if as_json:
        print_json(done)
    else:
        print_fields(_told(done))
    for problem in done.problems:
        complain(problem)
    return Exit.UNAVAILABLE if done.failed else Exit.OK


def _told(done: CancelledMany) -> dict[str, Any]:
    phases = ", ".join(f"{number} {phase}" for phase, number in sorted(done.phases.items()))
    matched = f"{done.matched} ({phases})" if phases else "0"
    if done.dry_run:
        more = done.matched - len(done.keys)
        return {"would cancel": matched, "keys": ", ".join(done.keys) + (f" and {more} more" if more else "")}
    counts = {
        name: getattr(done, name) for name in ("cancelled", "stopping", "finished", "not_found", "failed", "untried")
    }
    return {"matched": matched} | {name: number or None for name, number in counts.items()}


@contextmanager
def _progress(*, shown: bool) -> Iterator[OnProgress | None]:
    """A bar on standard error, where that is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("cancelling", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
