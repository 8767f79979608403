"""Each recording rule keeps the number that its name says, over all processes and of each label apart: `promtool test rules`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.monitoring.__main__ import DEPLOY, RULES
from scripts.monitoring.rules import RECORDINGS
from tests.prometheus import needs
from tests.unit.test_rules import Series, promtool, steps

Kept = dict[str, float]
"""By labels."""


def pair(metric: str, labels: str, one: float, two: float) -> Series:
    """What two processes count in a minute."""
    return {f'{metric}{{instance="{name}", {labels}}}': steps(number) for name, number in (("w1", one), ("w2", two))}


def spread(metric: str, label: str, fast: float, slow: float) -> Series:
    """So many a minute up to a second, so many more up to five, in two processes."""
    counts = {"1.0": fast, "5.0": fast + slow, "+Inf": fast + slow}
    return {
        series: values
        for bound, number in counts.items()
        for series, values in pair(f"{metric}_bucket", f'{label}, le="{bound}"', number, number).items()
    }


ENDS: Series = {
    **pair("tenure_outcomes_total", 'actor="a", outcome="succeeded"', 30, 30),
    **pair("tenure_outcomes_total", 'actor="a", outcome="rescheduled"', 15, 0),
    **pair("tenure_outcomes_total", 'actor="a", outcome="failed"', 15, 30),
    **pair("tenure_outcomes_total", 'actor="a", outcome="retried"', 600, 600),
    **pair("tenure_outcomes_total", 'actor="idle", outcome="succeeded"', 0, 0),
    **pair("tenure_outcomes_total", 'actor="idle", outcome="failed"', 0, 0),
}
CASES: dict[str, tuple[Series, Kept]] = {
    "actor_where:tenure_superseded:rate5m": (
        {
            **pair("tenure_superseded_total", 'actor="a", where="head"', 60, 30),
            **pair("tenure_superseded_total", 'actor="a", where="tail"', 0, 30),
            **pair("tenure_superseded_total", 'actor="b", where="head"', 0, 0),
        },
        {'actor="a", where="head"': 1.5, 'actor="a", where="tail"': 0.5, 'actor="b", where="head"': 0},
    ),
    "actor_where:tenure_cancelled:rate5m": (
        {
            **pair("tenure_cancelled_total", 'actor="a", where="waiting"', 60, 60),
            **pair("tenure_cancelled_total", 'actor="a", where="forced"', 30, 0),
        },
        {'actor="a", where="waiting"': 2, 'actor="a", where="forced"': 0.5},
    ),
    "actor:tenure_fenced:rate5m": (
        {**pair("tenure_fenced_total", 'actor="a"', 30, 15), **pair("tenure_fenced_total", 'actor="b"', 0, 0)},
        {'actor="a"': 0.75, 'actor="b"': 0},
    ),
    "actor_outcome:tenure_outcomes:rate5m": (
        pair("tenure_outcomes_total", 'actor="a", outcome="retried"', 60, 15),
        {'actor="a", outcome="retried"': 1.25},
    ),
    "actor:tenure_failed:ratio_rate5m": (ENDS, {'actor="a"': 0.375}),
    "actor:tenure_superseded:ratio_rate5m": (
        {
            **ENDS,
            **pair("tenure_superseded_total", 'actor="a", where="head"', 60, 30),
            **pair("tenure_superseded_total", 'actor="a", where="tail"', 30, 0),
            **pair("tenure_cancelled_total", 'actor="a", where="running"', 0, 240),
        },
        {'actor="a"': 0.25},
    ),
    "actor:tenure_run_seconds:p95_5m": (
        {**spread("tenure_run_seconds", 'actor="a"', 90, 10), **spread("tenure_run_seconds", 'actor="b"', 100, 0)},
        {'actor="a"': 3, 'actor="b"': 0.95},
    ),
    "queue:tenure_wakeups_pending:max": (
        {
            'tenure_wakeups_pending{instance="w1", queue="q"}': "7x60",
            'tenure_wakeups_pending{instance="w2", queue="q"}': "9x60",
            'tenure_wakeups_pending{instance="w2", queue="r"}': "0x60",
        },
        {'queue="q"': 9, 'queue="r"': 0},
    ),
    "queue:tenure_claims:rate5m": (
        pair("tenure_queue_wait_seconds_count", 'queue="q"', 60, 90),
        {'queue="q"': 2.5},
    ),
    "queue:tenure_queue_wait_seconds:p95_5m": (
        {
            **spread("tenure_queue_wait_seconds", 'queue="q"', 0, 100),
            **spread("tenure_queue_wait_seconds", 'queue="r"', 90, 10),
        },
        {'queue="q"': 4.8, 'queue="r"': 3},
    ),
    "queue:tenure_start_lateness_seconds:p95_5m": (
        spread("tenure_start_lateness_seconds", 'queue="q"', 90, 10),
        {'queue="q"': 3},
    ),
    "instance:tenure_session_trust_seconds": (
        {
            'tenure_session_trusted_until_timestamp_seconds{instance="w1"}': "4+60x60",
            'tenure_session_trusted_until_timestamp_seconds{instance="w2"}': "0+60x30 1800x30",
        },
        {'instance="w1"': 4, 'instance="w2"': -600},
    ),
}


def test_every_recording_has_its_case() -> None:
    assert list(CASES) == [recording.name for recording in RECORDINGS]


def failures(name: str, kept: Kept, tmp_path: Path) -> str:
    """What promtool has against the rule after 40 minutes; empty if it keeps just this, and each of these."""
    samples = [{"labels": f"{{{labels}}}", "value": value} for labels, value in kept.items()]
    test = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in CASES[name][0].items()],
        "promql_expr_test": [{"expr": f"round({name}, 0.001)", "eval_time": "40m", "exp_samples": samples}],
    }
    page = {"rule_files": [str(DEPLOY / RULES)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yml").write_text(json.dumps(page), encoding="utf-8")  # JSON is YAML
    try:
        promtool("test", "rules", str(tmp_path / "test.yml"))
    except AssertionError as failed:
        return str(failed)
    return ""


@needs("promtool")
@pytest.mark.parametrize("name", CASES)
def test_a_recording_keeps_the_number_that_its_name_says(name: str, tmp_path: Path) -> None:
    assert failures(name, CASES[name][1], tmp_path) == ""


@needs("promtool")
def test_another_number_and_a_series_too_few_or_too_many_are_noticed(tmp_path: Path) -> None:
    for kept in ({'actor="a"': 0.8, 'actor="b"': 0}, {'actor="a"': 0.75}, {'actor="a"': 0.75, 'actor="c"': 0}):
        assert "FAILED" in failures("actor:tenure_fenced:rate5m", kept, tmp_path)
