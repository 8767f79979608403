"""The chart renders what was looked at, Kubernetes and the operators would take it, its parts fit each other and the program."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from typer.main import get_command

from tenure import App, Config
from tenure.cli.root import make
from tenure.health import HealthServer
from tenure.metrics import Metrics
from tenure.worker.drain import longest
from tests.charts import (
    CASES,
    CHART,
    DEPLOY,
    ROOT,
    documents,
    faults,
    helm,
    kept,
    needs,
    needs_schemas,
    render,
    render_case,
)
from tests.prometheus import find as find_prometheus
from tests.prometheus import needs as needs_prometheus


@functools.cache
def all_objects(case: str) -> list[dict[str, Any]]:
    return documents(kept(case).read_text(encoding="utf-8"))


def objects(case: str, *kinds: str) -> list[dict[str, Any]]:
    return [one for one in all_objects(case) if not kinds or one["kind"] in kinds]


def values() -> dict[str, Any]:
    return documents((CHART / "values.yaml").read_text(encoding="utf-8"))[0]


# -- as helm renders it ----------------------------------------------------------------------------------------------


@needs("helm")
@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_is_what_is_kept(case: str) -> None:
    assert render_case(case) == kept(case).read_text(encoding="utf-8"), "look at it, then `python -m tests.charts`"


@needs("helm")
def test_helm_finds_no_fault_in_the_chart() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@needs("helm")
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("worker.terminationGracePeriodSeconds=49", "is 49, and must be at least 50: drainSeconds (30) + longestGrace"),
        ("drainSeconds=41", "is 60, and must be at least 61: drainSeconds (41)"),
        (
            "workers[0].terminationGracePeriodSeconds=9,workers[0].name=x",
            'workers "x": terminationGracePeriodSeconds is 9',
        ),
        ("supervisor.terminationGracePeriodSeconds=9", "minimum: got 9, want 10"),
        ("drainSecond=20", "'drainSecond' not allowed"),
        ("worker.concurency=20", "'concurency' not allowed"),
        ("worker.autoscaling.min=0", "minimum: got 0, want 1"),
        ("worker.autoscaling.enabled=true", "set metrics.serviceMonitor.enabled as well"),
        (
            "worker.autoscaling.enabled=true,metrics.serviceMonitor.enabled=true",
            "autoscaling.prometheus must be the URL of the Prometheus",
        ),
        (
            "worker.autoscaling.enabled=true,metrics.serviceMonitor.enabled=true,worker.autoscaling.min=11",
            "autoscaling.min (11) is over autoscaling.max (10)",
        ),
        ("app=tasks.py", "does not match pattern"),
        ("podDisruptionBudget.maxUnavailable=0", "/podDisruptionBudget/maxUnavailable"),
        ("metrics.rules.runbookUrl=https://wiki/tenure#alerts", "does not match pattern"),
        ("metrics.rules.runbookUrl=", "does not match pattern"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(setting: str, says: str) -> None:
    done = render("--set", setting)
    assert done.returncode != 0
    assert says in done.stderr


@needs("helm")
def test_the_rules_of_the_chart_are_those_of_deploy() -> None:
    done = render("--set", "metrics.rules.enabled=true", "--show-only", "templates/monitoring.yaml")
    (rule,) = documents(done.stdout)
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"] == documents((DEPLOY / "prometheus-rules.yml").read_text(encoding="utf-8"))[0]


@needs("helm")
@pytest.mark.parametrize("base", [None, "https://wiki.example/ops/tenure"])
def test_each_alert_links_to_its_part_of_the_runbook_wherever_people_read_that(base: str | None) -> None:
    given = () if base is None else ("--set", f"metrics.rules.runbookUrl={base}")
    done = render("--set", "metrics.rules.enabled=true", *given, "--show-only", "templates/monitoring.yaml")
    (rule,) = documents(done.stdout)
    alerts = [one for group in rule["spec"]["groups"] for one in group["rules"] if "alert" in one]
    page = (DEPLOY / "RUNBOOK.md").read_text(encoding="utf-8")
    anchors = {title.lower() for title in re.findall(r"^## (\w+)$", page, re.MULTILINE)}
    assert len(alerts) > 10
    for one in alerts:
        where, _, anchor = one["annotations"]["runbook_url"].partition("#")
        assert where == (base or "deploy/RUNBOOK.md")
        assert anchor == one["alert"].lower()
        assert anchor in anchors
    assert (ROOT / values()["metrics"]["rules"]["runbookUrl"]).is_file()


@needs("helm")
def test_a_group_may_switch_off_what_all_have_and_have_no_worker() -> None:
    done = render(
        "--set", "worker.autoscaling.enabled=true,workers[0].name=a,workers[0].replicas=0",
        "--set", "workers[0].autoscaling.enabled=false", "--show-only", "templates/worker.yaml",
    )  # fmt: skip
    (deployment,) = (one for one in documents(done.stdout) if one["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 0


# -- what Kubernetes and the operators make of it --------------------------------------------------------------------


@needs_schemas
@pytest.mark.parametrize("case", CASES)
def test_kubernetes_and_the_operators_take_each_object_and_know_each_field(case: str) -> None:
    ours = objects(case)
    told = faults("manifest", *map(json.dumps, ours))
    assert {
        f"{one['kind']} {one['metadata']['name']}": fault for one, fault in zip(ours, told, strict=True) if fault
    } == {}


def test_the_renders_that_are_kept_have_every_kind_that_a_template_makes() -> None:
    made = {
        kind
        for template in (CHART / "templates").iterdir()
        for kind in re.findall(r"^kind: (\w+)$", template.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {one["kind"] for one in objects("everything")} == made


@needs_schemas
def test_what_a_schema_does_not_allow_is_noticed() -> None:
    """Of every kind: a field that nobody knows, somewhere below; and what must be there or is of another type."""

    def spoilt(kind: str, *path: str | int, to: Any) -> str:
        one: Any = deepcopy(objects("everything", kind)[0])
        inside = one
        for step in path[:-1]:
            inside = inside[step]
        inside[path[-1]] = to
        return json.dumps(one)

    wrong = {
        "'livenessprobe' was unexpected": spoilt(
            "Deployment", "spec", "template", "spec", "containers", 0, "livenessprobe", to={}
        ),
        "'maxunavailable' was unexpected": spoilt("PodDisruptionBudget", "spec", "maxunavailable", to=1),
        "unknown: .spec.triggers[0].metadatas": spoilt("ScaledObject", "spec", "triggers", 0, "metadatas", to={}),
        "scaleTargetRef": spoilt("ScaledObject", "spec", "scaleTargetRef", to=None),
        "unknown: .spec.endpoints[0].intervall": spoilt("ServiceMonitor", "spec", "endpoints", 0, "intervall", to="9s"),
        "spec.endpoints.0.interval": spoilt("ServiceMonitor", "spec", "endpoints", 0, "interval", to="soon"),
        "unknown: .spec.groups[0].rules[0].expression": spoilt(
            "PrometheusRule", "spec", "groups", 0, "rules", 0, "expression", to="up"
        ),
        "spec.groups.0.name": spoilt("PrometheusRule", "spec", "groups", 0, "name", to=7),
    }
    for says, told in zip(wrong, faults("manifest", *wrong.values()), strict=True):
        assert says in told


# -- how its parts fit each other, and the program -------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_selectors_select_pods_of_one_component_each(case: str) -> None:
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in objects(case, "Deployment")
    }

    def of(selector: dict[str, str]) -> list[str]:
        return [name for name, labels in pods.items() if selector.items() <= labels.items()]

    for one in objects(case, "Deployment", "PodDisruptionBudget", "Service"):
        selector = one["spec"]["selector"]
        assert of(selector.get("matchLabels", selector)) == [one["metadata"]["name"]], one["kind"]
    policies = {
        one["metadata"]["name"]: one["spec"]["podSelector"]["matchLabels"] for one in objects(case, "NetworkPolicy")
    }
    assert of(policies["shop-tenure"]) == list(pods)
    assert of(policies["shop-tenure-bodies"]) == [name for name in pods if "-worker-" in name]
    (setup,) = objects(case, "Job")
    assert policies["shop-tenure"].items() <= setup["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("case", CASES)
def test_no_pod_runs_as_root_or_writes_to_its_image(case: str) -> None:
    for one in objects(case, "Deployment", "Job"):
        pod = one["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@pytest.mark.parametrize("case", CASES)
def test_the_command_line_takes_the_arguments_of_each_container(case: str) -> None:
    root: Any = get_command(make())
    for one in objects(case, "Deployment", "Job"):
        (container,) = one["spec"]["template"]["spec"]["containers"]
        name, *arguments = container["args"]
        options = root.get_command(None, name).make_context(name, arguments).params
        assert options["target"] == ("tenure.examples.documents:app" if case == "default" else "shop.tasks:app")
        if one["kind"] == "Deployment":
            (port,) = container["ports"]
            assert (options["metrics_host"], options["metrics_port"]) == ("0.0.0.0", port["containerPort"])  # noqa: S104  (a pod's own)
        if name == "worker":
            assert options["killed_after"] == one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def test_probes_ask_for_what_is_answered() -> None:
    server = HealthServer(CollectorRegistry(), lambda: "draining", host="127.0.0.1", port=0)
    server.start()
    try:
        for one in objects("default", "Deployment"):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            alive, ready = (container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness"))
            assert (server.answer(alive["path"])[0], server.answer(ready["path"])[0]) == (200, 503)
            assert {alive["port"], ready["port"]} == {port["name"] for port in container["ports"]} == {"metrics"}
    finally:
        server.close()


def test_the_defaults_are_those_of_the_program_and_the_margin_is_enough() -> None:
    app, given = App("docs"), values()

    @app.actor
    async def work() -> None: ...

    grace = work.task.policy.grace
    assert (given["drainSeconds"], given["longestGraceSeconds"]) == (Config().drain_seconds, grace)
    margin = re.search(
        r"longestGraceSeconds (\d+) \| ceil", (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    )
    assert margin is not None
    assert int(margin[1]) >= longest(app) - Config().drain_seconds - grace
    assert given["worker"]["terminationGracePeriodSeconds"] >= longest(app)


def scaling() -> tuple[dict[str, Any], str]:
    (scaled,) = objects("everything", "ScaledObject")
    return scaled["spec"], scaled["spec"]["triggers"][0]["metadata"]["query"]


def test_what_is_scaled_by_is_exposed_by_workers_and_scraped() -> None:
    spec, query = scaling()
    names = {sample.name for family in Metrics("1", ["a"], ["q"]).registry.collect() for sample in family.samples}
    assert set(re.findall(r"tenure_\w+", query)) == {"tenure_wakeups_pending", "tenure_runs_in_progress"} <= names
    target = spec["scaleTargetRef"]["name"]
    (deployment,) = (one for one in objects("everything", "Deployment") if one["metadata"]["name"] == target)
    assert "replicas" not in deployment["spec"], "two would decide about it"
    (service,) = (one for one in objects("everything", "Service") if one["metadata"]["name"] == target)
    assert set(re.findall(r'service="([^"]+)"', query)) == {target}
    (monitor,) = objects("everything", "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "tenure-worker"
    assert {end["port"] for end in monitor["spec"]["endpoints"]} == {port["name"] for port in service["spec"]["ports"]}


@needs_prometheus("promtool")
def test_the_number_that_is_scaled_by_is_pending_plus_running(tmp_path: Path) -> None:
    """Two workers of the group tell of the same two queues; another group and another namespace do not count."""
    _, query = scaling()
    mine = 'namespace="prod", service="shop-tenure-worker-web"'
    series = {
        f'tenure_wakeups_pending{{{mine}, pod="a", queue="default"}}': 70,
        f'tenure_wakeups_pending{{{mine}, pod="b", queue="default"}}': 71,
        f'tenure_wakeups_pending{{{mine}, pod="a", queue="mail"}}': 5,
        f'tenure_runs_in_progress{{{mine}, pod="a", actor="x"}}': 40,
        f'tenure_runs_in_progress{{{mine}, pod="b", actor="x"}}': 4,
        'tenure_wakeups_pending{namespace="prod", service="shop-tenure-worker-bulk", queue="default"}': 900,
        'tenure_runs_in_progress{namespace="test", service="shop-tenure-worker-web", actor="x"}': 900,
    }
    test = {
        "input_series": [{"series": name, "values": f"{value}x5"} for name, value in series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": "3m", "exp_samples": [{"labels": "{}", "value": 71 + 5 + 44}]}
        ],
    }
    page = tmp_path / "test.yml"
    page.write_text(json.dumps({"tests": [test]}), encoding="utf-8")  # JSON is YAML
    program = find_prometheus("promtool")
    assert program is not None
    done = subprocess.run(
        [program, "test", "rules", str(page)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
