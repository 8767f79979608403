"""What comes out of a transition.

A decision to store, or a refusal with its reason; and the effects that follow from a record.

Effects are derived from the *stored* record (``effects_of``), never from memory, so whoever finds a half-done key can
finish it.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from tenure.core.records import Count, Entry, Holder, Phase, Record
from tenure.core.sessions import StopReason


class Did(StrEnum):
    """What a decision does; the one label that logs, metrics and tests use for it."""

    SUBMITTED = "submitted"
    REPLACED = "replaced"
    SCHEDULED = "scheduled"
    RETIRED = "retired"
    TRIGGERED = "triggered"
    JOINED = "joined"
    SETTLED = "settled"
    DROPPED = "dropped"
    CANCELLED = "cancelled"
    STOPPING = "stopping"
    WON = "won"
    TAKEOVER = "takeover"
    RECLAIMED = "reclaimed"
    EXHAUSTED = "exhausted"
    SUCCEEDED = "succeeded"
    RESCHEDULED = "rescheduled"
    RETRIED = "retried"
    FAILED = "failed"
    SNOOZED = "snoozed"
    HANDED_BACK = "handed_back"
    FORCED = "forced"
    CONFIRMED = "confirmed"
    EXPIRED = "expired"
    CLEARED = "cleared"
    FORGOT = "forgot"
    COUNTED = "counted"
    PURGED = "purged"


class Why(StrEnum):
    """Why a command was refused."""

    ABSENT = "absent"
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    STOPPING = "stopping"
    NOT_DUE = "not_due"
    BUSY = "busy"
    LIMITED = "limited"
    HELD = "held"
    LIVE = "live"
    COOLING = "cooling"
    DIFFERS = "differs"
    ALREADY = "already"
    CROWDED = "crowded"
    OWED = "owed"
    OUTDATED = "outdated"
    NOTHING = "nothing"


class Wake(Struct, frozen=True, tag=True):
    """A waiting run needs a wake-up at its due time."""


class Signal(Struct, frozen=True, tag=True):
    """The process of ``holder`` must be told to stop its body."""

    holder: Holder
    reason: StopReason


class Apply(Struct, frozen=True, tag=True):
    """An outbox entry must be applied to its target."""

    entry: Entry


Effect = Wake | Signal | Apply


class Decision(Struct, frozen=True):
    """Store ``record`` at the revision it was decided on (None: purge the entry), then carry out ``effects``.

    ``counts``: what whoever stores this has to count, because the record does not owe it any more.
    """

    did: Did
    record: Record | None
    effects: tuple[Effect, ...] = ()
    counts: tuple[Count, ...] = ()


class Refused(Struct, frozen=True):
    """Nothing may be stored. ``retry_at``: when it may change by itself (seconds since the epoch), or None."""

    why: Why
    retry_at: float | None = None


_WAKE: tuple[Effect, ...] = (Wake(),)


def effects_of(record: Record) -> tuple[Effect, ...]:
    """Everything that a stored record owes to the outside, in the order in which it is carried out."""
    phase = record.phase
    if not record.previous and not record.outbox and phase is not Phase.STOPPING:
        return _WAKE if phase is Phase.WAITING else ()
    effects: list[Effect] = []
    if phase is Phase.STOPPING and record.holder is not None:
        effects.append(Signal(record.holder, "cancel"))
    effects.extend(Signal(entry.holder(), "superseded") for entry in record.previous if entry.deadline is not None)
    effects.extend(Apply(entry) for entry in record.outbox)
    if phase is Phase.WAITING:
        effects.append(Wake())
    return tuple(effects)
