"""The simulation itself: a short run of it, that it is the same each time, and that it finds what it is there to find.

`make sim SEEDS=10000` is the long run. Each is a command of its own, as people start it: a world takes an interpreter over.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.__main__ import again, options
from tests.sim.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(600)  # a hang alone: what a simulation may take is processor time


def simulate(*arguments: str, seconds: int = 55) -> tuple[int, str]:
    """The exit code, and what was printed. No process of it may take more than ``seconds`` of a processor."""
    command = [sys.executable, "-m", "tests.sim", *arguments]
    limited = ["/bin/sh", "-c", 'ulimit -t "$0" && exec "$@"', str(seconds), *command]
    env = os.environ | {"PYTHONHASHSEED": "0"}  # else it would start itself again with that
    done = subprocess.run(limited, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("start", [1, 11, 21])
def test_ten_seeds_find_nothing(start: int):
    code, told = simulate("--start", str(start), "--seeds", "10", "--seconds", "5")
    assert code == 0, told


@pytest.mark.parametrize("wrong", [["--calm"], ["--only", "term"], ["--only", "cut"]], ids=" ".join)
def test_superseded_cancelled_and_every_outcome_are_counted_exactly(wrong: list[str]):
    """Replaces, cancels and purges of many producers over several workers and supervisors: the sums of all are what is stored.

    So they are where processes are told to stop and others follow, and where connections break.
    """
    code, told = simulate(*wrong, "--seeds", "10", "--seconds", "5")
    assert code == 0, told


@pytest.mark.long
def test_fenced_outcomes_are_counted_exactly_as_the_history_is_told_while_processes_freeze():
    """And none by a process of which the records do not say that another attempt had the run. These thirty worlds have eleven."""
    code, told = simulate("--only", "freeze", "--seeds", "30", "--seconds", "10", seconds=190)
    assert code == 0, told
    assert re.search(r", [1-9][0-9]* fenced;", told), told


def test_a_seed_that_does_not_end_is_found_by_the_processor_time_it_takes():
    code, told = simulate("--seed", "3", "--seconds", "1000000", seconds=2)
    assert code == 1, told
    assert "its process ended with -" in told, "by a signal"


def test_a_seed_gives_the_same_run_each_time():
    first, second = (simulate("--seed", "3")[1].splitlines() for _ in range(2))
    assert len(first) > 200
    assert [line for line in first if "virtual seconds in" not in line] == [
        line for line in second if "virtual seconds in" not in line
    ]


@pytest.mark.parametrize(
    ("mutant", "start", "found"),
    [
        ("no-tail-check", 4, "one outcome|no late outcome"),
        ("blind-writes", 1, "one outcome|never back"),
        ("everybody-is-dead", 3, "no two bodies"),
        ("no-table", 3, "no two bodies"),
        ("no-marks", 2, "rates hold"),
        ("half-a-window", 6, "rates hold"),
        ("drops-all", 2, "drops"),
        ("no-places", 4, "limits hold"),
        ("ticks-from-now", 2, "each tick once"),
        ("no-switches", 1, "switches hold"),
        ("no-settling", 4, "settles"),
        ("no-cooldown", 4, "cools down"),
        ("no-inbox-marks", 21, "commands once|never back|one outcome"),
        ("no-grace", 3, "let go"),
        ("no-waiting", 2, "previous"),
        ("no-retries", 2, "budget"),
    ],
)
def test_without_a_guard_something_is_found(mutant: str, start: int, found: str):
    """``start``: where something was found last, so that it is found at once; if not there, then by one of the next."""
    code, told = simulate(
        "--start", str(start), "--seeds", "60", "--at-once", "1", "--stop-at", "1", "--mutant", mutant
    )
    assert code == 1, told
    assert re.search(f"VIOLATION ({found}):", told)
    assert re.search(rf"again: python -m tests.sim --seed \d+ --mutant {mutant}\n", told)


def test_the_command_that_is_printed_runs_the_same_world_again():
    """Whatever the world was made of: an option that is left out is another world, and what was found is not in it."""
    size = ["--seconds", "5.5", "--skew", "0.25", "--mutant", "no-grace"]
    for given in ([], ["--only", "cut"], ["--calm", *size], ["--minute"], ["--only", "freeze", *size]):
        asked = options().parse_args(["--seeds", "9", "--start", "4", *given])
        command = again(asked, 7)
        assert command.startswith("python -m tests.sim --seed 7")
        repeated = options().parse_args(command.split()[3:])
        assert vars(repeated) == vars(asked) | {"seed": 7, "seeds": repeated.seeds, "start": repeated.start}, command


def test_each_guard_that_is_taken_out_has_a_test():
    source = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in MUTANTS if f'("{name}", ' not in source] == []
