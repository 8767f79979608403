"""What is said of an actor where it is registered, checked and made the policy that its records carry."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from tenure.clock import SYSTEM
from tenure.core.cron import ScheduleError, fire_after
from tenure.core.errors import MAX_DELAY_SECONDS, ConfigError
from tenure.core.given import number, plain, whole
from tenure.core.given import seconds as seconds_of
from tenure.core.permits import Bound
from tenure.core.records import CatchUp, Overlap, Policy, Task
from tenure.core.subjects import check_name, check_priority
from tenure.payloads import MAX_DEPTH, is_deeper

Seconds = float | timedelta
OVERLAPS = ("stop", "wait", "parallel")
CATCH_UPS = ("none", "one", "all")
_MOST_LIMITS = 8
_MOST_PLACES = 2_000
"""Of one limit. Who holds them is one message of at most 1 MiB: 400 bytes for a run whose key is as long as may be, and 250 in line."""
_SHORTEST_EVERY_SECONDS = 0.001
_MAX_TASK_DEPTH = MAX_DEPTH + 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a failed attempt runs again.

    ``max_attempts`` in all (crashes count), waits of ``initial`` seconds times ``factor`` each.

    ``maximum`` seconds at most per wait, spread by +- ``jitter`` (0 to 1) of itself.
    """

    max_attempts: int = 5
    initial: float = 0.5
    maximum: float = 60.0
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        """ConfigError for numbers that make no sense; it names the field."""
        attempts = whole(self.max_attempts)
        if attempts is None or attempts < 1:
            _bad_config(f"Retry: max_attempts must be a whole number >= 1 (and < 2**63), got {self.max_attempts!r}")
        for name, low in (("initial", 0.0), ("maximum", 0.0), ("factor", 1.0)):
            given = getattr(self, name)
            value = number(given)
            if value is None or value < low:
                _bad_config(f"Retry: {name} must be a finite number >= {low:g}, got {given!r}")
        if self.maximum > MAX_DELAY_SECONDS:
            _bad_config(f"Retry: maximum must be at most ten years, got {self.maximum!r} seconds")
        jitter = number(self.jitter)
        if jitter is None or not 0.0 <= jitter <= 1.0:
            _bad_config(f"Retry: jitter must be between 0 and 1, got {self.jitter!r}")


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``n`` bodies at once, over all workers.

    Of all runs of the actor, or, with ``per``, of those that agree in that argument. ``n``: from 1 to 2,000.
    """

    n: int
    per: str | None = None

    def __post_init__(self) -> None:
        """ConfigError for what cannot be a limit; it names the field."""
        number = whole(self.n)
        if number is None or number < 1:
            _bad_config(f"Limit: n must be a whole number >= 1, got {self.n!r}")
        elif number > _MOST_PLACES:
            _bad_config(
                f"Limit: n must be at most {_MOST_PLACES:,}, got {self.n!r}: who holds a place is in one message"
            )
        if self.per is not None and (not isinstance(self.per, str) or not self.per):
            _bad_config(f"Limit: per must be the name of an argument, or None for all runs, got {self.per!r}")


def make_limits(actor: str, limits: object, arguments: Collection[str]) -> tuple[Bound, ...]:
    """The stored form of an actor's limits. Raises ConfigError that names the actor and the limit."""
    if not isinstance(limits, Sequence) or not all(isinstance(limit, Limit) for limit in limits):
        raise ConfigError(f"actor {actor}: limits must be a list of Limit, e.g. [Limit(10)], got {limits!r}")
    if len(limits) > _MOST_LIMITS:
        _bad_config(f"actor {actor}: {len(limits)} limits; {_MOST_LIMITS} at most, for each costs its runs a write")
    made: dict[str, Bound] = {}
    for limit in limits:
        per = "" if limit.per is None else plain(limit.per)
        if per and per not in arguments:
            has = f"it has {', '.join(arguments)}" if arguments else "it has none"
            _bad_config(f"actor {actor}: Limit: per={per!r} names no argument of it; {has}")
        if per in made:
            _bad_config(
                f"actor {actor}: two limits {f'per {per!r}' if per else 'of all its runs'}: keep the smaller one"
            )
        made[per] = Bound(n=int(limit.n), per=per)
    return tuple(made.values())


