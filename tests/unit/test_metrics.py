"""What processes expose: every metric of the contract, with closed label sets that are there before anything happens."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from tenure import App, OutcomeUnknown, Unavailable, wishes
from tenure.core import rates
from tenure.core.commands import Claim, Command
from tenure.core.errors import KeyIsLive
from tenure.core.outcomes import Did, Why
from tenure.core.records import Count
from tenure.core.transitions import NEXT
from tenure.metrics import (
    ERRORS,
    HEAD_OUTCOMES,
    OPERATIONS,
    OTHER,
    REJECTED_WHY,
    REPAIRS,
    TAIL_OUTCOMES,
    ClientMetrics,
    Metrics,
)
from tenure.testing import memory

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tenure"
CONTRACT = {
    "tenure_claims": {"actor", "outcome"},
    "tenure_superseded": {"actor", "where"},
    "tenure_cancelled": {"actor", "where"},
    "tenure_fenced": {"actor"},
    "tenure_outcomes": {"actor", "outcome"},
    "tenure_takeovers": {"actor"},
    "tenure_repairs": {"kind"},
    "tenure_cas_conflicts": {"operation"},
    "tenure_run_seconds": {"actor"},
    "tenure_queue_wait_seconds": {"queue"},
    "tenure_start_lateness_seconds": {"queue"},
    "tenure_runs_in_progress": {"actor"},
    "tenure_wakeups_pending": {"queue"},
    "tenure_session_trusted_until_timestamp_seconds": set[str](),
    "tenure_build_info": {"version"},
}


def fresh() -> Metrics:
    return Metrics("1", ["extract", "watch"], ["default"])


def series(metrics: Metrics | ClientMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }


def value(metrics: Metrics | ClientMetrics, name: str, **labels: str) -> float:
    return series(metrics)[name, tuple(sorted(labels.items()))]


@pytest.mark.parametrize("name", CONTRACT)
def test_every_metric_of_the_contract_is_there_with_its_labels_and_at_zero(name: str) -> None:
    [family] = [family for family in fresh().registry.collect() if family.name == name]
    assert family.samples
    assert family.documentation
    for sample in family.samples:
        assert sample.labels.keys() - {"le"} == CONTRACT[name]
        assert sample.value == (1.0 if name == "tenure_build_info" else 0.0)


def test_what_is_counted_adds_no_series_not_even_of_actors_that_only_others_know() -> None:
    metrics = fresh()
    before = set(series(metrics))
    for actor in ("extract", "of another deployment", ""):
        for outcome in HEAD_OUTCOMES:
            metrics.claims[actor, outcome] += 1
        for outcome in TAIL_OUTCOMES:
            metrics.outcomes[actor, outcome] += 1
        metrics.count([Count(what="superseded", where="tail", actor=actor, number=2)])
        metrics.count([Count(what="cancelled", where="waiting", actor=actor)])
        metrics.fenced[actor] += 1
        metrics.takeovers[actor] += 1
    for kind in get_args(Command):
        metrics.conflict(kind.__name__.lower())
    assert set(series(metrics)) == before
    assert value(metrics, "tenure_superseded_total", actor="extract", where="tail") == 2
    assert value(metrics, "tenure_superseded_total", actor=OTHER, where="tail") == 4, "none is lost"
    assert value(metrics, "tenure_cancelled_total", actor=OTHER, where="waiting") == 2
    assert value(metrics, "tenure_claims_total", actor=OTHER, outcome="foreign") == 2
    assert value(metrics, "tenure_fenced_total", actor=OTHER) == 2
    assert value(metrics, "tenure_takeovers_total", actor="watch") == 0


def test_a_worker_with_a_supervisor_tells_what_both_count_and_the_sweeps() -> None:
    worker, supervisor = fresh(), Metrics("1", ["extract", "watch"], ())
    worker.beside = supervisor
    worker.superseded["extract", "head"] += 1
    supervisor.superseded["extract", "head"] += 2
    supervisor.swept(7, 0.25, 1_700_000_000.0)
    assert value(worker, "tenure_superseded_total", actor="extract", where="head") == 3
    assert value(worker, "tenure_swept_records") == 7
    assert value(worker, "tenure_sweep_seconds") == 0.25
    assert value(worker, "tenure_last_sweep_timestamp_seconds") == 1_700_000_000.0


def test_what_waits_without_a_worker_is_told_of_the_supervisors_own_queues_and_of_all_others_as_one() -> None:
    worker, supervisor = fresh(), Metrics("1", ["extract", "watch"], ())
    supervisor.look_after(["default", "mail"])
    worker.beside = supervisor
    before = set(series(worker))
    for waiting in ({"mail": 3, "of another app": 1, "and another": 1}, {"mail": 2}):
        supervisor.found_unserved(waiting)
        assert set(series(worker)) == before
        others = sum(number for queue, number in waiting.items() if queue != "mail")
        for queue, number in (("default", 0), ("mail", waiting["mail"]), (OTHER, others)):
            assert value(worker, "tenure_wakeups_unserved", queue=queue) == number


# -- closed sets, against the code that counts -------------------------------------------------------------------------


def trees(*folders: str) -> Iterator[ast.AST]:
    for folder in folders:
        for path in sorted((SOURCE / folder).rglob("*.py")):
            yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def counted(family: str, *folders: str) -> set[str]:
    """Literal labels of ``metrics.<family>["..."]``, the last of them where there are two."""
    found = set()
    for node in trees(*folders):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == family:
            label = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
            if isinstance(label, ast.Constant):
                found.add(str(label.value))
    return found


def named(*callees: str) -> set[str]:
    """Literals that these functions are given first."""
    return {
        str(node.args[0].value)
        for node in trees("worker", "supervisor")
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
        if getattr(node.func, "attr", getattr(node.func, "id", "")) in callees
    }


def test_head_outcomes_are_those_of_the_code() -> None:
    declared = {result.value for results in NEXT[Claim].values() for result in results if isinstance(result, Why)} - {
        "limited"
    }  # it is parked, and counted as that
    decided = {Did.WON, Did.TAKEOVER, Did.RECLAIMED, Did.EXHAUSTED, Did.CANCELLED, Did.DROPPED}
    assert declared | {did.value for did in decided} | named("Later", "Drop") | counted("claims", "worker") == set(
        HEAD_OUTCOMES
    )


def test_repairs_errors_operations_and_reasons_are_those_of_the_code() -> None:
    kinds = counted("repairs", "supervisor") | named("_repaired")
    assert kinds | {"stop", "forced", "evicted"} == set(REPAIRS)  # these three: keepers, by what the write did
    assert counted("errors", "worker", "supervisor") == set(ERRORS)
    assert {kind.__name__.lower() for kind in get_args(Command)} | {"limit", "rate"} == set(OPERATIONS)
    assert set(get_args(wishes.Reason)) == set(REJECTED_WHY)


# -- producers ---------------------------------------------------------------------------------------------------------


async def test_a_client_counts_its_calls() -> None:
    app = App("docs")

    @app.actor
    async def extract(path: str) -> None: ...

    async with memory(app, workers=0) as client:
        before = set(series(client.metrics))
        await client.submit(extract.call("a"), key="k", delay=60)
        await client.submit(extract.call("a"), key="k")
        with pytest.raises(KeyIsLive):
            await client.submit(extract.call("a"), key="k", if_live="reject")
        await client.replace(extract.call("b"), key="k")
        await client.cancel("k")
        await client.cancel("nobody")
        told = {labels: number for labels, number in client.metrics.calls.items() if number}
        assert told == {
            ("submit", "accepted"): 1,
            ("submit", "kept"): 1,
            ("submit", "rejected"): 1,
            ("replace", "accepted"): 1,
            ("cancel", "cancelled"): 1,
            ("cancel", "not_found"): 1,
        }
        assert value(client.metrics, "tenure_client_call_seconds_count", call="submit") == 3
        assert value(client.metrics, "tenure_cas_conflicts_total", operation="submit") == 2  # it expects no record
        assert set(series(client.metrics)) == before


async def test_writes_that_are_refused_are_counted_of_limits_and_rates_too() -> None:
    """Each is a compare-and-swap on a revision that is not there."""
    async with memory(App("docs")) as client:
        for service in (*client.workers, *client.supervisors):
            before = dict(service.metrics.conflicts)
            stores, patience = service.stores, service.stores.runs.patience()
            assert (await stores.limits.write("l", None, 99, patience))[0] == 0
            assert (await stores.rates.write("r", rates.Entry(n=1), 99, 60, patience))[0] == 0
            after = service.metrics.conflicts
            assert {kind: after[kind] - before[kind] for kind in ("limit", "rate")} == {"limit": 1, "rate": 1}


@pytest.mark.parametrize(
    ("error", "outcome"), [(Unavailable("no"), "unavailable"), (OutcomeUnknown("?", key="k"), "unknown")]
)
async def test_a_call_that_fails_is_counted_by_what_is_known_of_it(error: Exception, outcome: str) -> None:
    app = App("docs")

    @app.actor
    async def extract(path: str) -> None: ...

    async with memory(app, workers=0) as client:

        async def commit(*_args: object, **_options: object) -> None:
            raise error

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client.stores.runs, "commit", commit)
            with pytest.raises(type(error)):
                await client.submit(extract.call("a"), key="k")
        assert client.metrics.calls["submit", outcome] == 1
