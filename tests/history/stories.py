"""Hand-made evidence for the tests of the checker: a run that went well, and the means to spoil it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.history.evidence import (
    AskLine,
    BodyLine,
    Counts,
    Death,
    Evidence,
    HolderSeen,
    LastSeen,
    PreviousSeen,
    Revision,
    SessionSeen,
)

KEY = "k"


class Story:
    """Tells what happened to one key, write by write; each write follows the one before."""

    def __init__(self) -> None:
        self.evidence = Evidence(
            bodies=[],
            asks=[],
            revisions=[],
            records={},
            sessions=[],
            deaths=[],
            alive={1, 2},
            counts=Counts(),
        )
        for number in (1, 2):
            self.session(f"s{number}", number)
        self.seq = 0
        self.key = KEY

    @property
    def newest(self) -> Revision:
        return self.evidence.revisions[-1]

    def session(self, name: str, pid: int, closed: str | None = None, at: float = 0.0) -> None:
        self.evidence.sessions = [s for s in self.evidence.sessions if s.id != name]
        self.evidence.sessions.append(SessionSeen(id=name, kind="worker", pid=pid, closed=closed, stored_at=at))

    def write(self, **changes: Any) -> Revision:
        """The next revision of the key: the last one with changes."""
        before = next((r for r in reversed(self.evidence.revisions) if r.key == self.key), None)
        self.seq += 1
        base = before or Revision(seq=0, before=0, key=self.key)
        made = replace(base, **({"seq": self.seq, "before": before.seq if before else 0, "stored": 0.0} | changes))
        self.evidence.revisions.append(made)
        if made.gone:
            self.evidence.records.pop(self.key, None)
        else:
            self.evidence.records[self.key] = made
        return made

    def submit(self, run_id: str = "r1", generation: int = 1, **changes: Any) -> Revision:
        made = {"gone": False, "run_id": run_id, "generation": generation, "phase": "waiting", "actor": "nap"}
        return self.write(**(made | {"overlap": "stop", "attempt": 0, "holder": None} | changes))

    def claim(self, session: str = "s1", at: float = 1.0, *, body: bool = True, **changes: Any) -> Revision:
        """Claim the run, and start its body."""
        now = self.newest
        holder = HolderSeen(session, now.run_id, now.attempt + 1)
        made = self.write(**({"phase": "running", "attempt": now.attempt + 1, "holder": holder} | changes))
        if body:
            self.start(at)
        return made

    def start(self, at: float, **changes: Any) -> None:
        """A body of the newest revision's holder starts."""
        self._body(at, **({"what": "start"} | changes))

    def end(self, at: float, how: str = "return", **changes: Any) -> None:
        """That body ends."""
        self._body(at, what="end", how=how, **changes)

    def _body(self, at: float, **changes: Any) -> None:
        now = next(r for r in reversed(self.evidence.revisions) if r.holder is not None)
        assert now.holder is not None
        line = BodyLine(
            at=at,
            wall=at,
            pid=int(now.holder.session[1:]),
            actor=now.actor,
            key=now.key,
            generation=now.generation,
            run_id=now.run_id,
            attempt=now.attempt,
            fence=now.seq,
            session=now.holder.session,
            what="start",
        )
        self.evidence.bodies.append(replace(line, **changes))

    def last(self, phase: str = "succeeded", at: float = 2.0, **changes: Any) -> LastSeen:
        """The outcome that the holder of the newest revision would store."""
        now = self.newest
        session = now.holder.session if now.holder else ""
        last = LastSeen(now.run_id, now.generation, phase, at, now.attempt, session)
        return replace(last, **changes)

    def finish(self, phase: str = "succeeded", at: float = 2.0, **changes: Any) -> Revision:
        """The outcome of the newest revision's run."""
        return self.write(**({"phase": phase, "holder": None, "last": self.last(phase, at)} | changes))

    def replaced(self, run_id: str = "r2", deadline: float | None = 3.0, **changes: Any) -> Revision:
        """A newer generation that keeps the body of the one before."""
        now = self.newest
        kept = now.previous
        if now.holder is not None:
            kept = (*kept, PreviousSeen(now.holder.session, now.holder.run_id, now.holder.attempt, deadline))
        return self.submit(run_id, now.generation + 1, **({"previous": kept} | changes))

    def asked(
        self,
        ask: str,
        told: str,
        run_id: str = "",
        generation: int = 0,
        wall: float = 1.5,
        asked: float | None = None,
        **more: Any,
    ) -> None:
        """An ask and its answer, told at ``wall``."""
        begun = wall if asked is None else asked
        line = AskLine(asked=begun, wall=wall, ask=ask, key=KEY, told=told, run_id=run_id, generation=generation)  # type: ignore[arg-type]  # one of the asks
        self.evidence.asks.append(replace(line, **more))

    def asking(self, ask: str, asked: float, number: str = "a", **more: Any) -> None:
        """An ask that nobody has an answer to: its process died first."""
        self.asked(ask, "", wall=asked, id=number, **more)

    def died(self, pid: int, at: float) -> None:
        self.evidence.deaths.append(Death(pid=pid, role="worker", how="kill", killed_at=at, at=at, wall=at))
        self.evidence.alive.discard(pid)


def ran_well() -> Story:
    """Submitted, claimed, run, succeeded."""
    story = Story()
    story.submit()
    story.asked("submit", "accepted", "r1", 1, wall=0.5, asked=0.4)
    story.claim()
    story.end(1.9)
    story.finish()
    return story
