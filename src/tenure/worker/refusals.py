"""What a worker tells the history of those it refused, or was refused as: they write no revision that would tell it.

A run that is claimed and ends as it should tells nothing, so it costs nothing; nor does a wake-up that comes before its time.
"""

from __future__ import annotations

from tenure.context import Context
from tenure.core.history import Refusal
from tenure.nats.history import History
from tenure.nats.work import Delivery
from tenure.worker.head import Drop, Later
from tenure.worker.table import Live
from tenure.worker.tail import Void

FENCED = "another attempt has the run"
_WORDS = {
    "absent": "there is no such run any more",
    "finished": "the run was over",
    "cancelled": "the run was cancelled",
    "parked": "its limit is reached: it waits for a place",
    "busy": "an older body still runs",
    "unknown_actor": "this worker does not know the actor",
    "newer_schema": "a newer Tenure wrote the record",
    "encrypted": "this worker lacks the key that the record is encrypted with",
    "unreadable": "the record cannot be read",
}


async def tell_head(history: History, live: Live, delivery: Delivery, looked: Drop | Later, session: str) -> None:
    """A wake-up did not lead to a claim."""
    if looked.outcome == "not_due" or (isinstance(looked, Drop) and looked.decided is not None):
        return  # the usual way of a delayed run; or a write that tells it itself
    record = looked.record if isinstance(looked, Drop) else None
    why = _WORDS.get(looked.outcome, looked.outcome)
    if looked.outcome == "superseded" and record is not None:
        why = f"superseded by generation {record.generation}"
    refusal = Refusal(
        run_id=live.run_id,
        generation=delivery.generation,
        where="head",
        why=why,
        who=session,
        seen=looked.revision if isinstance(looked, Drop) else 0,
    )
    await history.tell(live.key, refusal)


async def tell_tail(history: History, context: Context, void: Void) -> None:
    """An outcome was not stored."""
    why = {"superseded": "a newer generation has the key", "fenced": FENCED}.get(void.why.value)
    refusal = Refusal(
        run_id=context.run_id,
        generation=context.generation,
        attempt=context.attempt,
        where="tail",
        why=why or _WORDS.get(void.why.value, void.why.value),
        who=context.session,
        seen=void.revision,
    )
    await history.tell(context.key, refusal)
