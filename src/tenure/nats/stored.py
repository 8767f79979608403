"""What the work stream holds, as one listing of it tells."""

from __future__ import annotations

from collections import Counter

import msgspec


class Messages:
    """Runs that have a message stored, each as one string ``<whose>.<run id>``: a backlog has hundreds of thousands.

    ``whose`` is ``<queue>.<key token>`` for wake-ups, the key token for timers.
    """

    def __init__(self, runs: set[str]) -> None:
        self._runs = runs
        self._whose: set[str] | None = None

    def __len__(self) -> int:
        return len(self._runs)

    def has(self, whose: str, run_id: str) -> bool:
        """Whether this very run has one; without a run id (a record of an older Tenure) whether any run of the key has."""
        if run_id:
            return f"{whose}.{run_id}" in self._runs
        if self._whose is None:
            self._whose = {run.rpartition(".")[0] for run in self._runs}
        return whose in self._whose


class Stored(msgspec.Struct, frozen=True):
    """What the work stream held ``at`` that time of the server's.

    ``parked``: by limit the (key token, run id) of each. ``foreign``: subjects that name nothing of Tenure's, a thousand at most.
    ``lanes``: how many wake-ups by (queue, priority).
    """

    at: float
    wakeups: Messages
    timers: Messages
    parked: dict[str, set[tuple[str, str]]]
    foreign: frozenset[str]
    lanes: Counter[tuple[str, str]]
