"""Who of several supervisors looks after a key: in even shares, the same for everybody, and hardly moved by who comes and goes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tenure.core.records import Phase, State
from tenure.core.sweeps import PARTITIONS, deserves_a_look, owners, partition_of

SESSIONS = [f"01M8J8M1FQPN9RASJCNPAX{number:04d}" for number in range(8)]


def test_keys_are_spread_evenly_over_the_partitions() -> None:
    number = 200 * PARTITIONS
    counts = Counter(partition_of(f"doc-{key}") for key in range(number))
    assert set(counts) == set(range(PARTITIONS))
    assert max(counts.values()) < 1.5 * number / PARTITIONS
    assert min(counts.values()) > 0.5 * number / PARTITIONS


@pytest.mark.parametrize("living", [2, 3, 5])
def test_each_supervisor_has_about_as_many_partitions_as_every_other(living: int) -> None:
    """On average over many sets of sessions; and none of a few has next to nothing, or nearly all."""
    shares: Counter[int] = Counter()
    for draw in range(100):
        sessions = [f"{draw}-{number}" for number in range(living)]
        owned = Counter(owners(sessions))
        assert set(owned) == set(sessions)
        assert max(owned.values()) < 2.5 * PARTITIONS / living
        shares.update({number: owned[name] for number, name in enumerate(sessions)})
    for share in shares.values():
        assert share == pytest.approx(100 * PARTITIONS / living, rel=0.15)


@pytest.mark.parametrize("who", SESSIONS)
def test_whoever_joins_or_leaves_moves_only_its_own_share(who: str) -> None:
    everybody, others = owners(SESSIONS), owners(set(SESSIONS) - {who})
    moved = [number for number in range(PARTITIONS) if everybody[number] != others[number]]
    assert moved == [number for number in range(PARTITIONS) if everybody[number] == who]
    assert moved
    assert len({others[number] for number in moved}) > 1, "not all to one neighbour"


def test_the_order_and_repetition_of_sessions_changes_nothing_and_none_is_nobody() -> None:
    assert owners(reversed(SESSIONS)) == owners([*SESSIONS, *SESSIONS]) == owners(frozenset(SESSIONS))
    assert owners(()) == ()
    assert owners(["only"]) == ("only",) * PARTITIONS


def test_every_process_gives_the_same_answer() -> None:
    """Whatever the seed of its hashes is: two that disagree would each leave a key to the other."""
    program = f"from tenure.core.sweeps import *; print(owners({SESSIONS}), [partition_of(str(n)) for n in range(99)])"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert said == {f"{owners(SESSIONS)} {[partition_of(str(n)) for n in range(99)]}\n"}


@pytest.mark.parametrize(
    ("due", "has_wakeup", "has_timer", "deserves"),
    [
        (0.0, True, False, False),
        (0.0, False, False, True),
        (200.0, False, True, False),
        (200.0, False, False, True),
        (50.0, False, True, True),
        (50.0, True, True, False),
    ],
)
def test_a_run_that_waits_is_looked_at_if_nothing_stored_will_wake_it(
    due: float, has_wakeup: bool, has_timer: bool, deserves: bool
) -> None:
    """A timer that should have fired is none. A backlog costs no look for each of its keys."""
    state = State(Phase.WAITING, due, 0.0, "", "", "work", "default", 1, "r1")
    about = {"holder_closed": False, "has_wakeup": has_wakeup, "has_timer": has_timer}
    assert deserves_a_look(state, age=10.0, now=100.0, **about) is deserves
    assert not deserves_a_look(state, age=1.0, now=100.0, **about), "its writer is about to"
