"""Keys whose records do not open, because the encryption key is lost: ended and forgotten for who insists.

Supervisors without the key leave such a record alone, for another process may have it. So what they would do after a cancel
is done here: a stop whose process is gone comes to its end, and what stands in the way of a purge and cannot be read goes.
"""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core import commands as c
from tenure.core.records import Phase, Previous
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed, Found
from tenure.status import Cancelled, cancelled_of
from tenure.stores import Stores


async def end_stop(stores: Stores, told: Cancelled) -> Cancelled:
    """End a stop whose holder's session is closed or whose grace is over; what became of the cancel then."""
    patience = stores.runs.patience()
    found = await stores.runs.read(told.key, patience, blind=True)
    record = found.record
    if not found.box or record is None or record.holder is None or record.phase is not Phase.STOPPING:
        return told
    holder = record.holder
    closed = frozenset({holder.session} if await _is_closed(stores, holder.session, patience) else ())
    new_id, jitter = stores.clock.new_id, stores.clock.random()
    command = c.Evict(holder=holder, next_run_id=new_id(), jitter=jitter, closed=closed, tag=new_id())
    result = await stores.runs.take(told.key, command, patience, at=found, blind=True)
    return cancelled_of(result.record, told.run_id) if isinstance(result, Committed) else told


async def forgettable(stores: Stores, key: str, command: c.Purge, *, blind: bool) -> Found:
    """The key as it stands, for its purge: of an unread record without what it owes to others, and without bodies that are gone."""
    patience = stores.runs.patience()
    found = await stores.runs.read_for(key, command, patience, blind=blind)
    record, now = found.record, stores.clock.now()
    if not found.box or record is None:
        return found
    bodies: list[Previous] = []
    for entry in record.previous:
        if await _is_closed(stores, entry.session, patience):
            continue
        if entry.deadline is None or entry.deadline > now:
            bodies.append(entry)
        else:  # past its grace: nobody waits for it, and nobody will know of it
            await stores.sessions.signal(entry.holder(), "superseded", patience)
    return Found(replace(record, outbox=(), previous=tuple(bodies)), found.revision, found.box)


async def _is_closed(stores: Stores, session: str, patience: Patience) -> bool:
    """Missing counts as closed: each was created before its first claim, and is removed a day after its end."""
    seen = await stores.sessions.read(session, patience)
    return seen is None or seen.session.closed is not None
