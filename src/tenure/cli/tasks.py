"""``submit``, ``replace``, ``trigger`` and ``result``: what changes a key, and what waits for it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from tenure.actors import Call
from tenure.app import App
from tenure.cli import options as o
from tenure.cli.output import print_answer, print_fields, print_json, print_value
from tenure.cli.parsing import duration, load_app, make_call, moment
from tenure.cli.problems import Exit, complain
from tenure.cli.waits import in_words, told_if_it_waits, why_it_waits
from tenure.client import Client
from tenure.core.errors import ConfigError, RunCancelled, RunFailed, RunSuperseded, TenureError
from tenure.core.subjects import encode_key
from tenure.loops import run_loop
from tenure.run import Run


class IfLive(StrEnum):
    """What a submit does to a live run."""

    KEEP = "keep"
    REPLACE = "replace"
    REJECT = "reject"


class IfDiffers(StrEnum):
    """What a submit does to a live run with another actor or other arguments."""

    KEEP = "keep"
    REPLACE = "replace"
    ERROR = "error"


class Overlap(StrEnum):
    """What happens to older bodies of the key."""

    STOP = "stop"
    WAIT = "wait"
    PARALLEL = "parallel"


def submit(
    target: o.Target,
    actor: o.ActorName,
    *,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", help="What the run is addressed by. Default: a new ULID.", show_default=False),
    ] = None,
    arg: o.Pairs = None,
    args: o.Args = None,
    delay: o.Delay = None,
    at: o.At = None,
    if_live: Annotated[IfLive, typer.Option("--if-live", help="What to do if the key has a live run.")] = IfLive.KEEP,
    if_differs: Annotated[
        IfDiffers, typer.Option("--if-differs", help="What to do if that run has another actor or other arguments.")
    ] = IfDiffers.KEEP,
    wait: o.Wait = False,
    timeout: o.Timeout = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Start a run of a key, unless one is live: then that one is kept (see --if-live, --if-differs).

    Prints key, generation and run id, and whether a run was started (accepted); with --wait its result as well. Whoever
    submits the same key a hundred times at once gets one run. Exit 1 if --wait saw it fail, or the live run was in the way
    (--if-live reject, --if-differs error).
    """
    app = load_app(target)
    call = make_call(app, actor, arg or [], args)
    seconds, when = duration(delay, "--delay"), moment(at)
    waits = _patience(timeout, wait=wait)

    async def start(client: Client) -> Run[Any]:
        return await client.submit(
            call, key=key, delay=seconds, at=when, if_live=if_live.value, if_differs=if_differs.value
        )

    return run_loop(_start(app, url, start, wait=wait, timeout=waits, as_json=as_json))


