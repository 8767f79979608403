"""What becomes of a command of the inbox: that it is never taken for applied when it was not, nor lost where it may still be."""

from __future__ import annotations

import pytest

from tenure.core import commands as c
from tenure.core.inbox import Fate, expects_nothing, fate_of
from tenure.core.outcomes import Why
from tenure.core.records import Task
from tests.unit.core.histories import submit, supersede

REJECTS = c.Submit(key="k", run_id="r", task=Task(actor="a"), if_live="reject")
CANCEL = c.Cancel()


@pytest.mark.parametrize(
    ("command", "why", "fate"),
    [
        (submit(), None, "applied"),
        (CANCEL, Why.ALREADY, "applied"),
        (submit(), Why.LIVE, "kept"),
        (REJECTS, Why.LIVE, "live"),
        (REJECTS, Why.ALREADY, "applied"),
        (REJECTS, Why.NOTHING, "kept"),
        (supersede("r"), Why.CROWDED, "crowded"),
        (CANCEL, Why.STOPPING, "kept"),
        (CANCEL, Why.ABSENT, "kept"),
    ],
)
def test_a_command_is_kept_only_where_there_is_nothing_to_do(
    command: c.Submit | c.Replace | c.Cancel, why: Why | None, fate: Fate
) -> None:
    assert fate_of(command, why) == fate


def test_only_a_submit_may_be_written_over_what_nobody_has_read() -> None:
    """A cancel that expects nothing finds nothing, and is acknowledged: lost."""
    assert [expects_nothing(command) for command in (submit(), supersede("r"), CANCEL)] == [True, False, False]
