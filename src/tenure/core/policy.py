"""Numbers that follow from a policy: backoff, trust, how long to wait before another look.

All pure; jitter is an argument.
"""

from __future__ import annotations

from tenure.core.records import Policy

SHORT_DELAY = 2.0
"""Seconds: what is due sooner gets its wake-up now, and the receiver hands it back for the rest."""

TIMER_LEAD = 0.5
"""Seconds by which a server-side schedule fires early, because it may be up to 0.25 s late."""

EARLY = 0.02
"""Seconds by which a wake-up that is handed back comes again before its run is due: to be in hand by then (`worker/brink`)."""


def backoff(policy: Policy, failures: int, jitter: float) -> float:
    """Seconds until the next attempt after ``failures`` (>= 1) failures; ``jitter`` is a random number in [0, 1).

    ``initial * factor ** (failures - 1)``, at most ``maximum``, then spread evenly over +- ``policy.jitter`` of itself.
    """
    try:
        base = min(policy.maximum, policy.initial * policy.factor ** (failures - 1))
    except OverflowError:
        base = policy.maximum
    return max(0.0, base * (1.0 + policy.jitter * (2.0 * jitter - 1.0)))


def trusted_until(sent_at: float, ttl: float) -> float:
    """End of a session's trust, counted from the *send* of its last confirmed renewal (same clock as ``sent_at``).

    A supervisor closes a session that it saw unchanged for a whole ttl; what it saw was stored after ``sent_at``. So
    whoever stops trusting itself here has stopped before anybody may close it.
    """
    return sent_at + ttl


def second_look(deliveries: int, ack_wait: float) -> float:
    """Seconds after which a wake-up that could not be used is looked at again: 0.1 s doubling up to a ceiling.

    That is 2.5 times ``ack_wait`` (15 s by default): thousands that nobody here can run cost a look each, and a line in the
    log. What a key waits for brings a wake-up of its own, as a rule.
    """
    return min(2.5 * ack_wait, 0.1 * 2.0 ** min(deliveries - 1, 20))
