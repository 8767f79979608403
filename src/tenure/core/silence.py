"""Silence: for how long each open session was not heard of, as far as that proves anything.

All times are passed in, in seconds of one steady clock. What was heard counts only while more could have been heard:

1. Cut off from the server, nobody is silent; and then all clocks start anew, for what was said meanwhile is not repeated.
2. While the process is frozen or its loop busy, the clocks stand still. Would they start anew, a machine that is always
   busy would never close anybody.
3. While our own renewals are not confirmed they stand still as well: the bucket may take nobody's (a leader is being
   elected).
4. That proof has the grain of our own ttl: nobody is silent before the longer one of that and the session's is over.
"""

from __future__ import annotations

STALL_SECONDS = 1.0
"""A moment between two ticks that took longer means that the process was frozen, or its loop busy."""
UNCONFIRMED = 0.55
"""Share of a ttl after which a renewal of our own that is not confirmed proves that the bucket may take nobody's. It is more
than two renewals, and less than the four fifths of a ttl that are left to who was to renew next when that began."""
LIVELY = 0.6
"""Renewals come five times in a ttl; who is silent for this share of it is not counted on."""


class _Clock:
    __slots__ = ("since", "ttl")

    def __init__(self, ttl: float, since: float) -> None:
        self.ttl = ttl
        self.since = since


class Silence:
    """The clocks of the open sessions that one process watches. ``ttl``: of its own session."""

    def __init__(self, ttl: float, now: float) -> None:
        self._ttl = ttl
        self._clocks: dict[str, _Clock] = {}
        self._watching_since = now
        self._cut_off = False
        self._unconfirmed = False

    # -- what happens ------------------------------------------------------------------------------------------------

    def heard(self, name: str, ttl: float, now: float) -> None:
        """A session was created or renewed."""
        self._clocks[name] = _Clock(ttl, now)

    def forget(self, name: str) -> None:
        """It is closed, or has no entry any more."""
        self._clocks.pop(name, None)

    def cut_off(self) -> None:
        """The connection is lost."""
        self._cut_off = True

    def back(self, now: float) -> None:
        """It is there again."""
        self._cut_off = False
        self._watching_since = now
        for clock in self._clocks.values():
            clock.since = now

    def tick(self, now: float, *, took: float, confirmed_at: float) -> bool:
        """Told every moment; whether who is silent now may be closed.

        ``took``: since the last moment; ``confirmed_at``: when the last renewal of our own that was confirmed was sent.
        """
        unconfirmed = now - confirmed_at
        if unconfirmed > UNCONFIRMED * self._ttl:
            self._stand_still(took if self._unconfirmed else unconfirmed, now)
            self._unconfirmed = True
            return False
        self._unconfirmed = False
        if took > STALL_SECONDS:
            self._stand_still(took, now)
            return False
        return not self._cut_off

    def _stand_still(self, seconds: float, now: float) -> None:
        """So long nobody could have been heard. What was silence before that goes on counting."""
        self._watching_since = min(now, self._watching_since + seconds)
        for clock in self._clocks.values():
            clock.since = min(now, clock.since + seconds)

    # -- what follows ------------------------------------------------------------------------------------------------

    def silent(self, now: float) -> list[str]:
        """Sessions to be closed, if ``tick`` allows it."""
        return [name for name, clock in self._clocks.items() if now - clock.since >= max(clock.ttl, self._ttl)]

    def is_lively(self, name: str, now: float) -> bool:
        """Whether a session is open and was heard of lately. One that died is not counted on while it is still open."""
        clock = self._clocks.get(name)
        return clock is not None and now - clock.since < LIVELY * clock.ttl

    def would_have_heard(self, now: float) -> bool:
        """Whether any session that lives was heard of by now: then who was not has no entry."""
        return not self._cut_off and now - self._watching_since > self._ttl
