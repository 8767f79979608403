"""The dashboard, the rules and the runbook are what `scripts.monitoring` makes, and name only what processes expose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from scripts.monitoring import __main__ as monitoring
from scripts.monitoring.panels import ROWS, WIDE
from scripts.monitoring.rules import ALERTS, RECORDINGS
from tenure.metrics import ClientMetrics, Metrics

ADDED = {"job", "instance"}
"""Labels that Prometheus adds to whatever it scrapes."""
METRIC = re.compile(r"(?<![\w:])((?:\w+:)?tenure_\w+(?::\w+)?)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


def exposed() -> dict[str, dict[str, set[str]]]:
    """Samples by name, with each label's values. Of an actor and a queue, which stand for all."""
    found: dict[str, dict[str, set[str]]] = {"up": {}}
    supervised = Metrics("1", ["extract"], ["default"])
    supervised.look_after(["default"])
    metrics: list[Metrics | ClientMetrics] = [supervised, ClientMetrics()]
    for one in metrics:
        for family in one.registry.collect():
            for sample in family.samples:
                labels = found.setdefault(sample.name, {})
                for label, value in sample.labels.items():
                    labels.setdefault(label, set()).add(value)
    return found


def known() -> dict[str, dict[str, set[str]]]:
    """And what the rules record; its labels are the first part of its name."""
    found = exposed()
    for recording in RECORDINGS:
        level = recording.name.partition(":")[0]
        of = {metric for metric, _ in METRIC.findall(recording.expr)}
        labels = {} if level == "instance" else {label: set[str]() for label in level.split("_")}
        for label, values in labels.items():
            values.update(*(found[metric].get(label, set()) for metric in of))
        found[recording.name] = labels
    return found


def expressions() -> Iterator[tuple[str, str, str]]:
    """(where, expression, what is shown of it)."""
    for panels in ROWS.values():
        for panel in panels:
            yield from ((panel.title, expr, legend) for expr, legend in panel.queries)
    yield from ((recording.name, recording.expr, "") for recording in RECORDINGS)
    yield from ((alert.name, alert.expr, alert.summary) for alert in ALERTS)


def wrong(expr: str, shown: str) -> Iterator[str]:
    """What an expression names that is not there; ``shown``: a legend, or a text with labels in it."""
    metrics, of = known(), set[str]()
    for metric, matchers in METRIC.findall(expr):
        if metric not in metrics:
            yield f"no metric {metric}"
            continue
        of |= metrics[metric].keys()
        for label, operator, value in MATCHER.findall(matchers):
            values = metrics[metric].get(label)
            if values is None:
                yield f"{metric} has no label {label}"
            elif not value.startswith("$") and label not in {"actor", "queue"}:
                pattern = value.split("|") if "~" in operator else [value]
                yield from (f"{metric} has no {label} {one!r}" for one in pattern if one not in values)
    grouped = {label.strip() for labels in GROUPING.findall(expr) for label in labels.split(",")}
    yield from (f"no label {label} to group by" for label in grouped - of - ADDED)
    said = set(re.findall(r"\{\{(\w+)\}\}", shown)) | set(re.findall(r"\$labels\.(\w+)", shown))
    yield from (f"no label {label} to show" for label in said - (grouped or (of | ADDED)))


def test_what_is_in_deploy_is_what_is_made() -> None:
    for name, text in monitoring.made().items():
        path = monitoring.DEPLOY / name
        assert path.read_text(encoding="utf-8") == text, f"{name}: run `python -m scripts.monitoring --write`"


def test_every_metric_label_and_value_that_is_named_exists() -> None:
    assert [(where, fault) for where, expr, shown in expressions() for fault in wrong(expr, shown)] == []


@pytest.mark.parametrize(
    ("expr", "shown", "fault"),
    [
        ("rate(tenure_supersededs_total[5m])", "", "no metric tenure_supersededs_total"),
        ('tenure_fenced_total{key="k"}', "", "tenure_fenced_total has no label key"),
        ('tenure_cancelled_total{where=~"waiting|asleep"}', "", "tenure_cancelled_total has no where 'asleep'"),
        ("sum by (queue) (tenure_fenced_total)", "", "no label queue to group by"),
        ("sum by (actor) (tenure_cancelled_total)", "{{where}}", "no label where to show"),
        ('actor:tenure_fenced:rate5m{where="tail"}', "", "actor:tenure_fenced:rate5m has no label where"),
        ("actor:tenure_fenced:rate1h", "", "no metric actor:tenure_fenced:rate1h"),
    ],
)
def test_what_does_not_exist_is_noticed(expr: str, shown: str, fault: str) -> None:
    assert list(wrong(expr, shown)) == [fault]


def test_the_dashboard_is_led_by_superseded_cancelled_and_fenced() -> None:
    first = next(iter(ROWS.values()))
    assert [panel.queries[0][0].partition("rate(")[2].partition("{")[0] for panel in first[:3]] == [
        "tenure_superseded_total",
        "tenure_cancelled_total",
        "tenure_fenced_total",
    ]
    assert [panel.queries[0][1] for panel in first[:2]] == ["{{actor}} {{where}}"] * 2


def test_every_family_of_a_worker_and_a_supervisor_is_on_the_dashboard() -> None:
    shown = " ".join(expr for panels in ROWS.values() for panel in panels for expr, _ in panel.queries)
    families = {family.name for family in Metrics("1", ["extract"], ["default"]).registry.collect()}
    assert [name for name in sorted(families) if name not in shown] == []


def test_panels_have_their_own_place_and_number() -> None:
    panels = json.loads(monitoring.dashboard())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < WIDE, panel["title"]
        taken |= cells


def test_every_alert_has_a_place_in_the_runbook_with_a_meaning_and_a_first_action() -> None:
    page = (monitoring.DEPLOY / monitoring.RUNBOOK).read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")[1:]}
    for alert in ALERTS:
        assert "**Meaning.** " in sections[alert.name]
        assert "**First action.** " in sections[alert.name]
        assert f'runbook_url: "deploy/RUNBOOK.md#{alert.name.lower()}"' in monitoring.rules()
        assert f'runbook_url: "https://runbooks/tenure#{alert.name.lower()}"' in monitoring.rules(
            "https://runbooks/tenure"
        )
    panels = {panel.title for panels in ROWS.values() for panel in panels}
    named = set(re.findall(r"(?<!\*)\*(?!\*)([^*\n]+)\*(?!\*)", page)) - {"italics"}
    assert named - panels == set(), "panels that the runbook names"
