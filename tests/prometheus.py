"""Debian's ``prometheus`` package, which has ``prometheus`` and ``promtool``: where it is, and a reason where it is not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
UNPACKED = ROOT / ".venv" / "prometheus" / "usr" / "bin"
"""Where `make prometheus` puts it."""


def find(program: str) -> str | None:
    """``$TENURE_PROMETHEUS`` (the folder of both programs), what ``make prometheus`` has fetched, or what is installed."""
    places = [os.environ.get("TENURE_PROMETHEUS", ""), str(UNPACKED), os.environ.get("PATH", "")]
    return shutil.which(program, path=os.pathsep.join(place for place in places if place))


def needs(program: str) -> pytest.MarkDecorator:
    reason = f"no {program} here: `make prometheus`, Debian's package prometheus, or $TENURE_PROMETHEUS"
    return pytest.mark.skipif(find(program) is None, reason=reason)
