"""Commands: what may be asked of a record.

Plain data; every id, time and random number in them came from outside the core.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from tenure.core.records import Blob, Death, Entry, Failure, Holder, Seen, Task

IfLive = Literal["keep", "replace", "reject"]
IfDiffers = Literal["keep", "replace", "error"]


class Submit(Struct, frozen=True, kw_only=True):
    """Start a run unless one is live. Retries of one submit carry the same ``run_id``.

    ``lost``: the holder whose session the caller has read to be closed (not one that drained: its run goes on); another
    holder that the record may show by the time of the write is not meant. ``seen``: this submit applies that outbox
    entry, or that command of the inbox, or replays that dead letter, whose deaths are ``history``.
    """

    key: str
    run_id: str
    task: Task
    due: float = 0.0
    if_live: IfLive = "keep"
    if_differs: IfDiffers = "keep"
    lost: Holder | None = None
    seen: Seen | None = None
    history: tuple[Death, ...] = ()


class Replace(Struct, frozen=True, kw_only=True):
    """Start a new generation whatever the phase. The overlap policy is the task's.

    ``seen``: this applies that command of the inbox.
    """

    key: str
    run_id: str
    task: Task
    due: float = 0.0
    seen: Seen | None = None


class KeepAlive(Struct, frozen=True, kw_only=True):
    """A supervisor wants a schedule of its code (``autostart``) to have a chain of runs, as the code has it.

    ``deployed``: when its code was deployed. The code that was deployed last decides what the schedule is: so code
    that is replaced in a rolling deploy does not put its own back.
    """

    key: str
    run_id: str
    task: Task
    deployed: float


class Retire(Struct, frozen=True, kw_only=True):
    """A schedule that started by itself is not in the code any more: end its chain. ``deployed``: see ``KeepAlive``."""

    deployed: float


class Trigger(Struct, frozen=True, kw_only=True):
    """Start the waiting run ``run_id`` now, never another one, or, where None, whichever waits.

    A perpetual key keeps its schedule: the tick that was to come comes all the same.
    """

    run_id: str | None = None


class Cancel(Struct, frozen=True, kw_only=True):
    """Cancel the run ``run_id`` (never another one), or, where None.

    Whichever the record holds when it is first read. ``seen``: this applies that command of the inbox, once [13].
    """

    run_id: str | None = None
    reason: str = ""
    seen: Seen | None = None


class Claim(Struct, frozen=True, kw_only=True):
    """Head check: ``session`` asks to start the run that a wake-up names.

    ``closed``: sessions known to be closed; ``drained``: those of them that ended in good order (no failure is
    counted). ``own_lost``: a holder under this very session whose body its process does not run; a later attempt, which
    another delivery may have started since, is not meant. ``next_run_id`` is for a successor. ``permit``: the attempt for
    which it has a place under each of the actor's limits, and a start under its rates; 0: none. ``held``: a switch keeps its
    body from being started. ``excess``: the reason for which a run that has not started yet is to be dropped. ``settled``: the
    submit that the run had last taken in (``Settling.by``) when it got that leave: another one may have brought other arguments.
    """

    session: str
    run_id: str
    next_run_id: str
    closed: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    own_lost: Holder | None = None
    permit: int = 0
    held: bool = False
    excess: str = ""
    settled: str = ""


class Successor(Struct, frozen=True, kw_only=True):
    """What a body asked for with ``reschedule``: due time, and another task or None for the same."""

    due: float
    task: Task | None = None


class Succeed(Struct, frozen=True, kw_only=True):
    """Tail check: the body returned. ``outbox`` are the runs it spawned."""

    holder: Holder
    next_run_id: str
    result: Raw | None = None
    blob: Blob | None = None
    outbox: tuple[Entry, ...] = ()
    successor: Successor | None = None


class FailAttempt(Struct, frozen=True, kw_only=True):
    """Tail check: the attempt failed. ``jitter`` in [0, 1) spreads the retry; ``final``: do not retry."""

    holder: Holder
    next_run_id: str
    failure: Failure
    jitter: float
    final: bool = False
    successor: Successor | None = None


class SnoozeRun(Struct, frozen=True, kw_only=True):
    """Tail check: the body asks to run later; no failure is counted."""

    holder: Holder
    due: float


class HandBack(Struct, frozen=True, kw_only=True):
    """Tail check: the body has ended because its process stops; no failure is counted."""

    holder: Holder


class Evict(Struct, frozen=True, kw_only=True):
    """End a holder that overstayed (its deadline and grace, or the grace of its stop); its body may still run, void.

    ``closed``: sessions known to be closed; a stopping run under one of them is ended at once. ``tag``: see ``TakeCounts``.
    """

    holder: Holder
    next_run_id: str
    jitter: float
    closed: frozenset[str] = frozenset()
    tag: str = ""


class Confirm(Struct, frozen=True, kw_only=True):
    """The body of an older generation has ended: take its entry out of ``previous``.

    ``where``: what was refused to it: an outcome (``tail``), a ``retry`` or a ``reschedule``. ``tag``: see ``TakeCounts``.
    """

    holder: Holder
    where: str = "tail"
    tag: str = ""


class ExpirePrevious(Struct, frozen=True, kw_only=True):
    """Take out of ``previous`` what is over: entries under closed sessions, entries past their deadline.

    ``tag``: see ``TakeCounts``.
    """

    closed: frozenset[str] = frozenset()
    tag: str = ""


class ClearOutbox(Struct, frozen=True, kw_only=True):
    """These outbox entries are applied to their targets: forget them."""

    ids: frozenset[str]


class ForgetSeen(Struct, frozen=True, kw_only=True):
    """These applied entries are gone from their origins: forget them."""

    ids: frozenset[str]


class TakeCounts(Struct, frozen=True, kw_only=True):
    """Count what became of older generations that nobody has counted yet.

    ``tag``: unique; the record keeps it, so that a writer whose answer was lost knows its own write, and nobody else
    takes that for theirs.
    """

    tag: str


class Purge(Struct, frozen=True, kw_only=True):
    """Forget the key altogether. Only where no body may run and nothing is owed to another key.

    ``run_id``: only while that run is the key's current one; empty: whichever is.
    """

    run_id: str = ""


Command = (
    Submit
    | Replace
    | KeepAlive
    | Retire
    | Trigger
    | Cancel
    | Claim
    | Succeed
    | FailAttempt
    | SnoozeRun
    | HandBack
    | Evict
    | Confirm
    | ExpirePrevious
    | ClearOutbox
    | ForgetSeen
    | TakeCounts
    | Purge
)

PROVEN: frozenset[type[Command]] = frozenset({Submit, Replace, Claim, Succeed})
"""Commands whose records hold only what was read back before: an actor's task when it was registered, arguments and results
when they were encoded. Every task needs these; to read their records back too would cost about 1 % of its CPU time (3 times
1.4 us of 390)."""
