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
6. ``n`` is what the code says that was deployed last (``deployed``), of two of one time the smaller. Lowered, it takes no permit
   from anybody.
7. Attempts of a session that has permits may stand in ``line``: they share those permits. At any time no more of a session's
   attempts run than it has permits, whichever of them the permits name; so its process passes a place on to the next in
   line with no write, and names the runs of many passes in one. Whoever takes a permit from a session - a later attempt's
   Take, a sweep, the process itself - leaves it to the session's next in line while there is one [45]. Nobody joins the
   line while anybody is parked, so it ends, and they are next.

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
    """Who holds a limit's places. ``parked``: somebody may wait. ``deployed``: when the code was deployed that said ``n``.

    ``line``: who runs next under the permits of its session.
    """

    n: int
    deployed: float = 0.0
    permits: tuple[Permit, ...] = ()
    parked: bool = False
    line: tuple[Permit, ...] = ()

    @property
    def names(self) -> tuple[Permit, ...]:
        """Everybody who is named in it."""
        return (*self.permits, *self.line)


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
    """Hand over what is free. ``n``: what the process says that asks; 0: nothing."""

    n: int = 0
    deployed: float = 0.0


Asked = Take | Give | Look


class Answer(StrEnum):
    """What came of a request."""

    GRANTED = "granted"
    FROM_PARKED = "from_parked"
    """Granted to a run that has, or may have, a parked message: it must be removed before the claim."""
    NEXT = "next"
    """In line: it may run when fewer of its session's attempts run than the session has places."""
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


def room_to_hand_over(entry: Entry | None, asked: Sequence[Asked], *, may_wait: bool = False) -> int:
    """How many parked runs to look for before ``decide``: 0 if nobody is parked or there is no room."""
    if entry is None or not entry.parked:
        return 0
    start = _with_n(entry, asked)
    return max(0, start.n - len(_settle(start, asked, may_wait=may_wait)[0]))


def decide(
    entry: Entry | None,
    asked: Sequence[Asked],
    parked: Sequence[tuple[str, str]],
    published: Collection[str],
    now: float,
    *,
    may_wait: bool = False,
) -> Decided:
    """What to store for all that is ``asked``, in this order, and what to answer.

    ``parked``: (key, run id) of the oldest parked runs that are not in ``entry``, as many as ``room_to_hand_over`` said, or
    fewer if there are no more. ``published``: run ids of those asked whose parked message is stored by now. ``may_wait``: who
    asks may stand in line; else it does not even if it did before.
    """
    start = _with_n(_entry_for(asked) if entry is None else entry, asked)
    permits, line, answers = _settle(start, asked, now, may_wait=may_wait)
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
    flag = start.parked and len(parked) >= room_to_hand_over(entry, asked, may_wait=may_wait)
    parks = False
    sessions = {held.session for held in permits} if may_wait and len(permits) <= start.n else set()
    for at, take in waiting.values():
        if len(permits) < start.n:  # nobody is parked any more: else there is no room
            permits.append(_permit(take, now))
            sessions.add(take.session)
            answers[at] = Answer.FROM_PARKED if take.run_id in published else Answer.GRANTED
        elif may_wait and take.session in sessions and take.run_id not in published and not (flag or parks):
            line.append(_permit(take, now))
            answers[at] = Answer.NEXT
        else:
            parks = True
            answers[at] = Answer.PARKED if take.run_id in published else Answer.PARK
    parks = Answer.PARKED in answers.values()
    left = replace(start, permits=tuple(permits), line=tuple(line), parked=flag or parks)
    after = left if left.permits or left.parked else None
    return Decided(after, parks or after != entry, tuple(answers[at] for at in range(len(asked))), tuple(reserved))


def _entry_for(asked: Sequence[Asked]) -> Entry:
    """What to start from where there is none."""
    take = next((one for one in asked if isinstance(one, Take)), None)
    return Entry(n=0) if take is None else Entry(n=take.n, deployed=take.deployed)


