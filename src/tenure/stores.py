"""The stores of a namespace over one connection, and the effects that a stored record asks for.

``carry_out`` is the one way from a record to the outside: the client after its writes, the worker after its writes and
whenever it finds a record whose effects may be missing, and later the supervisors. Every effect may be repeated without
harm.
"""

from __future__ import annotations

from functools import partial
from typing import Any, assert_never

from msgspec.structs import replace

from tenure.checks import about_run
from tenure.clock import SAME_SECONDS, AlignedClock, here
from tenure.config import Config
from tenure.core import commands as c
from tenure.core.dead import letter_of
from tenure.core.errors import InvalidCall, KeyIsLive, NewerSchema, StillOwed, Unavailable, UnreadableRecord
from tenure.core.outcomes import Apply, Effect, Signal, Wake, Why, effects_of
from tenure.core.records import NO_ARGS, Blob, Entry, Holder, Phase, Record, Seen, Task
from tenure.core.sealing import Codec, Sealer
from tenure.core.subjects import Names
from tenure.core.sweeps import SETTLE_SECONDS
from tenure.gates import Gates
from tenure.nats.blobs import Blobs
from tenure.nats.connection import Connection
from tenure.nats.dead import Dead
from tenure.nats.history import History
from tenure.nats.inbox import Inbox
from tenure.nats.limits import Limits
from tenure.nats.parking import Parking
from tenure.nats.patience import Patience
from tenure.nats.presence import Presence
from tenure.nats.rates import Rates
from tenure.nats.runs import Committed, Declined, Found, Runs
from tenure.nats.sessions import Sessions
from tenure.nats.switches import Switches
from tenure.nats.topology import Topology, ensure
from tenure.nats.work import Work
from tenure.pacing import Paces
from tenure.together import all_of

_STALE_SECONDS = 2.0
_MORE_LOOKS = 4
"""For a quicker answer about the time, so often."""


