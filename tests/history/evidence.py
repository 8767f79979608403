"""What a run under faults leaves behind, as plain data: all that the checker sees. Chaos and simulation both make it.

``at`` is seconds on the machine's monotonic clock, ``wall`` seconds since the epoch.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from msgspec import Struct, field

from tenure.core.records import Record
from tenure.core.schedule import is_perpetual

HOOKED = "hooked"
"""The actor that has a hook for each way in which its runs can end."""


class BodyLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a worker process: a body has started, or has ended with ``how`` (return, raise, stop, ...)."""

    at: float
    wall: float
    pid: int
    actor: str
    key: str
    generation: int
    run_id: str
    attempt: int
    fence: int
    session: str
    what: Literal["start", "end"]
    how: str = ""
    spawned: tuple[str, ...] = ()


class AskLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a producer asked and was told. ``told``: accepted, kept, cancelled, stopping, finished, unknown, ...

    ``asked`` and ``wall``: when it began to ask, and when it was told (seconds since the epoch).
    """

    asked: float
    wall: float
    ask: Literal["submit", "replace", "cancel", "purge", "result"]
    key: str
    told: str
    run_id: str = ""
    generation: int = 0


class HolderSeen(Struct, frozen=True):
    """As ``records.Holder``."""

    session: str
    run_id: str
    attempt: int


class PreviousSeen(Struct, frozen=True):
    """As ``records.Previous``."""

    session: str
    run_id: str
    attempt: int
    deadline: float | None


class LastSeen(Struct, frozen=True):
    """As ``records.Last``, its result left out."""

    run_id: str
    generation: int
    phase: str
    at: float
    attempt: int
    session: str


class Revision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One write of a key's record. ``before``: the revision that it replaced, 0 for none, -1 where that is not known.

    ``gone``: no record, but the mark of a purge or of an expiry.
    """

    seq: int
    before: int
    key: str
    gone: bool = False
    run_id: str = ""
    generation: int = 0
    phase: str = ""
    actor: str = ""
    overlap: str = ""
    every: bool = False
    attempt: int = 0
    stopped: bool = False
    holder: HolderSeen | None = None
    previous: tuple[PreviousSeen, ...] = ()
    last: LastSeen | None = None
    outbox: tuple[str, ...] = ()
    outbox_keys: tuple[str, ...] = ()
    seen: int = 0


class SessionSeen(Struct, frozen=True, kw_only=True):
    """A session's entry at the end: ``stored_at`` is the server's clock at its last write (its closing, if closed)."""

    id: str
    kind: str
    pid: int
    closed: str | None
    stored_at: float


class Death(Struct, frozen=True, kw_only=True):
    """The end of a process that we started. ``how``: kill or term; ``at``, ``wall``: when it was certainly gone.

    ``killed_at``: just before the signal.
    """

    pid: int
    role: str
    how: str
    killed_at: float
    at: float
    wall: float


class Fault(Struct, frozen=True, kw_only=True):
    """What the nemesis did, from ``at`` until ``until`` (monotonic)."""

    kind: str
    target: str
    at: float
    until: float


class Counts(Struct, frozen=True, kw_only=True):
    """Counters summed over all processes, as last scraped (a dead process's last values)."""

    superseded: dict[str, int] = field(default_factory=dict)
    cancelled: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)


class Evidence(Struct, kw_only=True):
    """Everything. ``records`` is the scan at the end; ``revisions`` are all that were seen, in the order of ``seq``.

    ``letters``: the run ids of all dead letters, as often as they are stored.
    """

    bodies: list[BodyLine]
    asks: list[AskLine]
    revisions: list[Revision]
    records: dict[str, Revision]
    sessions: list[SessionSeen]
    deaths: list[Death]
    alive: set[int]
    counts: Counts
    missing: int = 0
    work_left: list[str] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    quiet: bool = True
    rest_seconds: float = 0.0

    def by_key(self) -> dict[str, list[Revision]]:
        """The revisions of each key, in order."""
        keys: dict[str, list[Revision]] = defaultdict(list)
        for revision in self.revisions:
            keys[revision.key].append(revision)
        return keys


class Violation(Struct, frozen=True, order=True):
    """An invariant that did not hold: its name, the key, and what was seen."""

    invariant: str
    key: str
    what: str


def revision_of(record: Record | None, *, key: str, seq: int, before: int) -> Revision:
    """The part of a record that the checker looks at."""
    if record is None:
        return Revision(seq=seq, before=before, key=key, gone=True)
    holder, last, policy = record.holder, record.last, record.task.policy
    return Revision(
        seq=seq,
        before=before,
        key=key,
        run_id=record.run_id,
        generation=record.generation,
        phase=record.phase.value,
        actor=record.task.actor,
        overlap=policy.overlap,
        every=is_perpetual(policy),
        attempt=record.attempt,
        stopped=record.stop is not None,
        holder=HolderSeen(holder.session, holder.run_id, holder.attempt) if holder else None,
        previous=tuple(PreviousSeen(p.session, p.run_id, p.attempt, p.deadline) for p in record.previous),
        last=LastSeen(last.run_id, last.generation, last.phase.value, last.at, last.attempt, last.session)
        if last
        else None,
        outbox=tuple(entry.id for entry in record.outbox),
        outbox_keys=tuple(entry.key for entry in record.outbox),
        seen=len(record.seen),
    )
