r"""What is encrypted of what is stored, and its form: a head in clear, the id of the key, the box.

``<JSON>\n<key id>\n<nonce and ciphertext>``. The head is the record (dead letter, progress, ...) without anything that users
gave; the box holds that. So sweeps, lists and whoever has no key still see phases, names and times. What tells the
two apart from plain JSON is the line feed, which no encoder of ours writes: plain and encrypted lie side by side, and a
process that knows nothing of this takes an encrypted record for none of its own, and leaves it alone.

A box is bound (``about``) to its namespace, its key, and what it is there: copied elsewhere it does not open. Where the key is
known from the subject, that one counts, not the one that the head names.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tenure.core import dead, records, sessions, switches
from tenure.core.dead import DeadLetter, Rejected
from tenure.core.errors import EncryptedRecord
from tenure.core.records import NO_ARGS, NULL, Blob, Death, Entry, Failure, Hooks, Phase, Record, Task
from tenure.core.sessions import Progress
from tenure.core.switches import Board

T = TypeVar("T")
KEY_ID = r"[A-Za-z0-9._-]{1,64}"
_key_id = re.compile(KEY_ID.encode()).fullmatch
_SEALED_BLOB = b"\n"
"""So begins what has no head; no JSON of ours does."""
_NOTHING_TOLD = Failure(type="", message="")


class Sealer(Protocol):
    """Keys by their ids. ``current``: the one to seal with; empty: what is written is plain."""

    @property
    def current(self) -> str:
        """Its id."""

    def has(self, key_id: str) -> bool:
        """Whether this key is known."""

    def seal(self, data: bytes, about: bytes) -> bytes:
        """A box, under the current key."""

    def open(self, key_id: str, box: bytes, about: bytes) -> bytes | None:
        """What is in a box; None where it was changed, is about something else, or belongs to another key of that id."""


class _Hidden(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What users gave, of a record. Its blobs are named in the head too, but these here are those that it was sealed with."""

    args: Raw = NO_ARGS
    blob: Blob | None = None
    hooks: Hooks | None = None
    failure: Failure | None = None
    result: Raw = NULL
    result_blob: Blob | None = None
    ended: Failure | None = None
    reason: str = ""
    stop: str = ""
    outbox: tuple[Entry, ...] = ()
    history: tuple[Death, ...] = ()


class _HiddenLetter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    task: Task
    failure: Failure
    history: tuple[Death, ...] = ()


class _HiddenRejected(Struct, frozen=True):
    text: str
    headers: dict[str, str]
    data: bytes


class _HiddenProgress(Struct, frozen=True):
    done: float
    total: float | None
    note: str


class _HiddenBoard(Struct, frozen=True):
    args: dict[str, dict[str, tuple[str, ...]]]


_encode = msgspec.json.Encoder().encode
_record = msgspec.json.Decoder(_Hidden).decode
_letter = msgspec.json.Decoder(_HiddenLetter).decode
_rejected = msgspec.json.Decoder(_HiddenRejected).decode
_progress = msgspec.json.Decoder(_HiddenProgress).decode
_board = msgspec.json.Decoder(_HiddenBoard).decode


