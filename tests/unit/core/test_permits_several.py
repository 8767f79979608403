"""Several limits in every order of steps: each holds, nobody is left waiting, nobody keeps what others need."""

from __future__ import annotations

import random
from collections import deque

import pytest

from tests.support import sized
from tests.unit.core import turnstiles
from tests.unit.core.turnstiles import DONE, World, start, steps

MOST = sized(2_500, 150_000)
SEEDS = sized(8, 400)


def broken(world: World) -> str:
    """What is wrong with a world at any moment; empty if nothing is."""
    for n, entry in zip(world.n, world.entries, strict=True):
        places = () if entry is None else entry.permits
        if max(len(places), len(world.bodies)) > n:
            return f"{len(places)} places and {len(world.bodies)} bodies under a limit of {n}"
        named = {(one.run_id, one.attempt, one.session) for one in places}
        for body in world.bodies:
            if (str(body.wake.run), body.wake.attempt + 1, body.session) not in named:
                return f"the body of {body.wake.run} has no place"
        held = {(str(hand.wake.run), hand.session) for hand in world.hands}
        idle = [one.run_id for one in places if one.session and (one.run_id, one.session) not in held]
        if idle:
            return f"places of runs {idle} that nobody has in hand"
    if world.hands or world.wakes:
        return ""
    waiting = [run for run, record in enumerate(world.runs) if record.phase != DONE]
    if waiting:
        return f"runs {waiting} are never finished: {world.entries}, {world.parked}"
    left = any(world.parked) or any(world.entries)
    return f"left: {world.entries}, {world.parked}" if left else ""


def explore(first: World) -> str:
    """Every order of steps, those with the shortest histories first: what is wrong with the first bad world."""
    seen = {first}
    queue: deque[tuple[World, tuple[str, ...]]] = deque([(first, ())])
    while queue and len(seen) < MOST:
        world, story = queue.popleft()
        if wrong := broken(world):
            return f"{wrong}: {' | '.join(story)}"
        for what, after in steps(world):
            if after not in seen:
                seen.add(after)
                queue.append((after, (*story, what)))
    return ""


def walk(first: World, seed: int) -> str:
    """One order of steps, drawn at random."""
    chance, world = random.Random(seed), first
    story: list[str] = []
    for _ in range(3_000):
        if wrong := broken(world):
            return f"seed {seed}: {wrong}: {' | '.join(story)}"
        following = list(steps(world))
        if not world.hands and not world.wakes:
            return ""
        what, world = chance.choice(following)
        story.append(what)
    return f"seed {seed}: it never ends: {' | '.join(story[-40:])}"


@pytest.mark.parametrize(
    ("n", "runs", "faults"),
    [
        ((1, 1), 3, {}),
        ((2, 1), 3, {"doubles": 1}),
        ((1, 2), 3, {"retries": 1}),
        ((1, 1), 2, {"cancels": 1, "doubles": 1}),
    ],
)
def test_every_order_of_steps_keeps_all_limits_and_leaves_nobody_waiting(
    n: tuple[int, ...], runs: int, faults: dict[str, int]
) -> None:
    wrong = explore(start(n, runs, **faults))
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("n", "runs", "faults"),
    [
        ((2, 1), 5, {"doubles": 2, "cancels": 1, "retries": 2}),
        ((2, 1, 3), 6, {"doubles": 3, "cancels": 2, "retries": 2}),
        ((1, 3, 2), 6, {"doubles": 3, "retries": 3}),
    ],
)
def test_orders_drawn_at_random_with_more_runs_and_limits_do_so_too(
    n: tuple[int, ...], runs: int, faults: dict[str, int]
) -> None:
    for seed in range(SEEDS):
        wrong = walk(start(n, runs, **faults), seed)
        assert not wrong, wrong


@pytest.mark.parametrize("left_out", ["places where another is missing", "messages of who got in"])
def test_without_giving_back_something_is_left(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if left_out.startswith("places"):
        give = turnstiles._give
        monkeypatch.setattr(turnstiles, "_give", lambda world, hand: give(world, hand._replace(todo=())))
    else:
        monkeypatch.setattr(World, "dropped", lambda self, *_: self)
    first = start((2, 1, 3), 6, doubles=3, cancels=2, retries=2)
    assert any(walk(first, seed) for seed in range(20))
