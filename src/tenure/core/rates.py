"""Rates: how many bodies start in a window of time. ``decide(entry, asked, parked, published, now)`` says what to store.

One entry per value of a rate in use (``rate_name``), which vanishes by itself once nothing in it counts any more. A start is
written down before it happens, as a *mark*: the moment by which the body has started. Rules, and what each is for:

1. A body starts between the write of its mark and the mark. A mark counts for the window's length after it: so ``n`` starts
   lie at least a window apart from the ``n`` that follow them, and no interval of that length, its end not included, ever
   holds more than ``n``. Who comes later than its mark moves it first, and has the older one's place until then.
2. Every start of a body counts, that of a retry as well. Who does not start after all takes its mark out, unless it cannot
   tell whether it has: a crash between two writes, or an answer that is lost, wastes a start, and never makes one too many.
3. Who finds no room, or others parked before it, parks: its message is stored first, then the flag, by a CAS **also if it
   is set** [37]. Or, where the excess is to be dropped, it is told so; but not a run that has started once.
4. Whoever writes while there is room and the flag is set hands over: to the oldest parked runs that are **not in the entry
   that was read** [35], searched **after** that read, by a CAS at its revision [36]. Each has a *place* until it starts:
   places and marks together are never more than ``n``. Fewer found than there is room: that CAS clears the flag.
5. A place that is not used for a minute is void: its run has ended, or waits in its queue for a worker, and asks anew.
6. ``n`` is what the code says that was deployed last (``deployed``), of equal ones the smaller.

Times are whole microseconds since the epoch, by the clock of whoever writes. Pure: what is parked, and whose message is
stored, are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core.permits import Answer, Bound, is_said_last, name_of

SECOND = 1_000_000
EXACT = 128
"""Up to so many starts in a window are marked to the microsecond; of more, those in a 128th of a window share one mark."""
PLACE_US = 60 * SECOND
MOST_PLACES = 128
"""Parked runs that are on their way to a worker: what they are must fit an entry."""
_MARGIN_SECONDS = 5
_UNIT = "us"

Excess = Literal["delay", "drop"]


class Rate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rate of an actor: ``n`` starts in any ``seconds``, of all its runs or of those that agree in the argument ``per``."""

    n: int
    seconds: float
    per: str = ""
    excess: Excess = "delay"


class Settle(Struct, frozen=True, kw_only=True):
    """A run starts ``settle`` seconds after the last submit of its key, ``max_wait`` after the first at the latest."""

    settle: float
    max_wait: float


class Pace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of an actor's policy is about time. ``cooldown``: seconds after a run in which no submit of its key starts one."""

    rates: tuple[Rate, ...] = ()
    debounce: Settle | None = None
    cooldown: float = 0.0


class Place(Struct, frozen=True, kw_only=True):
    """A start that is kept for a run, since ``at``, until it makes a mark of it."""

    key: str
    run_id: str
    at: int


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What counts of one rate. ``marks``: (time, how many starts by then). ``parked``: somebody may wait. ``tag``: the last write's."""

    n: int
    deployed: float = 0.0
    marks: tuple[tuple[int, int], ...] = ()
    places: tuple[Place, ...] = ()
    parked: bool = False
    tag: str = ""


class Start(Struct, frozen=True, kw_only=True, tag=True):
    """A run, which may be claimed now, asks to start within ``within`` microseconds.

    ``old``: the mark that it has and that has passed; 0: none. ``drop``: it is not to wait where there is no room.
    """

    key: str
    run_id: str
    within: int
    n: int
    deployed: float = 0.0
    old: int = 0
    drop: bool = False


class Leave(Struct, frozen=True, kw_only=True, tag=True):
    """The place that is kept for a run, if there is one, or its ``mark``, is not wanted: it does not start.

    With a mark it may be applied once only: what is written there at the same moment may be another's.
    """

    run_id: str
    mark: int = 0


class Look(Struct, frozen=True, kw_only=True, tag=True):
    """Hand over what is free."""


Asked = Start | Leave | Look


class Decided(Struct, frozen=True):
    """What to store, whether that needs a write, and for each who asked its answer and its mark (0: none).

    ``reserved``: runs for which places are kept now: wake them.
    """

    entry: Entry
    write: bool
    answers: tuple[tuple[Answer, int], ...]
    reserved: tuple[str, ...] = ()


def rate_name(actor: str, rate: Rate, args: bytes) -> str:
    """Name of a rate's entry: one token of the KV alphabet, and none that a limit can have. Its window is part of it."""
    return f"{name_of(actor, Bound(n=rate.n, per=rate.per), args)}={round(rate.seconds * SECOND)}{_UNIT}"


def is_rate(name: str) -> bool:
    """Whether this is the name of a rate's entry, and not that of a limit."""
    return name.endswith(_UNIT) and name.rpartition("=")[2].removesuffix(_UNIT).isdecimal()


def window_of(name: str) -> int:
    """The length of a rate's window in microseconds."""
    return int(name.rpartition("=")[2].removesuffix(_UNIT))


