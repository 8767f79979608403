"""``supervisor``: a supervisor as a process."""

from __future__ import annotations

import os

from tenure import telemetry
from tenure.cli import options as o
from tenure.cli.parsing import load_app
from tenure.cli.problems import Exit, complain
from tenure.cli.worker import announced, health, stop_at_end_of_stdin, stopped_by_signals
from tenure.loops import run_loop, settle_collector
from tenure.supervisor import Supervisor


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

    Exit codes: 0 it has ended in good order, 1 an internal failure, 2 usage or configuration, 3 no server at the start or at the
    end, 130 a second Ctrl-C. Run at least one, best two, on other machines than the workers': any number may look after one namespace.
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
            said = {"namespace": made.app.namespace, "pid": os.getpid(), "metrics": at}
            async with made, announced("supervisor", lambda: made.why_not_ready, said, as_json=log_json):
                await made.run()
        return _farewell(made)

    return run_loop(main())


def _farewell(made: Supervisor) -> Exit:
    """What a person must know about its end, and its exit code."""
    if not made.cut_off:
        return Exit.OK
    ttl = made.stores.session_ttl
    complain(
        f"the server was not reached at the end: other supervisors close the session of this one once {ttl:g} s are over"
    )
    return Exit.UNAVAILABLE
