"""How much of everything may happen in one exploration."""

from __future__ import annotations

from msgspec import Struct

from tenure.core import commands as c
from tenure.core.records import Task
from tests.model.books import Books
from tests.model.strangers import Code, Message
from tests.model.world import State

KEY = "key"
FAULTS = frozenset({"crash", "freeze", "again", "double", "lose"})
"""Of processes and wake-ups."""


class Wish(Struct, frozen=True, kw_only=True):
    """What a client asks for, once, or a stranger publishes.

    ``after``: only when these (by number) were given and answered. ``due``: after so many ticks; 0: at once.
    """

    what: str
    run_id: str = ""
    task: Task | None = None
    if_live: c.IfLive = "keep"
    after: tuple[int, ...] = ()
    message: Message | None = None
    due: int = 0


class Scenario(Struct, frozen=True, kw_only=True):
    """A bounded configuration.

    ``faults`` may happen in all, of ``kinds``; ``bodies``: how a body may end (told to stop, it may also be halted);
    ``workers`` live at once, of ``sessions`` in all, each with ``slots``; ``supervisors`` look at once, ``looks`` times.
    ``hands``: commands of the inbox that supervisors have in hand at once. ``releases`` of the code have supervisors, which ask
    for the schedule ``asks`` times each. ``rate``: what a worker may be told that asks to start a run.
    """

    name: str
    shows: str
    wishes: tuple[Wish, ...]
    bodies: tuple[str, ...] = ("returned",)
    workers: int = 2
    sessions: int = 3
    slots: int = 1
    supervisors: int = 1
    looks: int = 1
    faults: int = 1
    kinds: frozenset[str] = frozenset({"crash"})
    ticks: int = 0
    expiries: int = 0
    drains: int = 0
    most_again: int = 3
    hands: int = 2
    releases: tuple[Code, ...] = ()
    asks: int = 1
    rate: tuple[str, ...] = ("granted",)

    def begins(self) -> State:
        """The first state."""
        return State(
            (), (), (), (), (), (), (), (1 << len(self.wishes)) - 1, 0,
            self.faults, self.looks, self.ticks, self.expiries, self.drains, Books(), asks=(self.asks,) * len(self.releases),
        )  # fmt: skip
