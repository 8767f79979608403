"""Times that no calendar has."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from tenure.core.history import Written, steps
from tenure.core.moments import moment_of
from tenure.status import status_of
from tests.unit.core.histories import play, submit


def test_a_time_is_told_as_it_is() -> None:
    assert moment_of(1_790_000_000.5) == datetime.fromtimestamp(1_790_000_000.5, UTC)


@pytest.mark.parametrize(("seconds", "year"), [(1e300, 9999), (-1e300, 1), (float("inf"), 9999)])
def test_what_no_calendar_has_is_its_end(seconds: float, year: int) -> None:
    assert moment_of(seconds).year == year


@pytest.mark.parametrize("due", [1e15, 1e300])
def test_a_record_with_such_a_time_can_be_shown(due: float) -> None:
    """Found by ``make fuzz``: a status, and the history of its key, broke with an OverflowError."""
    record = replace(play(submit()).found, due=due, queued_at=due)
    status = status_of(record, 0.0)
    assert status.due is not None
    assert status.due.year == 9999
    assert steps([Written(1, due, record)], (), 0.0)
