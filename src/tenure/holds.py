"""``client.pause``, ``resume``, ``block``, ``unblock``, ``blocks``: what is not to be started for a while (``core.switches``)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from tenure.checks import check_reason
from tenure.core.comparisons import OPS, in_words, kind_of, said
from tenure.core.errors import InvalidCall, OutcomeUnknown, TenureError, Unavailable
from tenure.core.given import UNREADABLE, plain
from tenure.core.moments import moment_of
from tenure.core.permits import Bound, name_of
from tenure.core.rates import Rate, rate_name
from tenure.core.records import TERMINAL, Phase, Record
from tenure.core.subjects import check_key, check_name
from tenure.core.switches import Kind, Rules, Switch, pattern_fault, place_of, switched_off, switched_on
from tenure.nats.lanes import Lanes
from tenure.nats.patience import Patience
from tenure.reach import reach
from tenure.stores import Stores
from tenure.times import end_time

if TYPE_CHECKING:
    from tenure.app import App


class Hold(Struct, frozen=True, kw_only=True):
    """Something that is paused (a ``queue``, an ``actor``) or blocked (``keys`` by a pattern, runs of an actor by ``arguments``).

    Or, from ``held_by`` alone, a ``limit`` or ``rate`` of the run's actor that it waits for, since it was due; ``reason`` says
    how much that allows.

    ``name``: the queue or the actor; ``pattern``: of keys; ``args``: by argument the values that are meant, each as JSON, or
    how it compares: ``>=100``.
    ``since``, ``until``: aware (UTC); ``until`` None: until it is resumed or unblocked. ``waiting``: runs that are due and wait
    for it. ``phases``, where it was just made or with ``dry_run``: how many live runs it is about, in which phase; None if it was
    made and they could not be counted within a call's patience. ``dry_run``: nothing was changed, and it has no ``id``.
    """

    kind: Kind | Literal["limit", "rate"]
    name: str | None = None
    pattern: str | None = None
    args: dict[str, tuple[str, ...]] | None = None
    since: datetime
    until: datetime | None = None
    reason: str | None = None
    waiting: int | None = None
    phases: dict[str, int] | None = None
    dry_run: bool = False
    id: str

    def __str__(self) -> str:
        """In words, such as ``actor extract``."""
        if self.pattern is not None:
            return f"keys {self.pattern}"
        fits = ", ".join(in_words(name, values) for name, values in (self.args or {}).items())
        if self.kind in {"limit", "rate"}:
            return f"{self.kind} of actor {self.name}{f' for {fits}' if fits else ''}: {self.reason}"
        return f"actor {self.name} with {fits}" if fits else f"{self.kind} {self.name}"


class Holding(ABC):
    """The part of a client that pauses and blocks. What runs goes on; what is submitted is accepted and waits."""

    app: App

    @property
    @abstractmethod
    def stores(self) -> Stores:
        """The stores behind this client."""

    async def pause(
        self,
        *,
        queue: str | None = None,
        actor: str | None = None,
        until: datetime | None = None,
        duration: float | timedelta | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Hold:
        """Start no run of a queue, or of an actor, ``until`` an aware time, for a ``duration`` (seconds), or till ``resume``.

        A perpetual actor's chain waits as well: its run that was due starts late, once, and then its ``catch_up`` tells.
        Pausing what is paused changes the time and the reason. Every worker that is connected knows within milliseconds of
        the return, and starts nothing from then on; one that is cut off starts nothing before it has read it. ``dry_run``: only
        count whom it would be about. Raises InvalidCall, ConfigError (no such name is possible), Unavailable, OutcomeUnknown
        (repeat it).
        """
        return await self._switch_off(_queue_or_actor(queue, actor), until, duration, reason, dry_run=dry_run)

    async def resume(self, *, queue: str | None = None, actor: str | None = None) -> Hold | None:
        """End a pause: what that was, None if there was none.

        What waits for it starts in the order of submits, woken by supervisors. Raises as ``pause``.
        """
        return await self._switch_on(_queue_or_actor(queue, actor))

    async def block(
        self,
        pattern: str | None = None,
        *,
        actor: str | None = None,
        args: Mapping[str, Any] | None = None,
        where: Where | Iterable[Where] = (),
        until: datetime | None = None,
        duration: float | timedelta | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Hold:
        """Start no run whose key fits a ``pattern`` (``*``, ``?``, ``[...]``), or of an ``actor`` with these ``args``.

        Or of one ``where`` its arguments compare so. Of several all must fit; ``1`` and ``1.0`` are equal. Nothing is lost: the
        runs wait. Else as ``pause``.
        """
        what = blocked(self.app, pattern, actor, args, where)
        return await self._switch_off(what, until, duration, reason, dry_run=dry_run)

    async def unblock(
        self,
        pattern: str | None = None,
        *,
        actor: str | None = None,
        args: Mapping[str, Any] | None = None,
        where: Where | Iterable[Where] = (),
    ) -> Hold | None:
        """End a block, given as it was to ``block``: what that was, None if there was none. Else as ``resume``."""
        return await self._switch_on(blocked(self.app, pattern, actor, args, where))

    async def blocks(self) -> list[Hold]:
        """What is paused and blocked now, the oldest first. Raises Unavailable, UnreadableRecord."""
        patience = self.stores.runs.patience()
        now = self.stores.clock.now()
        board = await self.stores.switches.read(patience)
        return [await self._told(switch) for switch in board.switches if switch.is_off(now)]

    async def held_by(self, key: str) -> Hold | None:
        """What keeps the run of a key from being started, if it waits or is taken over; None if nothing does.

        What is paused or blocked, or else the limit or rate that it waits for: known once a worker has tried to start it, and
        as long as it has no place. Raises InvalidCall, Unavailable, UnreadableRecord.
        """
        stores, patience = self.stores, self.stores.runs.patience()
        record = (await stores.runs.read(check_key(key), patience)).record
        rules = Rules(await stores.switches.read(patience))
        if record is None or record.phase in TERMINAL:
            return None
        if rules.idle:
            return await self._in_line(record)
        task, now = record.task, stores.clock.now()
        args = await stores.get_args(task, patience) if rules.needs_arguments(task.actor) else b""
        switch = rules.queue(task.queue, now) or rules.run(key, task.actor, args, now)
        return await self._in_line(record) if switch is None else await self._told(switch)

    # -- how ---------------------------------------------------------------------------------------------------------

    async def _switch_off(
        self, what: Switch, until: datetime | None, duration: float | timedelta | None, reason: str, *, dry_run: bool
    ) -> Hold:
        stores = self.stores
        now = stores.clock.now()
        wanted = msgspec.structs.replace(
            what, id=stores.clock.new_id(), at=now, until=end_time(duration, until, now), reason=check_reason(reason)
        )
        if dry_run:
            phases = await reach(stores, wanted)
            hold = _hold(msgspec.structs.replace(wanted, id=""))
            return msgspec.structs.replace(hold, waiting=phases.get("queued", 0), phases=phases, dry_run=True)
        changed = await stores.switches.change(lambda board: switched_off(board, wanted), stores.runs.patience())
        made = changed.after.find(wanted) or wanted
        try:
            async with asyncio.timeout(stores.config.patience_seconds):
                phases = await reach(stores, made)
        except (TimeoutError, Unavailable, OutcomeUnknown):  # it is paused all the same
            return _hold(made)
        return msgspec.structs.replace(_hold(made), waiting=phases.get("queued", 0), phases=phases)

    async def _switch_on(self, what: Switch) -> Hold | None:
        stores = self.stores
        changed = await stores.switches.change(lambda board: switched_on(board, what), stores.runs.patience())
        ended = changed.before.find(what)
        return None if ended is None or not ended.is_off(stores.clock.now()) else await self._told(ended)

    async def _in_line(self, record: Record) -> Hold | None:
        """The limit or rate under which the run of a record is parked."""
        stores, patience, task = self.stores, self.stores.runs.patience(), record.task
        rates = task.policy.pace.rates if task.policy.pace is not None else ()
        if record.phase is not Phase.WAITING or not (task.policy.limits or rates):
            return None
        try:
            args = await stores.get_args(task, patience)
            limits = {name_of(task.actor, bound, args): bound for bound in task.policy.limits}
            named: dict[str, Bound | Rate] = {**limits, **{rate_name(task.actor, rate, args): rate for rate in rates}}
        except (Unavailable, OutcomeUnknown):
            raise
        except (TenureError, *UNREADABLE):  # its arguments are gone: its body is to fail, and waits for nobody
            return None
        for name, bound in named.items():
            if await stores.parking.get(name, record.key, record.run_id, patience) is not None:
                return Hold(
                    kind="rate" if isinstance(bound, Rate) else "limit",
                    name=task.actor,
                    args={bound.per: (said(msgspec.json.decode(args).get(bound.per)),)} if bound.per else None,
                    since=moment_of(record.queued_at),
                    reason=await self._allows(name, bound, patience),
                    waiting=await stores.switches.parked(name, patience),
                    id=name,
                )
        return None

    async def _allows(self, name: str, bound: Bound | Rate, patience: Patience) -> str:
        """What a limit or rate allows, as the code says that was started last."""
        if isinstance(bound, Rate):
            rate = (await self.stores.rates.read(name, patience)).entry
            return f"{rate.n if rate is not None else bound.n} starts in {bound.seconds:.15g} s"
        entry = (await self.stores.limits.read(name, patience)).entry
        return f"{entry.n if entry is not None else bound.n} at once"

    async def _told(self, switch: Switch) -> Hold:
        stores, patience = self.stores, self.stores.runs.patience()
        if switch.kind == "queue":
            lanes = await Lanes(stores.conn, stores.names).look(patience)
            waiting = sum(lane.waiting for lane in lanes if lane.queue == switch.name)
        else:
            waiting = await stores.switches.parked(place_of(switch.id), patience)
        return msgspec.structs.replace(_hold(switch), waiting=waiting)


def _hold(switch: Switch) -> Hold:
    return Hold(
        kind=switch.kind,
        name=switch.name or None,
        pattern=switch.pattern or None,
        args=switch.args or None,
        since=moment_of(switch.at),
        until=moment_of(switch.until) if switch.until else None,
        reason=switch.reason or None,
        id=switch.id,
    )


class Where(Struct, frozen=True):
    """How an argument compares, for ``client.block(actor="send", where=[Where("customer", ">=", 100)])``.

    ``op``: ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, or ``between`` with ``(lowest, highest)``. Numbers and texts have an
    order, each among themselves; another value is not matched, unless by ``!=``.
    """

    argument: str
    op: str
    value: Any


class AnyOf(tuple[Any, ...]):
    """For ``args`` of ``block``: any of these values."""

    __slots__ = ()


def blocked(app: App, pattern: object, actor: object, args: object, where: object = ()) -> Switch:
    """What a block is about. Raises InvalidCall or ConfigError that names what is wrong."""
    compared = _wheres(where)
    if pattern is not None:
        if actor is not None or args is not None or compared:
            raise _refusal("pattern", "is given with actor, args or where: block by one or the other")
        fault = pattern_fault(pattern)
        if fault or not isinstance(pattern, str):
            raise _refusal("pattern", fault)
        return Switch(id="", at=0.0, kind="keys", pattern=plain(pattern))
    if actor is None or not (args or compared):
        raise _refusal(
            "pattern",
            "is missing: say which keys, such as 'doc-*', or an actor and args or where; pause an actor as a whole",
        )
    name, args = check_name("actor", actor), args or {}
    if not isinstance(args, Mapping) or not all(isinstance(field, str) for field in args):
        raise _refusal("args", f"must be a mapping of arguments' names to values, got {args!r}")
    known = app.actors.get(name)
    types = {parameter.name: parameter.annotation for parameter in known.parameters} if known is not None else None
    for given, field in [("args", field) for field in args] + [("where", one.argument) for one in compared]:
        if types is not None and field not in types:
            raise _refusal(given, f"names {field!r}, and actor {name} has no such argument")
    found = _values(args)
    for one in compared:
        if one.argument in args or (
            one.argument in found and "==" in {two.op for two in compared if two.argument == one.argument}
        ):
            raise _refusal("where", f"says what {one.argument!r} equals, and more of it: say one or the other")
        found[one.argument] = (*found.get(one.argument, ()), *_comparisons(one, (types or {}).get(one.argument)))
    if compared:
        found = {field: tuple(sorted(set(values))) for field, values in sorted(found.items())}
    return Switch(id="", at=0.0, kind="arguments", name=name, args=found)


def _wheres(given: object) -> tuple[Where, ...]:
    each = (given,) if isinstance(given, Where) else tuple(given) if isinstance(given, Iterable) else (given,)
    for one in each:
        if not isinstance(one, Where) or not isinstance(one.argument, str):
            raise _refusal("where", f"must be of Where(argument, op, value), got {one!r}")
        if one.op not in OPS:
            raise _refusal("where", f"compares {one.argument!r} by {one.op!r}: known are {', '.join(OPS)}")
    return each


def _comparisons(where: Where, annotation: object) -> list[str]:
    """How a board has it. ``annotation``: of the argument, if it is known: a comparison that could never hold is a mistake."""
    name, op, value = plain(where.argument), where.op, where.value
    if op in {"==", "!="}:
        return [(op if op == "!=" else "") + one for one in _values({name: value})[name]]
    bounds = value if op == "between" else (value,)
    if not isinstance(bounds, tuple | list) or len(bounds) != (2 if op == "between" else 1):
        raise _refusal("where", f"compares {name!r} by between: give (lowest, highest), got {value!r}")
    kinds = {kind_of(bound) for bound in bounds}
    if None in kinds or len(kinds) > 1:
        raise _refusal("where", f"compares {name!r} with {value!r}: only numbers and texts have an order")
    wanted = {int: float, float: float, str: str}.get(annotation)  # type: ignore[call-overload]  # any annotation may be asked for
    if wanted is not None and wanted not in kinds:
        raise _refusal("where", f"compares {name!r} with {value!r}, and its values are of type {annotation.__name__}")  # type: ignore[attr-defined]  # it is one of three
    if op == "between":
        if bounds[0] > bounds[1]:
            raise _refusal("where", f"compares {name!r} with {value!r}: nothing is between them")
        return [f">={said(bounds[0])}", f"<={said(bounds[1])}"]
    return [op + said(value)]


def _values(args: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, value in sorted(args.items()):
        try:
            each = [said(one) for one in (value if isinstance(value, AnyOf) else (value,))]
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise _refusal("args", f"{name!r} cannot be said in JSON: {error}") from error
        found[plain(name)] = tuple(dict.fromkeys(each))
    return found


def _queue_or_actor(queue: object, actor: object) -> Switch:
    if queue is None and actor is None:
        raise _refusal("queue", "is missing: name a queue or an actor, such as queue='mail' or actor='extract'")
    if queue is not None and actor is not None:
        raise _refusal("queue", "is given with actor: name a queue or an actor, one at a time")
    if queue is not None:
        return Switch(id="", at=0.0, kind="queue", name=check_name("queue", queue))
    return Switch(id="", at=0.0, kind="actor", name=check_name("actor", actor))


def _refusal(field: str, what: str) -> InvalidCall:
    return InvalidCall(f"{field} {what}", field=field)
