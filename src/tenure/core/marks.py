"""What a command of the inbox leaves in the records that it changes, so that it is applied once.

A mark is an entry of ``seen``. It stays while the command's message is stored: as long as there is a message somebody may
have it in hand. Its id holds everything, so that a process of an older Tenure, which writes records anew without knowing
marks, keeps it whole; and its origin is no possible key, so that an older supervisor never takes it for an outbox entry
that is settled.
"""

from __future__ import annotations

from msgspec import Struct

from tenure.core.aftermath import derived_id
from tenure.core.records import Record, Seen

MAX_MARKS = 128
"""So many applied entries in one record, and commands of the inbox for its key have to wait. Forgetting takes seconds."""

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


def mark(place: Place, command: str) -> Seen:
    """What the command with this id leaves behind."""
    return Seen(id=f"{_MARK}{place.sequence}.{place.stored_us}.{command}", origin=_NO_KEY)


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
