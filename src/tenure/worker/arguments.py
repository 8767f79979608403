"""The arguments of a run that was claimed, wherever they lie."""

from __future__ import annotations

from tenure.core.errors import EncryptedRecord, OutcomeUnknown, TenureError, Unavailable
from tenure.core.records import Failure, Record
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tenure.telemetry import get_logger
from tenure.worker.body import Ended, Raised, Snoozed
from tenure.worker.table import Live

_log = get_logger("tenure.run")


async def arguments(stores: Stores, live: Live, record: Record, patience: Patience) -> bytes | Ended:
    """They, or how the attempt ends without them. Raises Unavailable."""
    try:
        return await stores.get_args(record.task, patience)
    except (Unavailable, OutcomeUnknown):
        raise
    except TenureError as error:
        if isinstance(error, EncryptedRecord) and stores.codec.lacks(error.key_id):
            # By an older key than the record's: another worker may have it.
            _log.error("args.encrypted", key=live.key, run_id=live.run_id, key_id=error.key_id, error=str(error))
            return Snoozed(stores.config.ack_wait_seconds)
        # The blob is gone or damaged: no attempt can do better.
        return Raised(Failure(type=type(error).__name__, message=str(error)), final=True)
