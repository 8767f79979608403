"""The tail check: from how a body ended to a stored outcome, or to its refusal. The compare-and-swap *is* the check."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tenure.context import Context
from tenure.core import commands as c
from tenure.core.endings import not_mine
from tenure.core.errors import InvalidCall
from tenure.core.outcomes import Did, Why
from tenure.core.parts import timed_out
from tenure.core.records import TERMINAL, Blob, Entry, Failure, Holder, Hook, Phase, Record, Task
from tenure.core.schedule import is_perpetual
from tenure.core.subjects import MAX_KEY_BYTES
from tenure.nats.patience import Patience
from tenure.nats.runs import Committed, Declined, Found
from tenure.stores import Stores
from tenure.worker.body import Ended, Halted, Raised, Returned, Snoozed

_RECORD_ROOM_BYTES = 786_432
"""What outcome, spawned runs and hooks may take of a record (the server's limit for one message is 1 MiB)."""
_RESULTS_ROOM_BYTES = 196_608
"""What an outcome's result may take, which is once more in each hook that is told of it."""
_ENTRY_BYTES = 400
"""Of an outbox entry besides its task, at most: ids, key, punctuation."""


class Stored(Struct, frozen=True, tag=True):
    """The outcome is stored: count it, then ``settle`` what it owes, then acknowledge. ``failure``: the attempt's, if it failed."""

    did: str
    result: Committed | Declined
    failure: Failure | None = None

    @property
    def is_last(self) -> bool:
        """Whether the key waits for no run after it."""
        record = self.result.record if isinstance(self.result, Committed) else self.result.found.record
        return record is None or record.phase in TERMINAL


class Void(Struct, frozen=True, tag=True):
    """Refused: a newer generation (``superseded``), another attempt (``fenced``), or no record (``absent``); ``confirm`` it.

    ``revision``: of what was found.
    """

    why: Why
    where: str
    revision: int = 0


class Tail:
    """Outcomes of one worker."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def store(self, context: Context, task: Task, ended: Ended, at: Found, patience: Patience) -> Stored | Void:
        """Store how a body ended, and do no more; repeated while ``patience`` lasts.

        Raises Unavailable or OutcomeUnknown after that.
        """
        holder = holder_of(context)
        command = await self._command(context, task, ended, holder, patience)

        def mine(record: Record) -> bool:
            return not_mine(record, holder) is Why.ALREADY

        try:
            result = await self._stores.runs.commit(context.key, command, at=at, mine=mine, patience=patience)
        except InvalidCall as error:  # over the server's limit for one message, say: no attempt can do better
            failure = Failure(type="InvalidCall", message=f"the outcome cannot be stored: {error}")
            command = await self._fail(holder, context, failure, patience, final=True)
            result = await self._stores.runs.commit(context.key, command, patience=patience, since=at.revision)
        failed = command.failure if isinstance(command, c.FailAttempt) else None
        if isinstance(result, Committed):
            return Stored(result.decision.did.value, result, failed)
        if result.refused.why is Why.ALREADY:  # my own write, its answer lost
            return Stored(_did(command, result.found.record).value, result, failed)
        return Void(result.refused.why, _where(command, task), result.found.revision)

    async def settle(self, stored: Stored, run_id: str, patience: Patience) -> None:
        """Carry out what a stored outcome owes to the outside. Raises as ``Stores.carry_out``."""
        if isinstance(stored.result, Committed):
            await self._stores.carry_out(stored.result, patience)
        else:
            await self._stores.complete(stored.result.found, patience, in_hand=run_id)

    async def confirm(
        self, key: str, holder: Holder, patience: Patience, *, where: str = "tail", since: int = 0
    ) -> None:
        """The one write of a superseded body's process.

        Take its own entry out, so that whoever waits for it may start [20]. ``since``: a revision that shows it, or a later one.
        """
        command = c.Confirm(holder=holder, where=where, tag=self._stores.clock.new_id())
        result = await self._stores.runs.take(key, command, patience, since=since)
        if isinstance(result, Committed):
            await self._stores.carry_out(result, patience)

    async def evict(self, context: Context, patience: Patience) -> Committed | float | None:
        """End an attempt whose body overstayed.

        What was stored, its effects still to be carried out; or when to try again (epoch seconds); or None: not the holder.
        """
        holder = holder_of(context)
        command = c.Evict(
            holder=holder,
            next_run_id=self._stores.clock.new_id(),
            jitter=self._stores.clock.random(),
            tag=self._stores.clock.new_id(),
        )
        result = await self._stores.runs.take(context.key, command, patience, since=context.fence)
        return result if isinstance(result, Committed) else result.refused.retry_at

    async def _command(
        self, context: Context, task: Task, ended: Ended, holder: Holder, patience: Patience
    ) -> c.Succeed | c.FailAttempt | c.SnoozeRun | c.HandBack:
        match ended:
            case Halted() if context.stop_reason == "timeout":
                failure = timed_out(f"the attempt took longer than {task.policy.timeout} s")
                return await self._fail(holder, context, failure, patience, final=False)
            case Halted():
                return c.HandBack(holder=holder)
            case Snoozed(delay):
                return c.SnoozeRun(holder=holder, due=self._stores.clock.now() + delay)
            case Raised(failure, final):
                return await self._fail(holder, context, failure, patience, final=final)
            case Returned(data):
                return await self._succeed(holder, context, task, data, patience)

    async def _fail(
        self, holder: Holder, context: Context, failure: Failure, patience: Patience, *, final: bool
    ) -> c.FailAttempt:
        next_run_id = self._stores.clock.new_id()
        try:
            successor = await self._successor(context, next_run_id, patience)
        except InvalidCall:  # the body failed anyway; its own error is the one to tell
            successor = None
        return c.FailAttempt(
            holder=holder,
            next_run_id=next_run_id,
            failure=failure,
            jitter=self._stores.clock.random(),
            final=final,
            successor=successor,
        )

    async def _succeed(
        self, holder: Holder, context: Context, task: Task, data: bytes, patience: Patience
    ) -> c.Succeed | c.FailAttempt:
        chained = context.rescheduled is not None or is_perpetual(task.policy)
        next_run_id = self._stores.clock.new_id() if chained else ""
        try:
            hooks = task.policy.hooks.success if task.policy.hooks is not None else ()
            copies = sum(1 for hook in hooks if hook.outcome) if hooks else 0
            most = min(self._stores.config.inline_limit_bytes, _RESULTS_ROOM_BYTES // (1 + copies))
            name = f"{context.run_id}.{context.attempt}.result"
            result, blob = await self._payload(name, data, patience, key=context.key, most=most)
            told = copies * len(data) if blob is None else 0
            outbox = await self._outbox(context, hooks, told, patience) if context.spawned else ()
            successor = await self._successor(context, next_run_id, patience) if context.rescheduled else None
        except InvalidCall as error:
            failure = Failure(type="InvalidCall", message=str(error))
            return await self._fail(holder, context, failure, patience, final=True)
        return c.Succeed(
            holder=holder,
            next_run_id=next_run_id,
            result=result,
            blob=blob,
            outbox=outbox,
            successor=successor,
        )

    async def _payload(
        self, name: str, data: bytes, patience: Patience, *, key: str, origin: str = "", most: int | None = None
    ) -> tuple[Raw | None, Blob | None]:
        """``data`` itself if it is at most ``most`` bytes (default: the inline limit), else the blob it is put into."""
        if len(data) <= (self._stores.config.inline_limit_bytes if most is None else most):
            return Raw(data), None
        return None, await self._stores.put_blob(name, data, patience, key=key, origin=origin)

    async def _outbox(
        self, context: Context, hooks: tuple[Hook, ...], results: int, patience: Patience
    ) -> tuple[Entry, ...]:
        """What the body spawned. The hooks go into the same record, and ``results`` bytes for those that are told it."""
        entries: list[Entry] = []
        size = sum(_size(hook.task) for hook in hooks) + results
        for number, spawned in enumerate(context.spawned):
            run_id = self._stores.clock.new_id()
            key = spawned.key or run_id
            args, blob = await self._payload(f"{run_id}.args", spawned.call.args, patience, key=key, origin=context.key)
            task = replace(spawned.call.task, args=args, blob=blob, trace=context.trace)
            entry_id = f"{context.run_id}.{context.attempt}.{number}"
            entries.append(Entry(id=entry_id, key=key, run_id=run_id, task=task, due=spawned.due))
            size += _size(task)
        if size > _RECORD_ROOM_BYTES:
            what = f"{len(entries)} spawned runs and {len(hooks)} hooks take about {size} bytes in one outcome"
            msg = f"{what}; at most {_RECORD_ROOM_BYTES} fit: spawn fewer"
            raise InvalidCall(msg, field="spawn")
        return tuple(entries)

    async def _successor(self, context: Context, run_id: str, patience: Patience) -> c.Successor | None:
        asked = context.rescheduled
        if asked is None:
            return None
        if asked.call is None:
            return c.Successor(due=asked.due)
        args, blob = await self._payload(f"{run_id}.args", asked.call.args, patience, key=context.key)
        return c.Successor(due=asked.due, task=replace(asked.call.task, args=args, blob=blob))


def _size(task: Task) -> int:
    return len(msgspec.json.encode(task)) + _ENTRY_BYTES + MAX_KEY_BYTES


def _displaced(record: Record, holder: Holder) -> bool:
    return any(entry.holder() == holder for entry in record.previous)


def holder_of(context: Context) -> Holder:
    """The holder that a body is."""
    return Holder(session=context.session, run_id=context.run_id, attempt=context.attempt)


def _did(command: c.Succeed | c.FailAttempt | c.SnoozeRun | c.HandBack, record: Record | None) -> Did:
    """What the command has done, told from the record in which its own write is found."""
    holder = command.holder
    if record is not None and record.last is not None and record.last.run_id == holder.run_id:
        if record.last.phase is Phase.CANCELLED:
            return Did.CANCELLED
        if isinstance(command, c.Succeed):
            return Did.SUCCEEDED if record.run_id == holder.run_id else Did.RESCHEDULED
        return Did.FAILED
    match command:
        case c.FailAttempt():
            return Did.RETRIED
        case c.SnoozeRun():
            return Did.SNOOZED
        case _:
            return Did.HANDED_BACK


def _where(command: object, task: Task) -> str:
    """What the refused write would have been, for ``tenure_superseded_total``."""
    if isinstance(command, c.FailAttempt) and not command.final:
        return "retry"
    if isinstance(command, c.Succeed) and (command.successor is not None or is_perpetual(task.policy)):
        return "reschedule"
    return "tail"
