"""The dead letter: what is kept of a run that failed for good, outside its record, so that people can look and replay."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.aftermath import derived_id
from tenure.core.errors import NewerSchema
from tenure.core.records import SCHEMA, Death, Entry, Failure, Seen, Task

_MARK = "replay."
MAX_HISTORY = 8
"""Earlier deaths that a replayed run carries."""
MAX_REJECTED_BYTES = 131_072
"""So much is kept of a rejected command's payload: strangers choose how much they send."""
MAX_REJECTED_TEXT, MAX_HEADERS, MAX_HEADER = 2_048, 32, 1_024


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A copy of a run that failed for good.

    ``task`` holds its arguments (or the blob that does) and policy; ``attempts`` were made, ``failures`` counted;
    ``failure`` is the last one's. ``queued_at``: when it last became ready to run; ``died_at``: when its end was stored
    (seconds since the epoch). ``history``: the deaths of the runs that it replayed, oldest first, without tracebacks.
    """

    schema: int
    key: str
    run_id: str
    generation: int
    actor: str
    queue: str
    priority: str
    task: Task
    attempts: int
    failures: int
    failure: Failure
    queued_at: float
    died_at: float
    history: tuple[Death, ...] = ()


class Rejected(Struct, frozen=True, kw_only=True):
    """A command that somebody sent and that was not carried out.

    ``reason``: a code that does not change, ``text``: the same for people. ``data`` is the beginning of the payload, of which
    there were ``size`` bytes; ``sent_at``, ``rejected_at``: seconds since the epoch.
    """

    command: str
    subject: str
    reason: str
    text: str
    headers: dict[str, str]
    data: bytes
    size: int
    sent_at: float
    rejected_at: float


_rejected = msgspec.json.Decoder(Rejected)
encode_rejected = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(DeadLetter)
encode_letter = msgspec.json.Encoder().encode


def decode_letter(data: bytes) -> DeadLetter:
    """Read a dead letter; msgspec.DecodeError for what is none."""
    return _decoder.decode(data)


def decode_rejected(data: bytes) -> Rejected:
    """Read a rejected command; msgspec.DecodeError for what is none."""
    return _rejected.decode(data)


def rejected(
    *,
    command: str,
    subject: str,
    reason: str,
    text: str,
    headers: Mapping[str, str],
    data: bytes,
    sent_at: float,
    now: float,
) -> Rejected:
    """What is kept of a rejected command: all of it that people can use, and no more than one message holds."""
    return Rejected(
        command=command,
        subject=subject,
        reason=reason,
        text=text[:MAX_REJECTED_TEXT],
        headers={name[:MAX_HEADER]: value[:MAX_HEADER] for name, value in [*headers.items()][:MAX_HEADERS]},
        data=data[:MAX_REJECTED_BYTES],
        size=len(data),
        sent_at=sent_at,
        rejected_at=now,
    )


def letter_of(entry: Entry) -> DeadLetter:
    """The dead letter that an outbox entry (one with ``dead``) owes."""
    *earlier, death = entry.dead
    task = entry.task
    return DeadLetter(
        schema=SCHEMA,
        key=entry.key,
        run_id=entry.run_id,
        generation=death.generation,
        actor=task.actor,
        queue=task.queue,
        priority=task.priority,
        task=task,
        attempts=death.attempts,
        failures=death.failures,
        failure=death.failure,
        queued_at=death.queued_at,
        died_at=death.at,
        history=tuple(earlier),
    )


def replay_of(letter: DeadLetter) -> c.Submit:
    """The command that replays a dead letter: the same one each time, so that a repeat starts no second run.

    Raises NewerSchema for a letter of a newer Tenure, of whose task this version would drop parts.
    """
    if letter.schema > SCHEMA:
        msg = f"the dead letter of {letter.key!r} has schema {letter.schema}, this Tenure knows up to {SCHEMA}: upgrade"
        error = NewerSchema(msg, schema=letter.schema)
        raise error.about(key=letter.key, generation=letter.generation, run_id=letter.run_id)
    death = Death(
        run_id=letter.run_id,
        generation=letter.generation,
        attempts=letter.attempts,
        failures=letter.failures,
        queued_at=letter.queued_at,
        at=letter.died_at,
        failure=replace(letter.failure, traceback=""),
    )
    return c.Submit(
        key=letter.key,
        run_id=derived_id(letter.run_id, "replay"),
        task=letter.task,
        if_live="reject",
        seen=Seen(id=replay_mark(letter), origin=letter.key),
        history=(*letter.history, death)[-MAX_HISTORY:],
    )


def replay_mark(letter: DeadLetter) -> str:
    """What a record remembers of this letter's replay, until the letter is gone."""
    return _MARK + letter.run_id


def replayed(seen: Seen) -> str | None:
    """The run whose dead letter's replay this remembers; None for an outbox entry."""
    return seen.id.removeprefix(_MARK) if seen.id.startswith(_MARK) else None
