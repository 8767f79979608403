"""``python -m tests.mutants``: take each guard of the protocol away in turn, and see that a test notices.

Works on a copy of the repository. Exit code 1 if a guard's absence goes unnoticed: it is untested, or not needed. What the test
that failed said is printed beside its name: it must fail by what the guard is for, and one that does not end has noticed nothing.
A pytest that ends without a verdict has noticed nothing either: such a guard is broken, and is mended first.
Of a guard of a numbered interleaving each test must fail: these are the tests that the page promises.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tests.mutants.blobs import BLOBS
from tests.mutants.bodies import BODIES
from tests.mutants.bulk import BULK
from tests.mutants.decisions import DECISIONS
from tests.mutants.deeds import DEEDS
from tests.mutants.deeds_gaps import GAPS
from tests.mutants.deeds_rates import RATES
from tests.mutants.deposed import DEPOSED
from tests.mutants.deposed_reads import DEPOSED_READS
from tests.mutants.field import FIELD
from tests.mutants.guard import Guard
from tests.mutants.inputs import INPUTS
from tests.mutants.limits import LIMITS
from tests.mutants.sealing import SEALING
from tests.mutants.switches import SWITCHES
from tests.mutants.traces import TRACES

ROOT = Path(__file__).parents[2]

GUARDS = (
    *BLOBS,
    *BODIES,
    *BULK,
    *DECISIONS,
    *DEEDS,
    *DEPOSED,
    *DEPOSED_READS,
    *FIELD,
    *GAPS,
    *INPUTS,
    *LIMITS,
    *RATES,
    *SEALING,
    *SWITCHES,
    *TRACES,
)

_PYTEST = ("-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider")
_PASSED, _FAILED = 0, 1
_MOST_SECONDS = 600.0
_NO_END = "Timeout (>"
"""In what pytest-timeout says of a test that did not end, and we of a pytest that did not."""
_out = Console(highlight=False, markup=False, soft_wrap=True)


def asked(given: list[str] | None = None) -> argparse.Namespace:
    """What the command line asks for; with ``guards``, those that it means."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="guards whose name has this in it (default: all)")
    parser.add_argument(
        "--part", type=_part, default="1/1", help="every n-th guard, as 1/2 and 2/2 for two at once (default: all)"
    )
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests on the code as it is first")
    options = parser.parse_args(given)
    number, of = options.part
    meant = [guard for guard in GUARDS if options.only in guard.name]
    options.guards = meant[number - 1 :: of]
    if not meant:
        parser.error(f"argument --only: no guard has {options.only!r} in its name")
    if not options.guards:
        parser.error(f"argument --part: {number}/{of} of {len(meant)} guards is none")
    return options


def _part(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of):
        return int(number), int(of)
    msg = f"a part is given as 1/2 or 2/2, got {text!r}"
    raise argparse.ArgumentTypeError(msg)


def main() -> int:
    """Run it; the exit code."""
    options = asked()
    guards = options.guards
    with tempfile.TemporaryDirectory(prefix="tenure-mutants-") as folder:
        tree = _copy(Path(folder))
        if not options.no_baseline and not _baseline(tree, guards):
            return 1
        missed = [guard.name for guard in guards if not _is_noticed(tree, guard)]
    _out.print(f"{len(guards) - len(missed)} of {len(guards)} guards are noticed when they are missing")
    for name in missed:
        _out.print(f"NOT NOTICED  {name}")
    return 1 if missed else 0


def _copy(folder: Path) -> Path:
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout.split(b"\0")
    for name in filter(None, names):
        source, target = ROOT / name.decode(), folder / name.decode()
        if source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.readlink())
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    return folder


def _baseline(tree: Path, guards: list[Guard]) -> bool:
    tests = sorted({test for guard in guards for test in guard.tests})
    started = time.monotonic()
    code, told = _pytest(tree, tests, most=2 * _MOST_SECONDS)
    _out.print(f"{time.monotonic() - started:6.1f} s  the code as it is: {'green' if code == _PASSED else 'RED'}")
    if code != _PASSED:
        _out.print(told)
    return code == _PASSED


def _is_noticed(tree: Path, guard: Guard) -> bool:
    file = tree / guard.file
    text = file.read_text()
    if text.count(guard.old) != 1:
        _out.print(
            f"MISSED   {guard.name}: {guard.file} has {text.count(guard.old)} times what it takes away; it must be one"
        )
        return False
    started = time.monotonic()
    file.write_text(text.replace(guard.old, guard.new))
    try:
        unnoticed, by = list(guard.tests), ""
        for test in guard.tests:
            code, told = _pytest(tree, [test], most=_MOST_SECONDS)
            if code not in {_PASSED, _FAILED}:
                _out.print(f"BROKEN   {guard.name}: pytest ended with {code} instead of a verdict on {test}:\n{told}")
                return False
            by = _first_failure(told) if code == _FAILED else by
            if code == _FAILED and _NO_END not in by:
                unnoticed.remove(test)
                if not guard.numbers:
                    unnoticed.clear()
                    break
    finally:
        file.write_text(text)
    by = f"not by {', '.join(unnoticed)}; {by}" if unnoticed else by
    _out.print(f"{time.monotonic() - started:6.1f} s  {'MISSED ' if unnoticed else 'noticed'}  {guard.name}  {by}")
    return not unnoticed


def _first_failure(told: str) -> str:
    """Which test failed, and what it said."""
    lines = [line for line in told.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))]
    where, _, said = lines[0].partition(" - ") if lines else ("", "", "")
    return f"{where.rpartition('::')[2]}: {said}"


def _pytest(tree: Path, tests: list[str], most: float) -> tuple[int, str]:
    told = {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "300"}
    try:
        done = subprocess.run(
            [sys.executable, *_PYTEST, *tests],
            cwd=tree,
            env=os.environ | told,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=most,
        )
    except subprocess.TimeoutExpired as error:
        return _FAILED, f"FAILED {tests[0]} - {_NO_END}{error.timeout:g}s)"
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
