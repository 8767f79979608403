"""When a key's life is over by its age, and what is left of it then. Pure.

An expired record stays stored for an hour as its own mark: a late copy of its submit (which expects nothing) is refused, and a
new life is written over it by compare-and-swap. The marks that a server leaves when it removes a message by its age are not
used: it may decide that a record has expired before it takes in a write that is under way, and store the mark after it, which
takes the run that was just accepted with it (ARCHITECTURE, *Expiry*).
"""

from __future__ import annotations

from tenure.core.records import TERMINAL, Record, ttl_of

MARK_SECONDS = 3_600
"""For how long what is left of a key whose life is over (by a purge, or because it expired) refuses late copies of its submit."""


def expires_at(record: Record) -> float:
    """When a key's life is over by its age (seconds since the epoch); 0: it does not expire.

    From then on the record is the mark of that for ``MARK_SECONDS``, and means no more than none.
    """
    ttl = ttl_of(record)
    return 0.0 if ttl is None or record.last is None else record.last.at + ttl


def is_over(record: Record, now: float) -> bool:
    """Whether the key's life is over by its age."""
    return record.phase in TERMINAL and 0.0 < expires_at(record) <= now
