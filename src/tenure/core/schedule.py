"""When a perpetual key runs next: from its policy, the tick of the run before, and the time.

A tick is a time that the schedule names: it identifies the fire, whenever its run really starts. All times are seconds since
the epoch. ``every`` counts on from the tick before; ``cron`` is a cron expression of five fields (or six, seconds first) in
an IANA time zone, by the rules of cronsim, which are Debian's:

* with the day of month *and* the day of week given, either is enough; with a star at the head of one, both must match;
* a fire at a fixed time that a change to summer time skips comes right after the gap, one that a change back repeats comes
  once; with a star at the head of minute or hour, or six fields, the fires follow the clock that the zone shows.
"""

from __future__ import annotations

import math
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tenure.core.records import Policy


class ScheduleError(ValueError):
    """An expression or a zone that cannot be used; the message says why."""


def is_perpetual(policy: Policy) -> bool:
    """Whether each run is followed by another one."""
    return policy.every is not None or bool(policy.cron)


def first_due(policy: Policy, asked: float, now: float) -> float:
    """When the first run of a chain is due; ``asked``: what whoever submits it wants, 0 for nothing. 0: at once."""
    if asked or not policy.cron:
        return asked
    return _after(policy, now)


def next_due(policy: Policy, tick: float, now: float) -> float:
    """The tick of the run that follows the one of ``tick`` (0: unknown), which has just ended.

    Ticks that were missed meanwhile: ``catch_up`` none leaves them out, so that the next one is to come; one makes up for
    all of them by the latest; all runs each.
    """
    if policy.catch_up == "all":
        return _after(policy, tick or now)
    if policy.catch_up == "one" and tick:
        following = _after(policy, tick)
        return following if following > now else max(following, _latest(policy, tick, now))
    return _after(policy, max(tick, now)) if policy.every is None else next_tick(tick, policy.every, now)


def before(policy: Policy, tick: float, now: float) -> float:
    """A tick for a run that starts before its own one, ``tick``: so that ``tick`` follows it."""
    if tick <= now:
        return tick
    return now if policy.every is None else tick - policy.every


def next_tick(due: float, every: float, now: float) -> float:
    """The next due time of an interval.

    Keeps the phase of ``due``, skips what was missed, always later than ``now``.
    """
    if due <= 0.0:
        return now + every
    steps = max(1, math.floor((now - due) / every) + 1)
    tick = due + steps * every
    return tick if tick > now else tick + every


def check_cron(expression: str, zone: str, now: float) -> None:
    """Raise ScheduleError for what never fires after ``now``, or is no expression or zone."""
    _of(expression, zone, now)


def _after(policy: Policy, moment: float) -> float:
    """The first tick after ``moment``."""
    if policy.every is not None:
        return moment + policy.every
    return _of(policy.cron, policy.tz, moment)


def _latest(policy: Policy, tick: float, now: float) -> float:
    """The last tick up to ``now``; there is one after ``tick``."""
    if policy.every is not None:
        return tick + math.floor((now - tick) / policy.every) * policy.every
    return _of(policy.cron, policy.tz, now + 1.0, reverse=True)


def _of(expression: str, zone: str, moment: float, *, reverse: bool = False) -> float:
    # cronsim looks at whole seconds: of a moment within one, the second after it is still to come, that before has been.
    at = datetime.fromtimestamp(math.floor(moment), _zone(zone))
    try:
        for fire in CronSim(expression, at, reverse=reverse):
            tick = fire.timestamp()
            if (
                tick < moment if reverse else tick > moment
            ):  # in an hour that comes twice it may name the first one again
                return tick
    except CronSimError as error:
        msg = f"{expression!r} is no cron expression: {error}"
        raise ScheduleError(msg) from error
    msg = f"{expression!r} never fires"
    raise ScheduleError(msg)


@lru_cache(maxsize=128)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError) as error:  # ZoneInfoNotFoundError is a KeyError, and its kin
        raise _unknown(name) from error
    except KeyError as error:
        raise _unknown(name) from error


def _unknown(name: str) -> ScheduleError:
    return ScheduleError(f"{name!r} is no IANA time zone such as 'Europe/Berlin'")
