"""``python -m tests.chaos --seconds 600 --seed 1 [--servers 3]``: one run, its report, and exit code 1 for violations."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.kinds import FIRST, ONLY
from tests.ranges import one_or_more, positive


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seconds", type=positive, default=20.0, help="how long the nemesis does harm")
    parser.add_argument("--seed", type=int, default=None, help="default: by chance; it is printed")
    parser.add_argument("--servers", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--leave-servers", action="store_true", help="do no harm to servers: then takeovers are timed best"
    )
    parser.add_argument("--every", type=positive, default=1.0, help="seconds between two faults, on the average")
    parser.add_argument("--keys", type=one_or_more, default=20_000)
    parser.add_argument("--rate", type=positive, default=60.0, help="what producers ask in a second, all together")
    parser.add_argument("--folder", type=Path, default=None, help="default: a temporary one, kept if the run fails")
    parser.add_argument("--least-kills", type=int, default=0, help="the nemesis goes on until there are so many")
    parser.add_argument("--first", action="append", default=[], choices=FIRST, help="begin with it; may be repeated")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=ONLY,
        help="no other (servers are left alone); may be repeated",
    )
    parser.add_argument("--least-keys", type=int, default=0, help="a run with fewer has shown too little, and fails")
    parser.add_argument(
        "--exact",
        choices=("ends", "fenced"),
        default="",
        help="fail also if counters of these cannot be held to be exact",
    )
    parser.add_argument(
        "--quiet", type=positive, default=60.0, help="seconds in which less must be left to do, at the end"
    )
    return parser.parse_args()


def main() -> int:
    asked = _asked()
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="tenure-chaos-"))
    os.environ |= {"CHAOS_REPLICAS": str(asked.servers), "CHAOS_FOLDER": str(folder / "logs")}
    again = f"make chaos SECONDS={asked.seconds:g} SEED={seed} SERVERS={asked.servers}"
    if asked.only:
        again += f' CHAOS_ARGS="{" ".join(f"--only {kind!r}" for kind in asked.only)}"'
    print(f"chaos: {again}", flush=True)

    from tests.chaos import network  # what it imports reads the environment
    from tests.chaos.bodies import app
    from tests.chaos.endings import check_endings, left_behind
    from tests.chaos.promptness import check_promptness, takeovers
    from tests.chaos.report import show, table_of, too_few
    from tests.chaos.run import Chaos, Settings
    from tests.history.checker import check
    from tests.history.known import Known

    why_not = network.why_not() if asked.servers > 1 else ""
    if why_not:
        print(f"nobody is cut off in this run: {why_not}", flush=True)
    settings = Settings(
        seconds=asked.seconds,
        seed=seed,
        folder=folder,
        servers=asked.servers,
        leave_servers=asked.leave_servers,
        every=asked.every,
        own_network=asked.servers > 1 and not why_not,
        keys=asked.keys,
        rate=asked.rate,
        least_kills=asked.least_kills,
        first=tuple(asked.first),
        only=tuple(asked.only),
        quiet_seconds=asked.quiet,
    )
    good = False
    try:
        with Chaos(settings) as chaos:
            evidence = chaos.go()
        taken = sorted(takeovers(Known(evidence), chaos.faults, chaos.lives, app.config, chaos.crowd))
        endings = [*check_endings(evidence, chaos.faults), *left_behind(folder / "logs")]
        violations = sorted([*check(evidence), *endings, *check_promptness(taken)])
        title = f"chaos: {asked.seconds:g} s, seed {seed}, {asked.servers} server(s)"
        show(table_of(title, evidence, chaos.faults, taken, violations), violations)
        few = too_few(evidence, keys=asked.least_keys, exact=asked.exact)
        if few:
            print(few, flush=True)
        good = not violations and evidence.quiet and not few
    finally:
        if good and asked.folder is None:
            shutil.rmtree(folder)
        elif not good:
            print(f"FAILED. Logs and stores: {folder}\nAgain: {again}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
