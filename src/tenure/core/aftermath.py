"""What an outcome owes: the runs that its hooks ask for and, of a run that failed for good, its dead letter.

Both are outbox entries added by the very write that stores the outcome (``owing``): so they exist if and only if that
write won, and whoever finds the record can act on them, without the actor's code. Every id in them is derived from the
finished run's own, so that deciding twice owes the same things.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tenure.core.moments import moment_of
from tenure.core.records import Death, Entry, Failure, Hook, Hooks, Last, Phase, Record
from tenure.core.schemas import schema_for

MAX_OWED_LETTERS = 4
"""Dead letters that one record carries. More can only gather while their stream refuses them; then the oldest is
dropped, since a record over the server's limit for one message could never be written again."""
HOOK = "hook."
"""How the ids of hooks' entries begin; those of spawned runs and dead letters begin with the run id of their origin."""

ID_FORM = r"[0-7][0-9A-HJKMNP-TV-Z]{25}"
"""What a run id looks like."""

_NO_HOOKS = Hooks()
_TO_CROCKFORD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_TIME, _ID = 10, 26
_CHANCE_BYTES = 10


class Outcome(Struct, frozen=True, kw_only=True):
    """What a hook is told of the run that ended.

    ``result`` is what it returned, as plain JSON values; None unless it succeeded, and where the value was too large to
    travel (it is in a blob then: read it by ``client.run(key).result()``). ``reason`` is a canceller's.
    """

    key: str
    generation: int
    run_id: str
    actor: str
    phase: Literal["succeeded", "failed", "cancelled"]
    attempt: int
    ended_at: datetime
    result: Any = None
    error_type: str | None = None
    error_message: str | None = None
    reason: str | None = None


def derived_id(run_id: str, place: str) -> str:
    """The run id of what follows from ``run_id`` at ``place``: always the same, in the form of a ULID.

    The time in it is that of ``run_id``, so that it sorts beside it.
    """
    digest = hashlib.sha256(f"{run_id}/{place}".encode(errors="surrogatepass")).digest()
    chance = base64.b32encode(digest[-_CHANCE_BYTES:]).translate(_TO_CROCKFORD).decode()
    return (run_id[:_TIME] if len(run_id) == _ID else "0" * _TIME) + chance


def owing(record: Record, last: Last) -> Record:
    """``record``, of the run whose outcome is ``last``, with everything that this outcome owes."""
    hooks = record.task.policy.hooks or _NO_HOOKS
    if last.phase is Phase.SUCCEEDED:
        return _with(record, record.outbox, _entries(record, last, hooks.success))
    if last.phase is Phase.CANCELLED:
        return _with(record, record.outbox, _entries(record, last, hooks.cancel))
    entries = (_letter(record, last), *_entries(record, last, hooks.failure))
    return _with(record, _letters_bounded(record.outbox), entries)


def _with(record: Record, older: tuple[Entry, ...], entries: tuple[Entry, ...]) -> Record:
    if not entries:
        return record
    outbox = older + entries
    return replace(record, schema=schema_for(record.task, outbox, record.history), outbox=outbox)


def _letter(record: Record, last: Last) -> Entry:
    death = Death(
        run_id=record.run_id,
        generation=record.generation,
        attempts=record.attempt,
        failures=record.failures,
        queued_at=record.queued_at,
        at=last.at,
        failure=last.failure or Failure(type="", message=""),
    )
    return Entry(
        id=f"{record.run_id}.dead",
        key=record.key,
        run_id=record.run_id,
        task=record.task,
        dead=(*record.history, death),
    )


def _letters_bounded(outbox: tuple[Entry, ...]) -> tuple[Entry, ...]:
    letters = [entry.id for entry in outbox if entry.dead]
    dropped = letters[: max(0, len(letters) + 1 - MAX_OWED_LETTERS)]
    return tuple(entry for entry in outbox if entry.id not in dropped) if dropped else outbox


def _entries(record: Record, last: Last, hooks: tuple[Hook, ...]) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for number, hook in enumerate(hooks):
        place = f"{last.phase.value}.{number}"
        run_id = derived_id(record.run_id, place)
        task = replace(hook.task, trace=record.task.trace) if record.task.trace else hook.task
        if hook.outcome:
            task = replace(task, args=Raw(msgspec.json.encode({hook.outcome: outcome_of(record, last)})))
        entries.append(Entry(id=f"{HOOK}{record.run_id}.{place}", key=run_id, run_id=run_id, task=task))
    return tuple(entries)


def outcome_of(record: Record, last: Last) -> Outcome:
    """What hooks are told: ``record`` of the run whose outcome is ``last``. Its result is still encoded."""
    failure = last.failure
    return Outcome(
        key=record.key,
        generation=record.generation,
        run_id=record.run_id,
        actor=record.task.actor,
        phase=last.phase.value,  # type: ignore[arg-type]  # only ends are stored as a last outcome
        attempt=last.attempt,
        ended_at=moment_of(last.at),
        result=last.result if last.phase is Phase.SUCCEEDED else None,
        error_type=failure.type if failure else None,
        error_message=failure.message if failure else None,
        reason=last.reason or None,
    )