class Stores:
    """All stores of one namespace."""

    def __init__(
        self, conn: Connection, names: Names, clock: AlignedClock, topology: Topology, sealer: Sealer | None = None
    ) -> None:
        self.conn = conn
        self.names = names
        self.clock = clock
        self.config = conn.config
        self.topology = topology
        self.codec = codec = Codec(names.namespace, sealer)
        self.runs = Runs(conn, names, clock, topology.last_revision, codec)
        self.work = Work(conn, names, topology.incarnation, codec)
        self.sessions = Sessions(conn, names, codec)
        self.runs.tell = lambda holder, patience: self.sessions.signal(holder, "superseded", patience)
        self.blobs = Blobs(conn, names, codec, clock)
        self.presence = Presence(conn, names, topology.incarnation, clock)
        self.dead = Dead(conn, names, codec)
        self.inbox = Inbox(conn, names)
        self.history = History(conn, names, clock.steady, codec, enabled=conn.config.history_days > 0)
        self.limits = Limits(conn, names)
        self.parking = Parking(conn, names, self.work)
        self.switches = Switches(conn, names, codec)
        self.gates = Gates(self.limits, self.parking, clock)
        self.rates = Rates(conn, names)
        self.paces = Paces(self.rates, self.parking, clock, conn.config.patience_seconds)

    @classmethod
    async def open(
        cls, url: str, names: Names, config: Config, *, name: str, sealer: Sealer | None = None, **options: Any
    ) -> Stores:
        """Connect, make sure that everything exists, and return the stores. Raises Unavailable or ConfigError."""
        conn = await Connection.open(url, config, name=name, **options)
        clock = here()
        try:
            stores = cls(conn, names, AlignedClock(clock), await ensure(conn, names, clock, config), sealer)
            await stores.know_the_time()
        except BaseException:
            await conn.close()
            raise
        return stores

    async def know_the_time(self) -> None:
        """Look at the streams, and so at the server's clock, until it has told the time. Raises Unavailable.

        Nobody may go by a clock that may be hours off because one answer was lost, nor by what a slow one has told if the
        next can do better: half of its way may be wrong. That holds for who stood still on it until its time was over too.
        """
        patience = Patience(self.clock, self.config.connect_timeout_seconds)
        await self.presence.look()
        again = 0
        while not self.clock.aligned or (self.clock.unsure > SAME_SECONDS and again < _MORE_LOOKS):
            again += self.clock.aligned
            if not await patience.pause() and again != 1:
                if self.clock.aligned:
                    return
                raise Unavailable("the server does not tell the time")
            await self.presence.look()

    @property
    def session_ttl(self) -> float:
        """Seconds that a session of this namespace lives without being renewed."""
        return self.config.session_ttl(self.topology.session_copies)

    async def close(self) -> None:
        """Close the connection."""
        await self.paces.close()
        await self.conn.close()

    async def put_blob(self, name: str, data: bytes, patience: Patience, *, key: str, origin: str = "") -> Blob:
        """Store a blob, repeated while ``patience`` lasts. Raises InvalidCall if it is too large, Unavailable."""
        while True:
            try:
                return await self.blobs.put(name, data, key=key, origin=origin, patience=patience)
            except Unavailable:
                if not await patience.pause():
                    raise

    async def get_args(self, task: Task, patience: Patience) -> bytes:
        """Arguments of a task, from the record or from their blob. Raises TenureError if the blob is gone."""
        if task.blob is None:
            return bytes(task.args)
        while True:
            try:
                return await self.blobs.get(task.blob)
            except Unavailable:
                if not await patience.pause():
                    raise

    async def with_args(
        self, task: Task, data: bytes, run_id: str, *, key: str, patience: Patience | None = None
    ) -> Task:
        """The task with these arguments, in a blob where they are too long for a record: one blob however often it is asked.

        Repeated while ``patience`` lasts (default: ``patience_seconds``). Raises InvalidCall if they are too large, Unavailable.
        """
        if len(data) <= self.config.inline_limit_bytes:
            return task
        name = f"{run_id}.args"
        try:
            blob = await self.put_blob(name, data, patience or self.runs.patience(), key=key)
        except InvalidCall as error:
            msg = f"actor {task.actor}: the arguments are too large: {error}"
            raise InvalidCall(msg, field="call").about(key=key) from error
        except Unavailable as error:
            error.about(key=key)
            raise
        return replace(task, args=NO_ARGS, blob=blob)

    async def lost_holder(self, declined: Declined) -> Holder | None:
        """The live run's holder that made a submit be refused, if its session is closed and its budget spent.

        The run can only fail, so the submit is not its [29].
        """
        record = declined.found.record
        if declined.refused.why not in {Why.LIVE, Why.DIFFERS} or record is None or record.holder is None:
            return None
        if record.failures + 1 < record.task.policy.max_attempts:
            return None
        seen = await self.sessions.read(record.holder.session)
        dead = seen is not None and seen.session.closed not in {None, "drain"}
        return record.holder if dead else None

    async def help(self, found: Found, patience: Patience) -> None:
        """A live run that has been due for seconds may have lost its producer before the wake-up: whoever joins it looks."""
        record = found.record
        waits = record is not None and record.phase is Phase.WAITING
        if record is not None and waits and self.clock.now() - record.queued_at > _STALE_SECONDS:
            await self.complete(found, patience)

    # -- effects -----------------------------------------------------------------------------------------------------

    async def carry_out(self, committed: Committed, patience: Patience) -> None:
        """Do what a record just stored asks for.

        Raises Unavailable once patience is spent: then it is for others to repeat. Raises StillOwed, after everything
        else is done, if another key cannot take the run that is owed to it.
        """
        if committed.decision.effects:
            await self._perform(
                committed.record, committed.revision, committed.data, committed.decision.effects, patience
            )

    async def complete(self, found: Found, patience: Patience, *, in_hand: str = "") -> tuple[Effect, ...]:
        """Do whatever a record that was found owes; a wake-up only if none is stored, so that chains never fork.

        ``in_hand``: the run whose wake-up the caller is about to acknowledge: what is stored is that one, and does not
        count. Returns what was still to be done.
        """
        if found.record is None:
            return ()
        effects, record = effects_of(found.record), found.record
        if found.box:  # what it owes cannot be read, and a wake-up of what is in clear would run it without arguments
            effects = tuple(effect for effect in effects if isinstance(effect, Signal))
        # A timer that has not fired by now is one for the time that the run was due before it was triggered.
        timer = record.due > self.clock.now() - SETTLE_SECONDS
        if Wake() in effects and record.run_id != in_hand and await self.work.is_stored(record, patience, timer=timer):
            effects = tuple(effect for effect in effects if not isinstance(effect, Wake))
        if not effects:
            return ()
        data = self.codec.encode(found.record)
        return await self._perform(found.record, found.revision, data, effects, patience)

    async def _perform(
        self, record: Record, revision: int, data: bytes, effects: tuple[Effect, ...], patience: Patience
    ) -> tuple[Effect, ...]:
        entries: list[Entry] = []
        done: list[Effect] = []
        for effect in effects:
            match effect:
                case Wake():
                    await self.work.wake(record, data, revision, self.clock.now(), patience)
                case Signal(holder, reason):
                    if not await self.sessions.signal(holder, reason, patience):
                        continue  # it is stored already
                case Apply(entry):
                    entries.append(entry)
                case _:
                    assert_never(effect)
            done.append(effect)
        if entries:
            await self._apply(record.key, revision, entries, patience)
        return tuple(done)

    async def _apply(self, origin: str, revision: int, entries: list[Entry], patience: Patience) -> None:
        """Apply outbox entries.

        Each to its target (a key, or the dead stream), then clear them at the origin, then forget them at the targets [7].
        """
        unpaid: list[str] = []

        async def pay(entry: Entry) -> Entry | None:
            try:
                if entry.dead:
                    await self._bury(origin, revision, entry, patience)
                else:
                    await self._apply_one(origin, revision, entry, patience)
            except (
                InvalidCall,
                KeyIsLive,
                NewerSchema,
                UnreadableRecord,
                StillOwed,
            ) as error:  # this target's trouble (it has become too large, say), not the others'
                unpaid.append(str(error))
                return None
            return entry

        paid = [entry for entry in await all_of(*map(pay, entries)) if entry is not None]
        if paid:
            cleared = c.ClearOutbox(ids=frozenset(entry.id for entry in paid))
            await self.runs.commit(origin, cleared, patience=patience, since=revision)
        await all_of(
            *(
                self.runs.commit(e.key, c.ForgetSeen(ids=frozenset({e.id})), patience=patience)
                for e in paid
                if not e.dead
            )
        )
        if unpaid:
            msg = f"{origin!r} still owes {len(unpaid)} runs or dead letters: {unpaid[0]}"
            raise StillOwed(msg).about(key=origin)

    async def _still_owed(self, origin: str, revision: int, entry: Entry, patience: Patience) -> bool:
        """Asked after the target was read. ``revision``: at which the origin owed it.

        If the origin has forgotten the entry, it was applied before that read. An origin that is older than that has not: a
        leader shows it that was deposed, and who believed it would have the entry cleared and never applied.
        """
        found = await self.runs.read(origin, patience)
        if found.revision < revision:
            found = await self.runs.read(origin, self.runs.patience(), since=revision)
        if found.revision < revision:
            raise Unavailable(f"what {origin!r} owes cannot be seen: its record is older than it was").about(key=origin)
        return found.record is not None and any(owed.id == entry.id for owed in found.record.outbox)

    async def _bury(self, origin: str, revision: int, entry: Entry, patience: Patience) -> None:
        """Store a dead letter. Its target is read by the CAS itself: it expects that there is, and lately was, none."""
        if await self._still_owed(origin, revision, entry, patience):
            await self.dead.keep(letter_of(entry), patience)

    async def _apply_one(self, origin: str, revision: int, entry: Entry, patience: Patience) -> None:
        command = c.Submit(
            key=entry.key, run_id=entry.run_id, task=entry.task, due=entry.due, seen=Seen(id=entry.id, origin=origin)
        )
        still_owed = partial(self._still_owed, origin, revision, entry, patience)
        result = await self.runs.commit(entry.key, command, check=still_owed, patience=patience)
        if isinstance(result, Committed):
            await self.carry_out(result, patience)
            return
        record = result.found.record
        if result.refused.why is Why.CROWDED and record is not None:  # not applied: it must not be cleared
            msg = f"{entry.key!r} has too many bodies of older generations still running"
            raise KeyIsLive(msg, **about_run(record, result.found.revision))
        await self.complete(result.found, patience)
