"""Limits and rates that are in use, from above: who has their places, who waits. For the command line; reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core import permits, rates
from tenure.core.errors import OutcomeUnknown, TenureError, Unavailable
from tenure.core.given import UNREADABLE
from tenure.core.moments import moment_of
from tenure.core.permits import name_of
from tenure.core.rates import PLACE_US, SECOND, is_rate, rate_name, window_of
from tenure.core.records import Record, read_state
from tenure.core.switches import switch_at
from tenure.nats.scan import Header
from tenure.stores import Stores
from tenure.together import each

_AT_ONCE = 32
_ASKED = 5
"""So many of those who hold or wait are asked what they have in common, and then"""
_LATEST = 200
"""so many of the actor's latest runs: of a rate no entry names those that have started."""


class Place(Struct, frozen=True, kw_only=True):
    """A place that a run has ``since`` then; no ``session``: it is kept for it until a worker takes it up."""

    key: str
    run_id: str
    session: str | None
    since: datetime


class BoundRow(Struct, frozen=True, kw_only=True):
    """A limit or a rate in use: of an actor's runs, or of those whose argument ``per`` has this ``value``.

    ``n``: at once, or of a rate in any ``seconds``; None where nothing is stored but who waits. ``in_use``: places that are taken,
    or starts that count yet. ``waiting``: runs that found no place, the longest ``since``. ``per`` is None too if no run tells it.
    """

    kind: Literal["limit", "rate"]
    actor: str
    per: str | None = None
    value: msgspec.Raw | None = None
    n: int | None
    seconds: float | None = None
    in_use: int
    held_by: tuple[Place, ...] = ()
    waiting: int
    since: datetime | None = None
    id: str

    @property
    def is_dark(self) -> bool:
        """Whether it is of a value that nobody has told yet."""
        return self.per is None and self.id.count("=") > (self.kind == "rate")

    def __str__(self) -> str:
        """Whom it is about, such as ``capped site="a.org"``."""
        if self.per is not None and self.value is not None:
            return f"{self.actor} {self.per}={bytes(self.value).decode()}"
        return f"{self.actor} ({self.id.split('=')[1]})" if self.is_dark else self.actor


async def bound_rows(stores: Stores, actor: str | None = None) -> list[BoundRow]:
    """Every limit and rate in use, the most waited for first. Raises Unavailable, UnreadableRecord.

    What their runs have in common is told by one of their records, if there is one left.
    """
    patience = stores.runs.patience()
    parked = {name: runs for name, runs in (await stores.parking.everything(patience)).items() if not switch_at(name)}
    names = {*await stores.limits.names(patience), *await stores.rates.names(patience), *parked}
    wanted = sorted(name for name in names if actor in {None, name.partition("=")[0]})

    async def look(name: str) -> tuple[BoundRow, list[tuple[str, str]]] | None:
        waiting = sorted(parked.get(name, ()))
        found = await (_rate if is_rate(name) else _limit)(stores, name, len(waiting))
        return None if found is None else (found, waiting)

    seen = [one for one in await each(wanted, look, _AT_ONCE) if one is not None]
    rows = await _explained(stores, await each(seen, lambda one: _asked(stores, *one), _AT_ONCE))
    return sorted(rows, key=lambda row: (-row.waiting, -row.in_use, str(row), row.kind))


async def _limit(stores: Stores, name: str, parked: int) -> BoundRow | None:
    entry = (await stores.limits.read(name, stores.runs.patience())).entry
    if entry is None and not parked:
        return None
    entry = permits.Entry(n=0) if entry is None else entry
    return BoundRow(
        kind="limit",
        actor=name.partition("=")[0],
        n=entry.n or None,
        in_use=len(entry.permits),
        held_by=tuple(
            Place(key=held.key, run_id=held.run_id, session=held.session or None, since=moment_of(held.at))
            for held in entry.permits
        ),
        waiting=parked + len(entry.line),
        id=name,
    )


async def _rate(stores: Stores, name: str, parked: int) -> BoundRow | None:
    entry = (await stores.rates.read(name, stores.runs.patience())).entry
    if entry is None and not parked:
        return None
    entry, window = rates.Entry(n=0) if entry is None else entry, window_of(name)
    now = round(stores.clock.now() * SECOND)
    places = [place for place in entry.places if place.at + PLACE_US > now]
    return BoundRow(
        kind="rate",
        actor=name.partition("=")[0],
        n=entry.n or None,
        seconds=window / SECOND,
        in_use=sum(number for mark, number in entry.marks if mark + window > now) + len(places),
        held_by=tuple(
            Place(key=place.key, run_id=place.run_id, session=None, since=moment_of(place.at / SECOND))
            for place in places
        ),
        waiting=parked,
        id=name,
    )


# -- what the runs of one have in common -------------------------------------------------------------------------------


async def _asked(stores: Stores, row: BoundRow, waiting: list[tuple[str, str]]) -> BoundRow:
    """With what a run of it tells: its argument, and since when the one waits that was submitted first."""
    holding = [(place.run_id, place.key) for place in row.held_by]
    for run_id, key in [*waiting[:_ASKED], *holding[:_ASKED]]:
        if not row.is_dark and (row.since is not None or not waiting):
            break
        record = await _record(stores, key)
        if record is not None and record.run_id == run_id:
            row = _with(row, _told_by(record))
            if row.since is None and (run_id, key) in waiting:
                row = replace(row, since=moment_of(record.queued_at))
    return row


async def _explained(stores: Stores, rows: list[BoundRow]) -> list[BoundRow]:
    """Those of which no run is named any more, by the latest runs of their actors."""
    dark = {row.actor for row in rows if row.is_dark}
    keys: defaultdict[str, list[str]] = defaultdict(list)

    def on_header(header: Header) -> None:
        state = read_state(header.state)
        if state is not None and state.actor in dark:
            keys[state.actor].append(header.key)

    if dark:
        await stores.runs.scan(on_header)
    latest = [key for actor in sorted(dark) for key in keys[actor][-_LATEST:]]
    told: dict[str, tuple[str, msgspec.Raw]] = {}
    for record in await each(latest, lambda key: _record(stores, key), _AT_ONCE):
        told |= {} if record is None else _told_by(record)
    return [_with(row, told) for row in rows]


async def _record(stores: Stores, key: str) -> Record | None:
    try:
        return (await stores.runs.read(key)).record
    except (Unavailable, OutcomeUnknown):
        raise
    except TenureError:  # of a newer Tenure, or nobody's
        return None


def _with(row: BoundRow, told: Mapping[str, tuple[str, msgspec.Raw]]) -> BoundRow:
    if not row.is_dark or row.id not in told:
        return row
    per, value = told[row.id]
    return replace(row, per=per, value=value)


def _told_by(record: Record) -> dict[str, tuple[str, msgspec.Raw]]:
    """The limits and rates of a run that go by an argument: by id its name and value. None if they are too much to fetch."""
    task = record.task
    rated = task.policy.pace.rates if task.policy.pace is not None else ()
    if task.blob is not None:
        return {}
    try:
        args = bytes(task.args)
        given = msgspec.json.decode(args, type=dict[str, msgspec.Raw])
        named = [(name_of(task.actor, bound, args), bound.per) for bound in task.policy.limits]
        named += [(rate_name(task.actor, rate, args), rate.per) for rate in rated]
    except UNREADABLE:  # whoever wrote them
        return {}
    return {name: (per, given.get(per, msgspec.Raw(b"null"))) for name, per in named if per}