def make_policy(
    actor: str,
    *,
    retry: Retry | None,
    timeout: Seconds | None,
    grace: Seconds,
    overlap: Overlap,
    result_ttl: Seconds,
) -> Policy:
    """The stored form of an actor's settings. Raises ConfigError that names the actor and the setting."""
    given: object = retry
    if given is not None and not isinstance(given, Retry):
        _bad_config(f"actor {actor}: retry must be a Retry, e.g. Retry(max_attempts=3), or None, got {retry!r}")
    retry = retry or Retry(max_attempts=1)
    if overlap not in OVERLAPS:
        _bad_config(f"actor {actor}: overlap must be stop, wait or parallel, got {overlap!r}")
    return Policy(
        max_attempts=int(retry.max_attempts),
        initial=float(retry.initial),
        maximum=float(retry.maximum),
        factor=float(retry.factor),
        jitter=float(retry.jitter),
        timeout=None if timeout is None else _seconds(actor, "timeout", timeout, above=0.0),
        grace=_seconds(actor, "grace", grace),
        overlap=overlap,
        result_ttl=_whole_seconds(actor, "result_ttl", result_ttl),
    )


def with_schedule(
    actor: str,
    policy: Policy,
    *,
    every: Seconds | None,
    cron: str | None,
    tz: str,
    catch_up: CatchUp,
    autostart: str,
) -> Policy:
    """The policy of a perpetual actor, or ``policy`` as it is. Raises ConfigError that names the actor and the setting."""
    if every is None and cron is None:
        if tz != "UTC" or catch_up != "none" or autostart:
            _bad_config(f"actor {actor}: tz, catch_up and autostart belong to a schedule: give cron= or every=")
        return policy
    if policy.overlap == "parallel":
        _bad_config(f"actor {actor}: overlap='parallel' is not for a schedule: its fires never overlap, see catch_up=")
    if every is not None and cron is not None:
        _bad_config(f"actor {actor}: give either every= or cron=, not both")
    if catch_up not in CATCH_UPS:
        _bad_config(f"actor {actor}: catch_up must be none, one or all, got {catch_up!r}")
    if every is not None:
        if tz != "UTC":
            _bad_config(f"actor {actor}: tz belongs to cron=; every= counts seconds")
        interval = _seconds(actor, "every", every, above=0.0)
        if interval < _SHORTEST_EVERY_SECONDS:
            _bad_config(f"actor {actor}: every must be at least a millisecond, got {every!r}")
        return replace(policy, every=interval, catch_up=catch_up, autostart=autostart)
    if not isinstance(cron, str) or not isinstance(tz, str):
        raise ConfigError(f"actor {actor}: cron and tz must be text, got {cron!r} and {tz!r}")
    try:
        fire_after(cron, tz, SYSTEM.now())
    except ScheduleError as error:
        raise ConfigError(f"actor {actor}: {error}") from error
    return replace(policy, cron=cron, tz=tz, catch_up=catch_up, autostart=autostart)


def make_task(actor: str, queue: str, priority: str, policy: Policy) -> Task:
    """The task of an actor, without arguments. Raises ConfigError, also for one that could not be read back.

    It is in every record of the actor's runs; tried here, it need not be tried with each of them.
    """
    task = Task(actor=actor, queue=check_name("queue", queue), priority=check_priority(priority), policy=policy)
    try:
        data = msgspec.json.encode(task)
        same = not is_deeper(data, _MAX_TASK_DEPTH) and msgspec.json.decode(data, type=Task) == task
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"actor {actor}: its settings could not be read back: {error}") from error
    if not same:
        _bad_config(f"actor {actor}: its hooks are nested too deep: hooks that have hooks that have hooks")
    return task


def _seconds(actor: str, name: str, value: Seconds, *, above: float | None = None) -> float:
    seconds = seconds_of(value)
    low = 0.0 if above is None else above
    if seconds is None or seconds < low or seconds == above:
        least = f"{'over' if above is not None else 'at least'} {low:g} seconds"
        raise ConfigError(f"actor {actor}: {name} must be a finite number or a timedelta, {least}, got {value!r}")
    if seconds > MAX_DELAY_SECONDS:
        _bad_config(f"actor {actor}: {name} must be at most ten years, got {value!r}")
    return seconds


def _whole_seconds(actor: str, name: str, value: Seconds) -> float:
    """The server counts the life of a message in whole seconds."""
    seconds = seconds_of(value)
    if seconds is None or seconds < 0 or seconds != int(seconds):
        _bad_config(f"actor {actor}: {name} must be whole seconds >= 0 (a number or a timedelta), got {value!r}")
    return _seconds(actor, name, value)


def _bad_config(text: str) -> None:
    raise ConfigError(text)
