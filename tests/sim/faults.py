"""What goes wrong in a simulation: on the way of messages, with the server, with processes and their clocks.

Each seed has its own mixture: some faults often, some seldom, some never. So rare things meet each other that would drown
if everything went wrong at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec import Struct

from tenure.nats.memory import PROMPT, Link

_CAS = "$KV."
"""A write with a revision arrives twice only around a reconnect, where nats-py itself sends it again: no server doubles it."""


class Mixture(Struct, frozen=True, kw_only=True):
    """Chances of one message (0 to 1), and mean seconds between two faults of a kind (0: never)."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    latest: float = 0.0
    answer_lost: float = 0.0
    cut: float = 0.0
    server_kill: float = 0.0
    server_pause: float = 0.0
    kill: float = 0.0
    freeze: float = 0.0
    term: float = 0.0
    clock_jump: float = 0.0
    skew: float = 0.0
    counts_suspension: bool = True
    schedule_races: bool = False

    @property
    def costs_counts(self) -> bool:
        """Whether a count may get lost: with a process that dies, or an answer that is still missing when its record has moved on."""
        return any(
            (
                self.lost,
                self.doubled,
                self.late,
                self.answer_lost,
                self.server_kill,
                self.server_pause,
                self.kill,
                self.freeze,
            )
        )

    @property
    def tells_all(self) -> bool:
        """Whether whatever a process tells the history arrives: nothing goes wrong but freezes."""
        return self == Mixture(freeze=self.freeze)


def mixture_of(chance: random.Random) -> Mixture:
    """What goes wrong with this seed."""

    def often(*choices: float) -> float:
        return chance.choice((0.0, *choices))

    follows_steady = chance.random() < 0.8
    return Mixture(
        lost=often(0.0005, 0.005, 0.02),
        doubled=often(0.001, 0.02),
        late=often(0.01, 0.1, 0.3),
        latest=chance.choice((0.05, 0.5, 3.0)),
        answer_lost=often(0.001, 0.01, 0.05),
        cut=often(2.0, 6.0),
        server_kill=often(8.0, 20.0),
        server_pause=often(6.0, 15.0),
        kill=often(1.5, 4.0, 10.0),
        freeze=often(3.0, 8.0),
        term=often(5.0, 15.0),
        clock_jump=often(4.0) if follows_steady else 0.0,  # else it is not noticed before the next look at the server
        skew=often(2.0, 300.0),
        counts_suspension=follows_steady,
        schedule_races=chance.random() < 0.5,
    )


class FaultyLink(Link):
    """A way on which messages get lost, doubled or late while ``on`` says so."""

    def __init__(
        self, mixture: Mixture, chance: random.Random, on: Callable[[], bool], told: Callable[[str], None], client: str
    ) -> None:
        self._mixture = mixture
        self._chance = chance
        self._on = on
        self._told = told
        self._client = client

    def up(self, subject: str, payload: bytes) -> Sequence[float]:
        """What the client has sent."""
        return self._fate(
            ">", subject, payload, self._mixture.lost, self._mixture.doubled * (not subject.startswith(_CAS))
        )

    def down(self, subject: str, payload: bytes) -> Sequence[float]:
        """What the server has sent; answers have a chance of their own to get lost."""
        answer = subject.startswith("_INBOX")
        lost = self._mixture.answer_lost if answer else self._mixture.lost
        return self._fate("<", subject, payload, lost, self._mixture.doubled)

    def _fate(self, way: str, subject: str, payload: bytes, lost: float, doubled: float) -> Sequence[float]:
        if not self._on():
            return PROMPT
        mixture, chance = self._mixture, self._chance
        dice = chance.random()
        if dice < lost:
            self._told(f"lost {self._client} {way} {subject} {payload[:60]!r}")
            return ()
        dice -= lost
        if dice < doubled:
            self._told(f"doubled {self._client} {way} {subject}")
            return (0.0, mixture.latest * chance.random())
        dice -= doubled
        if dice < mixture.late:
            return (mixture.latest * chance.random() ** 3,)
        return PROMPT
