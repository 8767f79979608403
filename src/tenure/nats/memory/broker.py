"""Who listens to which subject."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from tenure.nats.memory.peer import Peer

T = TypeVar("T")


def fits(subject: str, wanted: str) -> bool:
    """Whether a subject is among those that a filter names."""
    if "*" not in wanted and ">" not in wanted:
        return subject == wanted
    if wanted.endswith(">") and "*" not in wanted:
        return subject.startswith(wanted[:-1]) and len(subject) >= len(wanted)
    have, want = subject.split("."), wanted.split(".")
    for at, part in enumerate(want):
        if part == ">":
            return len(have) > at
        if at >= len(have) or part not in {"*", have[at]}:
            return False
    return len(have) == len(want)


def overlap(one: str, other: str) -> bool:
    """Whether two filters have a subject in common."""
    ours, theirs = one.split("."), other.split(".")
    for a, b in zip(ours, theirs, strict=False):
        if ">" in {a, b}:
            return True
        if a != b and "*" not in {a, b}:
            return False
    return len(ours) == len(theirs)


@dataclass(slots=True)
class _Node(Generic[T]):
    below: dict[str, _Node[T]] = field(default_factory=dict)
    here: dict[T, None] = field(default_factory=dict)
    rest: dict[T, None] = field(default_factory=dict)


class Subjects(Generic[T]):
    """Things by the filter that they were added with; found by subject, in the order in which they were added."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[T, None]] = {}
        self._root: _Node[T] = _Node()
        self._numbers: dict[tuple[T, str], int] = {}
        self._next = 0

    def add(self, wanted: str, thing: T) -> None:
        """Have ``thing`` found for every subject that fits."""
        self._next += 1
        self._numbers[thing, wanted] = self._next
        if "*" not in wanted and ">" not in wanted:
            self._exact.setdefault(wanted, {})[thing] = None
            return
        node = self._root
        tokens = wanted.split(".")
        for token in tokens[:-1]:
            node = node.below.setdefault(token, _Node())
        if tokens[-1] == ">":
            node.rest[thing] = None
        else:
            node.below.setdefault(tokens[-1], _Node()).here[thing] = None

    def remove(self, wanted: str, thing: T) -> None:
        """Take back ``add``."""
        if self._numbers.pop((thing, wanted), None) is None:
            return
        if wanted in self._exact:
            del self._exact[wanted][thing]
            if not self._exact[wanted]:
                del self._exact[wanted]
            return
        tokens = wanted.split(".")
        path = [self._root]
        for token in tokens[:-1] if tokens[-1] == ">" else tokens:
            path.append(path[-1].below[token])
        del (path[-1].rest if tokens[-1] == ">" else path[-1].here)[thing]
        for node, parent, token in zip(
            reversed(path[1:]), reversed(path[:-1]), reversed(tokens[: len(path) - 1]), strict=True
        ):
            if node.below or node.here or node.rest:
                break
            del parent.below[token]

    def match(self, subject: str) -> list[T]:
        """Everything whose filter fits ``subject``, each once."""
        found = [(self._numbers[thing, subject], thing) for thing in self._exact.get(subject, ())]
        if self._root.below or self._root.rest:
            found += self._search(subject)
        if len(found) > 1:
            found.sort(key=lambda each: each[0])
            return list(dict.fromkeys(thing for _, thing in found))
        return [thing for _, thing in found]

    def _search(self, subject: str) -> Iterator[tuple[int, T]]:
        tokens = subject.split(".")
        level: list[tuple[_Node[T], str]] = [(self._root, "")]
        for token in tokens:
            deeper: list[tuple[_Node[T], str]] = []
            for node, path in level:
                for thing in node.rest:
                    yield self._numbers[thing, path + ">"], thing
                for step in (token, "*"):
                    child = node.below.get(step)
                    if child is not None:
                        deeper.append((child, f"{path}{step}."))
            if not deeper:
                return
            level = deeper
        for node, path in level:
            for thing in node.here:
                yield self._numbers[thing, path[:-1]], thing


@dataclass(slots=True, eq=False)
class Sub:
    """One subscription of one client."""

    peer: Peer
    sid: str
    subject: str
    group: str = ""
    left: int = -1
    """How many messages it still takes; -1: any number."""


class Broker:
    """The subscriptions of every client."""

    def __init__(self) -> None:
        self._subs: Subjects[Sub] = Subjects()
        self._turns: dict[tuple[str, str], int] = {}

    def add(self, sub: Sub) -> None:
        """Have a subscription get what comes from now on."""
        self._subs.add(sub.subject, sub)

    def remove(self, sub: Sub) -> None:
        """End a subscription."""
        self._subs.remove(sub.subject, sub)

    def hears(self, subject: str) -> bool:
        """Whether anybody listens to ``subject``."""
        return bool(self._subs.match(subject))

    def deliver(self, to: str, subject: str, reply: str, headers: bytes, data: bytes) -> bool:
        """Send a message to everybody who listens to ``to``, and to one of each group; False if nobody does.

        They see ``subject``: a stream's message reaches an inbox under its own name.
        """
        groups: dict[tuple[str, str], list[Sub]] = {}
        found = self._subs.match(to)
        for sub in found:
            if sub.group:
                groups.setdefault((sub.subject, sub.group), []).append(sub)
            else:
                self._send(sub, subject, reply, headers, data)
        for group, members in groups.items():
            turn = self._turns[group] = (self._turns.get(group, -1) + 1) % len(members)
            self._send(members[turn], subject, reply, headers, data)
        return bool(found)

    def _send(self, sub: Sub, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        if sub.left == 1:
            sub.peer.unsubscribe(sub.sid, 0)
        sub.left -= sub.left > 0
        sub.peer.deliver(sub.sid, subject, reply, headers, data)
