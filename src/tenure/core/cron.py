"""When a cron expression fires: of five fields (or six, seconds first), in an IANA time zone. Times are seconds since the epoch.

By the rules of cronsim, which are Debian's:

* with the day of month *and* the day of week given, either is enough; with a star at the head of one, both must match;
* a fire at a fixed time that a change to summer time skips comes right after the gap, one that a change back repeats comes
  once; with a star at the head of minute or hour, or six fields, the fires follow the clock that the zone shows: one for each
  moment at which it shows what the expression says.

For those that follow the clock cronsim is asked only between two changes of it. It goes in steps of whole hours, which leads
past what comes right after a change by half an hour (Australia/Lord_Howe), or to the middle of an hour.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_DAY = 86_400.0  # no zone changes twice within a day, nor by more than that
_SECOND = timedelta(seconds=1)
_DEBIAN = 5  # fields
_MOST_LOOKS = 200  # some fifty years, as far as cronsim looks, of an expression that names only what the clock skips


class ScheduleError(ValueError):
    """An expression or a zone that cannot be used; the message says why."""


def fire_after(expression: str, zone: str, moment: float) -> float:
    """The first fire after ``moment``. Raises ScheduleError, also for what never fires."""
    return _fire(expression, zone, moment, reverse=False)


def last_fire(expression: str, zone: str, moment: float) -> float:
    """The last fire up to ``moment``. Raises ScheduleError, also where there has been none."""
    return _fire(expression, zone, moment, reverse=True)


def _fire(expression: str, zone: str, moment: float, *, reverse: bool) -> float:
    # cronsim looks at whole seconds: of a moment within one, the second after it is still to come, that itself has been.
    second, place = math.floor(moment), _zone(zone)
    try:
        if _follows_the_clock(expression):
            return _shown_before(expression, place, second) if reverse else _shown_after(expression, place, second)
        return _fixed_before(expression, place, second) if reverse else _fixed_after(expression, place, second)
    except CronSimError as error:
        msg = f"{expression!r} is no cron expression: {error}"
        raise ScheduleError(msg) from error
    except StopIteration as error:
        msg = f"{expression!r} never fires"
        raise ScheduleError(msg) from error


def _follows_the_clock(expression: str) -> bool:
    fields = expression.split()
    return len(fields) != _DEBIAN or fields[0].startswith("*") or fields[1].startswith("*")


def _fixed_after(expression: str, zone: ZoneInfo, second: int) -> float:
    fires = CronSim(expression, datetime.fromtimestamp(second, zone))
    while True:
        tick = next(fires).timestamp()
        if tick > second:  # in an hour that comes twice it may name the first one again
            return tick


def _fixed_before(expression: str, zone: ZoneInfo, second: int) -> float:
    at = datetime.fromtimestamp(second, zone)
    first, again = at.replace(fold=0).utcoffset(), at.replace(fold=1).utcoffset()
    if at.fold and first is not None and again is not None:
        at += first - again  # an hour that comes twice has shown all of itself already
    fires = CronSim(expression, at + _SECOND, reverse=True)
    while True:
        tick = next(fires).timestamp()
        if tick <= second:
            return tick


def _shown_after(expression: str, zone: ZoneInfo, second: int) -> float:
    start = second + 1.0
    for _ in range(_MOST_LOOKS):
        change = _first_change(zone, start, start + _DAY)
        end = start + _DAY if change is None else change
        wall = _wall(zone, start) - _SECOND
        tick = start - 1.0 + (next(CronSim(expression, wall)) - wall).total_seconds()
        if tick < end:
            return tick
        start = end if change is not None else max(end, tick - 2 * _DAY)  # no clock shows it until shortly before
    raise StopIteration


def _shown_before(expression: str, zone: ZoneInfo, second: int) -> float:
    last: float = second
    for _ in range(_MOST_LOOKS):
        change = _first_change(zone, last - _DAY, last)
        start = last - _DAY if change is None else change
        wall = _wall(zone, last) + _SECOND
        tick = last + 1.0 - (wall - next(CronSim(expression, wall, reverse=True))).total_seconds()
        if tick >= start:
            return tick
        last = start - 1.0 if change is not None else min(start - 1.0, tick + 2 * _DAY)
    raise StopIteration


def _wall(zone: ZoneInfo, moment: float) -> datetime:
    """What the clock shows."""
    return datetime.fromtimestamp(moment, zone).replace(tzinfo=None)


def _first_change(zone: ZoneInfo, low: float, high: float) -> float | None:
    """The second from which on the clock is another one than at ``low``; None: not up to ``high``."""
    offset = datetime.fromtimestamp(low, zone).utcoffset()
    if datetime.fromtimestamp(high, zone).utcoffset() == offset:
        return None
    while high - low > 1.0:
        middle = low + (high - low) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high


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
