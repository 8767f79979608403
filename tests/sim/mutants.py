"""Guards taken out, to show that the simulation would notice. Each is patched into a world's own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tenure.core import endings
from tenure.core.outcomes import Why
from tenure.core.records import Holder, Record
from tenure.nats.runs import Runs
from tenure.worker.head import Head
from tenure.worker.table import Table


def no_tail_check() -> None:
    """Whoever stores an outcome is taken for the holder."""

    def anybody(record: Record | None, holder: Holder) -> Why | None:
        del holder
        return Why.ABSENT if record is None else None

    endings.not_mine = anybody


def blind_writes() -> None:
    """Writes do not expect the revision that was read, but whatever there is."""
    store = Runs._store

    async def blind(self: Runs, key: str, record: Any, data: bytes, _revision: int, patience: Any) -> Any:
        return await store(self, key, record, data, (await self.read(key, patience)).revision, patience)

    Runs._store = blind  # type: ignore[assignment,method-assign]  # that is the mutant


def everybody_is_dead() -> None:
    """A claim takes over whoever holds the run, open session or not."""

    async def knowing(self: Head, command: Any, record: Any, _patience: Any) -> Any:
        if record is None or record.holder is None or command.closed:
            return None
        closed = frozenset({record.holder.session})
        return replace(command, closed=closed, next_run_id=self._stores.clock.new_id())

    Head._knowing_more = knowing  # type: ignore[assignment,method-assign]  # that is the mutant


def no_table() -> None:
    """A process does not know which runs it has in hand."""
    Table.enter = lambda _self, _live: True  # type: ignore[assignment,method-assign]  # that is the mutant
    Table.get = lambda _self, _run_id: None  # type: ignore[assignment,method-assign]  # that is the mutant


MUTANTS: dict[str, Callable[[], None]] = {
    "no-tail-check": no_tail_check,
    "blind-writes": blind_writes,
    "everybody-is-dead": everybody_is_dead,
    "no-table": no_table,
}