class Codec:
    """The wire forms of one namespace, encrypted where there is somebody to do it."""

    def __init__(self, namespace: str, sealer: Sealer | None = None) -> None:
        self._namespace = namespace
        self._sealer = sealer
        self.seals = sealer is not None and bool(sealer.current)
        """Whether what is written is encrypted."""

    # -- records -----------------------------------------------------------------------------------------------------

    def encode(self, record: Record) -> bytes:
        """The record's wire form."""
        if not self.seals:
            return records.encode(record)
        blank, hidden = _hide(record)
        return self._sealed(records.encode(blank), hidden, self._about_record(record, record.key))

    def encode_to_store(self, record: Record, *, proven: bool, box: bytes = b"") -> bytes:
        """The same, as ``records.encode_to_store``.

        ``box``: what is hidden of it and was not opened, to be stored as it was under this head.
        """
        if box:
            return b"%s\n%s" % (records.encode(record), box)
        if not self.seals:
            return records.encode_to_store(record, proven=proven)
        if not proven:
            records.encode_to_store(record, proven=False)
        return self.encode(record)

    def decode(self, data: bytes, key: str) -> Record:
        """Read the record of ``key``. Raises EncryptedRecord, with what is in clear of it, and as ``records.decode``."""
        if self._sealer is None:
            try:
                return records.decode(data)
            except msgspec.DecodeError:
                if _parts(data) is None:
                    raise
        parts = _parts(data)
        if parts is None:
            return records.decode(data)
        head, key_id, box = parts
        blank = records.decode(head)
        what = f"the record of {key!r}"
        try:
            opened = self._open(key_id, box, self._about_record(blank, key), what, key=key, record=blank)
        except EncryptedRecord as error:
            error.box = data[len(head) + 1 :]
            raise
        return _reveal(blank, _record(opened))

    def _about_record(self, record: Record, key: str) -> bytes:
        return self._about("record", key, record.run_id, record.generation, record.task.actor)

    # -- dead letters, rejected commands -----------------------------------------------------------------------------

    def encode_letter(self, letter: DeadLetter) -> bytes:
        """A dead letter's wire form."""
        if not self.seals:
            return dead.encode_letter(letter)
        blank = _blank_letter(letter)
        hidden = _HiddenLetter(task=letter.task, failure=letter.failure, history=letter.history)
        return self._sealed(dead.encode_letter(blank), hidden, self._about_letter(letter))

    def decode_letter(self, data: bytes) -> tuple[DeadLetter, str]:
        """A dead letter; what there is in clear of one that cannot be opened, and why not (empty: it is whole)."""
        parts = _parts(data)
        if parts is None:
            return dead.decode_letter(data), ""
        head, key_id, box = parts
        letter = dead.decode_letter(head)
        what = f"the dead letter of {letter.key!r}"
        try:
            opened = _letter(self._open(key_id, box, self._about_letter(letter), what, key=letter.key))
        except EncryptedRecord as error:
            return replace(letter, failure=Failure(type="", message=told(key_id))), str(error)
        return replace(letter, task=opened.task, failure=opened.failure, history=opened.history), ""

    def _about_letter(self, letter: DeadLetter) -> bytes:
        return self._about("letter", letter.key, letter.run_id, letter.generation, letter.actor)

    def encode_rejected(self, rejected: Rejected) -> bytes:
        """A rejected command's wire form."""
        if not self.seals:
            return dead.encode_rejected(rejected)
        hidden = _HiddenRejected(rejected.text, rejected.headers, rejected.data)
        blank = replace(rejected, text="", headers={}, data=b"")
        return self._sealed(dead.encode_rejected(blank), hidden, self._about_rejected(rejected))

    def decode_rejected(self, data: bytes) -> Rejected:
        """A rejected command; with ``told`` for its text where it cannot be opened."""
        parts = _parts(data)
        if parts is None:
            return dead.decode_rejected(data)
        head, key_id, box = parts
        rejected = dead.decode_rejected(head)
        try:
            opened = _rejected(self._open(key_id, box, self._about_rejected(rejected), "a rejected command"))
        except EncryptedRecord:
            return replace(rejected, text=told(key_id))
        return replace(rejected, text=opened.text, headers=opened.headers, data=opened.data)

    def _about_rejected(self, rejected: Rejected) -> bytes:
        return self._about("rejected", rejected.command, rejected.subject)

    # -- progress, the board of switches, blobs ----------------------------------------------------------------------

    def encode_progress(self, progress: Progress, key: str) -> bytes:
        """The wire form of a run's progress."""
        if not self.seals:
            return _encode(progress)
        hidden = _HiddenProgress(progress.done, progress.total, progress.note)
        head = _encode(replace(progress, done=0.0, total=None, note=""))
        return self._sealed(head, hidden, self._about("progress", key, progress.run_id, progress.attempt))

    def decode_progress(self, data: bytes, key: str) -> Progress:
        """Progress of a run of ``key``; with ``told`` for its note where it cannot be opened."""
        parts = _parts(data)
        if parts is None:
            return sessions.decode_progress(data)
        head, key_id, box = parts
        progress = sessions.decode_progress(head)
        about = self._about("progress", key, progress.run_id, progress.attempt)
        try:
            opened = _progress(self._open(key_id, box, about, "progress", key=key))
        except EncryptedRecord:
            return replace(progress, note=told(key_id))
        return replace(progress, done=opened.done, total=opened.total, note=opened.note)

    def encode_board(self, board: Board) -> bytes:
        """The wire form of the board; it has something to hide only where runs are blocked by their arguments."""
        hidden = {switch.id: switch.args for switch in board.switches if switch.args} if self.seals else None
        if not hidden:
            return switches.encode_board(board)
        blank = replace(board, switches=tuple(replace(switch, args={}) for switch in board.switches))
        return self._sealed(switches.encode_board(blank), _HiddenBoard(hidden), self._about("board"))

    def decode_board(self, data: bytes) -> Board:
        """The board. Raises EncryptedRecord: who cannot read all of it can neither go by it nor change it."""
        parts = _parts(data)
        if parts is None:
            return switches.decode_board(data)
        head, key_id, box = parts
        args = _board(self._open(key_id, box, self._about("board"), "what is blocked")).args
        board = switches.decode_board(head)
        return replace(board, switches=tuple(replace(one, args=args.get(one.id, {})) for one in board.switches))

    def seal_blob(self, data: bytes, name: str) -> bytes:
        """The bytes to store of a blob. Whose it is the record says that names it, within its own box."""
        return self._sealed(b"", data, self._about("blob", name)) if self.seals else data

    def open_blob(self, data: bytes, name: str) -> bytes:
        """What a stored blob holds, sealed or not. Raises EncryptedRecord."""
        parts = _parts(data) if data.startswith(_SEALED_BLOB) else None
        if parts is None:
            return data
        _, key_id, box = parts
        return self._open(key_id, box, self._about("blob", name), f"the blob {name}")

    def lacks(self, key_id: str) -> bool:
        """Whether it is for want of this key that something does not open: another process may have it."""
        return self._sealer is None or not self._sealer.has(key_id)

    # -- boxes -------------------------------------------------------------------------------------------------------

    def _about(self, kind: str, *which: str | int) -> bytes:
        return _encode((f"tenure.{kind}.1", self._namespace, *which))

    def _sealed(self, head: bytes, hidden: Any, about: bytes) -> bytes:
        sealer = self._sealer
        if sealer is None:
            return head
        data = hidden if isinstance(hidden, bytes) else _encode(hidden)
        return b"%s\n%s\n%s" % (head, sealer.current.encode(), sealer.seal(data, about))

    def _open(
        self, key_id: str, box: bytes, about: bytes, what: str, *, key: str = "", record: Record | None = None
    ) -> bytes:
        sealer = self._sealer
        if sealer is None or self.lacks(key_id):
            hint = "give it in $TENURE_ENCRYPTION_KEYS, or to App(encryption=)"
            msg = f"{what} is {told(key_id)}, and this process has no such key: {hint}"
            raise EncryptedRecord(msg, key=key, key_id=key_id, record=record)
        opened = sealer.open(key_id, box, about)
        if opened is None:
            why = f"it was changed, or stored elsewhere, or {key_id!r} is another key here"
            msg = f"{what} is {told(key_id)} and does not open: {why}"
            raise EncryptedRecord(msg, key=key, key_id=key_id, record=record)
        return opened


