"""What the units in `deploy` promise must fit the defaults."""

from __future__ import annotations

import json
import re

from tenure import App, Config
from tenure.worker.drain import longest
from tests.charts import CHART, DEPLOY, documents


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


def test_each_deployment_waits_longer_than_a_supervisor_may_need_to_close_its_session() -> None:
    """Killed before that, its session would look alive for its ttl. Two answers' time of tries, and the last try is two requests."""
    longest_end = 4 * Config().request_timeout_seconds
    unit = re.search(r"^TimeoutStopSec=(\d+)$", (DEPLOY / "tenure-supervisor.service").read_text("utf-8"), re.MULTILINE)
    composed = documents((DEPLOY / "compose.yml").read_text("utf-8"))[0]["services"]["supervisor"]["stop_grace_period"]
    chart = documents((CHART / "values.yaml").read_text("utf-8"))[0]["supervisor"]["terminationGracePeriodSeconds"]
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]["supervisor"]["properties"]
    assert unit is not None
    given = [int(unit[1]), int(composed.removesuffix("s")), chart, schema["terminationGracePeriodSeconds"]["minimum"]]
    assert min(given) > longest_end, given
