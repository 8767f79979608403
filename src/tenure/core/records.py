"""The record: the only truth about a key, and the small structs it is made of.

Owns the wire form (JSON; unknown fields are tolerated, new fields have defaults, types never change). A record whose
``schema`` is newer than ours is refused whole: rewriting it would drop fields that a newer process relies on.

Times are seconds since the epoch (float); durations are seconds.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from tenure.core.errors import InvalidCall, NewerSchema
from tenure.core.permits import Bound
from tenure.core.rates import Pace

SCHEMA = 5
"""The newest form that is known here. 2 adds hooks and dead letters, which a process that knows 1 would drop, or take for
runs to spawn; 3 adds schedules, whose chains it would end; 4 adds limits and 5 rates, which it would not keep. A record says
no more than what it holds needs, so that older processes go on with all others."""
LIMITS_SCHEMA = 4
SCHEDULE_SCHEMA = 3
HOOKS_SCHEMA = 2
PLAIN_SCHEMA = 1
MAX_PREVIOUS = 128
"""Bodies of one key that may still be running under older generations; a replace over more is refused."""

Overlap = Literal["stop", "wait", "parallel"]
CatchUp = Literal["none", "one", "all"]

# Defaults, because msgspec writes ``Raw | None`` but cannot read it back.
NO_ARGS = Raw(b"{}")
NULL = Raw(b"null")


class Phase(StrEnum):
    """Where a key is. ``waiting`` covers scheduled and queued (derived from ``due``)."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


class Policy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run is retried, limited and followed.

    Stored at submit, so that nobody needs the actor's code to act on a record. ``autostart``: the module whose code wants
    supervisors to keep a run alive; empty: none does.
    """

    max_attempts: int = 5
    initial: float = 0.5
    maximum: float = 60.0
    factor: float = 2.0
    jitter: float = 0.2
    timeout: float | None = None
    grace: float = 10.0
    overlap: Overlap = "stop"
    every: float | None = None
    cron: str = ""
    tz: str = "UTC"
    catch_up: CatchUp = "none"
    autostart: str = ""
    result_ttl: float = 86_400.0
    hooks: Hooks | None = None
    limits: tuple[Bound, ...] = ()
    pace: Pace | None = None


class Blob(Struct, frozen=True, kw_only=True):
    """Where a payload over the inline limit lies: object ``name``, ``size`` in bytes, SHA-256 ``digest`` of it (hex)."""

    name: str
    size: int
    digest: str


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a generation runs. ``args``: JSON object, or ``blob`` says where. ``trace``: of who asked, W3C; it decides nothing."""

    actor: str
    queue: str = "default"
    priority: str = "normal"
    args: Raw = NO_ARGS
    blob: Blob | None = None
    policy: Policy = Policy()
    trace: str = ""


class Hook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run to be submitted because another one has ended. ``outcome``: its argument for that one's ``Outcome``, if any."""

    task: Task
    outcome: str = ""


