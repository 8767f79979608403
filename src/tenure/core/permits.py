"""Permits: who may run a body under a limit. ``decide(entry, asked, parked, published, now)`` says what to store.

One entry per limit value in use (``name_of``); it is gone when nobody holds, waits or is about to run. Rules, with the
interleavings that each removes (DESIGN: section 4, *Limits*):

1. A body runs only under a permit in the entry, one for each (run id, attempt), and the entry never holds more than ``n``.
2. A run that has a permit for this very attempt under another session is being looked at there: wait, never add [33].
   One for an earlier attempt is void - who asks for the next attempt has seen that one over - and is taken over.
3. Who finds no room, or others parked before it, parks: its message is stored first, then the flag, by a CAS **also if it
   is set** [37]. Who has published and then finds room removes its message before it claims [34].
4. Whoever writes while there is room and the flag is set hands over: to the oldest parked runs that are **not in the
   entry that was read** [35], searched **after** that read, by a CAS at its revision [36]. Fewer found than there is room:
   nobody else is parked, and that CAS clears the flag.
5. Release is by holder: what is not there was given back already, so a zombie releases nothing.
6. ``n`` is what the process says that was started last (``deployed``). Lowered, it takes no permit from anybody.

Pure: what is parked, and whose message is stored, are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace


class Bound(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit of an actor: ``n`` bodies at once, of all its runs or of those that agree in the argument ``per``."""

    n: int
    per: str = ""


class Permit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One place under a limit, held by an attempt under a session; reserved (no session) for a run that was parked.

    ``at``: when it was given (seconds since the epoch).
    """

    key: str
    run_id: str
    attempt: int = 0
    session: str = ""
    at: float = 0.0


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a limit's places. ``parked``: somebody may wait. ``deployed``: when the process was started that said ``n``."""

    n: int
    deployed: float = 0.0
    permits: tuple[Permit, ...] = ()
    parked: bool = False


class Take(Struct, frozen=True, kw_only=True, tag=True):
    """An attempt of a run, which may be claimed now, asks for its place."""

    key: str
    run_id: str
    attempt: int
    session: str
    n: int
    deployed: float = 0.0


class Give(Struct, frozen=True, kw_only=True, tag=True):
    """A place is given back: an attempt's, or, with no session, the one that is reserved for a run."""

    run_id: str
    attempt: int = 0
    session: str = ""


class Look(Struct, frozen=True, kw_only=True, tag=True):
    """Hand over what is free."""


Asked = Take | Give | Look


class Answer(StrEnum):
    """What came of a request."""

    GRANTED = "granted"
    FROM_PARKED = "from_parked"
    """Granted to a run that has, or may have, a parked message: it must be removed before the claim."""
    BUSY = "busy"
    PARK = "park"
    """No room: store the run's message, then decide again."""
    PARKED = "parked"
    EXCESS = "excess"
    """No room under a rate, and it is not to wait for any."""
    DONE = "done"


class Decided(Struct, frozen=True):
    """What to store (None: nothing is left of the entry), whether that needs a write, and what to tell each who asked.

    ``reserved``: runs whose places were handed over: wake them.
    """

    entry: Entry | None
    write: bool
    answers: tuple[Answer, ...]
    reserved: tuple[str, ...] = ()


def name_of(actor: str, bound: Bound, args: bytes) -> str:
    """Name of a limit's entry: one token of the KV alphabet, whatever the argument's value is.

    Equal values have one name: ``1`` and ``1.0``, and objects in any order of their fields.
    """
    if not bound.per:
        return actor
    given: dict[str, Any] = msgspec.json.decode(args)
    value = given.get(bound.per)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    said = msgspec.json.encode([bound.per, value], order="sorted")
    return f"{actor}={blake2b(said, digest_size=16).hexdigest()}"


def room_to_hand_over(entry: Entry | None, asked: Sequence[Asked]) -> int:
    """How many parked runs to look for before ``decide``: 0 if nobody is parked or there is no room."""
    if entry is None or not entry.parked:
        return 0
    return max(0, _with_n(entry, asked).n - len(_settle(entry, asked)[0]))


