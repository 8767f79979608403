"""``python -m tests.fuzz [--seconds N] [TARGET ...]``: each target by itself, steered by what of our code it reaches.

And ``whole``: a worker and a supervisor on a real server (``whole.py``), not steered.

Needs the extra ``fuzz`` (atheris). Half of the inputs are bytes that libFuzzer changed, half are JSON with values exchanged.
What is found is printed and kept in the folder ``.fuzz``; exit code 1.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.ranges import one_or_more

_FOUND = Path(".fuzz")
_WHOLE = "whole"


def main() -> int:
    """Fuzz every target that is named, or all, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=one_or_more, default=20, help="for each target")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*")
    asked = parser.parse_args()
    if asked.one and asked.targets == [_WHOLE]:
        from tests.fuzz.whole import fuzz

        fuzz(asked.seconds)
        return 0
    if asked.one:
        _fuzz(asked.targets[0], asked.seconds)
    from tests.fuzz.targets import TARGETS

    unknown = [name for name in asked.targets if name not in {*TARGETS, _WHOLE}]
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}: choose of {', '.join([*TARGETS, _WHOLE])}")
    _FOUND.mkdir(exist_ok=True)
    failed = []
    for name in asked.targets or [*TARGETS, _WHOLE]:
        print(f"==> {name}", flush=True)
        command = [sys.executable, "-m", "tests.fuzz", "--one", "--seconds", str(asked.seconds), name]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    print(f"faults were found in: {', '.join(failed)}" if failed else "no fault was found")
    return 1 if failed else 0


def _fuzz(name: str, seconds: int) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra of its own, for some platforms

    with atheris.instrument_imports(include=["tenure"]):
        from tests.fuzz.targets import TARGETS
    from tests.fuzz.spoil import spoiled

    run, seeds = TARGETS[name]

    def change(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        changed: bytes = spoiled(data, chance) if chance.random() < 0.5 else atheris.Mutate(data, most)
        return changed[:most]

    corpus = tempfile.mkdtemp(prefix=f"tenure-fuzz-{name}-")
    for number, seed in enumerate(seeds):
        (Path(corpus) / str(number)).write_bytes(seed)
    limits: list[Any] = [f"-max_total_time={seconds}", f"-artifact_prefix={_FOUND}/{name}-", "-max_len=8192"]
    atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", corpus], run, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
