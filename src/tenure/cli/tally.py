"""What happens to runs, told from the writes of their records as they are repeated on plain NATS.

For people: what is missed around a reconnect, or because there is more than this process can hear, is not counted; the exact
numbers are in the metrics of workers and supervisors. Pure: it is told what was written and when, and asks for nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Literal

from msgspec import Struct

from tenure.core.records import TERMINAL, Phase, Record, State

What = Literal["started", "succeeded", "retried", "failed", "cancelled", "superseded"]
WHATS: tuple[What, ...] = ("started", "succeeded", "retried", "failed", "cancelled", "superseded")
_MOST_KEYS = 100_000
_UNKNOWN = -1
_BODIES = (Phase.RUNNING, Phase.STOPPING)


class _Known(Struct):
    revision: int
    run_id: str
    phase: Phase
    actor: str
    session: str
    attempt: int = _UNKNOWN
    failures: int = 0


class Tally:
    """Counts by (actor, what), who runs and who holds, and how fast that grows within the last ``window`` seconds."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._keys: dict[str, _Known] = {}
        self._marks: deque[tuple[float, Counter[tuple[str, What]]]] = deque()
        self.counts: Counter[tuple[str, What]] = Counter()

    # -- what was written --------------------------------------------------------------------------------------------

    def found(self, key: str, revision: int, state: State) -> None:
        """A header that was there already: nothing has happened. What was heard of the key meanwhile is newer."""
        known = self._keys.get(key)
        if (known is None or known.revision < revision) and state.phase not in TERMINAL:
            self._know(key, _Known(revision, state.run_id, state.phase, state.actor, state.session))

    def wrote(self, key: str, revision: int, record: Record | None) -> None:
        """A record was written, or is gone."""
        before = self._keys.get(key)
        if before is not None and revision <= before.revision:
            return
        if record is None:
            self._keys.pop(key, None)
            return
        if before is not None and before.run_id != record.run_id:
            self._followed(before, record)
            before = None
        actor, phase = record.task.actor, record.phase
        if phase is Phase.RUNNING and not _is_same_attempt(before, record):
            self.counts[actor, "started"] += 1
        if phase in TERMINAL and (before is None or before.phase not in TERMINAL):
            self._ended(actor, phase)
        if before is not None and phase is Phase.WAITING and before.phase is Phase.RUNNING:
            self.counts[actor, "retried"] += record.failures > before.failures
        if phase in TERMINAL and not (record.outbox or record.previous or record.to_forget or record.uncounted):
            self._keys.pop(key, None)  # the next write of this key is of another run
            return
        session = record.holder.session if record.holder is not None and phase in _BODIES else ""
        self._know(key, _Known(revision, record.run_id, phase, actor, session, record.attempt, record.failures))

    def _followed(self, before: _Known, record: Record) -> None:
        """Another run stands in the place of one that was known: either that has its outcome, or it is superseded."""
        if before.phase in TERMINAL:
            return
        if record.last is not None and record.last.run_id == before.run_id:
            self._ended(before.actor, record.last.phase)
        else:
            self.counts[before.actor, "superseded"] += 1

    def _ended(self, actor: str, phase: Phase) -> None:
        if phase is Phase.SUCCEEDED:
            self.counts[actor, "succeeded"] += 1
        elif phase is Phase.FAILED:
            self.counts[actor, "failed"] += 1
        else:
            self.counts[actor, "cancelled"] += 1

    def _know(self, key: str, known: _Known) -> None:
        self._keys[key] = known
        if len(self._keys) > _MOST_KEYS:
            del self._keys[next(iter(self._keys))]

    # -- what follows ------------------------------------------------------------------------------------------------

    def running(self) -> Counter[str]:
        """By actor, bodies that run or are told to stop."""
        return Counter(known.actor for known in self._keys.values() if known.phase in _BODIES)

    def held(self) -> Counter[str]:
        """By session, the runs that it holds."""
        return Counter(known.session for known in self._keys.values() if known.session)

    def mark(self, now: float) -> None:
        """Remember the counts of this moment (seconds of a steady clock), to tell rates by."""
        self._marks.append((now, self.counts.copy()))
        while len(self._marks) > 2 and self._marks[1][0] <= now - self._window:  # noqa: PLR2004  (one before the window, one in it)
            self._marks.popleft()

    def rates(self) -> tuple[float, dict[tuple[str, What], float]]:
        """Over how many seconds, and what grew by how much a second; nothing before the second mark."""
        if not self._marks or self._marks[-1][0] <= self._marks[0][0]:
            return 0.0, {}
        (since, first), (now, last) = self._marks[0], self._marks[-1]
        return now - since, {about: (number - first[about]) / (now - since) for about, number in last.items()}


def _is_same_attempt(before: _Known | None, record: Record) -> bool:
    return before is not None and before.phase in _BODIES and before.attempt in {_UNKNOWN, record.attempt}
