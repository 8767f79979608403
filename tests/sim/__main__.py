"""Run seeds: ``python -m tests.sim --seeds 10000``; one of them again: ``python -m tests.sim --seed 4711``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.ranges import one_or_more, positive, zero_or_more
from tests.sim.faults import Mixture
from tests.sim.mutants import MUTANTS
from tests.sim.seeds import Result, run_seeds, with_fixed_hashes
from tests.sim.world import Size

_MINUTE_KEYS, _MINUTE_RATE, _MINUTE_MAY_TAKE = 1_000, 18.0, 10.0
_ALONE = {"term": Mixture(term=5.0), "cut": Mixture(cut=4.0), "freeze": Mixture(freeze=0.7)}


_WORLD = ("seconds", "skew", "only", "mutant", "calm", "minute")
"""What a world depends on beside its seed."""


def options() -> argparse.ArgumentParser:
    """What may be asked for."""
    given = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    given.add_argument("--seeds", type=one_or_more, default=200, help="so many seeds (default: %(default)s)")
    given.add_argument("--start", type=int, default=1, help="the first of them (default: %(default)s)")
    given.add_argument("--seed", type=int, help="this one alone, with its whole trace")
    given.add_argument("--at-once", type=one_or_more, default=2, help="processes (default: %(default)s)")
    given.add_argument(
        "--seconds",
        type=positive,
        default=Size().seconds,
        help="virtual seconds in which things go wrong (default: %(default)s)",
    )
    given.add_argument("--mutant", default="", choices=MUTANTS, help="without this guard: something must be found")
    given.add_argument(
        "--skew", type=zero_or_more, help="clocks are wrong by up to so many seconds (default: what the seed says)"
    )
    given.add_argument("--calm", action="store_true", help="nothing goes wrong: then the counters add up exactly")
    given.add_argument(
        "--only", choices=sorted(_ALONE), help="only that goes wrong: they still do, after freezes those of fenced"
    )
    given.add_argument(
        "--stop-at", type=one_or_more, default=5, help="end after so many bad seeds (default: %(default)s)"
    )
    given.add_argument("--minute", action="store_true", help="how long a minute of ten workers and 1,000 keys takes")
    return given


def again(asked: argparse.Namespace, seed: int) -> str:
    """The command that runs the world of this seed again, and shows all of it."""
    plain = options().parse_args([])
    words = ["python -m tests.sim", f"--seed {seed}"]
    for name in _WORLD:
        value = getattr(asked, name)
        if value != getattr(plain, name):
            words.append(f"--{name}" if value is True else f"--{name} {value!s}")
    return " ".join(words)


def main() -> int:
    """The exit code: 1 if anything was found."""
    with_fixed_hashes()
    asked = options().parse_args()
    calm = Mixture() if asked.calm else _ALONE.get(asked.only)
    size = Size(seconds=asked.seconds, skew=asked.skew)
    if asked.minute:
        return minute(asked)
    if asked.seed is not None:
        (result,) = run_seeds([asked.seed], size, mixture=calm, mutant=asked.mutant, whole_trace=True)
        print("\n".join(result.trace))
        tell(result, again(asked, result.seed))
        return int(not result.good)
    began = time.monotonic()
    bad: list[Result] = []
    done = bodies = asks = deaths = fenced = 0
    virtual = 0.0
    seeds = list(range(asked.start, asked.start + asked.seeds))
    for result in run_seeds(seeds, size, mixture=calm, at_once=asked.at_once, mutant=asked.mutant):
        done += 1
        bodies, asks, deaths = bodies + result.bodies, asks + result.asks, deaths + result.deaths
        virtual, fenced = virtual + result.virtual_seconds, fenced + result.fenced
        if not result.good:
            bad.append(result)
            print("\n".join(result.trace[-200:]))
            tell(result, again(asked, result.seed))
            if len(bad) >= asked.stop_at:
                break
        if done % 100 == 0:
            print(f"{done} seeds, {len(bad)} bad", file=sys.stderr)
    took = time.monotonic() - began
    print(
        f"{done} seeds in {span(took)} ({done / took * 60:.0f} a minute), {span(virtual, 'virtual ')}:"
        f" {asks} asks, {bodies} bodies, {deaths} deaths of processes, {fenced} fenced; {len(bad)} bad seeds"
        f"{': ' + ', '.join(str(result.seed) for result in bad) if bad else ''}"
    )
    return int(bool(bad))


def minute(asked: argparse.Namespace) -> int:
    """The exit code: 1 if a minute of ten workers and 1,000 keys took a processor longer than it may, or was not that."""
    size = Size(seconds=60.0, workers=10, rate=_MINUTE_RATE, keys=(_MINUTE_KEYS,), every_key=True, concurrency=100)
    (result,) = run_seeds([asked.seed or 1], size, mixture=Mixture())
    tell(result, again(asked, result.seed))
    print(
        f"{result.keys} keys, {result.asks} asks, {result.bodies} bodies:"
        f" {result.real_seconds:.1f} s of a processor, {result.wall_seconds:.1f} s by the clock"
    )
    return int(not result.good or result.keys < _MINUTE_KEYS or result.real_seconds > _MINUTE_MAY_TAKE)


def span(seconds: float, kind: str = "") -> str:
    """So long, in the largest unit of which it is one or more."""
    for unit, name in ((3600, "hours"), (60, "minutes")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {kind}{name}"
    return f"{seconds:.1f} {kind}seconds"


def tell(result: Result, command: str) -> None:
    """What was found, and how to see it again."""
    print(f"seed {result.seed}: {result.mixture}")
    print(
        f"  {result.virtual_seconds:.0f} virtual seconds in {result.real_seconds:.2f} s, {result.steps} steps,"
        f" {result.asks} asks, {result.bodies} bodies, {result.deaths} deaths, digest {result.digest:x}"
    )
    for failure in result.failures:
        print(f"  FAILURE {failure}")
    for violation in result.violations:
        print(f"  VIOLATION {violation.invariant}: {violation.key}: {violation.what}")
    if not result.good:
        print(f"  again: {command}")


if __name__ == "__main__":
    sys.exit(main())
