"""Limits in every order of steps: never over the limit, and nobody is left waiting."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from tests.support import sized
from tests.unit.core import turnstile
from tests.unit.core.turnstile import steps
from tests.unit.core.turnstile_sweep import sweep
from tests.unit.core.turnstile_world import DONE, World, names, permits, start

MOST = sized(12_000, 200_000)
"""Worlds looked at, those with the shortest histories first. All (193,297 with a double, 144,551 with a retry) take a minute."""
SEEDS = sized(20, 200)


def broken(world: World) -> str:
    """What is wrong with a world at any moment; empty if nothing is."""
    if world.over:
        return world.over
    if len(world.bodies) > world.most:
        return f"{len(world.bodies)} bodies under a limit of {world.most}"
    if len(permits(world.entry)) > world.most:
        return f"{len(permits(world.entry))} places under a limit of {world.most}"
    inside = [permit.run_id for permit in names(world.entry)]
    if len(set(inside)) < len(inside):
        return f"a run is named twice: {inside}"
    for body in world.bodies:
        held = (str(body.wake.run), body.wake.attempt + 1, body.session)
        if not any((one.run_id, one.attempt, one.session) == held for one in names(world.entry)):
            return f"the body of {body.wake.run} has no place"
    for session in world.sessions:
        places = sum(permit.session == session for permit in permits(world.entry))
        bodies = sum(body.session == session for body in world.bodies)
        if bodies > places:
            return f"{bodies} bodies of {session}, which has {places} places"
    return ""


def is_idle(world: World) -> bool:
    return not (world.hands or world.wakes or any(crew.void for _, crew in world.crews))


def stuck(world: World) -> str:
    """What is wrong with a world in which nothing moves any more."""
    waiting = [run for run, record in enumerate(world.runs) if record.phase != DONE]
    if waiting:
        return f"runs {waiting} are never finished"
    return f"left: {world.entry}, {world.parked}" if world.entry is not None or world.parked else ""


def explore(first: World, *, swept: int) -> tuple[str, int]:
    """Every order of steps: what is wrong with the first bad world and how it came to that; and how many there are."""
    paths: dict[World, tuple[World | None, str]] = {first: (None, "")}
    queue = deque([(first, 0)])
    while queue and len(paths) < MOST:
        world, sweeps = queue.popleft()
        wrong = broken(world)
        following = list(steps(world))
        idle = is_idle(world)
        if idle and not wrong:
            wrong = stuck(world)
            if wrong and sweeps < swept:
                following, wrong = [("sweep", sweep(world))], ""
        if wrong:
            return f"{wrong}: {' | '.join(told(paths, world))}", len(paths)
        for what, after in following:
            if after not in paths:
                paths[after] = (world, what)
                queue.append((after, sweeps + (what == "sweep")))
    return "", len(paths)


def told(paths: dict[World, tuple[World | None, str]], world: World) -> list[str]:
    story: list[str] = []
    at: World | None = world
    while at is not None:
        at, what = paths[at]
        story.append(what)
    return story[-2::-1]


def walk(first: World, seed: int, *, swept: int) -> str:
    """One order of steps, drawn at random."""
    chance = random.Random(seed)
    world, sweeps = first, 0
    story: list[str] = []
    for _ in range(2_000):
        wrong = broken(world)
        if wrong:
            return f"seed {seed}: {wrong}: {' | '.join(story)}"
        following = list(steps(world))
        if is_idle(world):
            wrong = stuck(world)
            if not wrong:
                return ""
            if sweeps == swept:
                return f"seed {seed}: {wrong}: {' | '.join(story)}"
            following, sweeps = [("sweep", sweep(world))], sweeps + 1
        what, world = chance.choice(following)
        story.append(what)
    return f"seed {seed}: it never ends: {' | '.join(story[-40:])}"


@pytest.mark.parametrize(
    ("n", "runs", "faults", "swept"),
    [
        (1, 2, {}, 0),
        (1, 3, {"workers": 1}, 0),
        (1, 2, {"doubles": 1}, 0),
        (1, 2, {"cancels": 1}, 0),
        (1, 2, {"retries": 1}, 0),
        (1, 2, {"crashes": 1}, 6),
        (1, 2, {"lost": 1}, 0),
        pytest.param(1, 2, {"redeploys": (("s1", 2),), "lost": 1}, 0, marks=pytest.mark.long),
        pytest.param(2, 3, {"redeploys": (("s1", 1),), "workers": 1}, 0, marks=pytest.mark.long),
        (1, 2, {"lines": True, "doubles": 1}, 0),
        (1, 2, {"lines": True, "retries": 1, "looks": 1}, 0),
        (2, 3, {"lines": True, "workers": 1, "looks": 1}, 0),
        (1, 2, {"lines": True, "crashes": 1}, 6),
    ],
)
def test_every_order_of_steps_keeps_the_limit_and_leaves_nobody_waiting(
    n: int, runs: int, faults: dict[str, Any], swept: int
) -> None:
    wrong, worlds = explore(start(n, runs, **faults), swept=swept)
    assert not wrong, wrong
    print(f"n={n}, {runs} runs, {faults}: {worlds} worlds")


@pytest.mark.parametrize(
    ("n", "runs", "faults", "swept"),
    [
        (1, 4, {"doubles": 2, "cancels": 1, "retries": 1}, 0),
        (2, 5, {"doubles": 3, "cancels": 1, "retries": 2}, 0),
        (2, 4, {"doubles": 1, "crashes": 1, "retries": 1, "cancels": 1}, 8),
        (3, 6, {"doubles": 2, "crashes": 1}, 8),
        (1, 4, {"lines": True, "doubles": 2, "cancels": 1, "retries": 2, "looks": 3}, 2),
        (2, 6, {"lines": True, "doubles": 2, "cancels": 1, "retries": 2, "looks": 3}, 2),
        (2, 5, {"lines": True, "doubles": 1, "crashes": 1, "retries": 1, "cancels": 1, "looks": 2}, 8),
        (3, 8, {"lines": True, "doubles": 3, "retries": 2, "looks": 4}, 2),
        (2, 5, {"redeploys": (("s2", 1), ("s1", 3)), "retries": 1, "cancels": 1, "doubles": 1, "lost": 2}, 2),
        (
            2,
            5,
            {"lines": True, "redeploys": (("s2", 1), ("s1", 3)), "retries": 1, "crashes": 1, "lost": 2, "looks": 2},
            8,
        ),
    ],
)
def test_orders_drawn_at_random_with_more_runs_and_faults_do_so_too(
    n: int, runs: int, faults: dict[str, Any], swept: int
) -> None:
    for seed in range(SEEDS):
        wrong = walk(start(n, runs, **faults), seed, swept=swept)
        assert not wrong, wrong


@pytest.mark.parametrize(
    ("rule", "n", "runs", "faults"),
    [
        (33, 2, 4, {"doubles": 1}),
        (34, 1, 3, {}),
        (35, 2, 3, {"doubles": 1}),
        (36, 1, 2, {}),
        (37, 1, 3, {}),
    ],
)
def test_without_a_rule_an_order_of_steps_breaks_it(rule: int, n: int, runs: int, faults: dict[str, int]) -> None:
    """The numbers are those of the interleavings that the rules keep out (ARCHITECTURE: *Invariants*)."""
    first = start(n, runs, without=rule, **faults)
    found = next((wrong for seed in range(2_000) if (wrong := walk(first, seed, swept=0))), "")
    assert found, f"nothing breaks without rule {rule}"


def test_45_a_place_that_is_taken_from_a_session_is_left_to_its_next_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A has passed its place on to B and is over. A sweep, or A's next attempt, takes what is A's by its name."""
    first = start(2, 5, lines=True, looks=3, retries=2)
    assert not any(walk(first, seed, swept=0) for seed in range(SEEDS))
    monkeypatch.setattr("tenure.core.permits._Following.pop", lambda *_: None)
    found = next((wrong for seed in range(50) if (wrong := walk(first, seed, swept=0))), "")
    assert "no place" in found or "bodies" in found


def test_who_does_not_know_what_its_write_has_done_wakes_whom_it_may_have_let_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The write is stored and its answer lost; made again it is refused, and what is read then names others already."""
    first = start(1, 4, lost=2)
    assert not any(walk(first, seed, swept=0) for seed in range(SEEDS))
    plain = turnstile._again
    monkeypatch.setattr(turnstile, "_again", lambda hand, decided: plain(hand, decided)._replace(maybe=()))
    found = next((wrong for seed in range(50) if (wrong := walk(first, seed, swept=0))), "")
    assert "never finished" in found
