"""``dead ls``, ``show``, ``replay`` and ``purge``: runs that failed for good."""

from __future__ import annotations

import select
import sys
from datetime import datetime
from typing import Annotated, Any

import typer
from msgspec.structs import asdict

from tenure.app import App
from tenure.cli import options as o
from tenure.cli.output import print_answer, print_fields, print_json, print_table
from tenure.cli.problems import Exit, NotFound, complain
from tenure.client import Client
from tenure.core.dead import DeadLetter
from tenure.core.errors import ConfigError, EncryptedRecord, KeyIsLive, NewerSchema, TenureError
from tenure.core.moments import moment_of
from tenure.loops import run_loop

_LOOK_SECONDS = 0.2

dead = typer.Typer(no_args_is_help=True, help="Look at runs that failed for good, run them again, or forget them.")

Which = Annotated[str, typer.Argument(metavar="KEY|RUN_ID", show_default=False)]
MaybeWhich = Annotated[str | None, typer.Argument(metavar="KEY|RUN_ID", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All letters (with --actor: of that actor).", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)]


@dead.command()
def ls(
    *,
    actor: o.OnlyActor = None,
    queue: o.OnlyQueue = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only this key.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Print at most so many letters.")] = 100,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """List dead letters: runs that failed for good, each with its error; the oldest first."""
    the_app = o.app_for(namespace, app)

    letters = o.ask(the_app, url, lambda client: client.dead.list(actor=actor, queue=queue, key=key, limit=limit + 1))
    shown = letters[:limit]
    if as_json:
        print_json(shown)
    else:
        print_table(
            ("KEY", "GEN", "RUN ID", "ACTOR", "QUEUE", "TRIES", "DIED", "ERROR"),
            (
                (
                    one.key,
                    one.generation,
                    one.run_id,
                    one.actor,
                    one.queue,
                    one.attempts,
                    _at(one.died_at),
                    _error(one),
                )
                for one in shown
            ),
            spare=("QUEUE", "RUN ID"),
        )
    if len(letters) > limit:
        complain("more letters are not shown; raise --limit")
    return Exit.OK


@dead.command("rejected")
def rejected_commands(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Print at most so many commands.")] = 100,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """List commands of others (inbox, micro service) that were not carried out, and why; the oldest first."""
    the_app = o.app_for(namespace, app)

    found = o.ask(the_app, url, lambda client: client.dead.rejected(limit=limit + 1))
    shown = found[:limit]
    if as_json:
        print_json([{**asdict(one), "data": one.data.decode(errors="replace")} for one in shown])
    else:
        head = ("SENT", "SUBJECT", "KEY", "BYTES", "REASON", "WHY")
        print_table(head, ((_at(r.sent_at), r.subject, _key(r.headers), r.size, r.reason, r.text) for r in shown))
    if len(found) > limit:
        complain("more commands are not shown; raise --limit")
    return Exit.OK


@dead.command()
def show(
    which: Which, namespace: o.Namespace = None, app: o.AppTarget = None, url: o.Url = None, as_json: o.AsJson = False
) -> int:
    """Show a dead letter: of a run id, or the newest of a key.

    Its arguments, its error with the traceback, and how earlier generations of it died that were replayed.
    """
    the_app = o.app_for(namespace, app)

    letter = o.ask(the_app, url, lambda client: _letter(client, which))
    if as_json:
        print_json(letter)
        return Exit.OK
    blob = letter.task.blob
    arguments = f"{blob.size} bytes in blob {blob.name}" if blob else bytes(letter.task.args).decode()
    names = ("key", "generation", "run_id", "actor", "queue", "priority")
    print_fields(
        {name: getattr(letter, name) for name in names}
        | {"arguments": arguments, "attempts": letter.attempts, "failures": letter.failures}
        | {"queued_at": _at(letter.queued_at), "died_at": _at(letter.died_at), "error": _error(letter)}
    )
    for death in letter.history:
        print(f"before that, generation {death.generation}, {_at(death.at):%Y-%m-%d %H:%M:%S%z}: "
              f"{death.failure.type}: {death.failure.message}")  # fmt: skip
    if letter.failure.traceback:
        print("\n" + letter.failure.traceback.rstrip(), flush=True)
    return Exit.OK


@dead.command()
def replay(
    which: MaybeWhich = None,
    *,
    every: All = False,
    actor: o.OnlyActor = None,
    yes: Yes = False,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Run a dead letter's task again, as a new generation of its key, then remove the letter.

    Of a key with several letters, the newest. However often one letter is replayed, one run comes of it. Exit 1 where a run
    of the key is live: it stays as it is, and so does the letter.
    """
    the_app = o.app_for(namespace, app)
    _one_or_all(which, actor, every=every)

    chosen = None if which is not None else _chosen(the_app, url, actor, "run again", yes=yes)

    async def main() -> int:
        async with o.looking(the_app, url) as client:
            letters = [await _letter(client, which)] if which is not None else chosen or []
            done: list[dict[str, Any]] = []
            try:
                refused = await _replay(client, letters, done)
            finally:  # whatever comes in between, what was started is told
                if done or which is None:
                    _print_replayed(done, as_json=as_json, one=which is not None)
        if which is not None and not done and not refused:
            raise _none(which, the_app)
        return Exit.FAILED if refused else Exit.OK

    return run_loop(main())


async def _replay(client: Client, letters: list[DeadLetter], done: list[dict[str, Any]]) -> int:
    """Add what was started to ``done``; how many letters could not be replayed: those stay, and stop no other."""
    refused = 0
    for letter in letters:
        try:
            run = await client.dead.replay(letter)
        except (EncryptedRecord, KeyIsLive, NewerSchema) as error:
            refused += 1
            wait = f"; wait for its end or end it (`tenure cancel {letter.key}`), then replay again"
            complain(f"{error}{wait if isinstance(error, KeyIsLive) else ''}")
        else:
            if run is not None:  # else somebody else has replayed or purged it meanwhile
                said = {"key": run.key, "generation": run.generation, "run_id": run.run_id, "replays": letter.run_id}
                done.append(said)
    return refused


def _print_replayed(done: list[dict[str, Any]], *, as_json: bool, one: bool) -> None:
    if one:
        for said in done:
            print_answer(said, as_json=as_json)
    elif as_json:
        print_json(done)
    else:
        print_table(("KEY", "GEN", "RUN ID", "REPLAYS"), (tuple(said.values()) for said in done))


@dead.command()
def purge(
    which: MaybeWhich = None,
    *,
    every: All = False,
    actor: o.OnlyActor = None,
    yes: Yes = False,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Forget the letter of a run id, all letters of a key, or all.

    What it says can then no more be replayed; the key's record stays. It tells how many were removed.
    """
    the_app = o.app_for(namespace, app)
    _one_or_all(which, actor, every=every)

    letters = [which] if which is not None else _chosen(the_app, url, actor, "forget", yes=yes)

    async def main() -> int:
        removed = 0
        async with o.looking(the_app, url) as client:
            try:
                for letter in letters:
                    removed += await client.dead.purge(letter)
            finally:  # whatever comes in between, what was removed is told
                if removed or which is None:
                    print_answer({"removed": removed}, as_json=as_json)
        if which is not None and not removed:
            raise _none(which, the_app)
        return Exit.OK

    return run_loop(main())


# -- parts -----------------------------------------------------------------------------------------------------------


def _one_or_all(which: str | None, actor: str | None, *, every: bool) -> None:
    if (which is None) != every:
        raise ConfigError("say which: KEY, RUN_ID, or --all")
    if which is not None and actor is not None:
        raise ConfigError("--actor goes with --all, not with a key or run id")


async def _letter(client: Client, which: str) -> DeadLetter:
    letter = await client.dead.get(which)
    if letter is None:
        raise _none(which, client.app)
    return letter


def _chosen(app: App, url: str | None, actor: str | None, what: str, *, yes: bool) -> list[DeadLetter]:
    """All letters, once a person has agreed: asked between two connections, for no loop could be interrupted meanwhile."""
    letters = o.ask(app, url, lambda client: client.dead.list(actor=actor))
    complain(f"{len(letters)} dead letters to {what}")
    if yes or not letters:
        return letters
    print(f"{what} all of them? [y/N]: ", end="", file=sys.stderr, flush=True)
    answer = _answer()
    if not answer:  # nobody is there to answer
        raise ConfigError("nothing was done: give the answer by --yes")
    if answer.strip().lower() not in {"y", "yes"}:
        raise TenureError("nothing was done")
    return letters


def _answer() -> str:
    """A line of standard input. A signal that comes just before a read blocks would not be looked at until it ends."""
    if sys.stdin.isatty():
        while not select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
            pass
    return sys.stdin.readline()


def _none(which: str, app: App) -> NotFound:
    return NotFound(f"there is no dead letter of {which!r} in namespace {app.namespace!r}")


def _error(letter: DeadLetter) -> str:
    return f"{letter.failure.type}: {letter.failure.message}"


def _at(seconds: float) -> datetime:
    return moment_of(seconds)


def _key(headers: dict[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() == "tenure-key"), "-")
