"""What ``tenure demo`` knows of every run: written down from each write of each record, as an outsider sees it.

It believes nobody's counters. Each accepted run is one entry; it ends with a stored outcome, or superseded when the
record moves on without one. An outcome that turns up for a run after the record had moved past it would be a stale
write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tenure.core.records import TERMINAL, Last, Phase, Record
from tenure.nats.runs import Found


@dataclass(slots=True)
class Fate:
    """One run: what it was asked to do (JSON), which attempts were claimed, how it ended."""

    key: str
    generation: int
    args: bytes = b""
    attempts: set[int] = field(default_factory=set)
    outcome: Last | None = None
    superseded: bool = False


@dataclass(slots=True)
class Ledger:
    """Every run of one namespace."""

    runs: dict[str, Fate] = field(default_factory=dict)
    current: dict[str, Found] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    on_running: Callable[[Record], None] = lambda _record: None

    def note(self, key: str, found: Found) -> None:
        """Take in one write of a record."""
        record, known = found.record, self.current.get(key)
        if record is None or (known is not None and known.revision >= found.revision):
            return
        self.current[key] = found
        fate = self._fate(record.run_id, key, record.generation)
        fate.args = bytes(record.task.args)
        if record.last is not None:
            self._outcome(key, record.last)
        if known is not None and known.record is not None and known.record.run_id != record.run_id:
            self._moved_on(known.record, record)
        if record.phase is Phase.RUNNING and record.attempt not in fate.attempts:
            fate.attempts.add(record.attempt)
            self.on_running(record)

    def _fate(self, run_id: str, key: str, generation: int) -> Fate:
        return self.runs.setdefault(run_id, Fate(key, generation))

    def _outcome(self, key: str, last: Last) -> None:
        fate = self._fate(last.run_id, key, last.generation)
        if fate.outcome is not None and fate.outcome != last:
            self.stale.append(f"run {last.run_id} of {key!r} has two outcomes")
        if fate.superseded:
            self.stale.append(
                f"run {last.run_id} of {key!r} stored an outcome after generation {last.generation} was void"
            )
        fate.outcome = last

    def _moved_on(self, before: Record, after: Record) -> None:
        if after.generation <= before.generation:
            self.stale.append(f"{after.key!r} went from generation {before.generation} to {after.generation}")
        fate = self.runs[before.run_id]
        fate.superseded = fate.outcome is None

    # -- questions ---------------------------------------------------------------------------------------------------

    def record(self, key: str) -> Record | None:
        """The newest record of a key that was seen."""
        found = self.current.get(key)
        return None if found is None else found.record

    def is_over(self, key: str) -> bool:
        """Whether the key's newest generation has ended."""
        record = self.record(key)
        return record is not None and record.phase in TERMINAL

    def count(self, phase: Phase) -> int:
        """How many runs ended so."""
        return sum(fate.outcome is not None and fate.outcome.phase is phase for fate in self.runs.values())

    @property
    def superseded(self) -> int:
        """How many runs were superseded before they had an outcome."""
        return sum(fate.superseded for fate in self.runs.values())

    @property
    def bodies(self) -> int:
        """How many attempts were claimed."""
        return sum(len(fate.attempts) for fate in self.runs.values())
