"""The evidence, by what the checks look up."""

from __future__ import annotations

import math
from collections import defaultdict

from msgspec import Struct

from tests.history.evidence import BodyLine, Evidence, LastSeen, Revision
from tests.history.expiries import expiry_of
from tests.history.past import Past

Held = tuple[str, str, int]
"""(session, run id, attempt)."""


class Body(Struct, frozen=True, kw_only=True):
    """One body, from its start to its end or to the death of its process (for ever, if neither was seen).

    In a child process: to its end or to its last sign of life.
    """

    start: BodyLine
    end: BodyLine | None
    until: float


def bodies_of(evidence: Evidence) -> list[Body]:
    """Every body that started."""
    ends = {(line.pid, line.run_id, line.attempt): line for line in evidence.bodies if line.what == "end"}
    died = {death.pid: death.at for death in evidence.deaths}
    beats = {(line.child, line.run_id, line.attempt): line.at for line in evidence.bodies if line.child}

    def until(line: BodyLine) -> float:
        return beats[line.child, line.run_id, line.attempt] if line.child else died.get(line.pid, math.inf)

    return [
        Body(start=line, end=end, until=end.at if end else until(line))
        for line in evidence.bodies
        if line.what == "start"
        for end in [ends.get((line.pid, line.run_id, line.attempt))]
    ]


class Known:
    """The evidence, by what the checks look up."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.bodies = bodies_of(evidence)
        self.by_seq = {revision.seq: revision for revision in evidence.revisions}
        self.runs: dict[str, Revision] = {}
        self.outcomes: dict[str, tuple[LastSeen, int]] = {}
        self.stopped_at: dict[str, int] = {}
        self.told: dict[Held, float] = {}
        self.run_ids: dict[str, list[str]] = defaultdict(list)
        self.told_at: dict[Held, float] = {}
        self._torn: set[str] = set()
        self._newest: dict[str, int] = {}
        for revision in evidence.revisions:
            if revision.before != self._newest.get(revision.key, 0):
                self._torn.add(revision.key)
            self._newest[revision.key] = revision.seq
            self._take(revision)
        self.bodies_of_key: dict[str, list[Body]] = defaultdict(list)
        for body in self.bodies:
            self.bodies_of_key[body.start.key].append(body)
        self.of_key: dict[str, list[Revision]] = defaultdict(list, evidence.by_key())
        self.pasts = {
            key: Past(revisions, holes=bool(evidence.missing), open_end=self._open_end(key))
            for key, revisions in self.of_key.items()
        }
        self.opened = {
            after.run_id: (before, after)
            for past in self.pasts.values()
            for number, before, after in past.steps()
            if not after.gone and past.births[after.run_id] == number
        }
        """Each run whose first revision was seen together with the one before it."""
        frozen = max((fault.until - fault.at for fault in evidence.frozen), default=0.0)
        self.unsure = evidence.clocks.processes + frozen / 2
        """How wrong the clock of a process may be: who was frozen while it asked for the time takes half of that for the way."""
        self.pids = {s.id: s.pid for s in evidence.sessions}
        self.closed_at = {s.id: s.stored_at for s in evidence.sessions if s.closed is not None}

    def whole(self, key: str) -> bool:
        """Whether every revision of a key was seen, for certain."""
        return not self.evidence.missing or (key not in self._torn and not self._open_end(key))

    def _open_end(self, key: str) -> bool:
        """Whether revisions may be missing after the newest that was seen."""
        record = self.evidence.records.get(key)
        newest = self._newest.get(key, 0)
        return record is None or record.seq not in {newest, expiry_of(newest)}

    def _take(self, revision: Revision) -> None:
        if revision.gone:
            return
        if revision.run_id not in self.runs:
            self.run_ids[revision.key].append(revision.run_id)
        self.runs.setdefault(revision.run_id, revision)
        if revision.phase in {"stopping", "cancelled"}:
            self.stopped_at.setdefault(revision.run_id, revision.seq)
        if revision.last is not None:
            self.outcomes.setdefault(revision.last.run_id, (revision.last, revision.seq))
        for entry in revision.previous:
            if entry.deadline is not None:
                who = (entry.session, entry.run_id, entry.attempt)
                self.told_at.setdefault(who, revision.stored)
                self.told.setdefault(who, entry.deadline)
