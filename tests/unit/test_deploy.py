"""What the units in `deploy` promise must fit the defaults."""

from __future__ import annotations

import re

from tenure import App
from tenure.worker.drain import longest
from tests.charts import DEPLOY


def test_systemd_waits_longer_than_a_drain_may_take_and_the_worker_knows_how_long() -> None:
    """Killed before the end of its drain, a worker could not hand its runs back."""
    app = App("docs")

    @app.actor
    async def work() -> None: ...

    unit = (DEPLOY / "tenure-worker@.service").read_text(encoding="utf-8")
    stop, told = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE), re.search(r"--killed-after (\d+)", unit)
    assert stop is not None
    assert told is not None
    assert int(stop[1]) == int(told[1]) >= longest(app)