def replace(
    target: o.Target,
    actor: o.ActorName,
    *,
    key: Annotated[str, typer.Option("--key", "-k", help="The key to replace the run of.", show_default=False)],
    arg: o.Pairs = None,
    args: o.Args = None,
    delay: o.Delay = None,
    at: o.At = None,
    overlap: Annotated[
        Overlap,
        typer.Option("--overlap", help="Bodies that still run: stop them, wait for them, or start beside them."),
    ] = Overlap.STOP,
    wait: o.Wait = False,
    timeout: o.Timeout = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Start a new generation of a key, whatever it is doing; every older one is void from then on.

    What an older body still returns is not stored. Prints key, generation and run id; with --wait its result as well, and
    exit 1 unless it succeeds.
    """
    app = load_app(target)
    call: Call[Any] = make_call(app, actor, arg or [], args)
    seconds, when = duration(delay, "--delay"), moment(at)
    waits = _patience(timeout, wait=wait)

    async def start(client: Client) -> Run[Any]:
        return await client.replace(call, key=key, overlap=overlap.value, delay=seconds, at=when)

    return run_loop(_start(app, url, start, wait=wait, timeout=waits, as_json=as_json))


def _patience(timeout: str | None, *, wait: bool) -> float | None:
    if timeout is not None and not wait:
        raise ConfigError("--timeout goes with --wait")
    return duration(timeout, "--timeout")


async def _start(app: App, url: str | None, start: Any, *, wait: bool, timeout: float | None, as_json: bool) -> int:
    async with app.connect(url) as client:
        run = await start(client)
        said = {"key": run.key, "generation": run.generation, "run_id": run.run_id, "accepted": run.accepted}
        if not wait:
            print_answer(said, as_json=as_json)
            return Exit.OK
        if not as_json:
            print_fields(said)
        return await _wait_for(client, run, said, timeout=timeout, as_json=as_json)


def result(
    key: o.Key,
    *,
    timeout: o.Timeout = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="If a newer generation takes its place, wait for that one's.", show_default=False
        ),
    ] = False,
    namespace: o.KeyNamespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Wait for a key's current run and print its result; exit 1 unless it succeeds.

    A text is printed as it is, anything else as JSON; why a run failed, was cancelled or superseded is told on standard error.
    Without --timeout it waits as long as the run takes.
    """
    encode_key(key)
    the_app = o.app_at(namespace, app, url)
    seconds = duration(timeout, "--timeout")

    async def main() -> int:
        async with o.looking(the_app, url) as client:
            run = await o.existing(client, key)
            said = {"key": key, "generation": run.generation, "run_id": run.run_id}
            return await _wait_for(client, run, said, timeout=seconds, follow=follow, as_json=as_json)

    return run_loop(main())


async def _wait_for(
    client: Client,
    run: Run[Any],
    said: dict[str, Any],
    *,
    timeout: float | None,
    follow: bool = False,
    as_json: bool,
) -> int:
    """Print how a run ended.

    A run that did not succeed is the command's own failure, told on standard error as well.
    """
    try:
        async with told_if_it_waits(client, run.key):
            value = msgspec.to_builtins(await run.result(timeout, follow=follow))
    except TimeoutError as error:
        why = await why_it_waits(client, run.key)
        told = f"the run of {run.key!r} is not over after {timeout:.15g} s"
        raise TimeoutError(f"{told}: {why}" if why else told) from error
    except (RunFailed, RunCancelled, RunSuperseded) as error:
        if as_json:
            print_json(said | _ending(error))
        complain(str(error))
        return Exit.FAILED
    if as_json:
        print_json(said | {"outcome": "succeeded", "result": value})
    else:
        print_value(value)
    return Exit.OK


def _ending(error: TenureError) -> dict[str, Any]:
    match error:
        case RunFailed():
            return {
                "outcome": "failed",
                "error_type": error.error_type,
                "message": error.message,
                "traceback": error.traceback,
            }
        case RunCancelled():
            return {"outcome": "cancelled", "reason": error.reason}
        case RunSuperseded():
            return {"outcome": "superseded", "by_generation": error.by_generation}
        case _:
            return {"outcome": "unknown", "message": str(error)}


def trigger(
    key: o.Key, namespace: o.KeyNamespace = None, app: o.AppTarget = None, url: o.Url = None, as_json: o.AsJson = False
) -> int:
    """Start a key's waiting run now.

    A perpetual key keeps its schedule: the fire that was to come comes all the same. Exit 1 where nothing waits, and where
    what waits is held back or has no place under a limit: it is due from now on, and starts as soon as it may.
    """
    encode_key(key)
    the_app = o.app_at(namespace, app, url)

    async def main() -> int:
        async with o.looking(the_app, url) as client:
            await o.existing(client, key)
            run = await client.trigger(key)
            hold = await client.held_by(key) if run.accepted else None
            status = None if run.accepted else await client.status(key)
        starts = run.accepted and hold is None
        said = {"key": run.key, "generation": run.generation, "run_id": run.run_id, "triggered": starts}
        print_answer(said | ({} if hold is None else {"held_by": hold}), as_json=as_json)
        if hold is not None:
            complain(f"{key!r} is due, but does not start: it waits for {in_words(hold)}")
        if not run.accepted:
            complain(f"{key!r} does not wait: it is {'gone' if status is None else status.phase}")
        return Exit.OK if starts else Exit.FAILED

    return run_loop(main())
