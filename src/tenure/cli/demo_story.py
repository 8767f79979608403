"""What ``tenure demo`` does to its keys.

Submits, replaces and cancels documents, waiting and running; reconfigures a monitor.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

import msgspec

from tenure.actors import Actor, Call
from tenure.cli.demo_ledger import Ledger
from tenure.client import Client
from tenure.core.errors import TenureError
from tenure.core.records import Phase, Record
from tenure.run import Run

LEAST_DOCUMENTS = 7
VICTIMS = 2
"""Worker processes that are killed or frozen in mid-run."""
_MOST_CUT_DOWN = 4
"""Bodies at most that each of them runs by then."""
_SHARE = 20
_KEY_BYTES = 160
_LONG_PAUSE, _SHORT_PAUSE, _CUT_PAUSE, _READING_SECONDS = 30.0, 2.0, 4.0, 0.2
_SOON, _LATER = 1.5, 3.0
"""Seconds of delay: one below, one above what makes the server schedule a timer."""


class Role(Enum):
    """What happens to a document's key."""

    RUN = auto()
    REPLACE_WAITING = auto()
    CANCEL_WAITING = auto()
    REPLACE_RUNNING = auto()
    REPLACE_BESIDE = auto()
    CANCEL_RUNNING = auto()
    CUT_DOWN = auto()


_WAITING = (Role.REPLACE_WAITING, Role.CANCEL_WAITING)
_LONG = (Role.REPLACE_RUNNING, Role.CANCEL_RUNNING)
_RUNNING = (Role.REPLACE_RUNNING, Role.REPLACE_BESIDE, Role.CANCEL_RUNNING)


@dataclass(slots=True)
class Document:
    """A key: its path, what is to happen, and what the newest call asks for. ``older`` handles are of replaced runs."""

    key: str
    path: str
    role: Role
    substitute: str
    run: Run[Any] | None = None
    older: list[Run[Any]] = field(default_factory=list)
    cancelled: bool = False

    @property
    def expected_path(self) -> str:
        """The path that a result of this key must name."""
        return self.substitute if self.older else self.path

    def call(self, extract: Actor[..., ..., Any, Any]) -> Call[Any]:
        """The first call: bodies that are to be hit in mid-run take their time."""
        pauses = {Role.REPLACE_BESIDE: _SHORT_PAUSE, Role.CUT_DOWN: _CUT_PAUSE} | dict.fromkeys(_LONG, _LONG_PAUSE)
        pause = pauses.get(self.role, 0.0)
        return extract.call(self.path, pause=pause)


def key_of(path: Path, folder: Path | None) -> str:
    """A key from a path: relative to the folder, and a digest where that is too long for a key."""
    text = str(path.relative_to(folder) if folder is not None else path).lstrip("/")
    raw = text.encode()
    if len(raw) <= _KEY_BYTES:
        return text
    return raw[:_KEY_BYTES].decode(errors="ignore") + "-" + hashlib.sha256(raw).hexdigest()[:16]


