"""``pause``, ``resume``, ``block``, ``unblock`` and ``blocks``: what is not to be started for a while."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import typer

from tenure.actors import Actor
from tenure.app import App
from tenure.cli import options as o
from tenure.cli.output import print_fields, print_json, print_table
from tenure.cli.parsing import duration, moment
from tenure.cli.problems import Exit, NotFound, NothingThere, complain
from tenure.client import Client
from tenure.core.errors import ConfigError, InvalidCall, NewerSchema, OutcomeUnknown, Unavailable, UnreadableRecord
from tenure.core.records import State, read_state
from tenure.core.subjects import check_name
from tenure.holds import AnyOf, Hold, Where, blocked
from tenure.nats.scan import Header
from tenure.reach import arguments_of

_LOOKED_AT = 20
"""Runs whose arguments are read."""

Name = Annotated[str, typer.Argument(metavar="QUEUE|ACTOR", show_default=False)]
IsQueue = Annotated[bool, typer.Option("--queue", "-q", help="The name is a queue's.", show_default=False)]
IsActor = Annotated[bool, typer.Option("--actor", "-a", help="The name is an actor's.", show_default=False)]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only until an ISO 8601 time with zone.", show_default=False),
]
For = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="Only for so long: 30s, 10m, 2h.", show_default=False)
]
Reason = Annotated[str, typer.Option("--reason", help="Shown by `tenure blocks`.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count whom it would be about.", show_default=False)]
Pattern = Annotated[
    str | None,
    typer.Argument(metavar="PATTERN", help="Of keys, with * ? or [...]: 'doc-*'.", show_default=False),
]
OfActor = Annotated[
    str | None, typer.Option("--actor", "-a", help="Runs of this actor with --arg.", show_default=False)
]
Pairs = Annotated[
    list[str] | None,
    typer.Option(
        "--arg", metavar="NAME=VALUE", help="An argument's value; of several all must fit.", show_default=False
    ),
]


Wheres = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="COMPARISON",
        help="How an argument compares, quoted: 'size >= 100', 'size between 5 and 9'. Also == != < <= >.",
        show_default=False,
    ),
]
_COMPARISON = re.compile(r"\s*([^\s=!<>]+)\s*(==|!=|<=|>=|<|>)\s*(.*\S)\s*")
_BETWEEN = re.compile(r"\s*(\S+)\s+between\s+(.*\S)\s+and\s+(.*\S)\s*")


def pause(
    name: Name,
    *,
    queue: IsQueue = False,
    actor: IsActor = False,
    until: Until = None,
    lasting: For = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Start no run of a queue or of an actor until it is resumed; what runs goes on, what is submitted waits.

    A schedule is paused by its actor.
    """
    the_app = o.app_for(namespace, app)
    check_name("queue or actor", name)
    when = {"until": moment(until, "--until"), "duration": duration(lasting, "--for")}
    said = _said_kind(queue=queue, actor=actor)

    async def main(client: Client) -> Hold:
        kind = said or await _kind_of(client, name)
        return await client.pause(**{kind: name}, **when, reason=reason, dry_run=dry_run)  # type: ignore[arg-type]  # each by its name

    return _switch(the_app, url, main, "", as_json=as_json)


