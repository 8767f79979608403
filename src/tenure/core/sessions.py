"""The session entry: the lease of one process, and the stop signals addressed to it."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

Kind = Literal["worker", "supervisor", "repair"]
"""``repair``: a supervisor for one pass. It is none of those that share the keys: they would count on it."""
StopReason = Literal["cancel", "superseded"]
CLOSED_KEPT_SECONDS = 86_400
"""A closed entry stays this long, so that whoever still finds it as a holder sees it closed, not missing."""
SIGNAL_KEPT_SECONDS = 3_600


class Session(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process and its lease. ``beat`` counts renewals; ``closed`` is why it ended, None while it may hold runs.

    ``queues``: which of them a worker works on, for people. ``modules``: whose schedules a supervisor's code has, None where that is
    not said: so a schedule that nobody's code has is told from another app's.

    ``drain`` as the reason says that every body had ended: taking its runs over counts no failure. ``kind`` is any text: one
    that only a newer Tenure knows must not make its sessions unreadable, for those count as missing.
    """

    id: str
    kind: str
    host: str
    pid: int
    ttl: float
    started_at: float
    beat: int = 0
    closed: str | None = None
    queues: tuple[str, ...] = ()
    modules: tuple[str, ...] | None = None


class StopSignal(Struct, frozen=True, kw_only=True):
    """Tells a process to stop the body of one attempt. Final: written once per (session, run id, attempt).

    The attempt matters: an evicted body's signal must not stop the next attempt under the same session, nor stand in
    the way of the signal that a later cancel sends to that one.
    """

    run_id: str
    attempt: int
    reason: StopReason


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a run is: ``done`` of ``total`` (None: unknown), a ``note``, and when (seconds since the epoch)."""

    run_id: str
    attempt: int
    done: float
    at: float
    total: float | None = None
    note: str = ""


encode_session = msgspec.json.Encoder().encode
decode_session = msgspec.json.Decoder(Session).decode
decode_signal = msgspec.json.Decoder(StopSignal).decode
decode_progress = msgspec.json.Decoder(Progress).decode
