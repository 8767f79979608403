"""Who is alive: the session entries as this supervisor has seen them, on its own clock.

A session that was seen at one revision for a whole ttl is closed by CAS *at that revision* [16]: a renewal that this
supervisor has not heard of makes the server refuse. What it saw counts only while it could have seen more: the clocks of
all sessions start anew when this process was cut off, and stand still while it is frozen or busy, and while its own
renewals are not confirmed - then the bucket takes nobody's (a leader is being elected), and silence proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from tenure.clock import Clock
from tenure.core.errors import Unavailable
from tenure.core.sessions import CLOSED_KEPT_SECONDS, Session
from tenure.metrics import Metrics
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.sessions import SeenSession, Sessions
from tenure.telemetry import get_logger

_log = get_logger("tenure.supervisor")
_TICK_SECONDS = 0.1
_STALL_SECONDS = 1.0
"""A tick that is this late means that the process was frozen, or its loop busy."""
_UNCONFIRMED = 0.55
"""Share of a ttl after which a renewal of our own that is not confirmed proves that the bucket may take nobody's. It is more
than two renewals, and less than the four fifths of a ttl that are left to who was to renew next when that began."""
_RECENT_SECONDS = 60.0
_LIVELY = 0.6
"""Renewals come five times in a ttl; who is silent for this share of it is not counted on."""


class _Watched:
    __slots__ = ("revision", "session", "since")

    def __init__(self, session: Session, revision: int, since: float) -> None:
        self.session = session
        self.revision = revision
        self.since = since


class Census:
    """The sessions of one namespace. ``confirmed_at``: when the last confirmed renewal of our own was sent (steady clock).

    ``ttl``: of our own session, in seconds. ``on_closed`` is called once for each session that is seen to be closed,
    those closed before the start excepted.
    """

    def __init__(
        self,
        conn: Connection,
        sessions: Sessions,
        clock: Clock,
        metrics: Metrics,
        *,
        confirmed_at: Callable[[], float],
        ttl: float,
        on_closed: Callable[[Session], None],
    ) -> None:
        self._conn = conn
        self._sessions = sessions
        self._clock = clock
        self._metrics = metrics
        self._confirmed_at = confirmed_at
        self._ttl = ttl
        self._on_closed = on_closed
        self._watched: dict[str, _Watched] = {}
        self._watching_since = clock.steady()
        self._loaded = False
        self.caught_up = asyncio.Event()
        """Set while every entry that is stored has been seen."""

    # -- what is known -----------------------------------------------------------------------------------------------

    def is_closed(self, session: str) -> bool:
        """Whether the session is known to be closed: never to hold, confirm or renew anything again."""
        seen = self._watched.get(session)
        return seen is not None and seen.session.closed is not None

    def is_gone(self, session: str) -> bool:
        """Closed, or without an entry for as long as we would have seen it renewed (then ``bury`` it before you act)."""
        if session in self._watched:
            return self.is_closed(session)
        watched = self._clock.steady() - self._watching_since
        return self.caught_up.is_set() and watched > self._ttl

    def recently_closed(self) -> set[str]:
        """Sessions that were closed within the last minute."""
        since = self._clock.steady() - _RECENT_SECONDS
        return {name for name, seen in self._watched.items() if seen.session.closed is not None and seen.since >= since}

    def lively_supervisors(self) -> set[str]:
        """Supervisors heard of lately. One that died with the worker beside it is not counted on while it is still open."""
        now = self._clock.steady()
        return {
            name
            for name, seen in self._watched.items()
            if seen.session.kind == "supervisor"
            and seen.session.closed is None
            and now - seen.since < _LIVELY * seen.session.ttl
        }

    # -- watching ----------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Follow every session's entry until cancelled."""
        offs = [on(self.start_anew) for on in (self._conn.on_disconnect, self._conn.on_reconnect)]
        try:
            await self._sessions.watch_all(self._seen).run(self.caught_up)
        finally:
            for off in offs:
                off()

    def _seen(self, seen: SeenSession) -> None:
        session = seen.session
        known = self._watched.get(session.id)
        self._loaded = self._loaded or self.caught_up.is_set()
        if known is not None and known.revision >= seen.revision:
            return
        self._watched[session.id] = _Watched(session, seen.revision, self._clock.steady())
        if session.closed is not None and (known is None or known.session.closed is None) and self._loaded:
            self._on_closed(session)

    def start_anew(self) -> None:
        """What was seen so far proves nothing any more: every open session has its whole ttl again."""
        now = self._clock.steady()
        self._watching_since = now
        for seen in self._watched.values():
            if seen.session.closed is None:
                seen.since = now

    # -- closing -----------------------------------------------------------------------------------------------------

    async def close_silent(self, is_mine: Callable[[str], bool]) -> None:
        """Close sessions that are silent for their ttl, until cancelled. ``is_mine``: our own, which others look after."""
        overdue = False
        while True:
            before = self._clock.steady()
            await asyncio.sleep(_TICK_SECONDS)
            now = self._clock.steady()
            unconfirmed = now - self._confirmed_at()
            if unconfirmed > _UNCONFIRMED * self._ttl:
                self._discount(now - before if overdue else unconfirmed)
                overdue = True
                continue
            overdue = False
            if now - before > _STALL_SECONDS:
                self._discount(now - before)
            elif self._conn.is_connected and self.caught_up.is_set():
                await self._close(self._silent(now, is_mine))

    def _discount(self, seconds: float) -> None:
        """So long nobody could have been heard: it is no silence. What was seen before goes on counting.

        Else a machine that is always busy would never close anybody.
        """
        now = self._clock.steady()
        self._watching_since = min(now, self._watching_since + seconds)
        for seen in self._watched.values():
            if seen.session.closed is None:
                seen.since = min(now, seen.since + seconds)

    def _silent(self, now: float, is_mine: Callable[[str], bool]) -> list[_Watched]:
        old = [
            name
            for name, seen in self._watched.items()
            if seen.session.closed is not None and now - seen.since > CLOSED_KEPT_SECONDS
        ]
        for name in old:  # the server has forgotten it too
            del self._watched[name]
        return [
            seen
            for name, seen in self._watched.items()
            # our own renewals are the proof that the bucket takes them, and that has the grain of our own ttl
            if seen.session.closed is None
            and now - seen.since >= max(seen.session.ttl, self._ttl)
            and not is_mine(name)
        ]

    async def _close(self, silent: Iterable[_Watched]) -> None:
        for seen in silent:
            session = replace(seen.session, closed="expired")
            try:
                revision = await self._sessions.write(session, seen.revision)
                if not revision:
                    await self._look_again(session.id)
            except (NotSent, Lost, Unavailable) as error:  # the next tick tries again, at the same revision
                _log.debug("session.not_closed", session=session.id, error=str(error))
                return
            if revision:
                self._metrics.repairs["session"] += 1
                _log.warning(
                    "session.closed", session=session.id, kind=session.kind, host=session.host, pid=session.pid
                )
                self._seen(SeenSession(session, revision))

    async def _look_again(self, name: str) -> None:
        """Refused: it was renewed or closed and we have not heard of it yet, or its entry was removed."""
        found = await self._sessions.read(name)
        if found is not None:
            self._seen(found)
            return
        del self._watched[name]
        await self.bury(name)

    async def bury(self, name: str) -> bool:
        """Make a session without an entry closed for everybody, so that workers may take over what it holds.

        It was created before its first claim, so its entry has expired long ago or was removed; and if it lives after
        all, its next renewal is refused and it learns that it is closed. False if it turns out to exist. Raises
        Unavailable.
        """
        if name in self._watched:
            return self.is_closed(name)
        found = await self._sessions.find(name)
        if isinstance(found, SeenSession):
            self._seen(found)
            return self.is_closed(name)
        grave = Session(id=name, kind="worker", host="", pid=0, ttl=self._ttl, started_at=0.0, closed="missing")
        try:
            revision = await self._sessions.write(grave, found.revision)
        except (NotSent, Lost) as error:
            msg = f"cannot close session {name}, whose entry is missing: {error}"
            raise Unavailable(msg) from error
        if revision:
            self._seen(SeenSession(grave, revision))
        return bool(revision)
