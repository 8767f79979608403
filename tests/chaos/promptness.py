"""How long after the kill of a worker each of its runs goes on elsewhere, and how long that may take.

With the servers left alone: a session's ttl until it may be closed, a supervisor's tick until that is seen, and a second for
the close, the look at what it held, the wake-up and the claim: a quarter of it for what processes compute, which takes as
many times as long as there are threads for a core. Each other worker that is hurt once the session may be closed may have been
given the wake-up, and each supervisor that is hurt may have the run in its share: then the server gives it to somebody else
after ``ack_wait``; one that is hurt when it should be over already excuses nothing. Time in which no worker was well, or no
supervisor, does not count: one that starts is not, before it is ready.

Not judged: runs that wait by design, for a place, a start or a switch, and those that somebody cancelled or replaced.
"""

from __future__ import annotations

import math
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Self

from msgspec import Struct

from tenure.config import Config
from tenure.core.silence import LIVELY
from tests.chaos.journal import steady
from tests.chaos.processes import Child
from tests.history.check_paced import is_about
from tests.history.evidence import BoardSeen, BodyLine, Death, Fault, Violation
from tests.history.known import Body, Known

_TICK_SECONDS = 0.25
"""A supervisor looks at least so often whose time is over."""
_ROOM_SECONDS, _WORK_SECONDS = 0.75, 0.25
"""What closing, looking, waking and claiming take: waiting for one another, and computing."""
_LEAST_SILENCE = 0.8
"""Share of a ttl that is left of a session at least, when its process is killed (it is renewed five times in one)."""
_SERVER_SECONDS = 5.0
"""So long after a fault of a server is over it may still be felt; of three, twice as long, for there is an election."""
_LOOK_SECONDS = 0.1
_BEAT_SECONDS = 0.3
"""A body in a child process that has not beaten for so long had ended before: it is killed, too, where it overstays."""
_SERVICES = {"worker", "supervisor"}
_HARMS = {"kill", "term", "freeze", "cut"}