def cast(paths: list[Path], folder: Path | None) -> list[Document]:
    """Give each document its role.

    A twentieth for each fate in the play, the smallest files, so that bodies are quick.
    """
    share = max(1, len(paths) // _SHARE)
    small = sorted(paths, key=lambda path: (path.stat().st_size, path))
    fates = [role for role in (*_WAITING, *_RUNNING) for _ in range(share)]
    fates = [Role.CUT_DOWN] * VICTIMS * min(share, _MOST_CUT_DOWN) + fates
    roles = dict(zip(small, fates, strict=False))
    after = {path: small[(number + 1) % len(small)] for number, path in enumerate(small)}
    return [Document(key_of(p, folder), str(p), roles.get(p, Role.RUN), str(after[p])) for p in paths]


class DocumentStory:
    """Everything that is done to the documents' keys."""

    def __init__(
        self, client: Client, ledger: Ledger, extract: Actor[..., ..., Any, Any], cast: list[Document]
    ) -> None:
        self._client = client
        self._extract = extract
        self._running: dict[str, asyncio.Event] = {}
        self.documents = cast
        self.replaced = {"waiting": 0, "running": 0}
        self.cancelled = {"waiting": 0, "running": 0}
        ledger.on_running = self._started

    def _started(self, record: Record) -> None:
        event = self._running.get(record.run_id)
        if event is not None:
            event.set()

    async def play(self) -> None:
        """Submit all; act on waiting ones at once and on the others when their bodies have begun to read."""
        async with asyncio.TaskGroup() as group:
            await self.submit([d for d in self.documents if d.role in _RUNNING])
            for document in self.documents:
                if document.role in _RUNNING and document.run is not None:
                    group.create_task(self._hit_running(document, document.run))
            waiting = [d for d in self.documents if d.role in _WAITING]
            await self.submit(waiting[0::2], _SOON)
            await self.submit(waiting[1::2], _LATER)
            for document in waiting:
                await self._act(document, "waiting")
            await self.submit([d for d in self.documents if d.role is Role.RUN])

    async def submit(self, documents: list[Document], delay: float | None = None) -> None:
        """Submit the first call of each."""
        calls = [(document.call(self._extract), document.key) for document in documents]
        for document, run in zip(documents, await self._client.submit_many(calls, delay=delay), strict=True):
            if isinstance(run, TenureError):
                raise run
            document.run = run
            self._running[run.run_id] = asyncio.Event()

    async def _hit_running(self, document: Document, run: Run[Any]) -> None:
        found = await self._client.stores.runs.read(document.key)
        if found.record is None or found.record.phase is Phase.WAITING:  # else its event came before we knew its run id
            await self._running[run.run_id].wait()
        await asyncio.sleep(_READING_SECONDS)
        await self._act(document, "running")

    async def _act(self, document: Document, when: str) -> None:
        if document.role in (Role.CANCEL_WAITING, Role.CANCEL_RUNNING):
            done = await self._client.cancel(document.key, reason="demonstration")
            document.cancelled = done.outcome in {"cancelled", "stopping"}
            self.cancelled[when] += document.cancelled
            return
        overlap = "parallel" if document.role is Role.REPLACE_BESIDE else "stop"
        call = self._extract.call(document.substitute)
        new = await self._client.replace(call, key=document.key, overlap=overlap)  # type: ignore[arg-type]  # one of the three
        if document.run is not None:
            document.older.append(document.run)
        document.run = new
        self.replaced[when] += 1


# -- the monitor -----------------------------------------------------------------------------------------------------

MONITOR_KEY = "watch"
_INTERVALS = (0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15)
_HITS_WANTED = 2
_PATIENCE_SECONDS = 15.0


class MonitorStory:
    """A perpetual check whose schedule is replaced while its worker is frozen in the middle of a check of the old one.

    When the worker wakes up it wants to store the old check's outcome together with the old schedule's next run
    (docket#331).
    """

    def __init__(self, client: Client, ledger: Ledger, check: Actor[..., ..., Any, Any], pid: int) -> None:
        self._client = client
        self._ledger = ledger
        self._check = check
        self._pid = pid
        self._frozen: asyncio.Event | None = None
        self.schedule: list[tuple[int, float]] = []
        self.hits = 0
        ledger.on_running = self._freeze

    def _freeze(self, _record: Record) -> None:
        if self._frozen is not None and not self._frozen.is_set():
            os.kill(self._pid, signal.SIGSTOP)
            self._frozen.set()

    @asynccontextmanager
    async def _worker_frozen_in_a_check(self) -> AsyncIterator[None]:
        self._frozen = asyncio.Event()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._frozen.wait()
            yield
        finally:
            self._frozen = None
            os.kill(self._pid, signal.SIGCONT)

    async def play(self, target: str) -> None:
        """Start the chain, then replace its schedule until two replaces have met a check in mid-run."""
        run = await self._client.submit(self._check.call(target, interval=1.0), key=MONITOR_KEY)
        self.schedule.append((run.generation, 1.0))
        for interval in _INTERVALS:
            async with self._worker_frozen_in_a_check():
                found = await self._client.stores.runs.read(MONITOR_KEY)
                self.hits += found.record is not None and found.record.phase is Phase.RUNNING
                run = await self._client.replace(self._check.call(target, interval=interval), key=MONITOR_KEY)
                self.schedule.append((run.generation, interval))
            if self.hits >= _HITS_WANTED:
                break

    async def end(self) -> None:
        """Cancel the chain: its successors end with it."""
        await self._client.cancel(MONITOR_KEY, reason="demonstration over")

    def old_schedules_seen(self) -> int:
        """How many generations ran another schedule than the newest that was set by then."""
        came_back = 0
        for fate in self._ledger.runs.values():
            wanted = [interval for generation, interval in self.schedule if generation <= fate.generation][-1]
            came_back += msgspec.json.decode(fate.args)["interval"] != wanted
        return came_back
