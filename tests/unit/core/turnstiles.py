"""A world around ``core.permits`` with several limits for each run: what ``worker.places`` does, in every order of steps.

A look at one limit, its search and its write are one step here: ``turnstile`` has taken those apart. What is new is that a run
takes its places one after the other, gives back those that it has where one is missing, and may be parked at several.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from tenure.core.permits import Answer, Asked, Entry, Give, Take, decide, room_to_hand_over

T = TypeVar("T")
WAITING, RUNNING, DONE = "waiting", "running", "done"
SESSIONS = ("s1", "s2")


class Run(NamedTuple):
    """The record of a run."""

    phase: str = WAITING
    attempt: int = 0


class Wake(NamedTuple):
    """A wake-up: of which run and attempt, and whether a place was reserved for it."""

    run: int
    attempt: int = 0
    woken: bool = False


class Hand(NamedTuple):
    """A delivery in a worker's hands. ``held``: at which limits it has a place; ``todo``: where it is to give back."""

    session: str
    wake: Wake
    at: str = "take"
    limit: int = 0
    published: bool = False
    stored: int = -1
    """Number of the parked message that it has stored itself."""
    held: tuple[int, ...] = ()
    todo: tuple[int, ...] = ()
    then: str = ""


class World(NamedTuple):
    """Everything there is. ``n``, ``entries``, ``parked``: limit by limit; a message has its number and its run."""

    n: tuple[int, ...]
    runs: tuple[Run, ...]
    wakes: tuple[Wake, ...]
    entries: tuple[Entry | None, ...]
    parked: tuple[tuple[tuple[int, int], ...], ...]
    hands: tuple[Hand, ...] = ()
    doubles: int = 0
    cancels: int = 0
    retries: int = 0
    sequence: int = 0

    def put(self, old: Hand | None, new: Hand | None) -> World:
        hands = [hand for hand in self.hands if hand is not old]
        return self._replace(hands=tuple(sorted([*hands, new] if new is not None else hands)))

    def wake(self, *wakes: Wake) -> World:
        return self._replace(wakes=tuple(sorted((*self.wakes, *wakes))))

    def record(self, run: int, phase: str, attempt: int) -> World:
        return self._replace(runs=_with(self.runs, run, Run(phase, attempt)))

    def unparked(self, limit: int, *runs: int) -> World:
        left = tuple(one for one in self.parked[limit] if one[1] not in runs)
        return self._replace(parked=_with(self.parked, limit, left))

    def dropped(self, limit: int, number: int) -> World:
        left = tuple(one for one in self.parked[limit] if one[0] != number)
        return self._replace(parked=_with(self.parked, limit, left))

    @property
    def bodies(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.at == "body"]


def start(n: tuple[int, ...], runs: int, **faults: int) -> World:
    nothing: tuple[tuple[tuple[int, int], ...], ...] = ((),) * len(n)
    return World(n, (Run(),) * runs, tuple(Wake(run) for run in range(runs)), (None,) * len(n), nothing, **faults)  # type: ignore[arg-type]  # its faults are numbers


def steps(world: World) -> Iterator[tuple[str, World]]:
    for wake in dict.fromkeys(world.wakes):
        left = list(world.wakes)
        left.remove(wake)
        for session in SESSIONS:
            if not any((hand.session, hand.wake.run) == (session, wake.run) for hand in world.hands):
                yield f"{session} gets {wake}", world._replace(wakes=tuple(left)).put(None, Hand(session, wake))
        if world.doubles:
            yield f"another copy of {wake}", world._replace(doubles=world.doubles - 1).wake(wake)
    for hand in world.hands:
        name = f"{hand.session}/{hand.wake.run} {hand.at} {hand.limit}"
        match hand.at:
            case "take":
                yield name, _take(world, hand)
            case "claim":
                yield name, _claim(world, hand)
            case "body":
                yield f"{name} ends", _ended(world, hand, DONE)
                if world.retries:
                    yield f"{name} fails", _ended(world._replace(retries=world.retries - 1), hand, WAITING)
            case "give":
                yield name, _give(world, hand)
    for run, record in enumerate(world.runs):
        if world.cancels and record.phase == WAITING:
            yield f"{run} is cancelled", world._replace(cancels=world.cancels - 1).record(run, DONE, record.attempt)