class Crowd:
    """How many threads of this machine wanted a core, for each of its cores, looked at again and again in a thread."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="chaos-crowd", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        cores = len(os.sched_getaffinity(0))
        while not self._over.wait(_LOOK_SECONDS):
            runnable = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
            self._seen.append((steady(), int(runnable) / cores))

    def within(self, since: float, until: float) -> float:
        """On the average, and 1 at least."""
        seen = [number for at, number in self._seen if since <= at <= until]
        return max(1.0, sum(seen) / len(seen)) if seen else 1.0


class Life(Struct, frozen=True, kw_only=True):
    """When a worker or a supervisor was well: from when it was ready, or well again, until it was hurt."""

    name: str
    role: str
    since: float
    until: float


def lives_of(child: Child, faults: list[Fault], *, beside: bool) -> Iterator[Life]:
    """Of one service; ``beside``: with a supervisor in its process."""
    roles = {child.role} | ({"supervisor"} if beside else set())
    pauses = sorted((f.at, f.until) for f in faults if f.target == child.name and f.kind in {"freeze", "cut"})
    downs = [death.asked_at or death.killed_at for death in child.deaths]
    for ready in child.ready_at:
        end, since = min((down for down in downs if down > ready), default=math.inf), ready
        for at, until in [(at, until) for at, until in pauses if ready < at < end] + [(end, end)]:
            for role in roles:
                yield Life(name=child.name, role=role, since=since, until=min(at, end))
            since = until


def _counting(lives: list[Life], since: float, until: float) -> float:
    """Seconds of these in which a worker and a supervisor were well; all of infinitely many."""
    if until == math.inf:
        return until
    edges = sorted({since, until, *(at for life in lives for at in (life.since, life.until) if since < at < until)})

    def well(role: str, at: float) -> bool:
        return any(life.role == role and life.since <= at < life.until for life in lives)

    return sum(end - at for at, end in pairwise(edges) if all(well(role, at) for role in _SERVICES))


class Takeover(Struct, kw_only=True, order=True):
    """A run whose body a killed worker had: after how many seconds it went on, and after how many it had to.

    ``seconds``: only those that count, of ``waited`` in all. ``bound``: infinite where the servers were not left alone.
    """

    seconds: float
    waited: float
    bound: float
    key: str
    run_id: str
    attempt: int
    hurt: list[str]
    crowd: float


def takeovers(known: Known, faults: list[Fault], lives: list[Life], config: Config, crowd: Crowd) -> Iterator[Takeover]:
    """All that are not excused."""
    killed = {d.pid: d for d in known.evidence.deaths if d.how == "kill" and d.role == "worker" and not d.asked_at}
    starts: dict[str, list[BodyLine]] = defaultdict(list)
    for body in known.bodies:
        starts[body.start.run_id].append(body.start)
    for body in known.bodies:
        death = killed.get(body.start.pid)
        if death is None or body.end is not None or body.start.limit or body.start.rate:
            continue
        if body.start.child and body.until < death.killed_at - _BEAT_SECONDS:
            continue
        later = [start for start in starts[body.start.run_id] if start.attempt > body.start.attempt]
        on = min((start.at for start in later), default=math.inf)
        if on <= death.killed_at:  # a void body: frozen and fenced before the kill, or killed in its child
            continue
        if on == math.inf and _is_over(known, body):
            continue
        if not _held_back(known, body, death, on):
            others = [life for life in lives if life.name != death.name]
            yield _judged(body, death, on, faults, others, config, crowd)


def _is_over(known: Known, body: Body) -> bool:
    """Whether the run was cancelled, replaced or failed for good: its next attempt is not to come."""
    run_id = body.start.run_id
    newest = known.run_ids[body.start.key][-1:]
    return run_id in known.outcomes or run_id in known.stopped_at or newest != [run_id]


def _held_back(known: Known, body: Body, death: Death, on: float) -> bool:
    """Whether a switch was about it at any time between kill and start."""
    since, until = death.wall - (death.at - death.killed_at), death.wall + (on - death.at)
    return any(
        board.stored <= until
        and (after.stored or math.inf) >= since
        and any(is_about(s, body.start) for s in board.switches)
        for board, after in pairwise([*known.evidence.boards, BoardSeen(seq=0)])
    )


def _may_matter(fault: Fault, killed_at: float, lives: list[Life], config: Config) -> bool:
    """Whether a fault that began before the run went on may have put it off."""
    ttl = config.session_ttl(config.replicas)
    if fault.kind not in _HARMS:
        return False
    if any(life.role == "supervisor" and life.name == fault.target for life in lives):
        return fault.until + LIVELY * ttl > killed_at
    woken_at = killed_at + _LEAST_SILENCE * ttl
    pulls_until = (
        min(fault.until, fault.at + config.pull_expires_seconds) if fault.kind in {"freeze", "cut"} else fault.at
    )
    return fault.target.startswith("worker") and pulls_until > woken_at


def _judged(
    body: Body, death: Death, on: float, faults: list[Fault], lives: list[Life], config: Config, crowd: Crowd
) -> Takeover:
    ttl = config.session_ttl(config.replicas)
    since = death.killed_at
    times = crowd.within(since, on)
    bound = ttl + _TICK_SECONDS + _ROOM_SECONDS + _WORK_SECONDS * times
    hurt: list[str] = []
    for fault in sorted(faults, key=lambda fault: fault.at):
        late = _counting(lives, since, max(since, fault.at)) > bound
        if not late and fault.target != death.name and fault.at < on and _may_matter(fault, since, lives, config):
            bound += config.ack_wait_seconds
            hurt.append(f"{fault.target} {fault.kind}")
    felt = _SERVER_SECONDS * min(config.replicas, 2)
    left_alone = not any(f.at < on and f.until + felt > since for f in faults if f.target == "server")
    return Takeover(
        seconds=_counting(lives, since, on),
        waited=on - since,
        bound=bound if left_alone else math.inf,
        key=body.start.key,
        run_id=body.start.run_id,
        attempt=body.start.attempt,
        hurt=hurt,
        crowd=times,
    )


def check_promptness(found: list[Takeover]) -> Iterator[Violation]:
    """Every run that went on too late, or not at all."""
    for one in found:
        if one.seconds > one.bound:
            yield Violation(
                "taken over in time",
                one.key,
                f"attempt {one.attempt} of {one.run_id} was followed by the next one {one.waited:.2f} s after its worker was"
                f" killed, of which {one.seconds:.2f} s count; {one.bound:.2f} s were allowed"
                f" ({', '.join(one.hurt) or 'nobody else'} hurt, {one.crowd:.1f} threads for a core)",
            )
