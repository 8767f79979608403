"""One picture of ``tenure top``: its data, and how it is drawn in 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tenure.cli.tally import WHATS, Tally
from tenure.overview import QueueRow, SessionRow, span

if TYPE_CHECKING:  # else every command would load it
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

WIDTH = 80
_TEN_THOUSAND, _MILLION = 10_000, 1_000_000
_FEW = 10
_SAID = {"succeeded": "ok"}
_BLOCKED = "(blocked keys)"
"""In the place of an actor: those runs may be any actor's."""
_FURNITURE = 12
"""Lines that are no rows: the head, and three tables' titles, heads and gaps."""


class ActorRow(Struct, frozen=True, kw_only=True):
    """What an actor's runs do: bodies that run and runs that are parked now; the rest by the second."""

    actor: str
    running: int
    parked: int
    started: float
    succeeded: float
    retried: float
    failed: float
    cancelled: float
    superseded: float


class Frame(Struct, frozen=True, kw_only=True):
    """All that is shown. ``seconds``: what rates are over; ``totals``: what happened since the command began ``since_seconds`` ago.

    ``blocked``: runs that are parked because their keys are blocked, of whichever actors.
    """

    namespace: str
    url: str
    server: str
    at: datetime
    seconds: float
    since_seconds: float
    queues: list[QueueRow]
    actors: list[ActorRow]
    sessions: list[SessionRow]
    totals: dict[str, int]
    blocked: int = 0
    trouble: str = ""


def actor_rows(tally: Tally, parked: Mapping[str, int], known: Iterable[str] = ()) -> tuple[float, list[ActorRow]]:
    """The seconds that rates are over, and every actor that was heard of, the busiest first."""
    seconds, rates = tally.rates()
    running = tally.running()
    names = ({actor for actor, _ in tally.counts} | set(running) | set(parked) | set(known)) - {""}
    rows = [
        ActorRow(
            actor=name,
            running=running[name],
            parked=parked.get(name, 0),
            **{what: round(rates.get((name, what), 0.0), 2) for what in WHATS},
        )
        for name in names
    ]
    return round(seconds, 2), sorted(rows, key=lambda row: (-row.started, -row.running, -row.parked, row.actor))


def totals(tally: Tally) -> dict[str, int]:
    """What happened to runs of all actors since the tally began."""
    return {what: sum(number for (_, one), number in tally.counts.items() if one == what) for what in WHATS}


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(frame: Frame, height: int | None = None) -> Group:
    """The picture. ``height``: lines there are; rows that find no room are counted in their table's last line."""
    from rich.console import Group
    from rich.text import Text

    tables = [_queues(frame), _actors(frame), _sessions(frame)]
    room = _share([len(rows) for _, _, rows in tables], height)
    parts: list[Any] = [_head(frame)]
    for (title, columns, rows), most in zip(tables, room, strict=True):
        parts += [Text(), _table(title, columns, rows, most)]
    return Group(*parts)


def _head(frame: Frame) -> Text:
    from rich.text import Text

    clock = f"{frame.at.astimezone(UTC):%H:%M:%S} UTC"
    left = f"tenure top  {frame.namespace}  {frame.url}  nats {frame.server}"
    lines = Text(_fit(left, WIDTH - len(clock) - 2).ljust(WIDTH - len(clock)) + clock, style="bold")
    if frame.trouble:
        return lines.append("\n" + _fit(frame.trouble, WIDTH), style="bold red")
    told = [f"{_SAID.get(name, name)} {_number(frame.totals[name])}" for name in WHATS]
    return lines.append("\n" + _fit(f"{span(frame.since_seconds)}: " + "  ".join(told), WIDTH), style="not bold")


_Row = tuple[tuple[str, ...], str]
_Columns = Sequence[tuple[str, int]]
"""Names and widths; negative: aligned to the right."""


