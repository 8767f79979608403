"""What is said about time where an actor is registered: how often its bodies may start, and which submits make one run.

Given in ``limits=[...]`` beside ``Limit``, checked, and made part of the policy that each of its records carries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NoReturn, TypeVar

from tenure.core.errors import MAX_DELAY_SECONDS, ConfigError
from tenure.core.given import plain, whole
from tenure.core.given import seconds as seconds_of
from tenure.core.rates import Pace, Rate, Settle
from tenure.core.records import Policy
from tenure.core.schedule import is_perpetual
from tenure.settings import Limit

T = TypeVar("T")
Seconds = float | timedelta
_SHORTEST_SECONDS = 0.001
_MOST = 8
_EXCESSES = ("delay", "drop")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most ``n`` bodies start in any ``window`` (seconds or a timedelta), over all workers; retries count.

    Of all runs of the actor, or, with ``per``, of those that agree in that argument. ``excess``: what finds no room waits for
    it in the order in which it came (``delay``), or ends ``cancelled``, with that reason, unless it has started once (``drop``).
    """

    n: int
    window: Seconds
    per: str | None = None
    excess: Literal["delay", "drop"] = "delay"

    def __post_init__(self) -> None:
        """ConfigError for what cannot be a rate; it names the field."""
        number = whole(self.n)
        if number is None or number < 1:
            _bad(f"RateLimit: n must be a whole number >= 1, got {self.n!r}")
        _check_seconds("RateLimit", "window", self.window)
        if self.per is not None and (not isinstance(self.per, str) or not self.per):
            _bad(f"RateLimit: per must be the name of an argument, or None for all runs, got {self.per!r}")
        if self.excess not in _EXCESSES:
            _bad(f"RateLimit: excess must be delay or drop, got {self.excess!r}")


@dataclass(frozen=True, slots=True)
class Debounce:
    """Many submits of a key make one run, of the last one's arguments.

    It starts ``settle`` after the last submit, ``max_wait`` after the first at the latest (seconds or a timedelta). A submit
    while it runs is answered with that run as ever.
    """

    settle: Seconds
    max_wait: Seconds

    def __post_init__(self) -> None:
        """ConfigError for what makes no sense; it names the field."""
        settle = _check_seconds("Debounce", "settle", self.settle)
        if settle > _check_seconds("Debounce", "max_wait", self.max_wait):
            _bad(f"Debounce: settle must not be longer than max_wait, got {self.settle!r} and {self.max_wait!r}")


@dataclass(frozen=True, slots=True)
class Cooldown:
    """After a run's end, by success or failure, a submit of its key starts none for ``window`` (seconds or a timedelta).

    It is answered with that run (``run.accepted`` is False). ``client.replace`` and a replay start all the same.
    """

    window: Seconds

    def __post_init__(self) -> None:
        """ConfigError for what makes no sense; it names the field."""
        _check_seconds("Cooldown", "window", self.window)


AnyLimit = Limit | RateLimit | Debounce | Cooldown
_KINDS = (Limit, RateLimit, Debounce, Cooldown)


def split_limits(actor: str, limits: object) -> tuple[list[Limit], list[RateLimit | Debounce | Cooldown]]:
    """Those about how many bodies run, and those about time. Raises ConfigError that names the actor."""
    given: Sequence[object] = limits if isinstance(limits, Sequence) and not isinstance(limits, str) else [limits]
    if given is not limits or not all(isinstance(limit, _KINDS) for limit in given):
        kinds = "limits must be a list of Limit, RateLimit, Debounce and Cooldown"
        _bad(f"actor {actor}: {kinds}, e.g. [Limit(10)], got {limits!r}")
    if len(given) > _MOST:
        _bad(f"actor {actor}: {len(given)} limits; {_MOST} at most, for each costs its runs a write")
    return (
        [limit for limit in given if isinstance(limit, Limit)],
        [limit for limit in given if isinstance(limit, RateLimit | Debounce | Cooldown)],
    )


def make_pace(
    actor: str, given: Sequence[RateLimit | Debounce | Cooldown], arguments: Collection[str], policy: Policy
) -> Pace | None:
    """The stored form of what is about time, None if there is nothing. Raises ConfigError that names the actor and the kind."""
    if not given:
        return None
    debounce, cooldown = _one(actor, given, Debounce), _one(actor, given, Cooldown)
    dropping = any(isinstance(one, RateLimit) and one.excess == "drop" for one in given)
    if is_perpetual(policy):
        if debounce is not None or cooldown is not None:
            name = type(debounce or cooldown).__name__
            _bad(
                f"actor {actor}: {name} is about submits, and a perpetual actor goes on by itself: use its every= or cron="
            )
        if dropping:
            _bad(
                f"actor {actor}: RateLimit: excess='drop' would end its schedule with the first run too many: use 'delay'"
            )
    rates: dict[tuple[str, float], Rate] = {}
    for one in given:
        if isinstance(one, RateLimit):
            rate = _rate(actor, one, arguments)
            if (rate.per, rate.seconds) in rates:
                whose = f"per {rate.per!r}" if rate.per else "of all its runs"
                _bad(f"actor {actor}: two RateLimits {whose} in {rate.seconds:.15g} s: keep the smaller one")
            rates[rate.per, rate.seconds] = rate
    return Pace(
        rates=tuple(rates.values()),
        debounce=None
        if debounce is None
        else Settle(settle=_seconds(debounce.settle), max_wait=_seconds(debounce.max_wait)),
        cooldown=0.0 if cooldown is None else _seconds(cooldown.window),
    )


def _rate(actor: str, limit: RateLimit, arguments: Collection[str]) -> Rate:
    per = "" if limit.per is None else plain(limit.per)
    if per and per not in arguments:
        has = f"it has {', '.join(arguments)}" if arguments else "it has none"
        _bad(f"actor {actor}: RateLimit: per={per!r} names no argument of it; {has}")
    return Rate(n=int(limit.n), seconds=_seconds(limit.window), per=per, excess=limit.excess)


def _one(actor: str, given: Sequence[object], kind: type[T]) -> T | None:
    found = [one for one in given if isinstance(one, kind)]
    if len(found) > 1:
        _bad(f"actor {actor}: {len(found)} of {kind.__name__}: a key has one, keep the one that is meant")
    return found[0] if found else None


def _seconds(value: Seconds) -> float:
    return seconds_of(value) or 0.0


def _check_seconds(kind: str, name: str, value: Seconds) -> float:
    seconds = seconds_of(value)
    if seconds is None or not _SHORTEST_SECONDS <= seconds <= MAX_DELAY_SECONDS:
        least = f"at least {_SHORTEST_SECONDS:g} seconds and at most ten years"
        raise ConfigError(f"{kind}: {name} must be a finite number or a timedelta, {least}, got {value!r}")
    return seconds


def _bad(text: str) -> NoReturn:
    raise ConfigError(text)
