"""Each alert fires on what it is for, with labels and words that make sense, and is silent otherwise: `promtool test rules`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scripts.monitoring.__main__ import DEPLOY, LINK, RULES
from scripts.monitoring.rules import ALERTS, RECORDINGS
from tests.prometheus import find, needs

SEVERITY = {alert.name: alert.severity for alert in ALERTS}
Series = dict[str, str]
W = 'job="tenure-worker", instance="w1"'


class Case(NamedTuple):
    """Series, one value a minute (`start+step x times`); after 40 minutes the alert fires with these labels and these words."""

    fires: Series
    labels: dict[str, str]
    says: str
    silent: Series


def steps(per_minute: float, start: float = 0.0) -> str:
    return f"{start:g}+{per_minute:g}x60"


def slow(metric: str, per_minute_fast: float, per_minute_slow: float, bound: str) -> Series:
    """A histogram: so many up to ``bound`` seconds, so many up to 60."""
    return {
        f'{metric}_bucket{{{W}, queue="default", le="{bound}"}}': steps(per_minute_fast),
        f'{metric}_bucket{{{W}, queue="default", le="60.0"}}': steps(per_minute_fast + per_minute_slow),
        f'{metric}_bucket{{{W}, queue="default", le="+Inf"}}': steps(per_minute_fast + per_minute_slow),
    }


SWEPT, TRUST = "tenure_last_sweep_timestamp_seconds", "tenure_session_trusted_until_timestamp_seconds"
ME = {"job": "tenure-worker", "instance": "w1"}
CASES = {
    "TenureNoSupervisor": Case(
        {f"{SWEPT}{{{W}}}": "0x60", f'{SWEPT}{{instance="s1"}}': "0+60x30 1800x30"},
        {},
        "No supervisor has swept all keys for two minutes",
        {f"{SWEPT}{{{W}}}": "0x60", f'{SWEPT}{{instance="s1"}}': "0+60x60"},
    ),
    "TenureProcessDown": Case(
        {f"up{{{W}}}": "1x30 0x30"}, ME, "tenure-worker w1 cannot be scraped", {f"up{{{W}}}": "1x60", 'up{job="other"}': "0x60"}
    ),
    "TenureSessionNotTrusted": Case(
        {f"{TRUST}{{{W}}}": "1800x60"}, ME, "w1 has had no trusted session for a minute", {f"{TRUST}{{{W}}}": "4+60x60"}
    ),
    "TenureQueueStalled": Case(
        {
            f'tenure_wakeups_pending{{{W}, queue="default"}}': "7x60",
            'tenure_wakeups_pending{instance="w2", queue="default"}': "7x60",
            f'tenure_queue_wait_seconds_count{{{W}, queue="default"}}': "9x60",
        },
        {"queue": "default"},
        "7 wake-ups of default wait, and none is claimed",
        {
            f'tenure_wakeups_pending{{{W}, queue="default"}}': "7x60",
            f'tenure_queue_wait_seconds_count{{{W}, queue="default"}}': steps(1),
        },
    ),
    "TenureNoWorker": Case(
        {f"up{{{W}}}": "1x60"},
        {},
        "No worker tells how much waits",
        {f'tenure_wakeups_pending{{{W}, queue="default"}}': "0x60"},
    ),
    "TenureQueueWithoutWorker": Case(
        {
            'tenure_wakeups_unserved{instance="s1", queue="mail"}': "0x30 3x30",
            'tenure_wakeups_unserved{instance="s2", queue="mail"}': "0x30 3x30",
            'tenure_wakeups_unserved{instance="s1", queue="default"}': "0x60",
        },
        {"queue": "mail"},
        "3 wake-ups of mail wait, and no worker works on that queue",
        {'tenure_wakeups_unserved{instance="s1", queue="mail"}': "3x37 0x30"},
    ),
    "TenureQueueSlow": Case(
        slow("tenure_queue_wait_seconds", 0, 60, "30.0"),
        {"queue": "default"},
        "Runs of default wait 58.5s (p95) for a worker",
        slow("tenure_queue_wait_seconds", 60, 1, "30.0"),
    ),
    "TenureStartsLate": Case(
        slow("tenure_start_lateness_seconds", 0, 60, "10.0"),
        {"queue": "default"},
        "Delayed runs of default start 57.5s late (p95)",
        slow("tenure_start_lateness_seconds", 60, 1, "10.0"),
    ),
    "TenureFenced": Case(
        {f'tenure_fenced_total{{{W}, actor="a"}}': "0x35 1x30"},
        {"actor": "a"},
        "1 outcomes of a were refused: another attempt held the run",
        {f'tenure_fenced_total{{{W}, actor="a"}}': "0x5 1x60"},
    ),
    "TenureTakeovers": Case(
        {f'tenure_takeovers_total{{{W}, actor="a"}}': steps(1)},
        {"actor": "a"},
        "15 runs of a were taken over within 15 minutes",
        {f'tenure_takeovers_total{{{W}, actor="a"}}': "0x30 4x30"},
    ),
    "TenureFailing": Case(
        {
            f'tenure_outcomes_total{{{W}, actor="a", outcome="failed"}}': steps(20),
            f'tenure_outcomes_total{{{W}, actor="a", outcome="succeeded"}}': steps(60),
        },
        {"actor": "a"},
        "25% of the runs of a fail for good",
        {
            f'tenure_outcomes_total{{{W}, actor="a", outcome="failed"}}': steps(6),
            f'tenure_outcomes_total{{{W}, actor="a", outcome="succeeded"}}': steps(60),
            f'tenure_outcomes_total{{{W}, actor="a", outcome="retried"}}': steps(60),
        },
    ),
    "TenureWorkWasted": Case(
        {
            f'tenure_superseded_total{{{W}, actor="a", where="tail"}}': steps(30),
            f'tenure_superseded_total{{{W}, actor="a", where="head"}}': steps(30),
            f'tenure_outcomes_total{{{W}, actor="a", outcome="succeeded"}}': steps(20),
            f'tenure_outcomes_total{{{W}, actor="a", outcome="retried"}}': steps(99),
            f'tenure_cancelled_total{{{W}, actor="a", where="waiting"}}': steps(0),
        },
        {"actor": "a"},
        "75% of the runs of a are superseded",
        {
            f'tenure_superseded_total{{{W}, actor="a", where="tail"}}': steps(10),
            f'tenure_outcomes_total{{{W}, actor="a", outcome="succeeded"}}': steps(20),
            f'tenure_outcomes_total{{{W}, actor="a", outcome="retried"}}': steps(99),
            f'tenure_cancelled_total{{{W}, actor="a", where="waiting"}}': steps(0),
        },
    ),
    "TenureRunsStuck": Case(
        {f'tenure_runs_stuck{{{W}, actor="a"}}': "0x30 2x30"},
        {"actor": "a", "instance": "w1"},
        "2 bodies of a on w1 ignore their stop",
        {f'tenure_runs_stuck{{{W}, actor="a"}}': "0x38 2x1 0x30"},
    ),
    "TenureForcedCancels": Case(
        {f'tenure_cancelled_total{{{W}, actor="a", where="forced"}}': steps(1)},
        {"actor": "a"},
        "15 cancels of a were forced",
        {
            f'tenure_cancelled_total{{{W}, actor="a", where="forced"}}': "3x60",
            f'tenure_cancelled_total{{{W}, actor="a", where="running"}}': steps(1),
        },
    ),
    "TenureServerErrors": Case(
        {f'tenure_errors_total{{{W}, where="server"}}': steps(1)},
        {"instance": "w1"},
        "w1 keeps giving up requests to the NATS server",
        {f'tenure_errors_total{{{W}, where="server"}}': "0x34 9x30"},
    ),
    "TenureInternalErrors": Case(
        {f'tenure_errors_total{{{W}, where="keeper"}}': "0x35 1x30"},
        {"instance": "w1", "where": "keeper"},
        "w1: unexpected errors in keeper",
        {f'tenure_errors_total{{{W}, where="server"}}': "0x35 1x30"},
    ),
    "TenureRepairsFrequent": Case(
        {f'tenure_repairs_total{{{W}, kind="wakeup"}}': steps(12)},
        {"kind": "wakeup"},
        "Supervisors keep repairing: wakeup, 0.2 a second",
        {f'tenure_repairs_total{{{W}, kind="wakeup"}}': "0x35 60x30", f'tenure_repairs_total{{{W}, kind="seen"}}': steps(99)},
    ),
    "TenureCommandsRejected": Case(
        {f'tenure_commands_rejected_total{{{W}, reason="key"}}': steps(1)},
        {"reason": "key"},
        "10 commands of the inbox were refused: key",
        {f'tenure_commands_rejected_total{{{W}, reason="key"}}': "4x60"},
    ),
    "TenureContended": Case(
        {f'tenure_cas_conflicts_total{{{W}, operation="limit"}}': steps(1800)},
        {"operation": "limit"},
        "30 refused compare-and-swaps a second: limit",
        {
            f'tenure_cas_conflicts_total{{{W}, operation="limit"}}': steps(600),
            f'tenure_cas_conflicts_total{{{W}, operation="submit"}}': steps(6000),
        },
    ),
}  # fmt: skip


def promtool(*arguments: str) -> str:
    program = find("promtool")
    assert program is not None
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def one_test(alert: str, series: Series, expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": "40m", "alertname": alert, "exp_alerts": expected}],
    }


@needs("promtool")
def test_promtool_finds_no_fault_in_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", "--lint=all", "--lint-fatal", str(DEPLOY / RULES))


@needs("promtool")
def test_promtool_finds_no_fault_in_the_configuration_and_it_loads_the_rules() -> None:
    assert f"SUCCESS: {len(RECORDINGS) + len(ALERTS)} rules found" in promtool(
        "check", "config", str(DEPLOY / "prometheus.yml")
    )


def test_every_alert_has_its_case() -> None:
    assert list(CASES) == [alert.name for alert in ALERTS]


@needs("promtool")
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_on_what_it_is_for_and_is_silent_otherwise(alert: str, tmp_path: Path) -> None:
    case = CASES[alert]
    annotations = {"summary": case.says, "runbook_url": f"{LINK}#{alert.lower()}"}
    fired = {"exp_labels": {"severity": SEVERITY[alert], **case.labels}, "exp_annotations": annotations}
    tests = [one_test(alert, case.fires, [fired]), one_test(alert, case.silent, [])]
    if alert == "TenureNoSupervisor":
        tests.append(one_test(alert, {f"up{{{W}}}": "1x60"}, [fired]))  # nothing of the kind is scraped
    page = {"rule_files": [str(DEPLOY / RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yml").write_text(json.dumps(page), encoding="utf-8")  # JSON is YAML
    promtool("test", "rules", str(tmp_path / "test.yml"))
