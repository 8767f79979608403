"""When a perpetual key runs next: from its policy, the tick of the run before, and the time.

A tick is a time that the schedule names: it identifies the fire, whenever its run really starts. All times are seconds since
the epoch. ``every`` counts on from the tick before; ``cron`` is a cron expression in an IANA time zone (``core/cron``).
"""

from __future__ import annotations

import math

from tenure.core.cron import fire_after, last_fire
from tenure.core.records import Policy

_BETWEEN_FIRES = 1.0
"""No cron expression fires more often (seconds)."""


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
    """A tick for a run that starts before its own one, ``tick``: so that ``tick`` follows it.

    Not ``now``: by a clock that is a little behind the last fire is still to come.
    """
    return tick if tick <= now else tick - (policy.every or _BETWEEN_FIRES)


def next_tick(due: float, every: float, now: float) -> float:
    """The next due time of an interval.

    Keeps the phase of ``due``, skips what was missed, always later than ``now``.
    """
    if due <= 0.0:
        return now + every
    steps = max(1, math.floor((now - due) / every) + 1)
    tick = due + steps * every
    return tick if tick > now else tick + every


def _after(policy: Policy, moment: float) -> float:
    """The first tick after ``moment``."""
    if policy.every is not None:
        return moment + policy.every
    return fire_after(policy.cron, policy.tz, moment)


def _latest(policy: Policy, tick: float, now: float) -> float:
    """The last tick up to ``now``; there is one after ``tick``."""
    if policy.every is not None:
        return tick + math.floor((now - tick) / policy.every) * policy.every
    return last_fire(policy.cron, policy.tz, now)
