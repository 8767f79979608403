"""What the files in `deploy` promise must fit the defaults."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tenure import App, Config

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "tenure-worker@.service"


def test_systemd_waits_longer_than_a_drain_may_take() -> None:
    """Killed before the end of its drain, a worker could not hand its runs back."""
    config = Config()
    stop = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert stop is not None
    grace = inspect.signature(App.actor).parameters["grace"].default
    assert int(stop[1]) >= config.drain_seconds + grace + config.stop_seconds + 3 * config.request_timeout_seconds
