"""What nobody writes: that a record has expired. The checker gets a revision for it, so that it is a state of the key like others."""

from __future__ import annotations

from msgspec.structs import replace

from tests.history.evidence import Clocks, Revision


def with_expiries(revisions: list[Revision], clocks: Clocks) -> list[Revision]:
    """With an ``expired`` one after each record whose life may be over: before the new life that was written over it, or last.

    Also before a purge that began earlier and was stored later: who asked between the two was told that there is no record.

    Nobody writes those. Their numbers are below zero (``expiry_of``); ``stored`` is when the first clock may say so.
    """
    found: list[Revision] = []
    newest: dict[str, int] = {}
    for revision in revisions:
        place = newest.get(revision.key)
        before = None if place is None else found[place]
        if place is not None and before is not None and before.until:
            if _is_over(before, revision, clocks):
                found.append(_expiry(before, clocks))
                revision = replace(revision, before=expiry_of(before.seq))  # noqa: PLW2901  (the same one, over what expired)
            elif revision.stored >= _since(before, clocks):
                found[place] = replace(before, lapsed=_since(before, clocks))
        newest[revision.key] = len(found)
        found.append(revision)
    return found + [_expiry(one, clocks) for one in map(found.__getitem__, newest.values()) if one.until]


def _is_over(before: Revision, after: Revision, clocks: Clocks) -> bool:
    """Whether the life of a record may have been over by its age when what came after it was stored."""
    if after.gone:
        return after.stored >= _since(before, clocks)
    return _is_new_life(before, after)


def _is_new_life(before: Revision, after: Revision) -> bool:
    over = after.before in {before.seq, 0}
    return over and after.run_id != before.run_id and after.generation <= before.generation


def expiry_of(seq: int) -> int:
    """The number of what stands for the expiry of a revision, and the other way round."""
    return -2 - seq


def _since(of: Revision, clocks: Clocks) -> float:
    return of.until - clocks.processes


def _expiry(of: Revision, clocks: Clocks) -> Revision:
    since = _since(of, clocks)
    return Revision(seq=expiry_of(of.seq), before=of.seq, key=of.key, stored=since, gone=True, expired=True)