def _decided(world: World, limit: int, asked: Asked, *, published: bool = False) -> tuple[Answer, World]:
    """What a process is answered, and the world after its write; whom it has let in is woken."""
    entry = world.entries[limit]
    inside = {permit.run_id for permit in entry.permits} if entry is not None else set()
    oldest = [run for _, run in world.parked[limit] if str(run) not in inside][: room_to_hand_over(entry, [asked])]
    mine = {asked.run_id} if published and isinstance(asked, Take) else set[str]()
    decided = decide(entry, [asked], [(f"k{run}", str(run)) for run in oldest], mine, 0.0)
    answer = decided.answers[-1]
    if answer is Answer.PARK:
        return answer, world
    woken = tuple(map(int, decided.reserved))
    after = world._replace(entries=_with(world.entries, limit, decided.entry)).unparked(limit, *woken)
    return answer, after.wake(*(Wake(run, world.runs[run].attempt, True) for run in woken))


def _take(world: World, hand: Hand) -> World:
    limit, (run, attempt, woken) = hand.limit, hand.wake
    asked = Take(key=f"k{run}", run_id=str(run), attempt=attempt + 1, session=hand.session, n=world.n[limit])
    answer, after = _decided(world, limit, asked, published=hand.published)
    if answer is Answer.PARK:
        if any(of == run for _, of in world.parked[limit]):
            return after.put(hand, hand._replace(published=True))
        there = (*world.parked[limit], (world.sequence, run))
        after = after._replace(parked=_with(world.parked, limit, there), sequence=world.sequence + 1)
        return after.put(hand, hand._replace(published=True, stored=world.sequence))
    if answer is not Answer.PARKED:  # [34]
        after = after.dropped(limit, hand.stored)
    if answer in {Answer.BUSY, Answer.PARKED}:  # give back what it has, and what may be kept for it elsewhere
        todo = tuple(other for other in range(len(world.n)) if other != limit)
        then = "nak" if answer is Answer.BUSY else "ack"
        return after.put(hand, hand._replace(at="give", todo=todo, then=then, published=False, stored=-1))
    if answer is Answer.FROM_PARKED and not woken:
        after = after.unparked(limit, run)
    last = limit + 1 == len(world.n)
    at, following = ("claim", 0) if last else ("take", limit + 1)
    return after.put(hand, hand._replace(at=at, limit=following, held=(*hand.held, limit), published=False, stored=-1))


def _claim(world: World, hand: Hand) -> World:
    run, record = hand.wake.run, world.runs[hand.wake.run]
    if record == Run(WAITING, hand.wake.attempt):
        return world.record(run, RUNNING, record.attempt + 1).put(hand, hand._replace(at="body"))
    if record.phase == WAITING:  # another attempt than the places are for
        return world.put(hand, Hand(hand.session, hand.wake._replace(attempt=record.attempt), held=()))
    everywhere = tuple(range(len(world.n)))
    then = "ack" if record.phase == DONE else "nak"
    return world.put(hand, hand._replace(at="give", todo=everywhere, then=then))


def _ended(world: World, hand: Hand, phase: str) -> World:
    run = hand.wake.run
    after = world.record(run, phase, hand.wake.attempt + 1)
    if phase == WAITING:
        after = after.wake(Wake(run, hand.wake.attempt + 1))
    return after.put(hand, hand._replace(at="give", todo=hand.held, then="ack"))


def _give(world: World, hand: Hand) -> World:
    """At the next limit: its place, or one that is reserved for the run."""
    if not hand.todo:
        after = world.put(hand, None)
        return after.wake(hand.wake) if hand.then == "nak" else after
    limit, *left = hand.todo
    run = str(hand.wake.run)
    mine = Give(run_id=run, attempt=hand.wake.attempt + 1, session=hand.session)
    _, after = _decided(world, limit, mine if limit in hand.held else Give(run_id=run))
    held = tuple(one for one in hand.held if one != limit)
    return after.put(hand, hand._replace(todo=tuple(left), held=held))


def _with(all_: tuple[T, ...], at: int, one: T) -> tuple[T, ...]:
    return (*all_[:at], one, *all_[at + 1 :])