class Hooks(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be submitted when a run has succeeded, has failed for good, or is cancelled."""

    success: tuple[Hook, ...] = ()
    failure: tuple[Hook, ...] = ()
    cancel: tuple[Hook, ...] = ()


class Holder(Struct, frozen=True, kw_only=True):
    """Who may write: one attempt of one run under one session."""

    session: str
    run_id: str
    attempt: int


class Previous(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A body of an older generation that may still run.

    ``deadline``: told to stop and void from then; None: not told. ``actor``: its run's. ``counted``: what became of its
    run is counted elsewhere (it was cancelled, or goes on with another attempt); else whoever takes the entry out does.
    """

    session: str
    run_id: str
    attempt: int
    generation: int = 0
    deadline: float | None = None
    actor: str = ""
    counted: bool = False

    def holder(self) -> Holder:
        """The holder that this entry stands for."""
        return Holder(session=self.session, run_id=self.run_id, attempt=self.attempt)


class Count(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Runs of an actor that were superseded or cancelled (``what``), and ``where``: labels of metrics. Counted by who takes it out."""

    what: Literal["superseded", "cancelled"]
    where: str
    actor: str
    number: int = 1


class Stop(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cancel that was accepted: its reason, when, and when the body's grace ends."""

    reason: str
    at: float
    deadline: float


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt died of, as text: exceptions are never rebuilt from the wire."""

    type: str
    message: str
    traceback: str = ""


class Last(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The latest stored outcome of the key, kept over a successor for those who wait for it."""

    run_id: str
    generation: int
    phase: Phase
    at: float
    attempt: int = 0
    session: str = ""
    result: Raw = NULL
    blob: Blob | None = None
    failure: Failure | None = None
    reason: str = ""
    failures: int = 0


class Death(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one run failed for good. ``at``: when that was stored; ``queued_at``: when it last became ready to run."""

    run_id: str
    generation: int
    attempts: int
    failures: int
    queued_at: float
    at: float
    failure: Failure


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An outbox entry: what is owed, exactly once, because this record's outcome was stored.

    A run of another key to be created (spawned, or a hook); or, with ``dead``, the dead letter of this key's run
    ``run_id``: the deaths of the runs that it replays, oldest first, and last its own.
    """

    id: str
    key: str
    run_id: str
    task: Task
    due: float = 0.0
    dead: tuple[Death, ...] = ()


class Seen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was applied to this record and must not be again.

    An outbox entry, kept until ``origin`` (its key) no longer holds it; or the replay of a dead letter of this very key,
    kept until that letter is removed; or a command of the inbox, kept while its message is stored (``core.marks``). ``gone``:
    its origin is, and it is known on until ``until`` for copies alone; that keeps nobody from anything.
    """

    id: str
    origin: str
    until: float = 0.0
    gone: bool = False


class Settling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that is debounced: when it was first submitted, and the run id of the latest submit that it took in."""

    since: float
    by: str = ""


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All there is to know about a key. Changed only by ``core.transitions`` and stored only by compare-and-swap.

    ``due`` 0: at once. ``tick``: the due time a perpetual generation stands for; retries move ``due``, never ``tick``.
    ``queued_at``: when it last became (or becomes) ready to run. ``failure``: of the attempt before, while it is
    retried. ``evicted``: attempt number ``attempt`` was put back by others, not by its holder. ``history``: the deaths of
    the runs that this one replays, oldest first. ``uncounted``: what became of older generations and has still to be
    counted. ``taken``: the tag of the write that last took out something to be counted. ``deployed``: when the code was
    deployed that last said what the schedule of this key is; 0: none did.
    """

    schema: int
    key: str
    run_id: str
    generation: int
    phase: Phase
    task: Task
    queued_at: float
    due: float = 0.0
    tick: float = 0.0
    attempt: int = 0
    failures: int = 0
    holder: Holder | None = None
    deadline: float | None = None
    stop: Stop | None = None
    previous: tuple[Previous, ...] = ()
    last: Last | None = None
    failure: Failure | None = None
    evicted: bool = False
    outbox: tuple[Entry, ...] = ()
    seen: tuple[Seen, ...] = ()
    history: tuple[Death, ...] = ()
    uncounted: tuple[Count, ...] = ()
    taken: str = ""
    deployed: float = 0.0
    settling: Settling | None = None

    @property
    def to_forget(self) -> tuple[Seen, ...]:
        """Applied entries whose origins may hold them: somebody has to look, and to forget them."""
        return tuple(entry for entry in self.seen if not entry.gone)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


class _SchemaOnly(Struct):
    schema: int


def encode(record: Record) -> bytes:
    """The record's wire form."""
    return _encoder.encode(record)


def encode_to_store(record: Record, *, proven: bool) -> bytes:
    """The wire form of a record that is about to be written. Unless ``proven`` it is read back: else its key would be ruined."""
    try:
        data = _encoder.encode(record)
        if not proven:
            _decoder.decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"the record of {record.key!r} could not be read back and is not stored: {error}"
        raise InvalidCall(msg).about(key=record.key, generation=record.generation, run_id=record.run_id) from error
    return data


def decode(data: bytes) -> Record:
    """Read a record; NewerSchema for one that a newer Tenure wrote, msgspec.DecodeError for what is none."""
    try:
        record = _decoder.decode(data)
    except msgspec.ValidationError:
        _refuse_newer(msgspec.json.decode(data, type=_SchemaOnly).schema)
        raise
    if record.schema != SCHEMA:
        _refuse_newer(record.schema)
    return record


def _refuse_newer(schema: int) -> None:
    if schema > SCHEMA:
        msg = f"record has schema {schema}, this Tenure knows up to {SCHEMA}: upgrade this process"
        raise NewerSchema(msg, schema=schema)


def ttl_of(record: Record) -> int | None:
    """Whole seconds from its end for which a finished key is kept; None: it does not expire, for it is live or owes something."""
    if record.phase not in TERMINAL or record.previous or record.outbox or record.to_forget:
        return None
    policy, ended = record.task.policy, record.last.at if record.last is not None else 0.0
    copies = max((entry.until - ended for entry in record.seen), default=0.0)
    return max(1, math.ceil(max(policy.result_ttl, policy.pace.cooldown if policy.pace is not None else 0.0, copies)))


class State(Struct, frozen=True):
    """What a record's header tells, so that a sweep or a list need not read the record.

    ``due`` and ``deadline`` are 0 where there is none, ``session`` (the holder's) empty. ``flags``: see ``state_of``.
    ``run_id`` is empty if an older Tenure wrote the record: its header does not tell. ``schedule`` is ``every:<seconds>`` or
    ``cron:<expression>@<zone>``, with ``_`` for spaces; empty if the key is not perpetual. ``until``: when it has
    expired; 0 if never.
    """

    phase: Phase
    due: float
    deadline: float
    session: str
    flags: str
    actor: str
    queue: str
    generation: int
    run_id: str = ""
    schedule: str = ""
    autostart: str = ""
    until: float = 0.0

    def is_over(self, now: float) -> bool:
        """Whether the key has expired: then there is nothing of it but the mark."""
        return 0.0 < self.until <= now


def read_state(text: str) -> State | None:
    """Read what ``state_of`` wrote; None for what this version does not know (a newer one may add fields at the end)."""
    try:
        phase, due, deadline, session, flags, actor, queue, generation, *more = text.split(" ")
        run_id, schedule, autostart, until = (("" if one == "-" else one) for one in (*more, "-", "-", "-", "-")[:4])
        return State(
            Phase(phase),
            0.0 if due == "-" else float(due),
            0.0 if deadline == "-" else float(deadline),
            "" if session == "-" else session,
            "" if flags == "-" else flags,
            actor,
            queue,
            int(generation),
            run_id,
            schedule,
            autostart,
            float(until or 0.0),
        )
    except ValueError:
        return None


def state_of(record: Record, until: float = 0.0) -> str:
    """What a headers-only sweep needs: ``phase due deadline session flags`` (``-`` where there is none), and whose it is.

    Flags: ``p`` older bodies may run, ``o`` outbox to apply, ``s`` applied entries to forget, ``c`` runs to count.
    """
    holder = record.holder
    deadline = record.stop.deadline if record.stop and record.phase is Phase.STOPPING else record.deadline
    flags = ("p" if record.previous else "") + ("o" if record.outbox else "") + ("s" if record.to_forget else "")
    flags += "c" if record.uncounted else ""
    policy = record.task.policy
    perpetual = policy.every is not None or bool(policy.cron)
    more = f" {_schedule(policy) if perpetual else '-'} {policy.autostart or '-'}" if perpetual or until else ""
    return (
        f"{record.phase.value} {record.due or '-'} {deadline or '-'} {holder.session if holder else '-'} {flags or '-'}"
        f" {record.task.actor} {record.task.queue} {record.generation} {record.run_id}{more}{f' {until:.3f}' if until else ''}"
    )


def _schedule(policy: Policy) -> str:
    if policy.every is not None:
        return f"every:{policy.every:.15g}"
    return f"cron:{'_'.join(policy.cron.split())}@{policy.tz}"
