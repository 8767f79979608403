"""What clients were told is linearizable: each key is a register that is read, and written by compare-and-swap.

The revisions of a key are the order of its writes, so only *when* each took effect is open. An ask from ``start`` to
``end`` bounds that: a read must see a state that the key was in at some moment between; a write's own revision must
come into force between. With ``now(t)`` the newest state in force at time t, which never goes back, that is

* at ``start``, of a write of state k:  ``now(start) < k``;  of a state k that the server took in then: the same
* at ``end``:  ``now(end) >= the first state from now(start) on in which the answer was true``

Each right side only rises with what it is made of, so of all ways to place the writes there is one in which ``now`` is as
small as possible at every moment. One walk through all starts and ends in the order of time makes it, and if that one
breaks a bound, every other does. So the answer is exact, and costs no more than sorting them.

An answer of *unknown*, or none at all, bounds only the start: its write may come into force at any time after that, or
never. That no two asks share a write needs no search: a run id is made by one ask, and ``check_causes`` matches the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from tests.history.evidence import COOLED, SETTLED, AskLine, Violation, answered
from tests.history.known import Known
from tests.history.past import BUSY, CROWDED, GONE, RECORD, Fact, Past

_WAITING = {"scheduled": "waiting", "queued": "waiting"}
_STARTS = 0
_ENDS = 1

Seen = Callable[[int], int | None]
"""From the state that was the newest at the start to the least that must be in force at the end; None: there is none."""


class Bound(Struct, frozen=True, kw_only=True):
    """What one ask, or whatever else was seen, says of when states came into force."""

    what: str
    start: float
    end: float = math.inf
    effect: int | None = None
    sees: tuple[Seen, ...] = ()


class Placed(Struct, kw_only=True):
    """When each state of a key came into force: not before ``least``, not after ``most``."""

    least: list[float]
    most: list[float]


def check_answers(known: Known) -> Iterator[Violation]:
    """Everything that clients were told, key by key."""
    asks = _by_key(answered(known.evidence.asks))
    for key, past in known.pasts.items():
        bounds = [*_stored(known, past), *_bodies(known, key, past)]
        for ask in asks.get(key, ()):
            bounds.extend(_bounds(known, past, ask))
        for what in place(bounds, len(past))[1]:
            yield Violation("linearizable", key, what)
    for key in asks.keys() - known.pasts.keys():
        past = Past([], holes=bool(known.evidence.missing), open_end=True)
        bounds = [bound for ask in asks[key] for bound in _bounds(known, past, ask)]
        for what in place(bounds, len(past))[1]:
            yield Violation("linearizable", key, what)


def placed(known: Known, key: str, asks: list[AskLine]) -> Placed:
    """When each state of a key may have come into force."""
    past = known.pasts[key]
    bounds = [*_stored(known, past), *_bodies(known, key, past)]
    return place([*bounds, *(b for ask in asks for b in _bounds(known, past, ask))], len(past))[0]


def place(bounds: list[Bound], states: int) -> tuple[Placed, list[str]]:
    """Walk through the bounds in the order of time: when each state came into force, and what cannot be."""
    moments = sorted(
        (moment, kind, number)
        for number, bound in enumerate(bounds)
        for moment, kind in ((bound.start, _STARTS), (bound.end, _ENDS))
        if moment < math.inf
    )
    wrong: list[str] = []
    when = Placed(least=[0.0] * states, most=[math.inf] * states)
    when.most[0] = 0.0
    now, why = 0, "nothing was written yet"
    began: dict[int, int] = {}
    reasons: dict[int, str] = {}
    for moment, kind, number in moments:
        bound = bounds[number]
        if kind == _STARTS:
            began[number], reasons[number] = now, why
            if bound.effect is not None:
                when.least[bound.effect] = max(when.least[bound.effect], moment)
                if now >= bound.effect:
                    wrong.append(f"{bound.what} from {moment:.3f} on, but it was in force before: {why}")
            continue
        then = _after_all(bound.sees, began[number])
        if then is None:
            wrong.append(
                f"{bound.what} at {moment:.3f}, and it was not so from {bound.start:.3f} on: {reasons[number]}"
            )
        elif then > now:
            when.most[now + 1 : then + 1] = [moment] * (then - now)
            now, why = then, f"{bound.what} at {moment:.3f}"
    for number in range(1, states):
        when.least[number] = max(when.least[number], when.least[number - 1])
    return when, wrong


def _after_all(reads: tuple[Seen, ...], at: int) -> int | None:
    """The least state that one read after the other leads to."""
    then: int | None = at
    for sees in reads:
        if then is not None:
            then = sees(then)
    return then


# -- what was seen by others than clients ----------------------------------------------------------------------------


def _stored(known: Known, past: Past) -> Iterator[Bound]:
    """No state is in force before the server took it in, nor much later where that is known (nobody stores an expiry)."""
    clocks = known.evidence.clocks
    early = clocks.observers / 2
    for number, state in enumerate(past.states):
        if state is not None and state.stored:
            end = math.inf if state.expired else state.stored + early + clocks.in_force
            sees = (partial(_at_least, number),)
            what = f"revision {state.seq} was stored"
            yield Bound(what=what, start=state.stored - early, end=end, effect=number, sees=sees)


def _bodies(known: Known, key: str, past: Past) -> Iterator[Bound]:
    """A claim is in force when its body starts, and the outcome of a body is not before that has ended."""
    apart = known.evidence.clocks.observers / 2
    for body in known.bodies_of_key.get(key, ()):
        claim = past.numbers.get(body.start.fence)
        if claim is not None:
            run = f"attempt {body.start.attempt} of {body.start.run_id}"
            sees = partial(_at_least, claim)
            yield Bound(what=f"{run} started", start=-math.inf, end=body.start.wall + apart, sees=(sees,))
            outcome = known.outcomes.get(body.start.run_id)
            if body.end is None or outcome is None or outcome[0].session != body.start.session:
                continue
            number = past.numbers.get(outcome[1])
            if number is not None and outcome[0].attempt == body.start.attempt:
                yield Bound(what=f"the outcome of {run} was stored", start=body.end.wall - apart, effect=number)


# -- what each answer says -------------------------------------------------------------------------------------------


def _bounds(known: Known, past: Past, ask: AskLine) -> Iterator[Bound]:
    clocks = known.evidence.clocks
    apart = clocks.observers / 2
    about = f" of {ask.run_id}" if ask.run_id else ""
    what = f"{ask.ask}{about} was told {ask.told}"
    start, end = ask.asked - apart, ask.wall + apart
    if ask.ask in {"submit", "replace"} and ask.told in {"accepted", "unknown"}:
        birth = past.births.get(ask.run_id)
        if ask.told == "unknown" and _actor(past, ask.run_id) == SETTLED:
            return  # the run that it names may be another ask's, which has taken it in, or not
        known_end = end if ask.told == "accepted" else math.inf
        if birth is not None:
            seen = birth - 1 if birth - 1 in past.holes else birth  # it may have begun where nobody looked
            yield Bound(what=what, start=start, end=known_end, effect=birth, sees=(partial(_at_least, seen),))
        elif ask.told == "accepted" and past.holes:
            yield Bound(what=what, start=start, end=known_end, sees=(partial(past.first, ()),))
        return
    sees_all = _sees(past, ask, end)
    if (ask.ask, ask.told) == ("purge", "purged"):
        sees_all = (partial(_purged, past, start - 2 * clocks.processes),)
    if sees_all:
        yield Bound(what=what, start=start - clocks.reads_behind, end=end, sees=sees_all)


def _at_least(number: int, at: int) -> int:
    return max(number, at)


def _sees(past: Past, ask: AskLine, end: float) -> tuple[Seen, ...]:
    """The states that an answer names: one for each read that it is made of, all done by ``end``."""
    run_id, told = ask.run_id, ask.told
    match ask.ask, told:
        case "submit", "kept":
            return (partial(past.first, (("live", run_id), *_cooling(past, run_id))),)
        case "submit", "live":
            return (partial(past.first, (("live", run_id) if run_id else ("live",), CROWDED)),)
        case "replace", "live":
            return (partial(past.first, (CROWDED,)),)
        case "purge", "live":
            return (partial(past.first, (BUSY,)),)
        case ("purge" | "trigger", "absent") | ("status", "none") | ("cancel", "not_found"):
            return (partial(past.first_absent, end),)
        case "status", _ if run_id:
            phase = _WAITING.get(told, told)
            return (partial(past.first, (("status", run_id, ask.generation, ask.attempt, phase),)),)
        case "result", "succeeded" | "failed" | "cancelled":
            return (partial(past.first, (("last", run_id, told),)),)
        case "result", "superseded":
            return (partial(past.first_without, run_id),)
        case "trigger", "accepted":
            return (partial(past.first, (("phase", run_id, "waiting"),)),)
        case "trigger", "kept":
            return (partial(_begun, past, run_id),)
        case "cancel", "cancelled" | "stopping" | "finished":
            pin = (partial(past.first, (("run", run_id),)),) if ask.mode != "pinned" else ()
            return (*pin, _cancelled(past, run_id, told))
    return ()


def _cooling(past: Past, run_id: str) -> tuple[Fact, ...]:
    """What cools down keeps the run that is over (``check_paced`` knows for how long)."""
    return (("over", run_id),) if _actor(past, run_id) == COOLED else ()


def _actor(past: Past, run_id: str) -> str:
    birth = past.births.get(run_id)
    run = past.states[birth] if birth is not None else None
    return run.actor if run is not None else ""


def _cancelled(past: Past, run_id: str, told: str) -> Seen:
    match told:
        case "cancelled":
            return partial(past.first, (("phase", run_id, "cancelled"),))
        case "stopping":
            return partial(past.first, (("phase", run_id, "stopping"), ("told", run_id)))
        case _:
            return partial(_finished, past, run_id)


def _purged(past: Past, since: float, at: int) -> int | None:
    """Gone, by a purge that came into force meanwhile; or it has expired, which cannot be told from an unheard purge of one's own.

    What was gone before is told ``absent``: an expiry is known to the last clock by twice their tolerance after the first.
    """
    found = at if at in past.holes else past.first((GONE,), at + 1), past.first_expired(since, at + 1)
    return min((number for number in found if number is not None), default=None)


def _begun(past: Past, run_id: str, at: int) -> int | None:
    """Waiting no more; or purged, where its own write was of unknown fate."""
    begun = past.first((("phase", run_id, "running"), ("phase", run_id, "stopping")), at)
    found = (begun, _finished(past, run_id, at), past.first_without(run_id, at))
    return min((number for number in found if number is not None), default=None)


def _finished(past: Past, run_id: str, at: int) -> int | None:
    """Over in the record; or superseded there by another run."""
    found = [past.first((("over", run_id),), at), past.first_after(run_id, RECORD, at)]
    return min((number for number in found if number is not None), default=None)


def _by_key(asks: list[AskLine]) -> dict[str, list[AskLine]]:
    keys: dict[str, list[AskLine]] = {}
    for ask in asks:
        keys.setdefault(ask.key, []).append(ask)
    return keys
