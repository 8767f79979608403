"""Shells as programs that can be forked: where a process is, as a small number.

A shell is a generator that yields what it wants from the world and is sent the answer. Where it is in its code and what its
variables hold is all that decides what it does next; so that is what tells one node from another, and histories that no longer
matter are forgotten. A generator cannot be copied: it is run again from its start with the same answers, once for each new node.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import msgspec

Request = tuple[Any, ...]
Shell = Generator[Request, Any, Any]


class GaveUp(Exception):
    """Patience is spent: a write has no known fate (the product raises OutcomeUnknown)."""


class Fumbled(Exception):
    """A defect of ours ends the handling of one wake-up in the middle; its process lives on."""


_THROWN: dict[str, type[Exception]] = {"gave up": GaveUp, "fumbled": Fumbled}


class Nodes:
    """Every node that the shells of one exploration can come to."""

    def __init__(self, shells: object) -> None:
        self._shells = shells
        self.requests: list[Request] = []
        self._history: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = []
        self._node_of: dict[tuple[Any, ...], int] = {}
        self._after: dict[tuple[Any, ...], int] = {}

    def __len__(self) -> int:
        return len(self.requests)

    def start(self, program: str, *args: Any) -> int:
        """The node at which a program begins."""
        key = (program, args)
        node = self._after.get(key)
        if node is None:
            node = self._after[key] = self._come_to(program, args, ())
        return node

    def send(self, node: int, answer: Any) -> int:
        """The node that follows an answer."""
        key = (node, answer)
        after = self._after.get(key)
        if after is None:
            program, args, answers = self._history[node]
            after = self._after[key] = self._come_to(program, args, (*answers, answer))
        return after

    def throw(self, node: int, what: str) -> int:
        """The node that follows an exception."""
        return self.send(node, ("throw", what))

    def _come_to(self, program: str, args: tuple[Any, ...], answers: tuple[Any, ...]) -> int:
        shell: Shell = getattr(self._shells, program)(*args)
        try:
            request = next(shell)
            for answer in answers:
                thrown = isinstance(answer, tuple) and bool(answer) and answer[0] == "throw"
                request = shell.throw(_THROWN[answer[1]]()) if thrown else shell.send(answer)
            where = tuple(_where(shell))
        except StopIteration as end:
            request, where = ("end", end.value), ()
        key = (where, request)
        node = self._node_of.get(key)
        if node is None:
            node = self._node_of[key] = len(self.requests)
            self.requests.append(request)
            self._history.append((program, args, answers))
        return node


def _where(shell: Any) -> Iterator[tuple[Any, ...]]:
    """Position and variables of a generator and of those that it waits for."""
    while shell is not None:
        frame = shell.gi_frame
        if frame is None:
            return
        names = tuple((name, _frozen(value)) for name, value in frame.f_locals.items() if name != "self")
        yield frame.f_code.co_name, frame.f_lasti, names
        shell = shell.gi_yieldfrom


def _frozen(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, msgspec.json.encode(value, order="deterministic")
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value