def ttl_of(entry: Entry, window: int, now: int) -> int:
    """Whole seconds after which nothing in the entry counts any more."""
    ends = [now, *(mark + window for mark, _ in entry.marks), *(place.at + PLACE_US for place in entry.places)]
    return -(-(max(ends) - now) // SECOND) + _MARGIN_SECONDS + (PLACE_US // SECOND if entry.parked else 0)


def next_room(entry: Entry, window: int, now: int) -> int:
    """When there may be room again; ``now`` at the earliest."""
    ends = [mark + window for mark, _ in entry.marks] + [place.at + PLACE_US for place in entry.places]
    return max(now, min(ends, default=now))


def room_to_hand_over(entry: Entry | None, asked: Sequence[Asked], window: int, now: int) -> int:
    """How many parked runs to look for before ``decide``: 0 if nobody is parked or there is no room."""
    if entry is None or not entry.parked:
        return 0
    ground = _Ground(_with_n(entry, asked), asked, window, now)
    return max(0, min(ground.room, MOST_PLACES - len(ground.places)))


def decide(  # noqa: PLR0917  (what is known at the time of one write)
    entry: Entry | None,
    asked: Sequence[Asked],
    parked: Sequence[tuple[str, str]],
    published: Collection[str],
    window: int,
    now: int,
    searched: int,
) -> Decided:
    """What to store for all that is ``asked``, in this order, and what to answer.

    ``parked``: (key, run id) of the oldest parked runs that are not in ``entry``, ``searched`` of them, which is what
    ``room_to_hand_over`` said before that (there may be more room by ``now``), or fewer if there are no more.
    ``published``: run ids of those asked whose parked message is stored by now.
    """
    start = _with_n(_entry_for(asked) if entry is None else entry, asked)
    ground = _Ground(start, asked, window, now)
    answers = ground.answers
    waiting: dict[str, tuple[int, Start]] = {}
    for at, one in enumerate(asked):
        if isinstance(one, Start) and at not in answers and waiting.setdefault(one.run_id, (at, one))[0] != at:
            answers[at] = (Answer.BUSY, 0)
    flag = start.parked and len(parked) >= searched
    reserved: list[str] = []
    for key, run_id in parked:
        if run_id in waiting:  # it is here already, with a message from before
            at, take = waiting.pop(run_id)
            answers[at] = (Answer.FROM_PARKED, ground.let_in(take))
        else:
            ground.places[run_id] = Place(key=key, run_id=run_id, at=now)
            reserved.append(run_id)
    parks = False
    for at, take in waiting.values():
        stored = take.run_id in published
        if ground.room > 0 and not flag:  # who is parked comes first
            answers[at] = (Answer.FROM_PARKED if stored else Answer.GRANTED, ground.let_in(take))
        elif take.drop:
            answers[at] = (Answer.EXCESS, 0)
        else:
            answers[at] = (Answer.PARKED if stored else Answer.PARK, 0)
            parks = parks or stored
    after = ground.entry(parked=flag or parks)
    before = None if entry is None else _Ground(entry, (), window, now).entry(parked=entry.parked)
    told = tuple(answers[at] for at in range(len(asked)))
    empty = not (after.marks or after.places or after.parked)
    return Decided(after, parks or (not empty if before is None else after != before), told, tuple(reserved))


class _Ground:
    """An entry without what is over, once places are given back and those who have one start."""

    def __init__(self, entry: Entry, asked: Sequence[Asked], window: int, now: int) -> None:
        self._entry = entry
        self._now = now
        self._grid = window // EXACT if entry.n > EXACT else 1
        gone = {one.run_id for one in asked if isinstance(one, Leave)}
        self.marks = {mark: number for mark, number in entry.marks if mark + window > now}
        self.places = {p.run_id: p for p in entry.places if p.run_id not in gone and p.at + PLACE_US > now}
        for one in asked:
            if isinstance(one, Leave) and one.mark in self.marks:
                self._forget(one.mark)
        self.answers: dict[int, tuple[Answer, int]] = {}
        for at, one in enumerate(asked):
            if not isinstance(one, Start):
                self.answers[at] = (Answer.DONE, 0)
            elif one.old in self.marks:
                self._forget(one.old)
                self.answers[at] = (Answer.GRANTED, max(one.old, self.let_in(one)))
            elif one.run_id in self.places:
                self.answers[at] = (Answer.FROM_PARKED, self.let_in(one))

    @property
    def room(self) -> int:
        return self._entry.n - sum(self.marks.values()) - len(self.places)

    def let_in(self, take: Start) -> int:
        """Write its start down: the mark."""
        self.places.pop(take.run_id, None)
        mark = -(-max(self._now + take.within, take.old) // self._grid) * self._grid
        self.marks[mark] = self.marks.get(mark, 0) + 1
        return mark

    def _forget(self, mark: int) -> None:
        left = self.marks[mark] - 1
        if left:
            self.marks[mark] = left
        else:
            del self.marks[mark]

    def entry(self, *, parked: bool) -> Entry:
        marks, places = tuple(sorted(self.marks.items())), tuple(self.places.values())
        return replace(self._entry, marks=marks, places=places, parked=parked, tag="")


def _entry_for(asked: Sequence[Asked]) -> Entry:
    """What to start from where there is none."""
    take = next((one for one in asked if isinstance(one, Start)), None)
    return Entry(n=0) if take is None else Entry(n=take.n, deployed=take.deployed)


def _with_n(entry: Entry, asked: Sequence[Asked]) -> Entry:
    for one in asked:
        if isinstance(one, Start) and is_said_last(one.n, one.deployed, entry.n, entry.deployed):
            entry = replace(entry, n=one.n, deployed=one.deployed)
    return entry


encode_entry = msgspec.json.Encoder().encode
decode_entry = msgspec.json.Decoder(Entry).decode
