"""What ``tenure top`` counts, told by the writes of records alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.cli.tally import Tally
from tenure.core.records import Count, Holder, Last, Phase, Record, State, Task, read_state, state_of


def record(phase: Phase, *, run: str = "r1", generation: int = 1, attempt: int = 0, failures: int = 0) -> Record:
    holder = Holder(session="s", run_id=run, attempt=attempt) if phase in {Phase.RUNNING, Phase.STOPPING} else None
    return Record(
        schema=1, key="k", run_id=run, generation=generation, phase=phase, task=Task(actor="a"), queued_at=0.0,
        attempt=attempt, failures=failures, holder=holder,
    )  # fmt: skip


def header(of: Record) -> State:
    state = read_state(state_of(of))
    assert state is not None
    return state


def told(*writes: Record | None) -> dict[str, int]:
    tally = Tally(5.0)
    for revision, one in enumerate(writes, 1):
        tally.wrote("k", revision, one)
    return {what: number for (_, what), number in tally.counts.items() if number}


WAITING, RUNNING = record(Phase.WAITING), record(Phase.RUNNING, attempt=1)


@pytest.mark.parametrize(
    ("writes", "counts"),
    [
        ((WAITING, RUNNING, record(Phase.SUCCEEDED, attempt=1)), {"started": 1, "succeeded": 1}),
        ((WAITING, record(Phase.CANCELLED)), {"cancelled": 1}),
        ((RUNNING, record(Phase.STOPPING, attempt=1), record(Phase.CANCELLED, attempt=1)), {"started": 1, "cancelled": 1}),
        ((RUNNING, RUNNING, record(Phase.FAILED, attempt=1)), {"started": 1, "failed": 1}),
        ((RUNNING, record(Phase.WAITING, attempt=1, failures=1)), {"started": 1, "retried": 1}),
        ((RUNNING, record(Phase.WAITING, attempt=1)), {"started": 1}),
        ((RUNNING, record(Phase.RUNNING, attempt=2)), {"started": 2}),
        ((WAITING, record(Phase.WAITING, run="r2", generation=2)), {"superseded": 1}),
        ((RUNNING, record(Phase.WAITING, run="r2", generation=2)), {"started": 1, "superseded": 1}),
        ((WAITING, None, record(Phase.WAITING, run="r2")), {}),
    ],
    ids=["succeeds", "cancelled waiting", "stopped", "written twice", "retried", "handed back", "taken over",
         "replaced waiting", "replaced running", "a new life"],
)  # fmt: skip
def test_what_became_of_runs(writes: tuple[Record | None, ...], counts: dict[str, int]) -> None:
    assert told(*writes) == counts


def test_a_run_that_left_a_successor_has_its_outcome_and_is_not_superseded() -> None:
    last = Last(run_id="r1", generation=1, phase=Phase.SUCCEEDED, at=0.0)
    assert told(RUNNING, replace(record(Phase.WAITING, run="r2", generation=2), last=last)) == {
        "started": 1,
        "succeeded": 1,
    }


def test_an_outcome_that_is_written_again_to_settle_what_it_owes_counts_once() -> None:
    owing = replace(record(Phase.CANCELLED), uncounted=(Count(what="cancelled", where="waiting", actor="a"),))
    assert told(WAITING, owing, record(Phase.CANCELLED)) == {"cancelled": 1}


def test_what_is_late_or_was_there_before_is_not_counted() -> None:
    """A header's revision is older than the event's that came while the pass was under way; and the other way round."""
    tally = Tally(5.0)
    tally.wrote("k", 7, RUNNING)
    tally.found("k", 6, header(WAITING))
    tally.wrote("k", 6, record(Phase.SUCCEEDED, attempt=1))
    assert dict(tally.counts) == {("a", "started"): 1}
    assert (tally.running()["a"], tally.held()["s"]) == (1, 1)
    other = Tally(5.0)
    other.found("k", 7, header(RUNNING))
    assert (other.running()["a"], other.held()["s"], dict(other.counts)) == (1, 1, {})
    other.wrote("k", 8, RUNNING)
    assert not any(other.counts.values()), "the claim was before"
    other.wrote("k", 9, record(Phase.SUCCEEDED, attempt=1))
    assert other.counts["a", "succeeded"] == 1
    assert not other.running()


def test_rates_are_over_the_window() -> None:
    tally = Tally(2.0)
    assert tally.rates() == (0.0, {})
    for second in range(10):
        tally.mark(float(second))
        tally.wrote(f"k{second}", second + 1, RUNNING)
    seconds, rates = tally.rates()
    assert seconds == 2.0
    assert rates["a", "started"] == 1.0
