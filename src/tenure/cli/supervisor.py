"""``supervisor``: a supervisor as a process."""

from __future__ import annotations

import asyncio
import os

from tenure import telemetry
from tenure.cli import options as o
from tenure.cli.output import print_json
from tenure.cli.parsing import load_app
from tenure.cli.problems import Exit
from tenure.cli.worker import health, stop_at_end_of_stdin, stopped_by_signals
from tenure.loops import run_loop, settle_collector
from tenure.supervisor import Supervisor

READY = "supervisor.ready"
_LOOK_SECONDS = 0.02


def supervisor(
    target: o.Target,
    *,
    metrics_port: o.MetricsPort = None,
    metrics_host: o.MetricsHost = "127.0.0.1",
    url: o.Url = None,
    log_level: o.Level = o.LogLevel.INFO,
    log_json: o.LogJson = False,
    stop_with_stdin: o.StopWithStdin = False,
) -> int:
    """Close dead sessions, have their runs taken over, and repair what crashes left behind, until SIGTERM or Ctrl-C.

    Run at least one, best two, on other machines than the workers': any number may look after one namespace.
    """
    telemetry.configure(log_level.value, as_json=log_json)
    made = load_app(target).supervisor(url)
    settle_collector()

    async def main() -> int:
        with (
            health(
                made.metrics.registry, lambda: made.why_not_ready, metrics_host, metrics_port, lambda: made.report
            ) as at,
            stopped_by_signals(made.stop),
        ):
            if stop_with_stdin:
                stop_at_end_of_stdin(made.stop)
            async with made:
                announcing = asyncio.create_task(_announce(made, at, as_json=log_json))
                try:
                    await made.run()
                finally:
                    announcing.cancel()
        return Exit.OK

    return run_loop(main())


async def _announce(made: Supervisor, address: str | None, *, as_json: bool) -> None:
    while made.why_not_ready:  # noqa: ASYNC110  (what it says depends on clocks as well: there is no event to wait for)
        await asyncio.sleep(_LOOK_SECONDS)
    if as_json:
        said = {"namespace": made.app.namespace, "pid": os.getpid(), "metrics": address}
        print_json({"event": READY} | said)
    else:
        metrics = f", metrics at {address}/metrics" if address else ""
        print(f"tenure supervisor ready: namespace {made.app.namespace}, pid {os.getpid()}{metrics}", flush=True)
