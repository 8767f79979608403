"""Arguments of the client's and the context's methods that need more than a look: each refusal names its argument."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from tenure.core.aftermath import ID_FORM
from tenure.core.errors import InvalidCall, KeyConflict, KeyIsLive
from tenure.core.generations import generation_of
from tenure.core.given import number, plain, text_fault, whole
from tenure.core.outcomes import Why
from tenure.core.records import Record
from tenure.status import status_of

T = TypeVar("T")
MAX_REASON_BYTES = 4_096
"""A reason is kept with the outcome, and told once more to each of up to 16 hooks, all in one record."""
_NOTE_CHARACTERS = 1_000


def check_choice(field: str, value: object, allowed: tuple[str, ...]) -> None:
    """InvalidCall unless the value is one of those allowed."""
    if value not in allowed:
        raise _refusal(field, f"must be one of {', '.join(allowed)}, got {value!r}")


def check_items(items: Iterable[T]) -> list[T]:
    """What ``submit_many`` is given, as a list. Raises InvalidCall."""
    try:
        return list(items)
    except TypeError as error:
        raise _refusal("items", f"must be a list of (call, key), got {type(items).__name__}") from error


def check_reason(reason: object) -> str:
    """The reason of a cancel as a plain str. Raises InvalidCall."""
    fault = text_fault(reason, MAX_REASON_BYTES)
    if fault or not isinstance(reason, str):
        raise _refusal("reason", fault)
    return plain(reason)


def check_run_id(run_id: object) -> str | None:
    """A run id as a plain str; None: any run. Raises InvalidCall for what cannot be one: it must never mean any."""
    if run_id is None:
        return None
    if not isinstance(run_id, str) or not re.fullmatch(ID_FORM, run_id):
        raise _refusal("run_id", f"must be a run's id (26 letters and digits: run.run_id, tenure show), got {run_id!r}")
    return plain(run_id)


def check_limit(limit: object) -> int | None:
    """At most so many; None: all. Raises InvalidCall."""
    if limit is None:
        return None
    most = whole(limit)
    if most is None or most < 1:
        raise _refusal("limit", f"must be a whole number >= 1, or None for all, got {limit!r}")
    return most


def check_progress(done: object, total: object, note: object) -> tuple[float, float | None, str]:
    """A progress that whoever asks for a status can read. Raises InvalidCall."""
    how_far, of = number(done), number(total)
    if how_far is None:
        raise _refusal("done", f"must be a finite number, got {done!r}")
    if of is None and total is not None:
        raise _refusal("total", f"must be a finite number or None, got {total!r}")
    short = note[:_NOTE_CHARACTERS] if isinstance(note, str) else note
    fault = text_fault(short, 4 * _NOTE_CHARACTERS)
    if fault or not isinstance(short, str):
        raise _refusal("note", fault)
    return how_far, of, plain(short)


def about_run(record: Record, revision: int, run_id: str = "") -> dict[str, Any]:
    """What an error tells of a run in a record, without ``run_id`` of the newest one."""
    run_id = run_id or record.run_id
    generation = generation_of(record, run_id)
    return {"key": record.key, "generation": generation, "run_id": run_id, "revision": revision}


def _refusal(field: str, what: str) -> InvalidCall:
    return InvalidCall(f"{field} {what}", field=field)


def refusal(record: Record, revision: int, why: Why, *, reject: bool, now: float) -> KeyConflict | KeyIsLive | None:
    """The error for a submit or replace that was refused over this record; None if its caller gets the live run instead."""
    about = about_run(record, revision)
    if why is Why.DIFFERS:
        return KeyConflict(f"{record.key!r} has a live run with another actor or other arguments", **about)
    if why is Why.CROWDED:
        crowd = "too many bodies of older generations still running: wait for some to end"
        return KeyIsLive(f"{record.key!r} has {crowd}", **about)
    if reject and why is not Why.COOLING:
        phase = status_of(record, now).phase
        return KeyIsLive(f"{record.key!r} is live (generation {record.generation}, {phase})", **about)
    return None
