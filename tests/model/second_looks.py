"""Runs whose handling ended in the middle, and that its process is to look at again, as marks of the world (``Remnants.gave_up``)."""

from __future__ import annotations

from tests.model.cells import NOTHING

Marks = tuple[tuple[str, str, str, int], ...]
"""What, of what session, about what run, and an attempt or (``LOOK``) the cell that its wake-up carried."""
LOOK = "look again"


def looked_at_again(marks: Marks, session: str, run_id: str, snap: int) -> Marks:
    """What was asked for may be stored, and nobody else may hear of it."""
    return tuple(sorted({*marks, (LOOK, session, run_id, snap)}))


def looked_at(marks: Marks, session: str, run_id: str = "") -> Marks:
    """A run is in hand once more; or all of a session's, which starts nothing any more."""
    return tuple(m for m in marks if m[:2] != (LOOK, session) or (run_id and m[2] != run_id))


def without_stale(marks: Marks, current: set[int]) -> Marks:
    """A wake-up whose record has changed since is one of those that carry nothing (``Draft._refuse_stale``)."""
    if not any(what == LOOK and snap not in {NOTHING, *current} for what, _, _, snap in marks):
        return marks
    return tuple(sorted({(*m[:3], m[3] if m[0] != LOOK or m[3] in current else NOTHING) for m in marks}))
