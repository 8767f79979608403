"""The nemesis: does harm by a seed, one thing after the other, and puts everything right again.

Every fault is written down. At most one fault of the servers at a time, so that a majority of three is always left.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.chaos.journal import steady
from tests.chaos.processes import Child
from tests.chaos.servers import Servers
from tests.history.evidence import Fault

TTL_SECONDS = 3.0
_STREAMS = ("KV_TENURE_{0}", "TENURE_{0}_WORK", "KV_TENURE_{0}_SESSIONS")
_MOST_HURT = 2
"""Workers, supervisors and producers that are down, frozen or cut off at once, of each."""


class Nemesis:
    """Call ``step`` again and again, and ``rest`` at the end. ``before_kill`` is called with what is about to end."""

    def __init__(
        self,
        seed: int,
        servers: Servers,
        children: list[Child],
        namespace: str,
        before_kill: Callable[[Child], None],
    ) -> None:
        self._chance = random.Random(seed)
        self._servers = servers
        self._children = children
        self._streams = [stream.format(namespace) for stream in _STREAMS]
        self._before_kill = before_kill
        self._cures: list[tuple[float, str, Callable[[], None], Fault]] = []
        self._next_at = steady() + 1.0
        self.faults: list[Fault] = []

    @property
    def kills(self) -> int:
        """Processes and servers killed so far."""
        return sum(fault.kind.endswith("kill") for fault in self.faults)

    def step(self) -> None:
        """Cure what is due; do the next harm if it is time."""
        now = steady()
        for cure in [cure for cure in self._cures if cure[0] <= now]:
            self._cures.remove(cure)
            cure[2]()
        if now >= self._next_at:
            self._next_at = now + self._chance.expovariate(1.0)
            self._harm()

    def rest(self) -> None:
        """Cure everything now."""
        for cure in self._cures:
            cure[2]()
        self._cures.clear()

    def _harm(self) -> None:
        server_free = not any(target.startswith("server") for _, target, _, _ in self._cures)
        if server_free and self._chance.random() < 0.3:
            self._harm_servers()
        else:
            self._harm_child()

    def _harm_child(self) -> None:
        child = self._chance.choice(self._children)
        hurt = [target for _, target, _, _ in self._cures]
        same = sum(1 for target in hurt if target.rstrip("0123456789") == child.role)
        if child.name in hurt or same >= min(_MOST_HURT, sum(1 for c in self._children if c.role == child.role) - 1):
            return
        kinds = ["kill", "kill", "kill", "term", "freeze", "freeze"]
        if self._servers.network is not None:
            kinds += ["cut", "cut"]
        match self._chance.choice(kinds):
            case "kill":
                self._before_kill(child)
                child.kill()
                self._cure_later("kill", child.name, self._chance.uniform(0.1, 2.0), child.start)
            case "term":
                self._before_kill(child)
                child.resume()
                child.term(6.0)
                self._cure_later("term", child.name, self._chance.uniform(0.1, 1.0), child.start)
            case "freeze":
                child.suspend()
                seconds = TTL_SECONDS + self._chance.uniform(-1.0, 3.0)
                self._cure_later("freeze", child.name, seconds, child.resume, child.pid)
            case "cut":
                self._cut(child.name, child.name)

    def _harm_servers(self) -> None:
        nodes = self._servers.nodes
        if len(nodes) == 1:
            if self._chance.random() < 0.5:
                nodes[0].kill()
                self._cure_later("server kill", "server", self._chance.uniform(0.05, 2.0), nodes[0].start)
            else:
                nodes[0].suspend()
                self._cure_later("server freeze", "server", self._chance.uniform(0.2, 2.5), nodes[0].resume)
            return
        stream = self._chance.choice(self._streams)
        leader = self._servers.leader_of(stream)
        number = self._chance.randrange(len(nodes)) if leader is None or self._chance.random() < 0.3 else leader
        what = "leader" if number == leader else "node"
        match self._chance.choice(["kill", "step down", "freeze", *(["cut"] * 2 if self._servers.network else [])]):
            case "kill":
                nodes[number].kill()
                self._cure_later(f"{what} kill", "server", self._chance.uniform(0.5, 5.0), nodes[number].start)
            case "step down":
                self._servers.step_down(stream)
                self._cure_later("step down", "server", 0.5, lambda: None)
            case "freeze":
                nodes[number].suspend()
                self._cure_later(f"{what} freeze", "server", self._chance.uniform(0.5, 5.0), nodes[number].resume)
            case "cut":
                self._cut(f"n{number}", "server", f"{what} ")

    def _cut(self, member: str, target: str, what: str = "") -> None:
        network = self._servers.network
        if network is not None:
            network.cut(member)
            self._cure_later(f"{what}cut", target, self._chance.uniform(1.0, 8.0), lambda: network.heal(member))

    def _cure_later(self, kind: str, target: str, seconds: float, cure: Callable[[], None], pid: int = 0) -> None:
        now = steady()
        fault = Fault(kind=kind, target=target, at=now, until=now + seconds, pid=pid)
        self.faults.append(fault)
        self._cures.append((now + seconds, target, cure, fault))