def resume(
    name: Name,
    *,
    queue: IsQueue = False,
    actor: IsActor = False,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """End a pause. What waited starts in the order in which it was submitted. Exit 1 where nothing was paused."""
    the_app = o.app_for(namespace, app)
    check_name("queue or actor", name)
    said = _said_kind(queue=queue, actor=actor)

    async def main(client: Client) -> Hold | None:
        kind = said
        if not kind:
            paused = [hold.kind for hold in await client.blocks() if hold.name == name and hold.args is None]
            if len(paused) > 1:
                raise _ambiguous(name)
            kind = paused[0] if paused else "queue"
        return await client.resume(**{kind: name})

    return _switch(the_app, url, main, f"{name!r} is not paused", as_json=as_json)


def block(
    pattern: Pattern = None,
    *,
    actor: OfActor = None,
    arg: Pairs = None,
    where: Wheres = None,
    until: Until = None,
    lasting: For = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """Start no run whose key fits a pattern, or of an actor with these arguments. Nothing is lost: they wait."""
    the_app = o.app_for(namespace, app)
    when = {"until": moment(until, "--until"), "duration": duration(lasting, "--for")}
    values, compared = _values(the_app, actor, arg), _comparisons(the_app, actor, where)
    blocked(the_app, pattern, actor, values, compared)
    named = {*(values or ()), *(one.argument for one in compared)}

    async def main(client: Client) -> Hold:
        given: dict[str, Any] = {"actor": actor, "args": values, "where": compared, **when}
        hold = await client.block(pattern, **given, reason=reason, dry_run=dry_run)
        if actor is not None and actor not in the_app.actors:
            try:
                async with asyncio.timeout(client.app.config.patience_seconds):
                    await _say_what_is_unknown(client, actor, named)
            except (TimeoutError, Unavailable, OutcomeUnknown):  # it is blocked all the same
                complain(f"runs of {actor!r} could not be read in time, so {', '.join(sorted(named))} was not checked")
        return hold

    return _switch(the_app, url, main, "", as_json=as_json)


def unblock(
    pattern: Pattern = None,
    *,
    actor: OfActor = None,
    arg: Pairs = None,
    where: Wheres = None,
    namespace: o.Namespace = None,
    app: o.AppTarget = None,
    url: o.Url = None,
    as_json: o.AsJson = False,
) -> int:
    """End a block, given as it was to `tenure block`. What waited starts. Exit 1 where nothing was blocked."""
    the_app = o.app_for(namespace, app)
    values, compared = _values(the_app, actor, arg), _comparisons(the_app, actor, where)
    blocked(the_app, pattern, actor, values, compared)

    async def main(client: Client) -> Hold | None:
        return await client.unblock(pattern, actor=actor, args=values, where=compared)

    return _switch(the_app, url, main, "that is not blocked: `tenure blocks` lists what is", as_json=as_json)


def blocks(namespace: o.Namespace = None, app: o.AppTarget = None, url: o.Url = None, as_json: o.AsJson = False) -> int:
    """List what is paused and blocked: since when, until when, why, and how many runs wait for it."""
    the_app = o.app_for(namespace, app)
    holds = o.ask(the_app, url, lambda client: client.blocks())
    if as_json:
        print_json(holds)
    else:
        rows = ((_did(hold), str(hold), hold.since, hold.until, hold.reason, hold.waiting) for hold in holds)
        print_table(("STATE", "WHAT", "SINCE", "UNTIL", "REASON", "WAITING"), rows)
    return Exit.OK


# -- how -------------------------------------------------------------------------------------------------------------


def _switch(
    app: App, url: str | None, change: Callable[[Client], Awaitable[Hold | None]], nothing: str, *, as_json: bool
) -> int:
    hold = o.ask(app, url, change)
    if hold is None:
        raise NothingThere(nothing)
    if as_json:
        print_json(hold)
    else:
        told = {"since": hold.since, "until": hold.until, "reason": hold.reason, "waiting": hold.waiting}
        did = {"paused": "resumed", "blocked": "unblocked"}[_did(hold)] if nothing else _did(hold)
        if hold.dry_run:
            did, told["since"] = {"paused": "would pause", "blocked": "would block"}[did], None
        print_fields({did: str(hold)} | told | {"live runs": _live(hold)})
    return Exit.OK


def _live(hold: Hold) -> str | None:
    if hold.phases is None:
        return None
    phases = ", ".join(f"{number} {phase}" for phase, number in sorted(hold.phases.items()))
    return f"{sum(hold.phases.values())} ({phases})" if phases else "0"


def _did(hold: Hold) -> str:
    return "paused" if hold.pattern is None and hold.args is None else "blocked"


def _said_kind(*, queue: bool, actor: bool) -> str:
    if queue and actor:
        raise ConfigError("--queue and --actor: say one of them")
    return "queue" if queue else "actor" if actor else ""


async def _kind_of(client: Client, name: str) -> str:
    """What a name stands for, as the app tells, or else what is stored: every key's header is read only then."""
    actors = set(client.app.actors)
    queues = {actor.task.queue for actor in client.app.actors.values()}
    if name not in actors | queues:
        queues |= await client.stores.work.queues(client.stores.runs.patience())
        for _, state in await _stored(client):
            actors.add(state.actor)
            queues.add(state.queue)
    if name in actors and name in queues:
        raise _ambiguous(name)
    if name not in actors and name not in queues:
        raise NotFound(f"no queue and no actor {name!r} is known in {client.app.namespace!r}: say --queue or --actor")
    return "actor" if name in actors else "queue"


async def _stored(client: Client) -> list[tuple[str, State]]:
    """Every key and what its header tells, the longest unchanged first."""
    found: dict[str, State] = {}

    def on_header(header: Header) -> None:
        state = read_state(header.state)
        found.pop(header.key, None)  # a key that changes meanwhile is met again
        if state is not None:
            found[header.key] = state

    await client.stores.runs.scan(on_header)
    return list(found.items())


async def _say_what_is_unknown(client: Client, actor: str, named: set[str]) -> None:
    """Where no code tells which arguments an actor has, its latest runs may: a slip in a name would match nothing."""
    keys = [key for key, state in await _stored(client) if state.actor == actor]
    known: set[str] = set()
    for key in keys[-_LOOKED_AT:]:
        try:
            record = (await client.stores.runs.read(key)).record
        except (NewerSchema, UnreadableRecord):  # others may tell
            continue
        if record is not None and record.task.actor == actor:
            args = await arguments_of(client.stores, record, client.stores.runs.patience())
            known |= msgspec.json.decode(args or b"{}", type=dict[str, msgspec.Raw]).keys()
    unknown = ", ".join(sorted(named - known))
    if not keys:
        complain(f"no run of an actor {actor!r} is stored, so its name and {unknown} were not checked (--app would)")
    elif unknown:
        complain(
            f"no run of {actor!r} that is stored has {unknown}, so nothing may match: they have {', '.join(sorted(known))}"
        )


def _ambiguous(name: str) -> ConfigError:
    return ConfigError(f"{name!r} names a queue and an actor: say --queue or --actor")


def _values(app: App, actor: str | None, pairs: list[str] | None) -> dict[str, Any] | None:
    """Arguments as they were typed: what they can mean, unless the actor is known, which tells."""
    if pairs is None:
        return None
    known = app.actors.get(actor or "")
    values: dict[str, Any] = {}
    for number, pair in enumerate(pairs, 1):
        name, equals, word = pair.partition("=")
        if not equals or not name:
            raise InvalidCall(f"--arg number {number} is not name=value", field=None)
        if name in values:
            raise InvalidCall(f"argument {name!r} is given twice", field=name)
        values[name] = _meanings(known, name, word)
    return values


def _meanings(actor: Actor[..., ..., Any, Any] | None, name: str, word: str) -> AnyOf:
    """The value of a word: JSON, or the word itself; the one that fits the actor's signature if both are possible."""
    try:
        value = msgspec.json.decode(word)
    except msgspec.DecodeError:
        return AnyOf((word,))
    for parameter in actor.parameters if actor is not None else ():
        if parameter.name == name and parameter.annotation is str:
            return AnyOf((word,))
    return AnyOf((value, word))


def _comparisons(app: App, actor: str | None, texts: list[str] | None) -> list[Where]:
    """Comparisons as they were typed."""
    known = app.actors.get(actor or "")
    found = []
    for number, text in enumerate(texts or (), 1):
        between, plain = _BETWEEN.fullmatch(text), _COMPARISON.fullmatch(text)
        if between is not None:
            name, *bounds = between.groups()
            found.append(Where(name, "between", tuple(_ordered(known, name, word) for word in bounds)))
        elif plain is not None:
            name, op, word = plain.groups()
            found.append(Where(name, op, (_meanings if op in {"==", "!="} else _ordered)(known, name, word)))
        else:
            msg = f"--where number {number}, {text!r}, is no comparison such as 'size >= 100' or 'size between 5 and 9'"
            raise InvalidCall(msg, field="where")
    return found


def _ordered(actor: Actor[..., ..., Any, Any] | None, name: str, word: str) -> Any:
    """The number or text of a word: a number if it looks like one, unless the actor's signature wants a text."""
    value = _meanings(actor, name, word)[0]
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else word
