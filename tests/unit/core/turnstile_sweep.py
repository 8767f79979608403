"""What supervisors put right in the world of ``turnstile``, once nothing moves in it."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.permits import Entry, Give, Permit, decide
from tests.unit.core.turnstile_world import RUNNING, WAITING, Wake, World, names


def sweep(world: World) -> World:
    """What supervisors put right, at a moment when no worker does anything."""
    assert not world.hands
    entry = world.entry
    for permit in names(entry):
        record = world.runs[int(permit.run_id)]
        wanted = record.phase == WAITING or (record.phase == RUNNING and record.session not in world.sessions)
        if permit.session or not wanted:
            asked = Give(run_id=permit.run_id, attempt=permit.attempt, session=permit.session)
            entry = (
                decide(entry, [asked], [], (), 0.0).entry if entry and not entry.parked else _hand_over(entry, asked)
            )
        elif not any(wake.run == int(permit.run_id) for wake in world.wakes):
            world = world.wake(Wake(int(permit.run_id), record.attempt, True))
    if entry is not None and entry.parked and len(entry.permits) < entry.n:
        inside = {permit.run_id for permit in entry.permits}
        oldest = [run for _, run, _ in world.parked if str(run) not in inside][: entry.n - len(entry.permits)]
        reserved = tuple(Permit(key=f"k{run}", run_id=str(run)) for run in oldest)
        entry = replace(entry, permits=(*entry.permits, *reserved), parked=len(oldest) == entry.n - len(entry.permits))
        world = world.wake(*(Wake(run, world.runs[run].attempt, True) for run in oldest))
        world = world._replace(parked=tuple(one for one in world.parked if one[1] not in oldest))
        entry = entry if entry.permits or entry.parked else None
    elif entry is None or not entry.parked:
        world = world.wake(*(Wake(run, world.runs[run].attempt) for _, run, _ in world.parked))._replace(parked=())
    for run, record in enumerate(world.runs):
        lost = record.phase == RUNNING and record.session not in world.sessions
        stored = any(wake.run == run for wake in world.wakes) or any(of == run for _, of, _ in world.parked)
        if (record.phase == WAITING or lost) and not stored:
            world = world.wake(Wake(run, record.attempt))
    return world._replace(entry=entry)


def _hand_over(entry: Entry | None, asked: Give) -> Entry | None:
    """The place is dropped; who gets it is seen to by the rest of the sweep."""
    if entry is None:
        return None
    left = tuple(permit for permit in entry.permits if permit.run_id != asked.run_id)
    line = tuple(permit for permit in entry.line if permit.run_id != asked.run_id)
    return replace(entry, permits=left, line=line)