def decide(
    entry: Entry | None,
    asked: Sequence[Asked],
    parked: Sequence[tuple[str, str]],
    published: Collection[str],
    now: float,
) -> Decided:
    """What to store for all that is ``asked``, in this order, and what to answer.

    ``parked``: (key, run id) of the oldest parked runs that are not in ``entry``, as many as ``room_to_hand_over`` said, or
    fewer if there are no more. ``published``: run ids of those asked whose parked message is stored by now.
    """
    start = _with_n(_entry_for(asked) if entry is None else entry, asked)
    permits, answers = _settle(start, asked, now)
    waiting: dict[str, tuple[int, Take]] = {}
    for at, one in enumerate(asked):
        if isinstance(one, Take) and at not in answers and waiting.setdefault(one.run_id, (at, one))[0] != at:
            answers[at] = Answer.BUSY
    reserved: list[str] = []
    for key, run_id in parked:
        if run_id in waiting:  # it is here already, with a message from before
            at, take = waiting.pop(run_id)
            permits.append(_permit(take, now))
            answers[at] = Answer.FROM_PARKED
        else:
            permits.append(Permit(key=key, run_id=run_id, at=now))
            reserved.append(run_id)
    flag = start.parked and len(parked) >= room_to_hand_over(entry, asked)
    parks = False
    for at, take in waiting.values():
        if len(permits) < start.n:  # nobody is parked any more: else there is no room
            permits.append(_permit(take, now))
            answers[at] = Answer.FROM_PARKED if take.run_id in published else Answer.GRANTED
        else:
            answers[at] = Answer.PARKED if take.run_id in published else Answer.PARK
            parks = parks or answers[at] is Answer.PARKED
    left = replace(start, permits=tuple(permits), parked=flag or parks)
    after = left if left.permits or left.parked else None
    return Decided(after, parks or after != entry, tuple(answers[at] for at in range(len(asked))), tuple(reserved))


def _entry_for(asked: Sequence[Asked]) -> Entry:
    """What to start from where there is none."""
    take = next((one for one in asked if isinstance(one, Take)), None)
    return Entry(n=0) if take is None else Entry(n=take.n, deployed=take.deployed)


def _settle(entry: Entry, asked: Sequence[Asked], now: float = 0.0) -> tuple[list[Permit], dict[int, Answer]]:
    """The permits once places are given back, and runs that have one already have what they ask for; those answers."""
    given = {(one.run_id, one.attempt, one.session) for one in asked if isinstance(one, Give)}
    permits = [held for held in entry.permits if (held.run_id, held.attempt, held.session) not in given]
    places = {held.run_id: place for place, held in enumerate(permits)}
    answers: dict[int, Answer] = {}
    for at, one in enumerate(asked):
        if not isinstance(one, Take):
            answers[at] = Answer.DONE
        elif one.run_id in places:
            place = places[one.run_id]
            answers[at] = _again(permits[place], one)
            if answers[at] is not Answer.BUSY:
                permits[place] = _permit(one, now)
    return permits, answers


def _again(held: Permit, take: Take) -> Answer:
    """A run that has a place already asks for one."""
    if not held.session:
        return Answer.FROM_PARKED
    if held.attempt < take.attempt:  # of an attempt that is over
        return Answer.GRANTED
    mine = (held.attempt, held.session) == (take.attempt, take.session)
    return Answer.GRANTED if mine else Answer.BUSY  # mine: its answer was lost, or its delivery given up


def _with_n(entry: Entry, asked: Sequence[Asked]) -> Entry:
    for one in asked:
        if isinstance(one, Take) and one.deployed >= entry.deployed:
            entry = replace(entry, n=one.n, deployed=one.deployed)
    return entry


def _permit(take: Take, now: float) -> Permit:
    return Permit(key=take.key, run_id=take.run_id, attempt=take.attempt, session=take.session, at=now)


encode_entry = msgspec.json.Encoder().encode
decode_entry = msgspec.json.Decoder(Entry).decode