def _queues(frame: Frame) -> tuple[str, _Columns, list[_Row]]:
    columns = (("QUEUE", 24), ("HIGH", -7), ("NORMAL", -7), ("LOW", -7), ("IN HAND", -8), ("OLDEST", -7), ("WORKERS", -8),
               ("", 10))  # fmt: skip
    rows: list[_Row] = []
    for queue, lanes in groupby(frame.queues, key=lambda row: row.queue):
        by = {lane.priority: lane for lane in lanes}
        waiting = [by[name].waiting if name in by else 0 for name in ("high", "normal", "low")]
        oldest = max((lane.oldest_seconds for lane in by.values() if lane.oldest_seconds is not None), default=None)
        one = next(iter(by.values()))
        state = "paused" if one.paused else "no worker" if not one.workers and any(waiting) else ""
        cells = (queue, *map(_number, waiting), _number(sum(lane.in_hand for lane in by.values())), span(oldest),
                 _number(one.workers), state)  # fmt: skip
        rows.append((cells, "yellow" if state else ""))
    return "waiting by queue and priority", columns, rows


def _actors(frame: Frame) -> tuple[str, _Columns, list[_Row]]:
    columns = (("ACTOR", 21), ("RUNNING", -8), ("PARKED", -7), ("STARTED", -8), ("OK", -7), ("RETRIED", -8), ("FAILED", -7),
               ("CANCEL", -7), ("SUPERS", -7))  # fmt: skip
    rows: list[_Row] = [
        (
            (row.actor, _number(row.running), _number(row.parked), *(_rate(getattr(row, what)) for what in WHATS)),
            "red" if row.failed else "",
        )
        for row in frame.actors
    ]
    if frame.blocked:
        rows.append(((_BLOCKED, "", _number(frame.blocked)), "yellow"))
    return f"actors: running and parked now, the rest a second over {frame.seconds:.1f} s", columns, rows


def _sessions(frame: Frame) -> tuple[str, _Columns, list[_Row]]:
    columns = (("SESSION", 12), ("HOST", 18), ("PID", -8), ("AGE", -7), ("BEAT", -7), ("RUNS", -6), ("QUEUES", 15))
    rows: list[_Row] = [
        (
            (row.kind, row.host, str(row.pid), span(row.age_seconds),
             "SILENT" if row.state == "silent" else span(row.beat_seconds), _number(row.runs or 0), ",".join(row.queues)),
            "bold red" if row.state == "silent" else "",
        )
        for row in frame.sessions
    ]  # fmt: skip
    return "sessions: the oldest first", columns, rows


def _table(title: str, columns: _Columns, rows: list[_Row], most: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", title=title,
                  title_justify="left", title_style="dim")  # fmt: skip
    for name, width in columns:
        table.add_column(
            name, width=abs(width) - 1, no_wrap=True, overflow="ellipsis", justify="left" if width > 0 else "right"
        )
    shown = rows if len(rows) <= most else rows[: max(0, most - 1)]
    for cells, style in shown:
        table.add_row(*map(Text, cells), style=style)
    if len(shown) < len(rows):
        table.add_row(Text(f"{len(rows) - len(shown)} more"), style="dim")
    return table


def _share(wanted: list[int], height: int | None) -> list[int]:
    """How many rows each table may have: what they want, else as many each as there is room for, and what one leaves to others."""
    if height is None:
        return wanted
    given = [0] * len(wanted)
    left = min(sum(wanted), max(height - _FURNITURE, len(wanted)))
    while left:
        for index, number in enumerate(wanted):
            if left and given[index] < number:
                given[index] += 1
                left -= 1
    return given


def _number(value: int) -> str:
    if value < _TEN_THOUSAND:
        return str(value)
    return f"{value / 1000:.4g}k" if value < _MILLION else f"{value / _MILLION:.4g}M"


def _rate(value: float) -> str:
    if value == 0:
        return "-"
    return f"{value:.1f}" if value < _FEW else _number(round(value))


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
