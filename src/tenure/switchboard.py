"""What is paused and blocked, as this process knows it: an ordered watch of the board, live again at once after a reconnect.

A process that does not know it, because it has not read it yet, has lost its connection or cannot read it, starts nothing.
So a switch holds for a worker from the message on that tells it: milliseconds after it was stored, and where that message
is lost, from the moment on when the watch is found silent or the connection is back, with nothing started in between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from tenure.core.errors import EncryptedRecord, OutcomeUnknown, TenureError, Unavailable, UnreadableRecord
from tenure.core.records import Record
from tenure.core.switches import Board, Rules, Switch
from tenure.nats.patience import Patience
from tenure.stores import Stores
from tenure.telemetry import get_logger

_log = get_logger("tenure.switches")
_LATE_SECONDS = 0.01
"""A loop's timer may be early by what the loop did since it last looked at its clock."""


class Switchboard:
    """The rules of one namespace, followed while ``run`` runs."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._live = asyncio.Event()
        self._fault = "what is paused and blocked was not read yet"
        self._listeners: list[Callable[[Board], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.rules = Rules(Board())
        """As last told. Only to be gone by while ``known``."""

    async def run(self) -> None:
        """Follow the board until cancelled. What is in hand then goes by what is known: a drain lets nothing new start."""
        off = self._stores.conn.on_disconnect(self._live.clear)  # what happens meanwhile is not seen here
        self._fault = ""
        self._live.clear()  # it says when the board was read
        try:
            await self._stores.switches.watch(self._take).run(self._live)
        finally:
            off()
            self._live.set()  # also for who waits: nothing more will be told
            if self._timer is not None:
                self._timer.cancel()

    def on_change(self, tell: Callable[[Board], None]) -> None:
        """Call ``tell`` with each new board, and when the time of a switch is over."""
        self._listeners.append(tell)

    @property
    def idle(self) -> bool:
        """Whether it is known that nothing is paused or blocked: the usual case, and one that must cost nothing."""
        return self.rules.idle and self._live.is_set() and not self._fault

    @property
    def known(self) -> bool:
        """Whether ``rules`` may be gone by."""
        return self._live.is_set() and not self._fault

    async def until_known(self, seconds: float) -> bool:
        """Whether they may be gone by within so many seconds."""
        if not self._live.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._live.wait()
        return self.known

    @property
    def why_unknown(self) -> str:
        """Why they may not be gone by; empty if they may."""
        return self._fault or ("" if self.known else "it is not known what is paused and blocked")

    def is_paused(self, queue: str) -> bool:
        """Whether nothing of this queue is to be pulled, as far as is known."""
        return not self.rules.idle and self.rules.queue(queue, self._stores.clock.now()) is not None

    def now(self, record: Record, args: bytes) -> Switch | None:
        """What holds this run back at this moment, its queue included. Only to be gone by while ``known``."""
        rules = self.rules
        if rules.idle:
            return None
        at = self._stores.clock.now()
        return rules.queue(record.task.queue, at) or rules.run(record.key, record.task.actor, args, at)

    async def of(self, record: Record, patience: Patience) -> Switch | None:
        """The same, where the arguments are yet to be read. Raises Unavailable, EncryptedRecord."""
        if self.rules.idle:
            return None
        args = b""
        if self.rules.needs_arguments(record.task.actor):
            try:
                args = await self._stores.get_args(record.task, patience)
            except (Unavailable, OutcomeUnknown):
                raise
            except TenureError as error:  # its body cannot run without them: it is claimed to fail
                if isinstance(error, EncryptedRecord) and self._stores.codec.lacks(error.key_id):
                    raise
                args = b""
        return self.now(record, args)

    def _take(self, board: Board | UnreadableRecord) -> None:
        if isinstance(board, UnreadableRecord):
            self._fault = str(board)
            _log.error("switches.unreadable", error=str(board))
            return
        self._fault = ""
        self.rules = Rules(board)
        _log.info("switches.changed", paused_or_blocked=len(board.switches))
        self._tell()

    def _tell(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = self._stores.clock.now()
        end = self.rules.next_end(now)
        self._timer = (
            None if end is None else asyncio.get_running_loop().call_later(end - now + _LATE_SECONDS, self._tell)
        )
        for tell in self._listeners:
            tell(self.rules.board)
