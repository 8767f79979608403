"""A compare-and-swap, made again until its fate is known: how the runs bucket is written, and dead letters are removed."""

from __future__ import annotations

from typing import NamedTuple

from tenure.core.errors import OutcomeUnknown, Unavailable
from tenure.core.expiry import MARK_SECONDS, expires_at
from tenure.core.records import Record, state_of, ttl_of
from tenure.nats.asking import cause
from tenure.nats.connection import Connection, Lost, NotSent
from tenure.nats.patience import Patience
from tenure.nats.scan import STATE

EXPECT = "Nats-Expected-Last-Subject-Sequence"
WRONG_SEQUENCE = 10071
IN_FLIGHT = 10164
"""A cluster has another write of the subject under way, and did not propose this one."""


class Swapped(NamedTuple):
    """How a compare-and-swap ended.

    ``revision``: its own, 0 if it was refused. ``unsure``: whether it could have happened unseen. ``met``: if it was refused, the
    revision that was in its way; 0 for none, or if that was not told.
    """

    revision: int
    unsure: bool
    met: int = 0


def headers_of(record: Record | None, revision: int) -> dict[str, str]:
    """Of the write that puts ``record`` (None: the mark of a purge) in the place of ``revision``."""
    if record is None:
        return {
            EXPECT: str(revision),
            "KV-Operation": "PURGE",
            "Nats-Rollup": "sub",
            "Nats-TTL": f"{MARK_SECONDS}s",
        }
    ttl = ttl_of(record)
    if ttl is None:
        return {EXPECT: str(revision), STATE: state_of(record)}
    return {EXPECT: str(revision), STATE: state_of(record, expires_at(record)), "Nats-TTL": f"{ttl + MARK_SECONDS}s"}


async def swap(
    conn: Connection,
    subject: str,
    data: bytes,
    headers: dict[str, str],
    patience: Patience,
    *,
    stream: str,
    what: str,
    key: str = "",
    generation: int | None = None,
    run_id: str | None = None,
) -> Swapped:
    """Publish with ``EXPECT`` in the headers.

    What got no answer is sent again just as it was, until the server takes or refuses it: a read that does not show it proves
    nothing. ``IN_FLIGHT`` is sent again too: nothing happened, but who reads now does not see what is in flight.
    ``what`` is written, in words, for whoever is told that it was not, or that ``stream`` is gone. Raises Unavailable, and
    OutcomeUnknown where the fate of the write stays unknown; ``key``, ``generation`` and ``run_id`` are in both.
    """
    unsure = False
    while True:
        why: object
        try:
            ack = await conn.put(subject, data, headers)
        except NotSent as error:
            why = error
        except Lost as error:
            why, unsure = error, True
        else:
            if ack.error is None:
                return Swapped(ack.seq, unsure)
            if ack.error.err_code == WRONG_SEQUENCE:
                met = ack.error.description.rpartition(": ")[2]
                return Swapped(0, unsure, int(met) if met.isdecimal() else 0)
            why = ack.error.description
        if not await patience.pause():
            why = await cause(conn, stream, why)
            if unsure:
                msg = f"a write of {what} has no known fate: {why}"
                revision = int(headers[EXPECT])
                raise OutcomeUnknown(msg, key=key, generation=generation, run_id=run_id, revision=revision)
            msg = f"cannot write {what}: {why}"
            raise Unavailable(msg).about(key=key or None, generation=generation, run_id=run_id)


def unknown(msg: str, key: str, record: Record | None, revision: int) -> OutcomeUnknown:
    """Of a write of ``record`` (None: a purge) over ``revision``."""
    if record is None:
        return OutcomeUnknown(msg, key=key, revision=revision)
    return OutcomeUnknown(msg, key=key, generation=record.generation, run_id=record.run_id, revision=revision)
