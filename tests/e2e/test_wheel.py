"""What is installed is enough: the wheel has all that a machine without a checkout needs, and nothing of ours beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.e2e.commands import ROOT
from tests.e2e.test_readme import example

SOURCE = ROOT / "src"


def build(project: Path, folder: Path, kind: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_every_module_the_examples_and_the_servers_configuration(tmp_path: Path) -> None:
    """By way of the sdist, as it is built for an index: what either leaves out is missing."""
    sdist = build(ROOT, tmp_path / "sdist", "sdist")
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    packed = contents(build(tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "wheel", "wheel"))
    ours = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    ours |= {f"tenure/examples/{path.name}": path for path in (ROOT / "actors").glob("*.py")}
    ours |= {"tenure/nats.conf": ROOT / "nats.conf", "tenure/py.typed": SOURCE / "tenure" / "py.typed"}
    assert [name for name, path in ours.items() if packed.get(name) != path.read_bytes()] == []
    others = [name for name in packed if not re.match(r"tenure(_command\.py$|/|-[\d.]+\.dist-info/)", name)]
    assert others == [], "they would shadow what a user calls so"
    assert [name for name in packed if "__pycache__" in name] == []
    (points,) = (text.decode() for name, text in packed.items() if name.endswith("dist-info/entry_points.txt"))
    assert "tenure = tenure_command:main" in points
    assert "tenure = tenure.testing.plugin" in points


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_installed_copy_runs_demonstration_and_example_from_an_empty_folder(tmp_path: Path) -> None:
    """A fresh environment, the built wheel with two extras, and no checkout in reach."""
    wheel, venv, empty = build(ROOT, tmp_path / "wheel", "wheel"), tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*command: str | Path) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=empty, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[server,documents]")
    told = run(venv / "bin" / "python", "-c", "import tenure; print(tenure.__file__)")
    assert Path(told.strip()).is_relative_to(venv), "the installed copy is not what runs"
    assert "no stale write was stored" in run(venv / "bin" / "tenure", "demo")
    code, printed = example()
    assert run(venv / "bin" / "python", "-c", code) == printed
    assert list(empty.iterdir()) == []
