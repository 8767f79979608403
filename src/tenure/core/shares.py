"""Who gets a worker's slots: queues by their weights, and within a queue its lanes by their priority's share.

Rules.

1. While two lanes of a queue have work, their slots go 16 : 4 : 1 for high, normal and low; while two queues have work,
   theirs go by the weights that the worker was given. So nothing starves: a low lane gets every 21st slot of its queue at worst.
2. What has no work gives its share away. Of what it did not use it has one round at most when it comes back, and of slots
   that nobody else wanted at the time nobody owes more: accounts are kept so close to each other.
3. A lane is only asked for as much as it is known to hold, so a slot does not wait for what may not be there.

An account is the number of slots got over the weight; the next slot goes to whoever is behind once it has it. No clock and
no I/O: the puller tells what lanes hold and what they got.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from tenure.core.errors import ConfigError
from tenure.core.given import whole
from tenure.core.subjects import PRIORITIES, check_name

SHARES = {"high": 16, "normal": 4, "low": 1}
MAX_WEIGHT = 1_000
_ROUNDS = 1.0


class Account(Struct, eq=False):
    """What somebody got: ``spent`` is slots over ``weight``."""

    weight: int
    spent: float = 0.0


class Line(Account):
    """A lane's account. ``waiting``: messages it is known to hold; ``asked``: of these, asked for and not yet here."""

    queue: str = ""
    waiting: int = 0
    asked: int = 0


class Shares:
    """The accounts of one worker's queues and lanes. ``weights``: of the queues."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._queues = {queue: Account(weight) for queue, weight in weights.items()}
        self._lines = {(q, p): Line(SHARES[p], queue=q) for q in weights for p in PRIORITIES}
        self._busy: dict[Line, None] = {}

    def line(self, queue: str, priority: str) -> Line:
        """The account of a lane."""
        return self._lines[queue, priority]

    @property
    def contended(self) -> bool:
        """Whether two lanes or more have work."""
        return len(self._busy) > 1

    def waits(self, line: Line, number: int) -> None:
        """So many messages wait in a lane; 0: none that is known."""
        line.waiting = number
        if number <= 0:
            self._busy.pop(line, None)
        else:
            self._busy[line] = None

    def brings(self, line: Line, pending: int, free: int, *, again: bool = False) -> bool:
        """Whether a message that a lane has just brought may have one of the ``free`` slots; if not, it goes back and waits.

        ``pending``: how many more the lane holds; ``again``: it was delivered before, and those do not count as pending.
        """
        kept_for = line.waiting > 0
        self.waits(line, pending + 1)
        if free <= 0 or not (kept_for or self._has_turn(line, free)):
            return False
        self.waits(line, pending or int(again))
        return True

    def took(self, line: Line) -> None:
        """A slot was given to a message of this lane."""
        line.spent += 1 / line.weight
        queue = self._queues[line.queue]
        queue.spent += 1 / queue.weight

    def _has_turn(self, line: Line, free: int) -> bool:
        """For what nobody kept a slot for: whether one is left over, or those for whom they are kept are before it."""
        if len(self._busy) == 1:
            return True
        others = [other for other in self._busy if other is not line and other.asked]
        if free > sum(min(other.asked, other.waiting) for other in others):
            return True
        lines = [*others, line]
        return self._next(lines, dict.fromkeys(lines, 0)) is line

    def allot(self, free: int) -> dict[Line, int]:
        """How many more to ask of each lane that has work, so that ``free`` slots are filled by the rules."""
        busy = list(self._busy)
        self._level(busy)
        coming = {line: min(line.asked, line.waiting) for line in busy}
        given = dict.fromkeys(busy, 0)
        for _ in range(free - sum(coming.values())):
            line = self._next([line for line in busy if line.waiting > coming[line]], coming)
            if line is None:
                break
            coming[line] += 1
            given[line] += 1
        return given

    def _next(self, lines: list[Line], coming: Mapping[Line, int]) -> Line | None:
        """Whose turn it is: the queue that is behind once it has the slot, and of its lanes the one that is."""
        by_queue: dict[str, int] = {}
        for line, number in coming.items():
            by_queue[line.queue] = by_queue.get(line.queue, 0) + number
        best: tuple[float, float] | None = None
        chosen = None
        for line in lines:
            queue = self._queues[line.queue]
            tags = (_after(queue, by_queue[line.queue]), _after(line, coming[line]))
            if best is None or tags < best:
                best, chosen = tags, line
        return chosen

    def _level(self, lines: list[Line]) -> None:
        queues = {line.queue for line in lines}
        _cap([self._queues[queue] for queue in queues])
        for queue in queues:
            _cap([line for line in lines if line.queue == queue])


def _after(account: Account, coming: int) -> float:
    return account.spent + (coming + 1) / account.weight


def _cap(accounts: list[Account]) -> None:
    most = min(each.spent for each in accounts) + _ROUNDS / min(each.weight for each in accounts)
    for account in accounts:
        account.spent = min(account.spent, most)


def check_queues(given: object) -> dict[str, int]:
    """Queues and their weights from what was given: names, or names with weights. Raises ConfigError that names what is wrong."""
    how = 'give a list of names, or names with weights: {"default": 3, "bulk": 1}'
    if isinstance(given, str) or not isinstance(given, Iterable):
        msg = f"queues must be a list of names, got {given!r}: {how}"
        raise ConfigError(msg)
    pairs = list(given.items()) if isinstance(given, Mapping) else [(name, 1) for name in given]
    weights: dict[str, int] = {}
    for name, weight in pairs:
        number = whole(weight)
        if number is None or not 1 <= number <= MAX_WEIGHT:
            msg = f"queue {name!r}: its weight must be a whole number from 1 to {MAX_WEIGHT}, got {weight!r}"
            raise ConfigError(msg)
        weights[check_name("queue", name)] = number
    if not weights:
        raise ConfigError(f"a worker needs at least one queue: {how}")
    return weights
