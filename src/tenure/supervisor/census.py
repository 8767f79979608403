"""Who is alive: the session entries as this supervisor has seen them, on its own clock.

A session that was seen at one revision for a whole ttl is closed by CAS *at that revision* [16]: a renewal that this
supervisor has not heard of makes the server refuse. How far silence proves anything is ``core.silence``'s to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from tenure.clock import Clock
from tenure.core.errors import Unavailable
from tenure.core.sessions import CLOSED_KEPT_SECONDS, Kind, Session
from tenure.core.silence import Silence
from tenure.metrics import Metrics
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.sessions import SeenSession, Sessions
from tenure.telemetry import get_logger

_log = get_logger("tenure.supervisor")
_TICK = 0.05
_SHORTEST_TICK_SECONDS, _LONGEST_TICK_SECONDS = 0.1, 0.25
"""How often silence is looked at: a share of the ttl. Ten looks a second are half of what an idle supervisor does."""
_RECENT_SECONDS = 60.0


class _Watched:
    __slots__ = ("revision", "seen_at", "session")

    def __init__(self, session: Session, revision: int, seen_at: float) -> None:
        self.session = session
        self.revision = revision
        self.seen_at = seen_at


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
        self._silence = Silence(ttl, clock.steady())
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
        return self.caught_up.is_set() and self._silence.would_have_heard(self._clock.steady())

    def recently_closed(self) -> set[str]:
        """Sessions that were closed within the last minute."""
        since = self._clock.steady() - _RECENT_SECONDS
        return {
            name for name, seen in self._watched.items() if seen.session.closed is not None and seen.seen_at >= since
        }

    def lively_supervisors(self) -> set[str]:
        """Supervisors heard of lately. One that died with the worker beside it is not counted on while it is still open."""
        return {session.id for session in self._lively("supervisor")}

    def queues_worked_on(self) -> set[str]:
        """Queues of the workers heard of lately."""
        return {queue for session in self._lively("worker") for queue in session.queues}

    def _lively(self, kind: Kind) -> list[Session]:
        now = self._clock.steady()
        return [
            seen.session
            for name, seen in self._watched.items()
            if seen.session.kind == kind and self._silence.is_lively(name, now)
        ]

    def modules(self) -> set[str] | None:
        """Whose schedules the code of some lively supervisor has; None where one of them does not say."""
        said = [self._watched[name].session.modules for name in self.lively_supervisors()]
        known = [modules for modules in said if modules is not None]
        return set().union(*known) if known and len(known) == len(said) else None

    # -- watching ----------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Follow every session's entry until cancelled."""
        offs = [
            self._conn.on_disconnect(self._silence.cut_off),
            self._conn.on_reconnect(lambda: self._silence.back(self._clock.steady())),
        ]
        if not self._conn.is_connected:
            self._silence.cut_off()
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
        now = self._clock.steady()
        self._watched[session.id] = _Watched(session, seen.revision, now)
        if session.closed is None:
            self._silence.heard(session.id, session.ttl, now)
            return
        self._silence.forget(session.id)
        if self._loaded and (known is None or known.session.closed is None):
            self._on_closed(session)

    # -- closing -----------------------------------------------------------------------------------------------------

    async def close_silent(self, is_mine: Callable[[str], bool]) -> None:
        """Close sessions that are silent for their ttl, until cancelled. ``is_mine``: our own, which others look after."""
        tick = min(_LONGEST_TICK_SECONDS, max(_SHORTEST_TICK_SECONDS, _TICK * self._ttl))
        while True:
            before = self._clock.steady()
            await asyncio.sleep(tick)
            now = self._clock.steady()
            self._forget_old(now)
            proves = self._silence.tick(now, took=now - before, confirmed_at=self._confirmed_at())
            if proves and self.caught_up.is_set():
                await self._close([self._watched[name] for name in self._silence.silent(now) if not is_mine(name)])

    def _forget_old(self, now: float) -> None:
        """Closed sessions that the server has forgotten too."""
        old = [
            name
            for name, seen in self._watched.items()
            if seen.session.closed is not None and now - seen.seen_at > CLOSED_KEPT_SECONDS
        ]
        for name in old:
            del self._watched[name]

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
        self._silence.forget(name)
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
