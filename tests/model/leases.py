"""Sessions: one worker's lease and one supervisor that watches it, over the shipped ``Silence`` and ``trusted_until``.

What the rest of the model takes for granted is shown here: a supervisor closes a session only when its process does not trust it
any more. One step is a second; the worker renews, or not; its renewals come late, or their answers are lost; the supervisor
is cut off, or frozen, or its own renewals are not confirmed.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tenure.core import policy
from tenure.core.silence import Silence
from tests.model.cells import Broken

TTL = 5.0
NAME = "s1"


class Beat(NamedTuple):
    """A renewal on its way: when it was sent."""

    sent: float


@dataclass
class Lease:
    """Both sides at one moment. ``revision``: of the entry; ``seen``: the one that the supervisor has seen last."""

    now: float = 0.0
    trusted: float = TTL
    revision: int = 1
    seen: int = 1
    closed: bool = False
    dead_since: float | None = None
    connected: bool = True
    confirmed_at: float = 0.0
    troubled_at: float = 0.0
    flying: tuple[Beat, ...] = ()
    frozen: float = 0.0
    faults: int = 0
    silence: Silence = field(default_factory=lambda: Silence(TTL, 0.0))

    def key(self) -> tuple[object, ...]:
        """All that decides what comes."""
        told = self.silence
        clocks = tuple(sorted((name, clock.since) for name, clock in told._clocks.items()))
        silence = (clocks, told._watching_since, told._cut_off, told._unconfirmed)
        mine = {name: value for name, value in vars(self).items() if name != "silence"}
        return (*mine.values(), silence)


class Leases:
    """Every course of ``seconds`` seconds with at most ``faults`` troubles."""

    unfair_close = False
    """Whether sessions are closed at whatever revision they have: a rule that a test takes away."""

    def __init__(self, seconds: int = 10, faults: int = 1) -> None:
        self.seconds, self.faults = seconds, faults
        self.states = self.transitions = 0

    def run(self) -> None:
        """Raises Broken with the shortest course that closes a session whose process still trusts it."""
        begin = Lease(faults=self.faults)
        begin.silence.heard(NAME, TTL, 0.0)
        queue: deque[tuple[Lease, tuple[str, ...]]] = deque([(begin, ())])
        seen = {begin.key()}
        while queue:
            lease, course = queue.popleft()
            self.states += 1
            if lease.closed or lease.now >= self.seconds:
                continue
            for choice in self._choices(lease):
                self.transitions += 1
                after = copy.copy(lease)
                after.silence = copy.deepcopy(lease.silence)
                try:
                    self._second(after, *choice)
                except Broken as broken:
                    text = f"{broken.text}: {', '.join((*course, ' '.join(choice)))}"
                    raise Broken(broken.number, text) from broken
                if after.key() not in seen:
                    seen.add(after.key())
                    queue.append((after, (*course, " ".join(choice))))

    def _choices(self, lease: Lease) -> Iterator[tuple[str, str]]:
        """What the worker does in this second, and what the supervisor. To say nothing, and to die, is free."""
        trouble = lease.faults > 0
        workers = ("says nothing",) if lease.dead_since is not None else ("renews", "says nothing", "dies")
        if trouble and lease.dead_since is None:
            workers = (*workers, "renews late", "renews unheard")
        for worker in workers:
            for supervisor in ("watches", *(("is cut off", "is frozen", "is not confirmed") if trouble else ())):
                yield worker, supervisor

    def _second(self, lease: Lease, worker: str, supervisor: str) -> None:
        lease.faults -= worker in {"renews late", "renews unheard"}
        lease.faults -= supervisor != "watches"
        lease.now += 1.0
        self._worker(lease, worker)
        lease.troubled_at = lease.now if supervisor != "watches" else lease.troubled_at
        if supervisor == "is frozen":
            lease.frozen += 1.0
            return
        self._hears(lease, supervisor)
        took, lease.frozen = 0.1 + lease.frozen, 0.0
        if supervisor != "is not confirmed":
            lease.confirmed_at = lease.now
        may = lease.silence.tick(lease.now, took=took, confirmed_at=lease.confirmed_at)
        if may and NAME in lease.silence.silent(lease.now):
            self._close(lease)
        quiet_since = max(lease.dead_since or 0.0, lease.troubled_at)
        if lease.dead_since is not None and not lease.closed and lease.now - quiet_since > TTL + 1.0:
            raise Broken(7, "a dead worker's session is not closed")

    def _worker(self, lease: Lease, worker: str) -> None:
        """``Lease._renew``: trust runs from the send of what was confirmed [17]."""
        for beat in lease.flying:  # sent a while ago, taken now
            self._taken(lease, beat.sent, heard=True)
        lease.flying = ()
        if lease.now >= lease.trusted or lease.dead_since is not None:
            return
        match worker:
            case "renews":
                self._taken(lease, lease.now, heard=True)
            case "renews unheard":
                self._taken(lease, lease.now, heard=False)
            case "renews late":
                lease.flying = (Beat(lease.now),)
            case "dies":
                lease.dead_since = lease.now

    def _taken(self, lease: Lease, sent: float, *, heard: bool) -> None:
        if lease.closed:
            return
        lease.revision += 1
        if heard:
            lease.trusted = max(lease.trusted, policy.trusted_until(sent, TTL))

    def _hears(self, lease: Lease, supervisor: str) -> None:
        """``Census._seen`` and what the connection says."""
        if supervisor == "is cut off":
            if lease.connected:
                lease.connected = False
                lease.silence.cut_off()
            return
        if not lease.connected:
            lease.connected = True
            lease.silence.back(lease.now)
        if lease.seen != lease.revision:
            lease.seen = lease.revision
            lease.silence.heard(NAME, TTL, lease.now)

    def _close(self, lease: Lease) -> None:
        """``Census._close``: a CAS at the revision that was seen unchanged for a ttl [16]."""
        if not self.unfair_close and lease.seen != lease.revision:
            return
        if lease.dead_since is None and lease.trusted > lease.now:
            raise Broken(8, f"closed at {lease.now:.0f} s, trusted until {lease.trusted:.0f} s")
        lease.closed = True
