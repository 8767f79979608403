"""The run table: one entry per run, and stop reasons that reach the attempt they are about."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tenure import App
from tenure.context import Context
from tenure.core.records import SCHEMA, Phase, Record, Task
from tenure.worker.table import Live, Table


def context(attempt: int) -> Context:
    record = Record(
        schema=SCHEMA,
        key="k",
        run_id="r",
        generation=1,
        phase=Phase.RUNNING,
        task=Task(actor="a"),
        queued_at=0.0,
        attempt=attempt,
    )
    return Context(app=App("unit"), record=record, fence=1, session="s", now=time.time)


def test_one_entry_per_run() -> None:
    table = Table()
    first, second = Live("k", "r", "reply 1"), Live("k", "r", "reply 2")
    assert table.enter(first)
    assert not table.enter(second)
    table.leave(second)  # what never entered takes nothing out
    assert table.get("r") is first
    table.leave(first)
    assert table.enter(second)


def test_an_evicted_run_leaves_its_place_and_stays_known_as_stuck() -> None:
    table = Table()
    live = Live("k", "r", "reply")
    table.enter(live)
    table.evict(live)
    assert len(table) == 0
    assert table.enter(Live("k", "r", "another"))
    assert live in table.stuck
    table.leave(live)  # ends at last: its successor in the table stays
    assert table.get("r") is not None
    assert not table.stuck


def test_a_signal_to_another_attempt_is_not_for_this_one() -> None:
    """The signal to an evicted attempt 1 arrives after the same process has claimed attempt 2."""
    live = Live("k", "r", "reply")
    live.context = context(2)
    assert not live.tell_attempt(1, "superseded")
    assert live.context.stop_reason is None
    assert live.tell_attempt(2, "cancel")
    assert live.context.stop_reason == "cancel"


def test_a_signal_that_overtakes_the_claims_answer_is_kept_for_its_attempt() -> None:
    live = Live("k", "r", "reply")
    assert not live.tell_attempt(3, "cancel")
    assert live.told is None
    assert live.early == {3: "cancel"}


@pytest.mark.parametrize("later", ["cancel", "superseded", "timeout", "lease_lost"])
def test_drain_only_asks_and_every_other_reason_comes_over_it(later: Any) -> None:
    live = Live("k", "r", "reply")
    live.context = context(1)
    assert live.tell("drain")
    assert not live.tell("drain")
    assert live.tell(later)
    assert not live.tell("drain")
    assert live.context.stop_reason == later == live.told
