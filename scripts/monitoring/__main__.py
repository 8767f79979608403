"""Write the files, or say which of them differ from what is made here."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from scripts.monitoring.panels import ROWS, WIDE, Panel
from scripts.monitoring.rules import ALERTS, RECORDINGS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD, RULES, RUNBOOK = "grafana-dashboard.json", "prometheus-rules.yml", "RUNBOOK.md"
LINK = f"deploy/{RUNBOOK}"
"""Where alerts find it, unless that is said; the chart puts its `metrics.rules.runbookUrl` in its place."""
RULES_OF_CHART = f"helm/tenure/files/{RULES}"
"""A chart cannot read what lies outside of it."""
MADE = "Made by `python -m scripts.monitoring --write`: change it there."
_HEIGHT = 8
_WITHOUT_ALERT = {
    "A deploy": (
        "Run `tenure setup` with the new code first (the chart's Job does), then replace supervisors and workers, a part at a time:"
        " both releases work side by side, and what only the new one knows is handed to it. Each old worker drains and ends with 0."
        " A new one that ends with 2 at once says why in its last line (a drain that may take longer than it is given, another"
        " setting): the old ones go on meanwhile. Then look at the dashboard for takeovers: a deploy makes none."
    ),
    "More or fewer workers": (
        "Any time, any number: those that go drain, those that come take their share at once. More help where runs wait and all"
        " slots are taken (*Bodies*), not where a limit, a rate or a pause holds runs back (*Head checks*)."
    ),
    "Takeovers are to be quicker": (
        "With `Config(session_ttl_seconds=2)` all that a killed process ran starts elsewhere within 3 s (with the default, 5 s"
        " where streams have one copy, within 8 s). Supervisors need it as much as workers: one with a longer ttl closes nobody"
        " sooner than its own. Set it in the app, replace the supervisors, then the workers. The price: a server that is away for"
        " longer than the ttl, or elects a leader (4 to 9 s), costs every body its lease; so leave the default where streams have"
        " replicas."
    ),
    "A machine is lost": (
        "Nothing is to be done for its runs: a supervisor elsewhere closes its sessions after their ttl (5 s; 12 s where streams"
        " have replicas), and other workers start them again. If it was the only one with a supervisor, start one now. Of three"
        " NATS servers one may be missing, which costs an election; while two are, nothing is accepted and nothing is lost. One"
        " that comes back with an empty disk is filled by the others: wait for that before the next one goes."
    ),
}
"""What people do, or what happens to them, without an alert."""


def _target(number: int, expr: str, legend: str) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {"refId": chr(ord("A") + number), "datasource": source, "expr": expr, "legendFormat": legend, "range": True}


def _drawn(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": _HEIGHT, "w": panel.width, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0 if panel.unit == "ops" else None}, "overrides": []},
        "options": {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["mean", "max"], "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [_target(index, *query) for index, query in enumerate(panel.queries)],
    }


def _choice(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        place = {"h": 1, "w": WIDE, "x": 0, "y": y}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        )
        x, y = 0, y + 1
        for panel in row:
            if x + panel.width > WIDE:
                x, y = 0, y + _HEIGHT
            panels.append(_drawn(panel, len(panels) + 1, x, y))
            x += panel.width
        y += _HEIGHT
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}}
    made = {
        "uid": "tenure",
        "title": "Tenure",
        "description": MADE,
        "tags": ["tenure"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [source, _choice("actor", "tenure_claims_total"), _choice("queue", "tenure_wakeups_pending")],
        },
        "panels": panels,
    }
    return json.dumps(made, indent=2) + "\n"


def rules(runbook: str = LINK) -> str:
    """Return the rules as Prometheus reads them; strings as JSON writes them are YAML as well."""
    lines = [f"# {MADE}", "groups:", "  - name: tenure-recordings", "    rules:"]
    for recording in RECORDINGS:
        lines += [f"      - record: {recording.name}", "        expr: |-", f"          {recording.expr}"]
    lines += ["", "  - name: tenure-alerts", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            "        expr: |-",
            f"          {alert.expr}",
            f"        for: {alert.wait}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          runbook_url: {json.dumps(f'{runbook}#{alert.name.lower()}')}",
        ]
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the runbook."""
    parts = [
        "# Runbook",
        f"{MADE} Panels in *italics* are those of the dashboard. Critical: look now; warning: look today; info: know it.",
    ]
    for alert in ALERTS:
        after = "" if alert.wait == "0m" else f", for {alert.wait}"
        parts += [
            f"## {alert.name}",
            f"{alert.severity.capitalize()}. `{alert.expr}`{after}",
            f"**Meaning.** {alert.meaning}",
            f"**First action.** {alert.action}",
        ]
    for title, text in _WITHOUT_ALERT.items():
        parts += [f"## {title}", text]
    return "\n\n".join(parts) + "\n"


def made(runbook: str = LINK) -> dict[str, str]:
    """Every file by its name in ``deploy``."""
    return {DASHBOARD: dashboard(), RULES: rules(runbook), RULES_OF_CHART: rules(), RUNBOOK: page()}


def main(arguments: list[str]) -> int:
    """Write the files, or say which differ (1)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the files, instead of saying which differ")
    parser.add_argument("--runbook", metavar="URL", default=LINK, help="where the alerts of deploy find the runbook")
    given = parser.parse_args(arguments)
    differ = [name for name, text in made(given.runbook).items() if _differs(DEPLOY / name, text)]
    for name in differ:
        if given.write:
            (DEPLOY / name).write_text(made(given.runbook)[name], encoding="utf-8")
        sys.stdout.write(f"{'written' if given.write else 'differs'}: deploy/{name}\n")
    return 1 if differ and not given.write else 0


def _differs(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text(encoding="utf-8") != text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
