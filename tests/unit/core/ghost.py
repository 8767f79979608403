"""What a record forgets and a test remembers: who ran, who reported, what was stored. Checks every accepted step."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from tenure.core import commands as c
from tenure.core.aftermath import MAX_OWED_LETTERS
from tenure.core.outcomes import Decision, Did
from tenure.core.pace import needs_leave, settled_by
from tenure.core.records import TERMINAL, Holder, Hooks, Last, Phase, Record
from tests.unit.core.fences import Fences

STARTS = {Did.WON, Did.TAKEOVER, Did.RECLAIMED}
TAILS = (c.Succeed, c.FailAttempt, c.SnoozeRun, c.HandBack)


@dataclass
class Ghost:
    """What has happened to the key. ``runs``, ``bodies``: all there ever were, and the revision that made each."""

    fences: Fences = field(default_factory=Fences)
    runs: dict[str, int] = field(default_factory=dict)
    bodies: dict[Holder, int] = field(default_factory=dict)
    over: set[Holder] = field(default_factory=set)
    reported: set[Holder] = field(default_factory=set)
    outcomes: dict[str, Last] = field(default_factory=dict)
    accepted_cancels: set[str] = field(default_factory=set)
    deadlines: dict[Holder, float] = field(default_factory=dict)
    owed: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    counted: Counter[str] = field(default_factory=Counter)
    purged: set[str] = field(default_factory=set)

    def stored(self, before: Record | None, made: Decision, command: c.Command, now: float) -> None:
        """Check and note one accepted step. A decision without a record: it is gone."""
        after, did = made.record, made.did
        self.fences.stored(after, claimed=did in STARTS)
        self._count(made, command)
        if after is None:
            assert before is not None
            self.counted.update(owed_counts(before))  # nobody can count them any more
            self.purged |= {before.run_id} - self.outcomes.keys()
            owed = (*before.previous, *before.outbox, *before.to_forget)
            assert not owed, "forgotten while it owed something [5, 6]"
            assert before.holder is None, "forgotten while its body runs"
            return
        self._generation(before, after)
        self._holder(before, after, did, command, now)
        self._outcome(before, after, command)
        if before is not None:
            self._previous(before, after, command, now)
            self._owed(before, after, command, now)
            self._paced(before, after, command, now)
        self._deadlines(after)
        self._all_counted(after)

    def _count(self, made: Decision, command: c.Command) -> None:
        for count in made.counts:
            self.counted[count.what] += count.number
        if made.did in {Did.CANCELLED, Did.FORCED} and not isinstance(command, c.Cancel):
            self.counted["cancelled"] += 1  # by whoever stored that end

    def _all_counted(self, after: Record) -> None:
        """Invariant 10: each run that was superseded or cancelled is counted, or still to be counted, once."""
        cancelled = {run for run, last in self.outcomes.items() if last.phase is Phase.CANCELLED}
        superseded = self.runs.keys() - self.outcomes.keys() - self.purged - {after.run_id}
        told = self.counted + owed_counts(after)
        assert told == +Counter(superseded=len(superseded), cancelled=len(cancelled))

    def _generation(self, before: Record | None, after: Record) -> None:
        if before is None:
            assert (after.generation, after.attempt) == (1, 0)
        else:
            assert (after.generation, after.attempt) >= (before.generation, before.attempt)
            assert after.generation - before.generation == int(after.run_id != before.run_id)
        if before is None or after.run_id != before.run_id:
            assert after.run_id not in self.runs, "a run id was used again"
            assert (after.attempt, after.failures, after.holder, after.stop) == (0, 0, None, None)
            assert after.phase is Phase.WAITING
            self.runs[after.run_id] = self.fences.revision
        elif before is not None:
            assert after.failures - before.failures in {0, 1}

    def _holder(self, before: Record | None, after: Record, did: Did, command: c.Command, now: float) -> None:
        assert (after.holder is not None) == (after.phase in {Phase.RUNNING, Phase.STOPPING})
        if did not in STARTS:
            assert after.holder is None or (before is not None and before.holder == after.holder), (
                "a holder without a claim"
            )
            assert before is None or after.run_id != before.run_id or after.attempt == before.attempt
            return
        assert isinstance(command, c.Claim)
        assert before is not None
        assert after.run_id == before.run_id
        assert after.attempt == before.attempt + 1
        assert after.holder == Holder(session=command.session, run_id=command.run_id, attempt=after.attempt)
        assert after.run_id not in self.accepted_cancels, "a cancelled run runs again [1, 2]"
        assert after.run_id not in self.outcomes, "a finished run runs again"
        assert after.failures < after.task.policy.max_attempts, "a body beyond its budget [22]"
        assert before.due <= now or before.phase is Phase.RUNNING
        self._no_other_body(after, now)
        self.bodies[after.holder] = self.fences.revision

    def _no_other_body(self, after: Record, now: float) -> None:
        """Invariant 8: no second body, unless under parallel, beside a void one, or one under a closed session."""
        for body in self.bodies.keys() - self.over - self.reported:
            assert body.session in self.closed or self._may_run_beside(body, after, now), (body, after)

    def _may_run_beside(self, body: Holder, after: Record, now: float) -> bool:
        return after.task.policy.overlap == "parallel" or self.deadlines.get(body, math.inf) <= now

    def _outcome(self, before: Record | None, after: Record, command: c.Command) -> None:
        last = after.last
        known = before.last if before is not None else None
        if last == known:
            assert after.phase not in TERMINAL or (before is not None and before.phase is after.phase)
            return
        assert last is not None
        assert before is not None
        assert last.run_id == before.run_id, "an outcome of another run than the one in the record"
        assert last.run_id not in self.outcomes, "two outcomes of one run"
        assert last.run_id not in self.accepted_cancels or last.phase is Phase.CANCELLED, "a cancel was overruled [2]"
        if after.run_id == before.run_id:
            assert after.phase is last.phase
        if isinstance(command, TAILS):
            assert command.holder == before.holder, "an outcome by another than the holder"
            assert (last.session, last.attempt) == (command.holder.session, command.holder.attempt)
        else:
            assert last.session == "", "an end by others looks like the holder's own"
            assert last.phase is not Phase.SUCCEEDED
        self.outcomes[last.run_id] = last

    def _previous(self, before: Record, after: Record, command: c.Command, now: float) -> None:
        kept = {entry.holder() for entry in after.previous}
        assert len(kept) == len(after.previous)
        for entry in before.previous:
            confirmed = isinstance(command, c.Confirm) and command.holder == entry.holder()
            void = entry.deadline is not None and entry.deadline <= now
            assert entry.holder() in kept or confirmed or void or entry.session in self.closed, (
                f"forgotten: {entry} [4, 5]"
            )
        displaced = before.holder
        if displaced is not None and after.holder != displaced and not isinstance(command, TAILS):
            lost = displaced.session in self.closed or displaced in self.over
            assert displaced in kept or lost, f"forgotten: {displaced} [4, 30]"

    def _owed(self, before: Record, after: Record, command: c.Command, now: float) -> None:
        kept = {entry.id for entry in after.outbox}
        full = after.last != before.last and sum(1 for entry in after.outbox if entry.dead) == MAX_OWED_LETTERS
        for entry in before.outbox:
            cleared = isinstance(command, c.ClearOutbox) and entry.id in command.ids
            assert entry.id in kept or cleared or (entry.dead and full), "outbox lost [6]"
        added = [entry for entry in after.outbox if entry.id not in {owed.id for owed in before.outbox}]
        assert sorted(entry.id for entry in added) == sorted(self._due(before, after, command))
        assert not self.owed & {entry.id for entry in added}, "owed twice"
        self.owed |= {entry.id for entry in added}
        for entry in added:
            if entry.dead:
                last, death = after.last, entry.dead[-1]
                assert last is not None
                assert (entry.key, entry.run_id, entry.task) == (before.key, before.run_id, before.task)
                assert (death.run_id, death.attempts, death.failure) == (last.run_id, last.attempt, last.failure)
                assert entry.dead[:-1] == before.history
        seen = {entry.id for entry in after.seen}
        for origin in before.seen:
            forgets = isinstance(command, c.ForgetSeen) and (origin.gone or origin.id in command.ids)
            assert origin.id in seen or (forgets and origin.until <= now), "seen lost [7]"

    def _due(self, before: Record, after: Record, command: c.Command) -> list[str]:
        """Ids of the entries that this write must add: only an outcome owes something, and all of it at once."""
        last = after.last
        if last is None or last == before.last:
            return []
        hooks = before.task.policy.hooks or Hooks()
        asked = {Phase.SUCCEEDED: hooks.success, Phase.FAILED: hooks.failure, Phase.CANCELLED: hooks.cancel}[last.phase]
        due = [f"hook.{before.run_id}.{last.phase.value}.{number}" for number in range(len(asked))]
        if last.phase is Phase.FAILED:
            due.append(f"{before.run_id}.dead")
        if last.phase is Phase.SUCCEEDED and isinstance(command, c.Succeed):
            due.extend(entry.id for entry in command.outbox)
        return due

    def _paced(self, before: Record, after: Record, command: c.Command, now: float) -> None:
        """Debounce, cooldown, and what a rate drops."""
        if isinstance(command, c.Submit) and not command.history:
            pace = command.task.policy.pace
            if after.run_id == before.run_id and after.settling != before.settling:
                self._settles(before, after, command, now)
            elif after.run_id != before.run_id and pace is not None and before.last is not None:
                over = before.phase in {Phase.SUCCEEDED, Phase.FAILED} and before.task.actor == after.task.actor
                assert not over or now >= before.last.at + pace.cooldown, "a submit starts a run in a cooldown"
        if isinstance(command, c.Claim) and command.excess and after.phase is Phase.CANCELLED:
            assert not before.attempt, "what was begun is dropped"
            assert not any(body.run_id == after.run_id for body in self.bodies)
        if isinstance(command, c.Claim) and after.holder is not None and before.holder != after.holder:
            leave = not needs_leave(before.task.policy) or command.settled == settled_by(before)
            assert leave, "its leave was for other arguments"

    def _settles(self, before: Record, after: Record, command: c.Submit, now: float) -> None:
        settling, pace = after.settling, command.task.policy.pace
        assert settling is not None
        assert pace is not None
        assert pace.debounce is not None
        assert before.phase is after.phase is Phase.WAITING
        assert (after.task.args, settling.by) == (command.task.args, command.run_id), "the last arguments win"
        since = before.settling.since if before.settling is not None else now
        latest = since + pace.debounce.max_wait
        wanted = max(command.due, min(now + pace.debounce.settle, latest))
        assert settling.since == since, "it would wait again from here on"
        assert after.due == (before.due if before.attempt else wanted)

    def _deadlines(self, after: Record) -> None:
        told = {entry.holder(): entry.deadline for entry in after.previous if entry.deadline is not None}
        if after.phase is Phase.STOPPING and after.holder is not None:
            assert after.stop is not None
            told[after.holder] = after.stop.deadline
            self.accepted_cancels.add(after.run_id)
        for body, deadline in told.items():
            assert deadline <= self.deadlines.setdefault(body, deadline), "a deadline was extended"


def owed_counts(record: Record) -> Counter[str]:
    """What a record says has still to be counted."""
    owed: Counter[str] = Counter()
    for count in record.uncounted:
        owed[count.what] += count.number
    owed["superseded"] += sum(not entry.counted for entry in record.previous)
    return +owed
