"""Every cell of NEXT, reached by a history from nothing: no declared result without an example, and no other result.

Histories have names so that the rows below read as a table: (history, command, what comes out).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, cast, get_args

import pytest
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.errors import IllegalTransition
from tenure.core.outcomes import Why
from tenure.core.records import Phase
from tenure.core.transitions import NEXT, Next, transition
from tests.unit.core.histories import (
    COPY,
    KEY,
    MARK,
    NOW,
    PACE,
    S1,
    S2,
    SEEN,
    At,
    ask,
    claim,
    evict,
    exact,
    expire,
    fail,
    holder,
    keep,
    play,
    shown,
    snooze,
    submit,
    succeed,
    supersede,
    task,
)
from tests.unit.core.known import DROP, ENDS, HISTORIES, PHASES

W, R, S, OK, F, C = Phase


class Row(NamedTuple):
    history: str
    command: c.Command
    leads_to: Next


def with_(command: c.Submit, **changes: Any) -> c.Submit:
    return replace(command, **changes)


def submits() -> Iterator[Row]:
    new, again = submit("r9"), submit("r1")
    yield Row("nothing", new, W)
    for phase in PHASES:
        yield Row(phase, again, Why.ALREADY)
        yield Row(f"fed: {phase}", submit("r9", seen=SEEN), Why.ALREADY)
        yield Row(f"full: {phase}", with_(new, if_live="replace"), Why.CROWDED)
    for phase in ("stopping", *ENDS):
        yield Row(phase, new, W)
        yield Row(phase, with_(new, if_live="reject"), W)
    for phase in ("waiting", "running"):
        yield Row(phase, new, Why.LIVE)
        yield Row(phase, with_(new, if_live="reject"), Why.LIVE)
        yield Row(phase, submit("r9", seen=SEEN), Phase(phase))
        yield Row(phase, with_(new, if_live="replace"), W)
        other = with_(new, task=task(args=b'{"n":1}'))
        yield Row(phase, other, Why.LIVE)
        yield Row(phase, with_(other, if_differs="error"), Why.DIFFERS)
        yield Row(phase, with_(other, if_differs="replace"), W)
        yield Row(phase, with_(new, if_differs="error"), Why.LIVE)
    for end, phase in (("succeeded", OK), ("failed", F)):
        yield Row(f"paced: {end}", submit("r9", pace=PACE), Why.COOLING)
        yield Row(f"paced: {end}", submit("r9", pace=PACE, seen=SEEN), phase)
        yield Row(f"paced: {end}", submit("r9"), W)
    yield Row("paced: cancelled", submit("r9", pace=PACE), W)
    yield Row("debounced", submit("r9", pace=PACE), W)
    yield Row("running, one attempt", submit("r9", lost=S1), W)
    yield Row("running", submit("r9", lost=S1), Why.LIVE)


def replaces() -> Iterator[Row]:
    yield Row("nothing", supersede("r9"), W)
    for phase in PHASES:
        yield Row(phase, supersede("r9"), W)
        yield Row(phase, supersede("r1"), Why.ALREADY)
        yield Row(f"full: {phase}", supersede("r9", overlap="parallel"), Why.CROWDED)


def cancels() -> Iterator[Row]:
    of_older = c.Cancel(run_id="r1")
    yield Row("nothing", of_older, Why.ABSENT)
    for phase, leads_to in (("waiting", C), ("running", S), ("stopping", Why.STOPPING)):
        yield Row(phase, of_older, leads_to)
        yield Row(phase, c.Cancel(), leads_to)
        yield Row(phase, c.Cancel(run_id="r9"), Why.FINISHED)
    for phase in ENDS:
        yield Row(phase, of_older, Why.FINISHED)
    for phase, same in (("waiting", W), ("running", R), ("succeeded", OK), ("failed", F)):
        yield Row(f"parallel: {phase}", of_older, same)
    for phase in ("stopping", "cancelled"):
        yield Row(f"parallel: {phase}", of_older, Why.STOPPING)
    for phase in PHASES:
        yield Row(f"told: {phase}", of_older, Why.STOPPING)


def commands() -> Iterator[Row]:
    """Of the inbox: applied once [13], refused where a record has no room for one more mark."""
    yield Row("nothing", submit("r9", seen=MARK), W)
    yield Row("nothing", supersede("r9", seen=MARK), W)
    for phase in PHASES:
        for again in (MARK, COPY):
            yield Row(f"commanded: {phase}", submit("r9", seen=again), Why.ALREADY)
            yield Row(f"commanded: {phase}", supersede("r9", seen=again), Why.ALREADY)
            yield Row(f"commanded: {phase}", c.Cancel(seen=again), Why.ALREADY)
        yield Row(f"marked: {phase}", supersede("r9", seen=MARK), Why.CROWDED)
        yield Row(phase, supersede("r9", seen=MARK), W)
    for phase in ("stopping", *ENDS):
        yield Row(f"marked: {phase}", submit("r9", seen=MARK), Why.CROWDED)
    for phase in ("waiting", "running"):
        yield Row(phase, submit("r9", seen=MARK), Why.LIVE)
        yield Row(phase, with_(submit("r9", seen=MARK), if_live="replace"), W)
        yield Row(f"marked: {phase}", submit("r9", seen=MARK), Why.LIVE)
        yield Row(f"marked: {phase}", submit("r9", seen=SEEN), Phase(phase))
        yield Row(f"marked: {phase}", c.Cancel(seen=MARK), Why.CROWDED)
    yield Row("waiting", c.Cancel(seen=MARK), C)
    yield Row("running", c.Cancel(seen=MARK), S)
    for phase in ("succeeded", "failed"):
        yield Row(phase, c.Cancel(seen=MARK), Why.FINISHED)
        yield Row(f"marked, parallel: {phase}", c.Cancel(run_id="r0", seen=MARK), Why.CROWDED)


def claims() -> Iterator[Row]:
    yield Row("nothing", claim(), Why.ABSENT)
    for phase in PHASES:
        yield Row(phase, claim(run="r0"), Why.SUPERSEDED)
    yield Row("waiting", claim(), R)
    yield Row("limited", claim(), Why.LIMITED)
    yield Row("limited", replace(claim(), permit=1), R)
    yield Row("limited", replace(claim(), permit=2), Why.LIMITED)
    yield Row("limited, running", replace(claim("s2", closed="s1"), permit=1), Why.LIMITED)
    yield Row("limited, running", replace(claim("s2", closed="s1"), permit=2), R)
    yield Row("waiting", replace(claim(), held=True), Why.HELD)
    yield Row("limited", replace(claim(), held=True, permit=1), Why.HELD)
    yield Row("running", replace(claim("s2", closed="s1"), held=True), Why.HELD)
    yield Row("running", replace(claim("s2"), held=True), Why.BUSY)
    yield Row("running, one attempt", replace(claim("s2", closed="s1"), held=True), F)
    yield Row("stopping", replace(claim("s2", closed="s1"), held=True), C)
    yield Row("paced: waiting", replace(claim(), excess="too many"), Why.LIMITED)
    yield Row("paced: waiting", replace(claim(), permit=1, excess="too many"), C)
    yield Row("paced: running", replace(claim("s2", closed="s1"), permit=2, excess="too many"), Why.LIMITED)
    yield Row("scheduled", claim(), Why.NOT_DUE)
    yield Row("replaced, stop", claim("s2", "r2"), Why.BUSY)
    yield Row("replaced, stop", claim("s2", "r2", closed="s1"), R)
    yield Row("parallel: waiting", claim("s2", "r2"), R)
    yield Row("running", claim("s1"), Why.BUSY)
    yield Row("running", claim("s2"), Why.BUSY)
    yield Row("running", claim("s2", closed="s1"), R)
    yield Row("running", claim("s1", own_lost=S1), R)
    yield Row("running, one attempt", claim("s2", closed="s1"), F)
    yield Row("running, one attempt", claim("s2", drained="s1"), R)
    yield Row("running, perpetual, one attempt", claim("s2", closed="s1"), W)
    yield Row("stopping", claim("s1"), Why.BUSY)
    yield Row("stopping", claim("s2"), Why.BUSY)
    yield Row("stopping", claim("s2", closed="s1"), C)
    yield Row("stopping", claim("s1", own_lost=S1), C)
    yield Row("succeeded", claim(), Why.FINISHED)
    yield Row("failed", claim(), Why.FINISHED)
    yield Row("cancelled", claim(), Why.CANCELLED)


def tails() -> Iterator[Row]:
    """What the four tail checks have in common: who is not the holder stores nothing, and learns why."""
    for made in (succeed, fail, snooze, lambda by: c.HandBack(holder=by)):
        mine = made(S1)
        yield Row("nothing", mine, Why.ABSENT)
        yield Row("stopping", mine, C)
        for phase in PHASES:
            yield Row(f"parallel: {phase}", mine, Why.SUPERSEDED)
            yield Row(f"parallel: {phase}", made(holder("s1", "r0")), Why.SUPERSEDED)
            yield Row(f"taken over: {phase}", mine, Why.FENCED)
        for phase in ("waiting", "running", "stopping"):
            yield Row(f"chain: {phase}", mine, Why.ALREADY)
        yield Row("retried", mine, Why.ALREADY)
        yield Row("succeeded", mine, Why.ALREADY)
        yield Row("failed", mine, Why.ALREADY)
        yield Row("cancelled", mine, Why.ALREADY)
        yield Row("evicted", mine, Why.FENCED)
        yield Row("evicted, entry expired", mine, Why.FENCED)
        yield Row("failed by others", mine, Why.FENCED)
        yield Row("cancelled by others", mine, Why.FENCED)


def outcomes() -> Iterator[Row]:
    then = c.Successor(due=0.0)
    yield Row("running", succeed(S1), OK)
    yield Row("running", succeed(S1, then=then), W)
    yield Row("running", fail(S1), W)
    yield Row("running", fail(S1, final=True), F)
    yield Row("running, one attempt", fail(S1), F)
    yield Row("running", fail(S1, final=True, then=then), W)
    yield Row("running", snooze(S1), W)
    yield Row("running", c.HandBack(holder=S1), W)


def keeps() -> Iterator[Row]:
    """A supervisor started at 2.0 asks; ``kept by others`` was kept by one started at 5.0."""
    yield Row("nothing", keep("r9"), W)
    for phase in ("waiting", "running", "stopping"):
        yield Row(f"kept: {phase}", keep("r9"), Why.LIVE)
        yield Row(f"kept: {phase}", replace(keep("r9"), task=replace(keep("r9").task, actor="another")), Why.DIFFERS)
    yield Row("kept: waiting", keep("r9", deployed=2.0, every=5.0), Why.OUTDATED)
    yield Row("kept: waiting", keep("r9", deployed=3.0, every=5.0), W)
    yield Row("full: waiting", keep("r9", deployed=3.0), Why.CROWDED)
    for phase in ENDS:
        yield Row(phase, keep("r9"), W)
        yield Row(f"full: {phase}", keep("r9"), Why.CROWDED)
        yield Row(f"kept by others: {phase}", keep("r9"), Why.OUTDATED)


def retires() -> Iterator[Row]:
    yield Row("nothing", c.Retire(deployed=3.0), Why.NOTHING)
    for phase in PHASES:
        yield Row(phase, c.Retire(deployed=3.0), Why.NOTHING)
    yield Row("kept: waiting", c.Retire(deployed=3.0), C)
    yield Row("kept: waiting", c.Retire(deployed=2.0), Why.OUTDATED)
    for phase in ("running", "stopping"):
        yield Row(f"kept: {phase}", c.Retire(deployed=3.0), Why.LIVE)


def triggers() -> Iterator[Row]:
    yield Row("nothing", c.Trigger(), Why.ABSENT)
    yield Row("scheduled", c.Trigger(), W)
    yield Row("waiting", c.Trigger(), Why.ALREADY)
    for phase in ("running", "stopping"):
        yield Row(phase, c.Trigger(), Why.LIVE)
    for phase in ENDS:
        yield Row(phase, c.Trigger(), Why.FINISHED)
    for phase in ("scheduled", "running", "stopping"):
        yield Row(phase, c.Trigger(run_id="another's"), Why.FINISHED)


def evictions() -> Iterator[Row]:
    yield Row("nothing", evict(S1), Why.FENCED)
    for phase in PHASES:
        yield Row(phase, evict(S2), Why.FENCED)
    yield Row("running", evict(S1), Why.NOT_DUE)
    yield Row("running with a timeout", evict(S1), Why.NOT_DUE)
    yield Row("running beyond its timeout", evict(S1), W)
    yield Row("running beyond its timeout, one attempt", evict(S1), F)
    yield Row("stopping", evict(S1), Why.NOT_DUE)
    yield Row("stopping", evict(S1, closed="s1"), C)
    yield Row("stopping beyond its grace", evict(S1), C)


def upkeep() -> Iterator[Row]:
    nothing: tuple[c.Command, ...] = (
        c.Confirm(holder=S1),
        expire("s1"),
        c.ClearOutbox(ids=DROP),
        c.ForgetSeen(ids=frozenset({SEEN.id})),
        c.TakeCounts(tag="t"),
    )
    yield from (Row("nothing", command, Why.NOTHING) for command in nothing)
    for phase in PHASES:
        same = Phase(phase)
        yield from (Row(phase, command, Why.NOTHING) for command in nothing)
        yield Row(f"parallel: {phase}", c.Confirm(holder=S1), same)
        yield Row(f"parallel: {phase}", expire("s1"), same)
        yield Row(f"outbox: {phase}", c.ClearOutbox(ids=DROP), same)
        yield Row(f"fed: {phase}", c.ForgetSeen(ids=frozenset({SEEN.id})), same)


def counts() -> Iterator[Row]:
    yield Row("to count: waiting", c.TakeCounts(tag="t"), W)
    yield Row("to count: failed", c.TakeCounts(tag="t"), F)
    yield Row("to count: cancelled", c.TakeCounts(tag="t"), C)


def purges() -> Iterator[Row]:
    yield Row("nothing", c.Purge(), Why.ABSENT)
    yield from (
        Row(phase, c.Purge(run_id="another's"), Why.SUPERSEDED) for phase in ("waiting", "running", "stopping", *ENDS)
    )
    for phase in ("running", "stopping"):
        yield Row(phase, c.Purge(), Why.LIVE)
    yield Row("failed", c.Purge(), Why.OWED)
    for phase in ("waiting", *ENDS):
        yield Row("failed, its letter kept" if phase == "failed" else phase, c.Purge(), None)
        yield from (Row(f"{owes}: {phase}", c.Purge(), Why.OWED) for owes in ("parallel", "outbox", "fed"))


ROWS = [
    row
    for table in (
        submits,
        replaces,
        keeps,
        retires,
        triggers,
        cancels,
        commands,
        claims,
        tails,
        outcomes,
        evictions,
        upkeep,
        counts,
        purges,
    )
    for row in table()
]


@cache
def reached(history: str) -> At:
    return play(*HISTORIES[history])


def cell(row: Row) -> tuple[type, Phase | None]:
    record = reached(row.history).record
    return type(row.command), record.phase if record is not None else None


@pytest.mark.parametrize("row", ROWS, ids=[f"{r.history}-{type(r.command).__name__}-{r.leads_to}" for r in ROWS])
def test_the_table_says_what_comes_out(row: Row) -> None:
    assert exact(shown(ask(reached(row.history), row.command))) == exact(row.leads_to)


def test_every_declared_result_has_an_example_and_no_example_leaves_the_table() -> None:
    declared = {
        (command, phase, exact(result))
        for command, row in NEXT.items()
        for phase, results in row.items()
        for result in results
    }
    shown_here = {(*cell(row), exact(row.leads_to)) for row in ROWS}
    assert declared - shown_here == set(), "declared, but no example reaches it"
    assert shown_here - declared == set(), "reached, but not declared"


def test_every_command_has_a_row_and_every_row_a_cell_for_each_phase_and_for_no_record() -> None:
    assert set(NEXT) == set(get_args(c.Command))
    for command, row in NEXT.items():
        assert set(row) == {None, *Phase}, command
        assert all(len(set(map(exact, results))) == len(results) > 0 for results in row.values()), command


@pytest.mark.parametrize("history", PHASES)
def test_a_command_that_the_table_does_not_know_is_illegal(history: str) -> None:
    at = reached(history)
    with pytest.raises(IllegalTransition) as caught:
        transition(at.record, cast("c.Command", object()), at.now)
    assert (caught.value.phase, caught.value.command) == (history, "object")


def test_an_unknown_command_is_illegal_without_a_record_too() -> None:
    with pytest.raises(IllegalTransition) as caught:
        transition(None, cast("c.Command", "Submit"), NOW)
    assert (caught.value.phase, caught.value.command) == ("absent", "str")


@pytest.mark.parametrize("command", [submit("r9"), supersede("r9")])
@pytest.mark.parametrize("history", PHASES)
def test_a_command_for_another_key_is_illegal(history: str, command: c.Submit | c.Replace) -> None:
    at = reached(history)
    with pytest.raises(IllegalTransition) as caught:
        transition(at.record, replace(command, key="other"), at.now)
    assert (caught.value.phase, caught.value.command) == (history, type(command).__name__)
    assert repr(KEY) in str(caught.value)
    assert "'other'" in str(caught.value)


@pytest.mark.parametrize("phase", [Phase.RUNNING])
def test_a_running_record_without_a_holder_is_a_defect(phase: Phase) -> None:
    broken = replace(reached("running").found, phase=phase, holder=None)
    with pytest.raises(IllegalTransition):
        transition(broken, claim("s2"), NOW)
