"""``python -m tests.model [--large] [--most N] [--every N] [name ...]``: explore, and print what was seen.

Ends with 1 if an invariant is broken, after the shortest trace to it.
"""

from __future__ import annotations

import argparse
import sys

from tests.model.cells import Broken
from tests.model.explore import Explorer
from tests.model.leases import Leases
from tests.model.scenarios import SMALL
from tests.model.scenarios_large import LARGE
from tests.ranges import one_or_more


def asked(given: list[str] | None = None) -> argparse.Namespace:
    """What the command line asks for; with ``scenarios``, those that its names mean."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--large", action="store_true", help="the larger scenarios too")
    parser.add_argument(
        "--most", type=one_or_more, default=400_000, help="states of one scenario (default: %(default)s)"
    )
    parser.add_argument(
        "--every",
        type=one_or_more,
        default=200,
        help="of so many states one is brought to rest together (default: %(default)s)",
    )
    parser.add_argument(
        "names", nargs="*", metavar="name", help="scenarios whose names contain one of these (default: all)"
    )
    options = parser.parse_args(given)
    scenarios = (*SMALL, *(LARGE if options.large else ()))
    for name in options.names:
        if not any(name in scenario.name for scenario in scenarios):
            larger = any(name in scenario.name for scenario in LARGE)
            parser.error(f"argument name: no scenario has {name!r} in its name{', without --large' if larger else ''}")
    names = options.names or [""]
    options.scenarios = [scenario for scenario in scenarios if any(name in scenario.name for name in names)]
    return options


def main() -> int:
    """The exit code: 1 if an invariant is broken."""
    options = asked()
    states = transitions = 0
    broken = False
    for scenario in options.scenarios:
        report = Explorer(scenario, every=options.every).run(options.most)
        print(report, flush=True)
        states, transitions = states + report.states, transitions + report.transitions
        broken = broken or report.broken is not None
    if not options.names:
        leases = Leases(12, 2) if options.large else Leases()
        try:
            leases.run()
        except Broken as error:
            print(f"leases: BROKEN {error}")
            broken = True
        print(f"leases: {leases.states:,} states, {leases.transitions:,} transitions")
        states, transitions = states + leases.states, transitions + leases.transitions
    print(f"{states:,} states, {transitions:,} transitions{', BROKEN' if broken else ''}")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
