"""A picture of ``tenure top`` fits its terminal, whatever there is to be shown."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from tenure.cli.tally import WHATS
from tenure.cli.top_frame import ActorRow, Frame, draw
from tenure.overview import QueueRow, SessionRow, span


def frame(number: int, size: int) -> Frame:
    at = datetime(2031, 5, 1, 12, 30, tzinfo=UTC)
    name = "n" * size
    return Frame(
        namespace=name,
        url=f"nats://{name}",
        server="2.15.1",
        at=at,
        seconds=5.0,
        since_seconds=1e6,
        queues=[
            QueueRow(queue=f"{i}{name}", priority=priority, waiting=12_345_678, in_hand=99_999, oldest_seconds=1e6,
                     paused=bool(i % 2), workers=0)
            for i in range(number) for priority in ("high", "normal", "low")
        ],
        actors=[
            ActorRow(actor=f"{i}{name}", running=12_345, parked=999_999, started=123_456.7, succeeded=9.94, retried=0.0, failed=0.1,
                     cancelled=1e6, superseded=10.0)
            for i in range(number)
        ],
        sessions=[
            SessionRow(id=f"{i}", kind="supervisor", host=name, pid=4_194_304, state="silent", age_seconds=1e7,
                       beat_seconds=9.0, ttl_seconds=5.0, started_at=at, queues=(name,) * 3, runs=1_000)
            for i in range(number)
        ],
        totals=dict.fromkeys(WHATS, 123_456_789),
        blocked=12_345 * bool(number),
    )  # fmt: skip


def drawn(one: Frame, height: int | None = None) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80, height=height).print(draw(one, height))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("number", "size"), [(0, 1), (1, 1), (3, 64), (40, 64)])
def test_a_picture_has_80_columns(number: int, size: int) -> None:
    """And no line is folded: as many as there are rows, and the furniture."""
    lines = drawn(frame(number, size))
    assert max(map(len, lines)) <= 80
    assert len(lines) == 2 + 3 * 3 + 3 * number + bool(number)
    assert lines[0].endswith("12:30:00 UTC")


@pytest.mark.parametrize("height", [24, 30, 60])
def test_what_finds_no_room_is_counted(height: int) -> None:
    lines = drawn(frame(40, 8), height)
    assert len(lines) <= height
    assert sum(line.strip().endswith(" more") for line in lines) == 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0s"),
        (0.35, "350ms"),
        (1.4, "1s"),
        (60, "1m"),
        (250, "4m10s"),
        (12_000, "3h20m"),
        (1e6, "11d13h"),
    ],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert span(seconds) == text
