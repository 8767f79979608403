"""Dockerfile and compose file: what linters and schemas find, and whether they fit each other, the tree and the program."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
from typing import Any

import pytest
from typer.main import get_command

from tenure.cli.root import make
from tests.charts import CHART, DEPLOY, ROOT, documents, faults, find, needs, needs_schemas

DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yml"


def dockerfile() -> str:
    """Without comments, each instruction in one line."""
    lines = (line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return "\n".join(lines).replace("\\\n", " ")


def words(instruction: str) -> list[str]:
    """Of an instruction in its exec form, the last of its kind."""
    listed: list[str] = json.loads(re.findall(rf"^{instruction}[^\[\n]*(\[.*\])$", dockerfile(), re.MULTILINE)[-1])
    return listed


def options(arguments: list[str]) -> dict[str, Any]:
    """What the command line makes of a command; it must take it."""
    name, *rest = arguments
    root: Any = get_command(make())
    taken: dict[str, Any] = root.get_command(None, name).make_context(name, rest).params
    return taken


def services() -> dict[str, Any]:
    (page,) = documents(COMPOSE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page["services"]
    return found


@needs("hadolint")
def test_hadolint_finds_no_fault_in_the_dockerfile() -> None:
    program = find("hadolint")
    assert program is not None
    done = subprocess.run([program, str(DOCKERFILE)], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_schemas
def test_the_compose_file_is_one_by_its_specification_and_a_fault_is_noticed() -> None:
    (page,) = documents(COMPOSE.read_text(encoding="utf-8"))
    of_ours, of_wrong = faults("compose", json.dumps(page), json.dumps(page).replace("stop_signal", "stop_sgnal"))
    assert of_ours == ""
    assert "stop_sgnal" in of_wrong


def copied() -> list[str]:
    """What the build takes from the repository."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", dockerfile(), re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_the_build_is_sent_all_that_it_copies_and_little_else() -> None:
    rules = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [rule[1:] for rule in rules if rule.startswith("!")]
    assert "*" in rules
    assert sorted(copied()) == sorted(sent)
    assert [path for path in copied() if not (ROOT / path).exists()] == []
    needed = re.search(r"force-include\]\n\"([^\"]+)\"", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert needed is not None
    assert any(fnmatch.fnmatch(needed[1], path) for path in copied()), "the wheel cannot be built without it"


def test_the_image_runs_without_root_and_its_check_asks_the_worker_that_it_starts() -> None:
    user = re.findall(r"^USER (\d+):(\d+)$", dockerfile(), re.MULTILINE)[-1]
    assert (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8").count(f"runAsUser: {user[0]}\n") == 1
    started = options(words("CMD"))
    assert words("ENTRYPOINT") == ["tini", "--", "tenure"]
    assert started["target"] == options(services()["worker"]["command"])["target"], "which is in the wheel"
    (check,) = (word for word in words("HEALTHCHECK") if "urlopen" in word)
    assert f"'http://127.0.0.1:{started['metrics_port']}/ready'" in check
    assert started["metrics_host"] == "0.0.0.0"  # noqa: S104  (a container's own)
    assert options(services()["supervisor"]["command"])["metrics_port"] == started["metrics_port"], "one check for both"


@pytest.mark.parametrize("name", ["setup", "worker", "supervisor"])
def test_services_of_the_compose_file_start_commands_that_there_are(name: str) -> None:
    service = services()[name]
    taken = options(service["command"])
    assert taken["target"] == "tenure.examples.documents:app"
    assert service["environment"] == {"TENURE_NATS_URL": "nats://nats:4222", "TENURE_DEPLOYED": "${TENURE_DEPLOYED:-}"}
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    if name == "worker":
        assert f"{taken['killed_after']:g}s" == service["stop_grace_period"]


def test_image_chart_and_package_are_of_one_version() -> None:
    (chart,) = documents((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert chart["appVersion"] == version[1]
    assert {service["image"] for name, service in services().items() if name != "nats"} == {f"tenure:{version[1]}"}
