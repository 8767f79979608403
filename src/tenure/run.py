"""A handle to one run: wait for it, follow it, cancel it.

Bound to its generation: what another generation does never answers for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from tenure.core.errors import RunCancelled, RunFailed, RunSuperseded, TenureError
from tenure.core.generations import generation_of
from tenure.core.records import TERMINAL, Last, Phase, Record
from tenure.core.sessions import Progress
from tenure.nats.asking import DEPOSED_SECONDS, gone, is_gone
from tenure.nats.changes import Changes
from tenure.nats.runs import Found
from tenure.status import Cancelled, Event, Status, status_of, status_of_last
from tenure.times import check_timeout

if TYPE_CHECKING:
    from tenure.client import Client

Res = TypeVar("Res")
_PAID_SECONDS = 0.5
"""How long a worker has to create what a run spawned before whoever waits for the run does it."""
_MOST_EVENTS = 1_000
_FRESH_SECONDS = 0.001
"""After its submit; a worker that claims it sooner has not come to its outcome."""
_UNHURRIED_SECONDS = 0.1


class Run(Generic[Res]):
    """One generation of a key.

    ``accepted``: this call started it; False: a live run was kept and this is that run. A handle from
    ``client.run(key)`` binds to the key's generation when it is first used (or awaited); until then ``generation`` is
    0.
    """

    def __init__(
        self,
        client: Client,
        key: str,
        *,
        accepted: bool,
        result_type: Any,
        generation: int = 0,
        run_id: str = "",
        since: int = 0,
    ) -> None:
        self._client = client
        self.key = key
        self.generation = generation
        self.run_id = run_id
        self.accepted = accepted
        self._result_type = result_type
        self._made_at = client.stores.clock.steady()
        self._known = since
        """A revision that the key had then."""

    @classmethod
    def of(
        cls, client: Client, record: Record, run_id: str, since: int, *, accepted: bool, result_type: Any
    ) -> Run[Any]:
        """A handle to a run that the record shows, or has shown; ``since``: the revision at which it did."""
        generation = generation_of(record, run_id)
        return Run(
            client,
            record.key,
            accepted=accepted,
            result_type=result_type,
            generation=generation,
            run_id=run_id,
            since=since,
        )

    def __repr__(self) -> str:
        return f"<Run {self.key!r} generation {self.generation} {self.run_id or 'unbound'}>"

    def __await__(self) -> Generator[Any, None, Run[Res]]:
        """Bind to the key's current generation now. Raises TenureError if the key has no record."""
        return self._bound().__await__()

    async def _bound(self) -> Run[Res]:
        if not self.run_id:
            found = await self._client.stores.runs.read(self.key, since=self._since)
            if found.record is None:
                raise self._absent()
            self._bind(found.record, found.revision)
        return self

    @property
    def _since(self) -> int:
        """What no read may be older than: for so long a leader that was deposed may answer with less than this handle was made of."""
        age = self._client.stores.clock.steady() - self._made_at
        return self._known if age < DEPOSED_SECONDS else 0

    def _absent(self) -> TenureError:
        return TenureError(f"there is no run of {self.key!r}: submit one first").about(key=self.key)

    def _bind(self, record: Record, revision: int) -> None:
        self.run_id, self.generation = record.run_id, record.generation
        self._made_at, self._known = self._client.stores.clock.steady(), revision
        if self._result_type is Any:
            actor = self._client.app.actors.get(record.task.actor)
            self._result_type = actor.result_type if actor else Any

    async def cancel(self, *, reason: str = "") -> Cancelled:
        """Cancel exactly this run."""
        await self._bound()
        return await self._client._cancel_run(self.key, self.run_id, reason, self._since)  # noqa: SLF001  (a cancel like the client's own)

    async def status(self) -> Status | None:
        """Status of this run; None once a newer generation has taken its place and its outcome is no longer kept."""
        await self._bound()
        found = await self._client.stores.runs.read(self.key, since=self._since)
        record = found.record
        if record is None:
            return None
        if record.run_id == self.run_id:
            return await self._client.with_progress(status_of(record, self._client.now()))
        return status_of_last(record, record.last) if record.last and record.last.run_id == self.run_id else None

    async def wait(self, timeout: float | None = None) -> Status:
        """Wait until the run has its outcome and return its final status; never raises for a failed or cancelled run.

        Raises TimeoutError after ``timeout`` seconds (0: unless it is there), RunSuperseded if a newer generation took
        the key first, Unavailable if the runs bucket is gone (a server that is away is waited for), InvalidCall.
        """
        last, record, _ = await self._outcome(check_timeout(timeout))
        return status_of_last(record, last)

    async def result(self, timeout: float | None = None, *, follow: bool = False) -> Res:
        """Wait for the value that the body returned, decoded to the actor's annotated type.

        Raises RunFailed, RunCancelled, RunSuperseded (or, with ``follow``, goes on to the newest generation),
        TimeoutError after ``timeout`` seconds (0: unless it is there), Unavailable if the runs bucket is gone (a server
        that is away is waited for), TenureError if the value does not fit the annotated type, InvalidCall.
        """
        timeout = check_timeout(timeout)
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        run: Run[Res] = self
        while True:
            try:
                last, record, revision = await run._outcome(None if until is None else max(0.0, until - loop.time()))
            except RunSuperseded as superseded:
                if not follow or not superseded.by_generation:
                    raise
                since = superseded.revision or 0
                run = await Run(self._client, self.key, accepted=False, result_type=self._result_type, since=since)
                continue
            return await run._value(last, record, revision)  # noqa: SLF001  (another handle of this class)

    async def _value(self, last: Last, record: Record, revision: int) -> Res:
        about: dict[str, Any] = {
            "key": self.key,
            "generation": last.generation,
            "run_id": last.run_id,
            "revision": revision,
        }
        if last.phase is Phase.FAILED:
            failure = last.failure
            raise RunFailed(
                **about,
                error_type=failure.type if failure else "",
                message=failure.message if failure else "",
                traceback=failure.traceback if failure else "",
            )
        if last.phase is Phase.CANCELLED:
            raise RunCancelled(**about, reason=last.reason)
        data = bytes(last.result)
        if last.blob is not None:
            try:
                data = await self._client.stores.blobs.get(last.blob)
            except TenureError as error:
                error.about(**about)
                raise
        kind = self._result_type
        if kind is Any:
            actor = self._client.app.actors.get(record.task.actor)
            kind = actor.result_type if actor else Any
        try:
            value: Res = msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            msg = f"the result of {self.key!r} does not fit {kind!r}: {error}"
            raise TenureError(msg).about(**about) from error
        return value

    async def _outcome(self, timeout: float | None) -> tuple[Last, Record, int]:
        """Wait for this run's stored outcome, the record with it and its revision: subscribe, then read, then listen. No polling.

        However short the wait, the first look at the record may take as long as one request.
        """
        loop, seen, found = asyncio.get_running_loop(), None, None
        until = None if timeout is None else loop.time() + timeout
        look = None if timeout is None else max(timeout, self._client.app.config.request_timeout_seconds)
        try:
            async with (
                asyncio.timeout(look) as limit,
                self._client.stores.runs.follow(self.key, fresh=self._is_fresh(timeout), since=self._since) as changes,
            ):
                while True:
                    first, found = found is None, await changes.next()
                    last = self._over(found)
                    if first:
                        limit.reschedule(until)
                    if last is not None and found.record is not None:
                        seen = last, found.record, found.revision
                        await self._paid(changes, found.record)
                        limit.reschedule(None)  # nothing may cut short what now ends in order
                        return seen
        except TimeoutError as error:
            if not limit.expired():
                raise
            if seen is not None:
                return seen
            msg = f"the run of {self.key!r} has no outcome yet, after waiting {timeout:.3g} s"
            stores = self._client.stores
            if (timeout or found is None) and await is_gone(stores.conn, stores.names.runs_stream):
                msg += f": {gone(stores.names.runs_stream)}"
            raise TimeoutError(msg) from error

    def _is_fresh(self, timeout: float | None) -> bool:
        """Whether its first event is still to come, and there is the time to wait for it."""
        age = self._client.stores.clock.steady() - self._made_at
        return self.accepted and age < _FRESH_SECONDS and (timeout is None or timeout >= _UNHURRIED_SECONDS)

    async def _paid(self, changes: Changes, record: Record) -> None:
        """Return once what this run spawned exists, so that whoever has its result may go on to those keys.

        And once its dead letter does, so that whoever is told of a failure finds it. Not hooks: nobody knows their runs'
        keys, so nobody can go on to them. Its worker is about to create all of these; if that does not come, this client
        does it (whoever finds a debt may pay it).
        """
        if not record.outbox:
            return
        stores = self._client.stores
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PAID_SECONDS):
                while any(entry.id.startswith(self.run_id) for entry in record.outbox):
                    newer = (await changes.next()).record
                    if newer is None:
                        return
                    record = newer
                return
        with contextlib.suppress(TenureError):  # the result is there all the same; the record goes on owing
            await stores.complete(await stores.runs.read(self.key), stores.runs.patience())

    def _over(self, found: Found) -> Last | None:
        """This run's outcome if the record has it, None if it is still to come. Raises RunSuperseded."""
        record = found.record
        if record is None:
            if not self.run_id:
                raise self._absent()
            raise RunSuperseded(
                key=self.key, generation=self.generation, run_id=self.run_id, by_generation=0, revision=found.revision
            )
        if not self.run_id:
            self._bind(record, found.revision)
        last = record.last
        if last is not None and last.run_id == self.run_id:
            return last
        if record.run_id != self.run_id:
            raise RunSuperseded(
                key=self.key,
                generation=self.generation,
                run_id=self.run_id,
                by_generation=record.generation,
                revision=found.revision,
            )
        return None

    async def events(self) -> AsyncIterator[Event]:
        """Every new status and every progress of this run from now on, until it is over or superseded.

        Progress may be skipped; and statuses, the oldest, by a reader that is a thousand of them behind. Raises Unavailable if
        the runs bucket is gone.
        """
        await self._bound()
        queue = _Backlog()

        async def on_progress(progress: Progress) -> None:
            if progress.run_id == self.run_id:
                queue.put(progress)

        async def pump() -> None:
            try:
                while True:
                    queue.put(await changes.next())
            except TenureError as error:
                queue.put(error)

        stores = self._client.stores
        async with stores.runs.follow(self.key, since=self._since) as changes:
            stop = await stores.sessions.follow_progress(self.key, on_progress)
            pumping = asyncio.create_task(pump())
            try:
                while True:
                    item = await queue.get()
                    if isinstance(item, TenureError):
                        raise item
                    event = self._event(item)
                    yield event
                    if event.kind == "superseded" or (event.status is not None and event.status.is_over):
                        return
            finally:
                pumping.cancel()
                await asyncio.gather(pumping, return_exceptions=True)
                await stop()

    def _event(self, item: Found | Progress) -> Event:
        about = {"key": self.key, "generation": self.generation, "run_id": self.run_id}
        if isinstance(item, Progress):
            return Event(kind="progress", progress=item, **about)  # type: ignore[arg-type]  # three fields by name
        record = item.record
        if record is not None and record.run_id == self.run_id:
            return Event(kind="status", status=status_of(record, self._client.now()), **about)  # type: ignore[arg-type]  # three fields by name
        if record is not None and record.last is not None and record.last.run_id == self.run_id:
            return Event(kind="status", status=status_of_last(record, record.last), **about)  # type: ignore[arg-type]  # three fields by name
        return Event(kind="superseded", **about)  # type: ignore[arg-type]  # three fields by name


class _Backlog:
    """What a reader of events has not taken yet. Bounded: of progress in a row only the newest, and the oldest gives way."""

    def __init__(self) -> None:
        self._items: deque[Found | Progress | TenureError] = deque(maxlen=_MOST_EVENTS)
        self._some = asyncio.Event()

    def put(self, item: Found | Progress | TenureError) -> None:
        """Add the newest."""
        if isinstance(item, Progress) and self._items and isinstance(self._items[-1], Progress):
            self._items.pop()
        self._items.append(item)
        self._some.set()

    async def get(self) -> Found | Progress | TenureError:
        """The oldest, once there is one."""
        await self._some.wait()
        item = self._items.popleft()
        if not self._items:
            self._some.clear()
        return item


def is_over(record: Record) -> bool:
    """Whether the record is at the end of its newest generation."""
    return record.phase in TERMINAL
