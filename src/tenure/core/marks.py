"""What a command of the inbox leaves in the records that it changes, so that it is applied once.

A mark is an entry of ``seen``. It stays while the command's message is stored: as long as there is a message somebody may
have it in hand. Its id holds everything, so that a process of an older Tenure, which writes records anew without knowing
marks, keeps it whole; and its origin is no possible key, so that an older supervisor never takes it for an outbox entry
that is settled.

A command with a message id may be published again: the server tells a copy for two minutes, unless it is started again
meanwhile. So its mark is kept for as long when its message is gone, as ``gone``: it keeps no record from expiring longer than
that, nobody looks for it, and a record has so many of the newest. The writes that forget other marks take out what is over.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.aftermath import derived_id
from tenure.core.records import Record, Seen

MAX_MARKS = 128
"""So many applied entries in one record, and commands of the inbox for its key have to wait. Forgetting takes seconds."""

COPY_SECONDS = 120.0
"""For so long the server tells a copy by its message id: the default of its streams (``duplicate_window``)."""
MAX_COPIES = 32
"""So many commands of one key are known for copies alone: 4 KB of its record, and only while it is sent so many in two minutes."""

_MARK = "inbox."
_NO_KEY = ""


class Place(Struct, frozen=True):
    """Where a command lies in the inbox: its sequence, and when it was stored (microseconds since the epoch).

    A stream that was deleted and made again counts from 1 anew: the time tells its messages from those of the old one.
    """

    sequence: int
    stored_us: int


def command_id(subject: str, key: str | None, msg_id: str | None, place: Place) -> str:
    """The id of a command, in the form of a run id: of its message id, else of its place.

    A copy with the same message id has the same one, wherever it lies. Subject and key are in it, so that a message id
    which is used again for something else names another command.
    """
    about = f"{subject}\n{'' if key is None else 'key ' + key}\n"
    if msg_id is not None:
        return derived_id("", f"{about}id {msg_id}")
    return derived_id("", f"{about}at {place.sequence} {place.stored_us}")


def mark(place: Place, command: str, *, msg_id: bool = False) -> Seen:
    """What the command with this id leaves behind. ``msg_id``: it has one, so there may be copies."""
    until = place.stored_us / 1_000_000 + COPY_SECONDS if msg_id else 0.0
    return Seen(id=f"{_MARK}{place.sequence}.{place.stored_us}.{command}", origin=_NO_KEY, until=until)


def known_on(seen: tuple[Seen, ...], ids: AbstractSet[str], now: float) -> tuple[Seen, ...]:
    """What is left of a record's applied entries now that ``ids`` are gone from their origins."""
    over = [entry if entry.gone else replace(entry, gone=True) for entry in seen if entry.gone or entry.id in ids]
    copies = [entry for entry in over if entry.until > now]
    return (*copies[-MAX_COPIES:], *(entry for entry in seen if not entry.gone and entry.id not in ids))


def is_mark(seen: Seen) -> bool:
    """Whether a command of the inbox has left this."""
    return seen.id.startswith(_MARK)


def place_of(seen: Seen) -> Place | None:
    """Where the command lies, or lay, that has left this; None if none has."""
    if not is_mark(seen):
        return None
    try:
        sequence, stored_us, _command = seen.id.removeprefix(_MARK).split(".")
        return Place(int(sequence), int(stored_us))
    except ValueError:
        return Place(0, 0)  # no message lies there: to be forgotten


def is_marked(record: Record, seen: Seen) -> bool:
    """Whether what ``seen`` stands for was applied to the record: this very entry, or a copy of this command."""
    if any(entry.id == seen.id for entry in record.seen):
        return True
    command = seen.id.rpartition(".")[2]
    return is_mark(seen) and any(is_mark(entry) and entry.id.endswith(f".{command}") for entry in record.seen)
