"""What a namespace looks like from above: its queues and its sessions, for the command line. Reads only, and decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct

from tenure.core.moments import moment_of
from tenure.core.records import TERMINAL, read_state
from tenure.core.subjects import PRIORITIES
from tenure.core.switches import Rules, switch_at
from tenure.nats.lanes import Lane, Lanes
from tenure.nats.patience import Patience
from tenure.nats.scan import Header
from tenure.nats.sessions import SeenSession
from tenure.stores import Stores

Life = Literal["alive", "silent", "closed"]


class QueueRow(Struct, frozen=True, kw_only=True):
    """One priority of a queue. ``waiting``: ready and delivered to nobody; ``in_hand``: delivered to workers, not yet answered.

    ``oldest_seconds``: how long the oldest of those that wait has been ready. ``workers``: that live and work on the queue.
    """

    queue: str
    priority: str
    waiting: int
    in_hand: int
    oldest_seconds: float | None
    paused: bool
    workers: int


class SessionRow(Struct, frozen=True, kw_only=True):
    """One process. ``state``: ``silent`` if its session is open and was not renewed for its ``ttl_seconds``: it is about to be closed.

    ``runs``: that it holds, None if nobody counted. ``closed``: why its session ended. ``modules``: of a supervisor's code.
    """

    id: str
    kind: str
    host: str
    pid: int
    state: Life
    age_seconds: float
    beat_seconds: float
    ttl_seconds: float
    started_at: datetime
    queues: tuple[str, ...]
    runs: int | None = None
    closed: str | None = None
    modules: tuple[str, ...] | None = None


def session_row(seen: SeenSession, now: float, held: Mapping[str, int] | None = None) -> SessionRow:
    """What a session's entry tells. ``now``: the server's time, seconds since the epoch."""
    session, silent = seen.session, max(0.0, now - seen.at)
    state: Life = "closed" if session.closed is not None else "alive" if silent <= session.ttl else "silent"
    return SessionRow(
        id=session.id,
        kind=session.kind,
        host=session.host,
        pid=session.pid,
        state=state,
        age_seconds=round(max(0.0, now - session.started_at), 1),
        beat_seconds=round(silent, 1),
        ttl_seconds=session.ttl,
        started_at=moment_of(session.started_at),
        queues=session.queues,
        modules=session.modules,
        runs=None if held is None else held.get(session.id, 0),
        closed=session.closed,
    )


async def session_rows(stores: Stores, *, every: bool, count: bool = True) -> list[SessionRow]:
    """Who lives, the oldest first; with ``every`` those too that were closed within a day. Raises Unavailable.

    ``count``: the runs that each holds, which takes a pass over all headers.
    """
    held = await runs_held(stores) if count else None
    seen = [one for one in await stores.sessions.all() if every or one.session.closed is None]
    now = stores.clock.now()
    return [session_row(one, now, held) for one in seen]


async def runs_held(stores: Stores) -> Counter[str]:
    """By session, how many runs it holds: a pass over all headers. Raises Unavailable."""
    held: dict[str, str] = {}

    def on_header(header: Header) -> None:
        state = read_state(header.state)
        held.pop(header.key, None)  # a key that changes meanwhile is met again
        if state is not None and state.session:
            held[header.key] = state.session

    await stores.runs.scan(on_header)
    return Counter(held.values())


def modules_known(rows: Iterable[SessionRow]) -> set[str] | None:
    """Modules whose schedules some supervisor's code has; None where one that lives does not say, or none lives."""
    said = [row.modules for row in rows if row.kind == "supervisor" and row.state == "alive"]
    known = [modules for modules in said if modules is not None]
    return set().union(*known) if known and len(known) == len(said) else None


async def schedules_unknown(stores: Stores, rows: Iterable[SessionRow]) -> list[str]:
    """Keys of schedules that start by themselves and that no supervisor's code has. Raises Unavailable."""
    known, found = modules_known(rows), set[str]()
    if known is None:
        return []

    def on_header(header: Header) -> None:
        state = read_state(header.state)
        found.discard(header.key)
        if state is not None and state.autostart and header.key == state.actor and state.phase not in TERMINAL:
            found.update([header.key] if state.autostart not in known else [])

    await stores.runs.scan(on_header)
    return sorted(found)


async def queue_rows(
    stores: Stores,
    sessions: Iterable[SessionRow],
    known: Iterable[str] = (),
    *,
    unserved: bool = True,
    stored: Mapping[tuple[str, str], int] | None = None,
) -> list[QueueRow]:
    """Every lane of every queue: those that were ever worked on, that hold something, that a worker says, and ``known``.

    ``unserved``, ``stored``: as ``Lanes.look``. Raises Unavailable, UnreadableRecord (what is paused).
    """
    patience = stores.runs.patience()
    lanes = await Lanes(stores.conn, stores.names).look(patience, unserved=unserved, stored=stored)
    workers = Counter(queue for row in sessions if row.state == "alive" for queue in row.queues)
    there = {lane.queue for lane in lanes}
    lanes += [
        Lane(queue=queue, priority=priority, waiting=0)
        for queue in sorted({*workers, *known} - there)
        for priority in PRIORITIES
    ]
    return _rows(lanes, await _rules(stores, patience), stores.clock.now(), workers)


async def parked_runs(stores: Stores) -> Counter[str]:
    """By actor, how many runs wait for a limit, a rate or a switch; under no name those that a pattern of keys blocks.

    One message for each is listed. Raises Unavailable, UnreadableRecord (what is paused).
    """
    patience = stores.runs.patience()
    parked = await stores.parking.everything(patience)
    named = {switch.id: switch.name for switch in (await stores.switches.read(patience)).switches} if parked else {}
    found: Counter[str] = Counter()
    for place, runs in parked.items():
        switch = switch_at(place)
        found[named.get(switch, "") if switch else place.partition("=")[0]] += len(runs)
    return found


async def _rules(stores: Stores, patience: Patience) -> Rules:
    return Rules(await stores.switches.read(patience))


def _rows(lanes: list[Lane], rules: Rules, now: float, workers: Mapping[str, int]) -> list[QueueRow]:
    return [
        QueueRow(
            queue=lane.queue,
            priority=lane.priority,
            waiting=lane.waiting,
            in_hand=lane.in_hand,
            oldest_seconds=None if lane.oldest_at is None else round(max(0.0, now - lane.oldest_at), 1),
            paused=rules.queue(lane.queue, now) is not None,
            workers=workers.get(lane.queue, 0),
        )
        for lane in lanes
    ]


def span(seconds: float | None) -> str:
    """A duration for people, in six characters at most: ``350ms``, ``12s``, ``4m10s``, ``3h20m``, ``12d4h``."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.0005 else "0s"  # noqa: PLR2004  (half of what is shown)
    left = round(seconds)
    for name, size, below, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if left >= size:
            more = left % size // part
            return f"{left // size}{name}" + (f"{more}{below}" if more else "")
    return f"{left}s"
