"""`tenure bench --quick`: every figure is there, and every task that it submitted has exactly one outcome."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from tenure.cli import bench_more as more
from tenure.cli import bench_work as work
from tenure.cli.bench import run_bench
from tenure.cli.bench_report import FIGURES, Report
from tenure.cli.bench_stage import Account, Stage
from tenure.cli.root import run
from tenure.supervisor.stillness import LONGEST_SECONDS


@pytest.mark.long
@pytest.mark.timeout(150)  # nine namespaces, each with processes of its own
def test_a_quick_run_gives_every_figure_as_one_json_object_and_loses_nothing() -> None:
    """A process of its own, as the command line has it: its standard output is the object and nothing else."""
    code = "import sys; from tenure.cli.bench import run_bench; sys.exit(run_bench(quick=True, as_json=True))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["quick"] is True
    assert said["balanced"] is True
    account = said["account"]
    assert account["submitted"] == account["finished"] == account["outcomes"] > 3_000
    assert account["wrong"] == []
    assert said["machine"].keys() == {"cores", "machine", "python", "nats_server", "tenure"}
    assert list(said["figures"]) == [figure.name for figure in FIGURES]
    for name, figure in said["figures"].items():
        assert len(figure["samples"]) == 1, name
        assert figure["median"] is None or math.isfinite(figure["median"]), name
        assert (figure["ratio_to_raw"] is None) == (figure["raw"] in {None, name}), name
    for name in ("submit_per_s", "submit_many_per_s", "drain_per_s", "result_p50_ms", "late_burst_p99_ms"):
        assert said["figures"][name]["median"] > 0, name
    assert {name: len(values[0]) for name, values in said["series"].items()}.keys() >= {
        "submit_sequential_ms",
        "result_ms",
        "late_spread_ms",
        "late_burst_ms",
    }


async def test_a_supervisor_is_timed_from_its_start_to_ready_and_watched_as_it_sweeps_and_rests(
    tmp_path: Path, nats_server: str, namespace: str
) -> None:
    """Real processes, a small plan: each figure is one that was measured."""
    plan = replace(work.QUICK, scheduled=50, written_seconds=0.1, sweep_seconds=0.5, rest_seconds=0.2)
    async with Stage(nats_server, namespace, tmp_path, 100, os.getpid()).open() as stage:
        figures = await more.scheduled(stage, plan)
    assert 0.1 < figures.pop("supervisor_ready_s") < 30.0
    assert figures.keys() == {"sweeping_cpu_percent", "sweep_cpu_s", "scheduled_cpu_percent"}
    assert 0.0 < figures["sweeping_cpu_percent"] < 200.0
    assert all(map(math.isfinite, figures.values()))
    assert figures["scheduled_cpu_percent"] >= figures["sweep_cpu_s"] / LONGEST_SECONDS * 100.0


class Told(more.Passes):
    """A pass from 0.2 to 1 s, which takes all of a CPU; the rest takes a tenth of it. Each look is 0.1 s after the one before."""

    looks = 0
    cpu = 0.0

    def now(self) -> tuple[float, float]:
        self.looks += 1
        self.cpu += 0.1 if 2 < self.looks <= 10 else 0.01
        at = self.looks / 10.0, self.cpu
        self.began += [at] * (self.looks == 2)
        self.ended += [at] * (self.looks == 10)
        return at


async def test_rest_is_so_many_seconds_together_in_which_no_pass_begins_or_is_under_way() -> None:
    assert await Told(os.getpid()).rest(0.5) == pytest.approx(0.1)


def test_a_task_without_an_outcome_or_with_two_does_not_add_up() -> None:
    assert Account(submitted=3, finished=3, outcomes=3).balanced
    assert not Account(submitted=3, finished=2, outcomes=3).balanced
    assert not Account(submitted=3, finished=3, outcomes=4).balanced
    assert not Account(submitted=3, finished=3, outcomes=3, wrong=["a run went on to generation 2"]).balanced


def a_report(**changed: float) -> Report:
    """Of a run that kept every goal but those of ``changed``; ``idle_rss_mb`` was measured in its last repeat only."""
    values = {figure.name: 1.0 if figure.goal is None else figure.goal for figure in FIGURES} | changed
    once = {"idle_rss_mb": values.pop("idle_rss_mb")}
    return Report.of(
        [values, values, values | once], quick=False, server="2.12.0", series={}, account=Account(), seconds=1.0
    )


def test_the_table_says_which_figures_are_of_one_sample() -> None:
    out = io.StringIO()
    a_report().show(Console(file=out, width=160))
    assert [line for line in out.getvalue().splitlines() if "one sample" in line] == [
        line for line in out.getvalue().splitlines() if "idle worker: resident memory" in line
    ]


def test_check_is_exit_code_1_if_a_goal_is_missed_and_only_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An aim that is missed, or a figure that cannot be measured on this machine, is no failure."""
    fine, slow = a_report(limited_share=float("nan")), a_report(submit_per_s=9_999.0, result_p50_ms=1.6)
    assert fine.missed == []

    def measured(report: Report, *, check: bool) -> int:
        monkeypatch.setattr("tenure.cli.bench.measure", lambda **_: report)
        return run_bench(quick=False, as_json=True, check=check)

    assert [measured(fine, check=True), measured(slow, check=False), measured(slow, check=True)] == [0, 0, 1]
    assert capsys.readouterr().err == "tenure: missed: submit_per_s, result_p50_ms\n"


def test_check_does_not_judge_by_a_quick_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--quick", "--check"]) == 2
    assert "leave --quick out" in capsys.readouterr().err


def test_a_figure_is_judged_by_its_goal_first_and_then_by_its_aim() -> None:
    by_name = {figure.name: figure for figure in FIGURES}
    rate, delay = by_name["submit_per_s"], by_name["result_p50_ms"]
    assert [rate.verdict(value) for value in (9_999, 10_000, 12_000)] == ["missed", "goal met", "aim met"]
    assert [delay.verdict(value) for value in (1.6, 1.5, 1.2)] == ["missed", "goal met", "aim met"]
    assert by_name["submit_many_per_s"].verdict(19_999) == "aim missed"
    assert delay.verdict(float("nan")) == "not measured here"