def told(key_id: str) -> str:
    """What people are told in the place of what is encrypted."""
    return f"encrypted (key id {key_id!r})"


def _parts(data: bytes) -> tuple[bytes, str, bytes] | None:
    """Head, key id and box; None for what is plain."""
    head, _, rest = data.partition(b"\n")
    if not rest or (head and not head.endswith(b"}")):  # JSON that somebody has written over several lines
        return None
    key_id, _, box = rest.partition(b"\n")
    return (head, key_id.decode(), box) if _key_id(key_id) else None


def _hide(record: Record) -> tuple[Record, _Hidden]:
    task, last, stop = record.task, record.last, record.stop
    hidden = _Hidden(
        args=task.args,
        blob=task.blob,
        hooks=task.policy.hooks,
        failure=record.failure,
        result=NULL if last is None else last.result,
        result_blob=None if last is None else last.blob,
        ended=None if last is None else last.failure,
        reason="" if last is None else last.reason,
        stop="" if stop is None else stop.reason,
        outbox=record.outbox,
        history=record.history,
    )
    blank = replace(
        record,
        task=_blank_task(task),
        failure=None,
        last=None if last is None else replace(last, result=NULL, blob=_blank_blob(last.blob), failure=None, reason=""),
        stop=None if stop is None else replace(stop, reason=""),
        outbox=tuple(
            replace(entry, task=_blank_task(entry.task), dead=_blank_deaths(entry.dead)) for entry in record.outbox
        ),
        history=_blank_deaths(record.history),
    )
    return blank, hidden


def _reveal(blank: Record, hidden: _Hidden) -> Record:
    task, last, stop = blank.task, blank.last, blank.stop
    policy = task.policy if hidden.hooks is None else replace(task.policy, hooks=hidden.hooks)
    if last is not None and last.phase is Phase.CANCELLED:
        # Perhaps by who could not open the box, in which an older outcome is then.
        last = replace(last, reason=hidden.reason)
    elif last is not None:
        last = replace(last, result=hidden.result, blob=hidden.result_blob, failure=hidden.ended, reason=hidden.reason)
    return replace(
        blank,
        task=replace(task, args=hidden.args, blob=hidden.blob, policy=policy),
        failure=hidden.failure,
        last=last,
        stop=None if stop is None else replace(stop, reason=hidden.stop),
        outbox=hidden.outbox,
        history=hidden.history,
    )


def _blank_letter(letter: DeadLetter) -> DeadLetter:
    history = _blank_deaths(letter.history)
    return replace(letter, task=_blank_task(letter.task), failure=_NOTHING_TOLD, history=history)


def _blank_task(task: Task) -> Task:
    policy = task.policy if task.policy.hooks is None else replace(task.policy, hooks=None)
    return replace(task, args=NO_ARGS, blob=_blank_blob(task.blob), policy=policy)


def _blank_blob(blob: Blob | None) -> Blob | None:
    """Its digest tells equal arguments, so it is a user's as they are."""
    return None if blob is None else replace(blob, digest="")


def _blank_deaths(deaths: tuple[Death, ...]) -> tuple[Death, ...]:
    return tuple(replace(death, failure=_NOTHING_TOLD) for death in deaths)
