"""The nemesis: does harm by a seed, one thing after the other, and puts everything right again.

Every fault is written down. At most one fault of the servers at a time, so that a majority of three is always left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterable

from msgspec import Struct

from tenure.worker.drain import longest
from tests.chaos.apart import app
from tests.chaos.journal import steady
from tests.chaos.kinds import CHILD_FREEZE, CHILD_KILL, LAME_DUCK, RESTART
from tests.chaos.processes import Child
from tests.chaos.servers import Servers
from tests.history.evidence import Fault

TTL_SECONDS = 3.0
_MOST_HURT = 2
"""Workers, supervisors and producers that are down, frozen or cut off at once, of each."""
DRAIN_SECONDS = longest(app) + 5.0
"""After so long a process that was asked to end is killed. It has less to do than that; the rest is for a busy machine."""
_SHUTDOWN_SECONDS = 15.0
"""The same of a server: one of three that leads something takes ten to hand it over."""


class _Ending(Struct, kw_only=True):
    """A process that was asked to end. ``hurry_at``: when it gets another signal; ``until``: how long it may take.

    ``pause``: how long it is away after that.
    """

    child: Child
    kind: str
    target: str
    at: float
    until: float
    pause: float
    hurry_at: float = 0.0


class _Cure(Struct, kw_only=True):
    """What puts a target right again, and when."""

    at: float
    target: str
    do: Callable[[], None]


class Nemesis:
    """Call ``step`` again and again, and ``rest`` at the end. ``before_kill`` is called with what is about to end."""

    def __init__(
        self,
        seed: int,
        servers: Servers,
        children: list[Child],
        before_kill: Callable[[Child], object],
        *,
        first: Iterable[str] = (),
        only: Iterable[str] = (),
        leave_servers: bool = False,
        every: float = 1.0,
    ) -> None:
        """``first``: kinds of faults, each of which is done as soon as it can be. ``leave_servers``: alone.

        ``only``: of all that may be done (``kinds.ONLY``) just these; servers are left alone then. ``every``: seconds between two
        faults, on the average.
        """
        self._every = every
        self._chance = random.Random(seed)
        self._servers = servers
        self._children = children
        self._before_kill = before_kill
        self._cures: list[_Cure] = []
        self._endings: list[_Ending] = []
        self._next_at = steady() + 1.0
        self._first = list(first)
        self._only = frozenset(only)
        self._leave_servers = leave_servers or bool(self._only)
        self.faults: list[Fault] = []

    @property
    def kills(self) -> int:
        """Processes and servers killed so far, children of workers not counted."""
        return sum(fault.kind.endswith("kill") and fault.kind != CHILD_KILL for fault in self.faults)

    @property
    def is_owing(self) -> bool:
        """Whether it has not yet done all that it was to do first."""
        return bool(self._first)

    def step(self) -> None:
        """Cure what is due; do the next harm if it is time."""
        now = steady()
        for ending in list(self._endings):
            self._see_off(ending, now)
        for cure in [cure for cure in self._cures if cure.at <= now]:
            self._cures.remove(cure)
            cure.do()
        if now >= self._next_at:
            self._next_at = now + self._chance.expovariate(1.0 / self._every)
            self._harm()

    def rest(self) -> None:
        """Cure everything now."""
        for ending in self._endings:
            if ending.hurry_at:
                ending.child.ask_to_end(signal.SIGINT)
            self._over(ending, max(0.0, ending.until - steady()))
        self._endings.clear()
        for cure in self._cures:
            cure.do()
        self._cures.clear()

    @property
    def _hurt(self) -> list[str]:
        return [cure.target for cure in self._cures] + [ending.target for ending in self._endings]

    def _harm(self) -> None:
        server_free = not any(target.startswith("server") for target in self._hurt)
        for kind in self._first:
            if self._harm_worker_child(kind) if kind == CHILD_KILL else server_free and self._end_server(kind):
                self._first.remove(kind)
                return
        if server_free and not self._leave_servers and self._chance.random() < 0.3:
            self._harm_servers()
        else:
            self._harm_child()

    # -- processes ---------------------------------------------------------------------------------------------------

    def _harm_child(self) -> None:
        child = self._chance.choice(self._children)
        hurt = self._hurt
        same = sum(1 for target in hurt if target.rstrip("0123456789") == child.role)
        if child.name in hurt or same >= min(_MOST_HURT, sum(1 for c in self._children if c.role == child.role) - 1):
            return
        kinds = ["kill", "kill", "kill", "term", "freeze", "freeze"]
        if self._servers.network is not None:
            kinds += ["cut", "cut"]
        if child.role == "worker":
            kinds += [CHILD_KILL, CHILD_FREEZE]
        kinds = [kind for kind in kinds if not self._only or kind in self._only]
        if not kinds:
            return
        kind = self._chance.choice(kinds)
        match kind:
            case "kill":
                self._before_kill(child)
                child.kill()
                self._cure_later("kill", child.name, self._chance.uniform(0.1, 2.0), child.start)
            case "term":
                self._before_kill(child)
                child.ask_to_end()
                self._end_later("term", child.name, child, DRAIN_SECONDS, self._chance.uniform(0.1, 1.0))
            case "freeze":
                child.suspend()
                seconds = TTL_SECONDS + self._chance.uniform(-1.0, 3.0)
                self._cure_later("freeze", child.name, seconds, child.resume, child.pid)
            case "cut":
                self._cut(child.name, child.name)
            case _:
                self._harm_worker_child(kind)

    def _harm_worker_child(self, kind: str) -> bool:
        """A body's child process is killed or frozen; False if there is none."""
        found = [(child, pid) for child in self._children if child.role == "worker" for pid in child.children()]
        if not found:
            return False
        worker, pid = self._chance.choice(found)
        number, seconds = signal.SIGKILL, 0.0
        if kind == CHILD_FREEZE:
            number, seconds = signal.SIGSTOP, self._chance.uniform(0.5, 4.0)
        _send(pid, number)
        self._cure_later(kind, worker.name, seconds, lambda: _send(pid, signal.SIGCONT), hurt="child")
        return True

    # -- servers -----------------------------------------------------------------------------------------------------

    def _harm_servers(self) -> None:
        nodes = self._servers.nodes
        if self._chance.random() < 0.25:
            self._end_server(self._chance.choice((RESTART, LAME_DUCK)))
            return
        if len(nodes) == 1:
            if self._chance.random() < 0.5:
                nodes[0].kill()
                self._cure_later("server kill", "server", self._chance.uniform(0.05, 2.0), nodes[0].start)
            else:
                nodes[0].suspend()
                self._cure_later("server freeze", "server", self._chance.uniform(0.2, 2.5), nodes[0].resume)
            return
        office = self._chance.choice(self._servers.offices(self._chance.choice(("stream", "consumer", "meta"))))
        leader = self._servers.leader_of(office)
        number = self._chance.randrange(len(nodes)) if leader is None or self._chance.random() < 0.3 else leader
        what = f"{office.kind} leader" if number == leader else "node"
        match self._chance.choice(
            ["kill", "step down", "step down", "freeze", *(["cut"] * 2 if self._servers.network else [])]
        ):
            case "kill":
                nodes[number].kill()
                self._cure_later(f"{what} kill", "server", self._chance.uniform(0.5, 5.0), nodes[number].start)
            case "step down":
                if self._servers.step_down(office):
                    self._cure_later(f"{office.kind} step down", "server", 0.5, lambda: None)
            case "freeze":
                nodes[number].suspend()
                self._cure_later(f"{what} freeze", "server", self._chance.uniform(0.5, 5.0), nodes[number].resume)
            case "cut":
                self._cut(f"n{number}", "server", f"{what} ")

    def _end_server(self, kind: str) -> bool:
        """In order: SIGTERM, or SIGUSR2 and some time later SIGINT, for while it is a lame duck it hears no SIGTERM."""
        node = self._chance.choice(self._servers.nodes)
        pause, seconds = self._chance.uniform(0.05, 2.0), 0.0
        if kind == LAME_DUCK:
            seconds = self._chance.uniform(1.0, 6.0)
        node.ask_to_end(signal.SIGUSR2 if seconds else signal.SIGTERM)
        self._end_later(kind, "server", node, seconds + _SHUTDOWN_SECONDS, pause, hurry=seconds)
        return True

    def _cut(self, member: str, target: str, what: str = "") -> None:
        network = self._servers.network
        if network is not None:
            network.cut(member)
            self._cure_later(f"{what}cut", target, self._chance.uniform(1.0, 8.0), lambda: network.heal(member))

    # -- what is put right later -------------------------------------------------------------------------------------

    def _cure_later(
        self, kind: str, target: str, seconds: float, cure: Callable[[], None], pid: int = 0, hurt: str = ""
    ) -> None:
        """``hurt``: what is not to be harmed any more until then, if it is not the target."""
        now = steady()
        self.faults.append(Fault(kind=kind, target=target, at=now, until=now + seconds, pid=pid))
        self._cures.append(_Cure(at=now + seconds, target=hurt or target, do=cure))

    def _end_later(
        self, kind: str, target: str, child: Child, seconds: float, pause: float, *, hurry: float = 0.0
    ) -> None:
        now = steady()
        self._endings.append(
            _Ending(
                child=child,
                kind=kind,
                target=target,
                at=now,
                until=now + seconds,
                pause=pause,
                hurry_at=now + hurry if hurry else 0.0,
            )
        )

    def _see_off(self, ending: _Ending, now: float) -> None:
        if ending.hurry_at and now >= ending.hurry_at:
            ending.hurry_at = 0.0
            ending.child.ask_to_end(signal.SIGINT)
        if not ending.child.running or now >= ending.until:
            self._endings.remove(ending)
            self._over(ending, 0.0)

    def _over(self, ending: _Ending, seconds: float) -> None:
        """It has ended, or is killed after so many seconds: start it again a moment later."""
        ending.child.end("term", seconds)
        at = steady() + ending.pause
        self.faults.append(Fault(kind=ending.kind, target=ending.target, at=ending.at, until=at))
        self._cures.append(_Cure(at=at, target=ending.target, do=ending.child.start))


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
