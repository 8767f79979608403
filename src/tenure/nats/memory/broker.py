"""Who listens to which subject."""

from __future__ import annotations

from dataclasses import dataclass
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


class Subjects(Generic[T]):
    """Things by the filter that they were added with; found by subject, in the order in which they were added.

    A message costs a few look-ups: a filter's wildcard is nearly always its last token, so filters lie by what stands
    before that. Those with a ``*`` further to the front are tried one by one.
    """

    def __init__(self) -> None:
        self._exact: dict[str, dict[T, int]] = {}
        self._one: dict[str, dict[T, int]] = {}
        self._rest: dict[str, dict[T, int]] = {}
        self._odd: dict[str, dict[T, int]] = {}
        self._next = 0

    def _place(self, wanted: str) -> tuple[dict[str, dict[T, int]], str]:
        head, _, last = wanted.rpartition(".")
        if "*" in head:
            return self._odd, wanted
        if last == "*":
            return self._one, head
        return (self._rest, head) if last == ">" else (self._exact, wanted)

    def add(self, wanted: str, thing: T) -> None:
        """Have ``thing`` found for every subject that fits."""
        kind, at = self._place(wanted)
        self._next += 1
        kind.setdefault(at, {})[thing] = self._next

    def remove(self, wanted: str, thing: T) -> None:
        """Take back ``add``."""
        kind, at = self._place(wanted)
        things = kind.get(at, {})
        things.pop(thing, None)
        if not things:
            kind.pop(at, None)

    def match(self, subject: str) -> list[T]:
        """Everything whose filter fits ``subject``, each once."""
        found: list[dict[T, int]] = []
        if subject in self._exact:
            found.append(self._exact[subject])
        head = subject.rpartition(".")[0]
        if head in self._one:
            found.append(self._one[head])
        if self._rest:
            if "" in self._rest:
                found.append(self._rest[""])
            while head:
                if head in self._rest:
                    found.append(self._rest[head])
                head = head.rpartition(".")[0]
        if self._odd:
            found += [things for wanted, things in self._odd.items() if fits(subject, wanted)]
        if not found:
            return []
        if len(found) == 1:
            return list(found[0])
        numbered = sorted(
            ((number, thing) for things in found for thing, number in things.items()), key=lambda each: each[0]
        )
        return list(dict.fromkeys(thing for _, thing in numbered))


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
        found = self._subs.match(to)
        if len(found) == 1:
            self._send(found[0], subject, reply, headers, data)
            return True
        groups: dict[tuple[str, str], list[Sub]] = {}
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
