"""Which blobs are named by what is stored: as long as one is, it must not be removed."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.core.dead import DeadLetter
from tenure.core.records import Record, Task


def named_by(record: Record) -> set[str]:
    """The blobs that a record names: of its run, of its latest outcome, and of what it owes to others."""
    names = set(_of_task(record.task))
    if record.last is not None and record.last.blob is not None:
        names.add(record.last.blob.name)
    for entry in record.outbox:
        names.update(_of_task(entry.task))
    return names


def named_by_letter(letter: DeadLetter) -> set[str]:
    """The blobs that a dead letter names: its replay needs them."""
    return set(_of_task(letter.task))


def _of_task(task: Task) -> Iterator[str]:
    if task.blob is not None:
        yield task.blob.name
    hooks = task.policy.hooks
    if hooks is not None:
        for hook in (*hooks.success, *hooks.failure, *hooks.cancel):
            yield from _of_task(hook.task)
