"""The chart in `deploy/helm/tenure` as helm renders it, and what renders are kept: `python -m tests.charts` writes them anew.

helm, hadolint and the schemas come from `make charts`; `$TENURE_CHARTS` names another folder that
`scripts/get_chart_tools.py` has filled. Where one is not to be had, the tests that need it are left out and say so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
TOOLS = Path(os.environ.get("TENURE_CHARTS", ROOT / ".venv" / "charts"))
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "tenure"
RENDERS = ROOT / "tests" / "renders"
CASES = ("default", "everything")


def find(program: str) -> str | None:
    """Where ``make charts`` has put it, or where it is installed; None: nowhere."""
    return shutil.which(program, path=os.pathsep.join([str(TOOLS), os.environ.get("PATH", "")]))


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find(program) is None, reason=f"no {program} here: `make charts`")


needs_schemas = pytest.mark.skipif(
    not (TOOLS / "python" / "kubernetes_validate").is_dir(), reason="no schemas here: `make charts`"
)


def faults(kind: str, *texts: str) -> list[str]:
    """What is wrong with each of them, by its schema (tests/schemas.py); empty: nothing."""
    asked = json.dumps({"kind": kind, "texts": texts})
    command = [sys.executable, str(ROOT / "tests" / "schemas.py")]
    environment = os.environ | {"PYTHONPATH": str(TOOLS / "python")}
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, timeout=50, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    told: list[str] = json.loads(done.stdout)
    return told


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm; it needs no cluster and no network for what is asked here."""
    program = find("helm")
    assert program is not None
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=50, check=False)


def render(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The manifests of a release `shop` in the namespace `prod`."""
    return helm("template", "shop", str(CHART), "--namespace", "prod", *arguments)


def documents(text: str) -> list[dict[str, Any]]:
    """What a YAML text holds."""
    return [
        document for document in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if document
    ]


def kept(case: str) -> Path:
    """The render of a case as it was last looked at."""
    return RENDERS / f"{case}.yaml"


def render_case(case: str) -> str:
    """Render a case; its values are the chart's own unless it has a file of them."""
    values = RENDERS / f"{case}.values.yaml"
    done = render(*(["--values", str(values)] if values.exists() else []))
    assert done.returncode == 0, done.stderr
    return done.stdout


if __name__ == "__main__":
    for each in CASES:
        kept(each).write_text(render_case(each), encoding="utf-8")
        sys.stdout.write(f"written: {kept(each).relative_to(ROOT)}\n")
