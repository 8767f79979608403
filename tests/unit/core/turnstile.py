"""A small world around ``core.permits``: one limit, a few runs, two workers; every step may come before any other's.

Steps are those of ``tenure.gates`` and ``tenure.worker``: read the entry, search, store a parked message, CAS, wake, claim,
body, outcome, release; and what a process does with no write: a place passes to the next in line. A world is a value, so
all orders can be explored. ``without`` leaves out a rule by its number.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenure.core.permits import Answer, Asked, Decided, Entry, Give, Look, Permit, Take, decide, room_to_hand_over
from tests.unit.core.turnstile_world import (
    ASKING,
    DONE,
    NOBODY,
    READ,
    RUNNING,
    SUPERVISOR,
    WAITING,
    Crew,
    Hand,
    Wake,
    World,
    names,
    permits,
)

# -- what may happen next --------------------------------------------------------------------------------------------


def steps(world: World) -> Iterator[tuple[str, World]]:
    for wake in dict.fromkeys(world.wakes):
        left = list(world.wakes)
        left.remove(wake)
        rest = world._replace(wakes=tuple(left))
        for session in world.sessions:
            if not any(hand.session == session and hand.wake.run == wake.run for hand in world.hands):
                yield f"{session} gets {wake.run}", rest.put(None, _take(rest, Hand(session, wake, "")))
        if world.doubles:
            yield f"another copy of {wake.run}", world._replace(doubles=world.doubles - 1).wake(wake)
    for hand in world.hands:
        yield from _moves(world, hand)
    yield from _deaths(world)
    for permit in names(world.entry):
        run = int(permit.run_id)
        gone = permit.session and permit.session not in world.sessions
        over = permit.session and world.looks and _is_over(world, permit)
        if (gone or over) and not any((hand.session, hand.wake.run) == (SUPERVISOR, run) for hand in world.hands):
            give = Give(run_id=permit.run_id, attempt=permit.attempt, session=permit.session)
            after = world if gone else world._replace(looks=world.looks - 1)
            yield f"a supervisor finds {run}", after.put(None, _ask(Hand(SUPERVISOR, Wake(run, 0), ""), give, "ack"))
    if world.redeploys:
        yield _redeployed(world)
    for session, crew in world.crews:
        if crew.void and not any(hand.session == session and hand.at in ASKING | {"read"} for hand in world.hands):
            yield f"{session} looks", world.put(None, _ask(Hand(session, Wake(NOBODY, 0), ""), Look(), "ack"))
    if world.cancels:
        for run, record in enumerate(world.runs):
            if record.phase == WAITING:
                yield f"{run} is cancelled", world._replace(cancels=world.cancels - 1).record(run, phase=DONE)


def _deaths(world: World) -> Iterator[tuple[str, World]]:
    for session in world.sessions if world.crashes else ():
        dead = [hand for hand in world.hands if hand.session == session]
        if dead:
            after = world._replace(
                crashes=world.crashes - 1,
                hands=tuple(hand for hand in world.hands if hand.session != session),
                sessions=tuple(name for name in world.sessions if name != session),
                crews=tuple(one for one in world.crews if one[0] != session),
            )
            yield f"{session} dies", after.wake(*(hand.wake for hand in dead))


def _redeployed(world: World) -> tuple[str, World]:
    """Newer code is there, and looks whether it may hand over more."""
    (session, n), *later = world.redeploys
    deployed = len(world.said) + 1.0
    said = (*(one for one in world.said if one[0] != session), (session, n, deployed))
    after = world._replace(redeploys=tuple(later), said=said)
    look = _ask(Hand(session, Wake(NOBODY, 0), ""), Look(n=n, deployed=deployed), "ack")
    return f"{session} says {n}", after.put(None, look) if session in world.sessions else after


def _is_over(world: World, permit: Permit) -> bool:
    record = world.runs[int(permit.run_id)]
    if (record.phase, record.session, record.attempt) == (RUNNING, permit.session, permit.attempt):
        return False
    return record.phase == DONE or record.attempt >= permit.attempt


def _is_busy(world: World, hand: Hand) -> bool:
    """Whether its process is waiting for an answer about the limit."""
    others = [one for one in world.hands if one is not hand and one.session == hand.session != SUPERVISOR]
    return any(one.at in ASKING for one in others)


def _moves(world: World, hand: Hand) -> Iterator[tuple[str, World]]:
    name = f"{hand.session}/{hand.wake.run} {hand.at}"
    match hand.at:
        case "read" if _is_busy(world, hand):
            return
        case "line":
            yield f"{name} may be claimed", world.put(hand, hand._replace(at="claim"))
            yield f"{name} parks", world.put(hand, _take(world, hand._replace(may_wait=False)))
        case "ready":
            if world.free(hand.session) > 0:
                yield f"{name} starts", world.put(hand, hand._replace(at="body", inside=True))
            elif world.retries:
                again = world._replace(retries=world.retries - 1).record(hand.wake.run, phase=WAITING, session="")
                again = again.wake(Wake(hand.wake.run, hand.wake.attempt + 1))
                yield f"{name} is handed back", again.put(hand, hand._replace(at="release"))
        case "read":
            if world.without == 36 and hand.oldest is None:  # searches before it reads
                oldest = tuple(dict.fromkeys(run for _, run, _ in world.parked))
                yield f"{name} (searches)", world.put(hand, hand._replace(oldest=oldest))
                return
            following = "cas" if world.without == 36 else "search"
            yield name, world.put(hand, hand._replace(at=following, entry=world.entry, stale=False))
        case "search":
            void = world.crew(hand.session).void
            yield name, world.put(hand, hand._replace(at="cas", oldest=_oldest(world, hand.entry), void=void))
        case "cas":
            yield from _swaps(world, hand, name)
        case "publish":
            there = any(run == hand.wake.run for _, run, _ in world.parked)
            mine = (world.sequence, hand.wake.run, hand.wake.attempt)
            parked = world.parked if there else (*world.parked, mine)
            after = world._replace(parked=parked, sequence=world.sequence + 1)
            yield name, after.put(hand, hand._replace(at="cas", published=True, stored=-1 if there else world.sequence))
        case "hand":
            run = hand.handed[0]
            after = world._replace(parked=tuple(one for one in world.parked if one[0] != hand.numbers[0]))
            after = after.wake(Wake(run, hand.attempts[0], True))
            yield (
                name,
                after.put(
                    hand,
                    _done_handing(
                        hand._replace(handed=hand.handed[1:], numbers=hand.numbers[1:], attempts=hand.attempts[1:])
                    ),
                ),
            )
        case "answered":
            yield name, _answered(world, hand)
        case "claim":
            yield name, _claim(world, hand)
        case "body":
            yield f"{name} ends", world.put(hand, hand._replace(at="outcome"))
        case "outcome":
            yield from _outcome(world, hand)
        case "release":
            yield from _release(world, hand, name)
        case "ack":
            yield name, world.put(hand, None)
        case "nak":
            yield name, world.put(hand, None).wake(hand.wake)


def _release(world: World, hand: Hand, name: str) -> Iterator[tuple[str, World]]:
    after = world.unpark(hand.wake.run) if hand.unpark and world.without != 34 else world
    give = Give(run_id=str(hand.wake.run), attempt=hand.wake.attempt + 1, session=hand.session)
    then = hand.then if hand.then in {"ack", "nak"} else "ack"
    crew, others = world.crew(hand.session), world.others(hand)
    if world.lines and others:  # they have it now, or whoever asks in the next moment
        passed = after.with_crew(hand.session, crew._replace(void=(*crew.void, give)))
        yield f"{name} (passes on)", passed.put(hand, hand._replace(at=then, inside=False))
    if not world.lines or others < crew.places:
        yield name, after.put(hand, _ask(hand._replace(inside=False), give, then))


def _ask(hand: Hand, asked: Asked, then: str) -> Hand:
    return hand._replace(
        at="read",
        asked=asked,
        then=then,
        oldest=None,
        published=False,
        stored=-1,
        handed=(),
        answer=None,
        void=(),
        maybe=(),
    )


def _take(world: World, hand: Hand) -> Hand:
    run, attempt = hand.wake.run, hand.wake.attempt + 1
    n, deployed = world.says(hand.session)
    take = Take(key=f"k{run}", run_id=str(run), attempt=attempt, session=hand.session, n=n, deployed=deployed)
    return _ask(hand, take, "claim")


def _oldest(world: World, entry: Entry | None) -> tuple[int, ...]:
    """Of all parked runs those that are not in the entry that was read [35]."""
    inside = {permit.run_id for permit in names(entry)} if world.without != 35 else set()
    return tuple(dict.fromkeys(run for _, run, _ in world.parked if str(run) not in inside))


def _decide(world: World, hand: Hand) -> Decided:
    assert hand.asked is not None
    asked = [*hand.void, hand.asked]
    may_wait = world.lines and hand.may_wait
    room = room_to_hand_over(hand.entry, asked, may_wait=may_wait)
    parked = [(f"k{run}", str(run)) for run in (hand.oldest or ())[:room]]
    published = {str(hand.wake.run)} if hand.published else set()
    decided = decide(hand.entry, asked, parked, published, 0.0, may_wait=may_wait)
    answer = decided.answers[-1]
    if world.without == 33 and answer is Answer.BUSY:  # shares the other delivery's place
        return Decided(hand.entry, False, (Answer.GRANTED,))
    if world.without == 37 and answer is Answer.PARKED and hand.entry is not None and hand.entry.parked:
        return Decided(hand.entry, False, decided.answers, decided.reserved)
    return decided


def _cas(world: World, hand: Hand) -> World:
    decided = _decide(world, hand)
    answer = decided.answers[-1]
    if answer is Answer.PARK:
        return world.put(hand, hand._replace(at="publish"))
    if decided.write:
        if hand.stale:
            return world.put(hand, _again(hand, decided))
        world = _stored(world, hand, decided)
    if hand.session != SUPERVISOR and world.lines:
        places = sum(permit.session == hand.session for permit in permits(decided.entry))
        left = world.crew(hand.session).void[len(hand.void) :]
        world = world.with_crew(hand.session, Crew(places, left))
    reserved = {int(permit.run_id) for permit in permits(decided.entry) if not permit.session}
    handed = tuple(dict.fromkeys(run for run in (*hand.maybe, *map(int, decided.reserved)) if run in reserved))
    found = [next((one for one in world.parked if one[1] == run), (-1, run, 0)) for run in handed]
    numbers, attempts = tuple(one[0] for one in found), tuple(one[2] for one in found)
    handing = hand._replace(handed=handed, numbers=numbers, attempts=attempts, answer=answer, void=(), maybe=())
    return world.put(hand, _done_handing(handing))


def _stored(world: World, hand: Hand, decided: Decided) -> World:
    before, after = len(permits(world.entry)), len(permits(decided.entry))
    if decided.entry is not None and after > before and after > decided.entry.n:
        world = world._replace(over=f"{after} places, and {decided.entry.n} are allowed")
    others = tuple(one if one is hand or one.at not in READ else one._replace(stale=True) for one in world.hands)
    return world._replace(entry=decided.entry, hands=others)


def _again(hand: Hand, decided: Decided) -> Hand:
    """It was refused: read anew. Should an earlier copy have been taken, it is to wake whom that has let in."""
    maybe = tuple(dict.fromkeys((*hand.maybe, *map(int, decided.reserved))))
    return hand._replace(at="read", oldest=None, entry=None, stale=False, maybe=maybe)


def _swaps(world: World, hand: Hand, name: str) -> Iterator[tuple[str, World]]:
    """A CAS. If its answer is lost, it is made again and refused; or whoever waits for it gives up first."""
    yield name, _cas(world, hand)
    decided = _decide(world, hand)
    if not world.lost or hand.stale or not decided.write or decided.answers[-1] is Answer.PARK:
        return
    after = _stored(world._replace(lost=world.lost - 1), hand, decided)
    yield f"{name}, unheard", after.put(hand, _again(hand, decided))
    if isinstance(hand.asked, Take) and not world.lines:
        yield f"{name}, given up", after.put(hand, None).wake(hand.wake)


def _done_handing(hand: Hand) -> Hand:
    at = "hand" if hand.handed else "answered"
    clean = hand if hand.handed else hand._replace(entry=None, stale=False, oldest=None)
    return clean._replace(at=at)


def _answered(world: World, hand: Hand) -> World:
    answer = hand.answer
    plain = hand._replace(asked=None, answer=None, published=False)
    if answer is not Answer.PARKED and world.without != 34:
        world = world._replace(parked=tuple(one for one in world.parked if one[0] != hand.stored))
    plain = plain._replace(stored=-1)
    if answer is Answer.BUSY:
        return world.put(hand, plain._replace(at="nak"))
    if answer is Answer.PARKED:
        return world.put(hand, plain._replace(at="ack"))
    unpark = answer is Answer.FROM_PARKED and not hand.wake.woken
    at = "line" if world.lines and hand.then == "claim" else hand.then
    return world.put(hand, plain._replace(at=at, unpark=hand.unpark or unpark, may_wait=True))


def _claim(world: World, hand: Hand) -> World:
    run, record = hand.wake.run, world.runs[hand.wake.run]
    dead = record.phase == RUNNING and record.session not in world.sessions
    if (record.phase == WAITING or dead) and record.attempt == hand.wake.attempt:
        after = world.record(run, phase=RUNNING, attempt=record.attempt + 1, session=hand.session)
        return after.put(hand, hand._replace(at="ready" if world.lines else "body"))
    if record.phase == WAITING or dead:  # another attempt than the place is for
        fresh = hand._replace(wake=hand.wake._replace(attempt=record.attempt))
        return world.put(hand, _take(world, fresh))
    if world.without == 34:
        return world.put(hand, hand._replace(at="ack" if record.phase == DONE else "nak"))
    return world.put(hand, hand._replace(at="release", then="ack" if record.phase == DONE else "nak"))


def _outcome(world: World, hand: Hand) -> Iterator[tuple[str, World]]:
    run, record = hand.wake.run, world.runs[hand.wake.run]
    mine = (record.phase, record.session, record.attempt) == (RUNNING, hand.session, hand.wake.attempt + 1)
    after = world.record(run, phase=DONE) if mine else world
    yield f"outcome of {run}", after.put(hand, hand._replace(at="release"))
    if mine and world.retries:
        again = world._replace(retries=world.retries - 1).record(run, phase=WAITING, session="")
        yield f"retry of {run}", again.wake(Wake(run, record.attempt)).put(hand, hand._replace(at="release"))