def _settle(
    entry: Entry, asked: Sequence[Asked], now: float = 0.0, *, may_wait: bool
) -> tuple[list[Permit], list[Permit], dict[int, Answer]]:
    """Permits and line once places are given back, and runs that are named already have what they ask for; those answers."""
    given = {(one.run_id, one.attempt, one.session) for one in asked if isinstance(one, Give)}
    takes = {one.run_id: one for one in asked if isinstance(one, Take)}
    line: dict[str, Permit] = {}
    for named in entry.line:
        take = takes.get(named.run_id)
        over = take is not None and (named.attempt < take.attempt or (_is_for(named, take) and not may_wait))
        if not over and (named.run_id, named.attempt, named.session) not in given:
            line[named.run_id] = named
    following = _Following(line)
    permits: list[Permit] = []
    places: dict[str, int] = {}
    for held in entry.permits:
        take = takes.get(held.run_id)
        over = take is not None and held.session != "" and held.attempt < take.attempt
        left: Permit | None = held
        if (held.run_id, held.attempt, held.session) in given:
            left = following.pop(held.session)
        elif over:
            left = following.pop(held.session) or held  # [45]; or it gives way below
        if left is not None:
            places[left.run_id] = len(permits)
            permits.append(left)
    for session in dict.fromkeys(one.session for one in asked if not isinstance(one, Look)):
        while len(permits) < entry.n and (first := following.pop(session)) is not None:
            places[first.run_id] = len(permits)
            permits.append(first)
    answers: dict[int, Answer] = {}
    for at, one in enumerate(asked):
        if not isinstance(one, Take):
            answers[at] = Answer.DONE
        elif one.run_id in places:
            place = places[one.run_id]
            answers[at] = _again(permits[place], one)
            if answers[at] is not Answer.BUSY:
                permits[place] = _permit(one, now)
        elif one.run_id in line:
            answers[at] = Answer.NEXT if _is_for(line[one.run_id], one) else Answer.BUSY
    return permits, list(line.values()), answers


class _Following:
    """Who is next in a line, by session. Taken out of the line as they get a permit."""

    def __init__(self, line: dict[str, Permit]) -> None:
        self._line = line
        self._of: dict[str, list[str]] = {}
        for named in reversed(line.values()):
            self._of.setdefault(named.session, []).append(named.run_id)

    def pop(self, session: str) -> Permit | None:
        waiting = self._of.get(session)
        return self._line.pop(waiting.pop()) if waiting else None


def _again(held: Permit, take: Take) -> Answer:
    """A run that has a place already asks for one."""
    if not held.session:
        return Answer.FROM_PARKED
    if held.attempt < take.attempt:  # of an attempt that is over
        return Answer.GRANTED
    return Answer.GRANTED if _is_for(held, take) else Answer.BUSY


def _is_for(held: Permit, take: Take) -> bool:
    """Whether it is this very attempt: its answer was lost, or its delivery given up."""
    return (held.attempt, held.session) == (take.attempt, take.session)


def _with_n(entry: Entry, asked: Sequence[Asked]) -> Entry:
    for one in asked:
        if not isinstance(one, Give) and one.n and is_said_last(one.n, one.deployed, entry.n, entry.deployed):
            entry = replace(entry, n=one.n, deployed=one.deployed)
    return entry


def is_said_last(n: int, deployed: float, known: int, known_deployed: float) -> bool:
    """Whether this number is gone by from now on. Of two that code says of one time the smaller: they must not take turns."""
    return deployed > known_deployed or (deployed == known_deployed and (n < known or not known))


def _permit(take: Take, now: float) -> Permit:
    return Permit(key=take.key, run_id=take.run_id, attempt=take.attempt, session=take.session, at=now)


encode_entry = msgspec.json.Encoder().encode
decode_entry = msgspec.json.Decoder(Entry).decode
