"""What a run under faults leaves behind, as plain data: all that the checker sees. Chaos and simulation both make it.

``at`` is seconds on the machine's monotonic clock, ``wall`` seconds since the epoch. A simulation has one true time: it
writes that as both, whatever the clocks of its processes say.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

HOOKED = "hooked"
"""The actor that has a hook for each way in which its runs can end."""
CHIME, CHIME_SECONDS = "chime", 2.0
"""The schedule that starts by itself and never ends; the key is named after its actor. Each tick has a run, none is left out."""
CHIME_LATE_SECONDS, TAKEOVER_SECONDS = 10.0, 20.0
"""How late its newest tick may be once all is at rest, and how long a run of it may wait for who takes over from the dead."""
GRACE_SECONDS = 1.0
TIMED = frozenset({"stubborn", "mule"})
"""How long a body that is told to stop may go on; and the actors that have a timeout, and a grace of their own."""
THAW_SECONDS = 2.0
"""So long after a process goes on again it may be late with what it had in hand."""
SETTLED, SETTLE_SECONDS, MAX_WAIT_SECONDS = "settled", 1.5, 4.0
"""The actor that is debounced."""
COOLED, COOLDOWN_SECONDS = "cooled", 2.0
"""The actor that cools down."""
CURBED, CURBED_STARTS, CURBED_SECONDS = "curbed", 1, 3.0
"""The actor whose runs are dropped where its rate has no room for them."""


class BodyLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a worker process: a body has started, or has ended with ``how`` (return, raise, stop, ...).

    ``child``: of a body in a child process of the worker ``pid``, that one's id. It may be killed at any time and leave no
    end; so it writes a beat now and again, and is known to have run until the last.
    """

    at: float
    wall: float
    pid: int
    actor: str
    key: str
    generation: int
    run_id: str
    attempt: int
    fence: int
    session: str
    what: Literal["start", "beat", "end"]
    how: str = ""
    spawned: tuple[str, ...] = ()
    rescheduled: bool = False
    limit: str = ""
    allowed: int = 0
    """Of a body under a limit: which one, and how many may run under it at once."""
    rate: str = ""
    queue: str = ""
    said: str = ""
    """The name of its rate's entry, if it has one; its queue; of a debounced body the id of the ask whose argument it has."""
    child: int = 0


class CommandLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a program without Tenure has published to the inbox, however often; ``acked``: the server has it.

    ``run_id``: the one that it stands for, by its message id. A cancel has none, nor has one that cannot be carried out:
    ``refusal`` is the name under which that is kept among the rejected.
    """

    wall: float
    verb: Literal["submit", "replace", "cancel"]
    key: str
    id: str
    acked: bool
    run_id: str = ""
    refusal: str = ""


class AskLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a producer asked and was told. ``asked``, ``wall``: when it began to ask, and when it was told.

    ``told``: accepted, kept, live, cancelled, stopping, finished, not_found, purged, absent, a phase, ``none`` (a status
    of no record), timeout, unknown, unavailable, or ``error ...``. Empty: it has only begun to ask; the line of its
    answer has the same ``id``, and a process that dies before it leaves none: then nobody knows what came of it.
    A trigger is ``accepted`` of the run that waits, ``kept`` of one that waits no more, ``absent`` without a record.
    ``mode``: of a submit its ``if_live``, of a replace its overlap, of a cancel ``pinned`` if it named its run.
    ``attempt`` is told by a status alone.
    """

    asked: float
    wall: float
    ask: Literal["submit", "replace", "cancel", "trigger", "purge", "status", "result"]
    key: str
    told: str
    run_id: str = ""
    generation: int = 0
    id: str = ""
    mode: str = ""
    attempt: int = 0


class HolderSeen(Struct, frozen=True):
    """As ``records.Holder``."""

    session: str
    run_id: str
    attempt: int


class PreviousSeen(Struct, frozen=True):
    """As ``records.Previous``."""

    session: str
    run_id: str
    attempt: int
    deadline: float | None


class LastSeen(Struct, frozen=True):
    """As ``records.Last``, its result left out."""

    run_id: str
    generation: int
    phase: str
    at: float
    attempt: int
    session: str
    failures: int = 0


class Revision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One write of a key's record. ``before``: the revision that it replaced, 0 for none, -1 where that is not known.

    ``gone``: no record, but the mark of a purge; if ``expired``, no write at all: see ``expiries``. ``until``: when
    its life is over by its age, 0 if never; ``lapsed``: from when on it may have been over while a write over it was
    on its way which had been decided before, 0 if it was not. ``dropped``: it ended ``cancelled`` for want of room
    under its rate. ``stored``: the server's clock when it took the write in, 0 where nobody knows. ``uncounted``: of
    how many runs nobody has counted yet what became of them, as ``check_counts`` names it.
    """

    seq: int
    before: int
    key: str
    stored: float = 0.0
    gone: bool = False
    expired: bool = False
    until: float = 0.0
    lapsed: float = 0.0
    run_id: str = ""
    generation: int = 0
    phase: str = ""
    actor: str = ""
    overlap: str = ""
    every: bool = False
    due: float = 0.0
    tick: float = 0.0
    since: float = 0.0
    """Of a debounced run: when the first submit was that it has taken in."""
    attempt: int = 0
    failures: int = 0
    budget: int = 0
    """How many failures its run has had, and with how many it fails for good; 0: nobody says."""
    evicted: bool = False
    stopped: bool = False
    dropped: bool = False
    holder: HolderSeen | None = None
    previous: tuple[PreviousSeen, ...] = ()
    last: LastSeen | None = None
    outbox: tuple[str, ...] = ()
    outbox_keys: tuple[str, ...] = ()
    seen: int = 0
    uncounted: dict[str, int] = {}

    def held(self) -> tuple[str, str, int] | None:
        """(session, run id, attempt) of its holder, if it has one."""
        return None if self.holder is None else (self.holder.session, self.holder.run_id, self.holder.attempt)

    def entries(self) -> set[tuple[str, str, int]]:
        """The same of all who are in ``previous``."""
        return {(entry.session, entry.run_id, entry.attempt) for entry in self.previous}


class LimitSeen(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """One write of a limit's entry: how many places it gives, and to how many."""

    seq: int
    name: str
    n: int = 0
    places: int = 0


class RateSeen(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """One write of a rate's entry. ``marks``: (seconds since the epoch, how many starts by then); ``places``: kept for starts."""

    seq: int
    name: str
    stored: float = 0.0
    n: int = 0
    marks: tuple[tuple[float, int], ...] = ()
    places: int = 0


class SwitchSeen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One switch that is on the board: a queue or an actor by ``name``, or keys by ``pattern``; ``until``: 0 for ever."""

    id: str
    kind: str
    name: str = ""
    pattern: str = ""
    until: float = 0.0


class BoardSeen(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """One write of the board of switches."""

    seq: int
    stored: float = 0.0
    switches: tuple[SwitchSeen, ...] = ()


EntrySeen = LimitSeen | RateSeen | BoardSeen
"""What lies in the runs bucket beside the records."""


class EntryLine(Struct, frozen=True, kw_only=True):
    """It as a line of the recorder."""

    seen: EntrySeen


class SessionSeen(Struct, frozen=True, kw_only=True):
    """A session's entry at the end: ``stored_at`` is the server's clock at its last write (its closing, if closed)."""

    id: str
    kind: str
    pid: int
    closed: str | None
    stored_at: float


class Death(Struct, frozen=True, kw_only=True):
    """The end of a process that we started. ``how``: kill or term; ``at``, ``wall``: when it was certainly gone.

    ``began``: when it was started (``wall``); ``killed_at``: just before the signal; ``asked_at``: just before SIGTERM, 0 if it
    was not asked to end; one that did not in time was killed. ``code``: its exit code; ``ready``: it had said that it was.
    """

    pid: int
    role: str
    name: str = ""
    began: float = 0.0
    asked_at: float = 0.0
    code: int = 0
    ready: bool = False
    how: str
    killed_at: float
    at: float
    wall: float


class Fault(Struct, frozen=True, kw_only=True):
    """What the nemesis did, from ``at`` until ``until`` (monotonic). ``pid``: of a process that was frozen."""

    kind: str
    target: str
    at: float
    until: float
    pid: int = 0


class Counts(Struct, frozen=True, kw_only=True):
    """Counters summed over all processes, but for those of the schedule that goes on; ``fenced`` by process."""

    superseded: dict[str, int] = field(default_factory=dict)
    cancelled: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    fenced: dict[int, int] = field(default_factory=dict)


class Unread(Struct, frozen=True, kw_only=True):
    """What a process has counted ``since`` it was scraped last (0: ever), ``until`` it was killed: nobody has read that."""

    pid: int
    since: float
    until: float


ROUNDED_SECONDS = 1e-6
"""So much apart are two floats of one moment, of which one was made of nanoseconds."""


class Clocks(Struct, frozen=True, kw_only=True):
    """How far, in seconds, what is compared may be off. The one place for it; 0 where one true time stamps everything.

    ``observers``: between any two of those who stamp what they see (asks, bodies, deaths, the server's ``stored``).
    ``processes``: between them and the clocks by which processes write dues, deadlines and ends into records.
    ``reads_behind``: how old the answer to a read may be, since a leader that was deposed unnoticed answers from what it
    last knew (one server: 0). A write needs the majority and is never behind.
    ``in_force``: how long after it was ``stored`` a write may be unknown to whoever reads (a leader of three asks the others
    first: there nobody knows).
    """

    observers: float = 0.02
    processes: float = 0.02
    reads_behind: float = 0.0
    in_force: float = math.inf


class Evidence(Struct, kw_only=True):
    """Everything. ``records`` is the scan at the end; ``revisions`` are all that were seen, in the order of ``seq``.

    ``looked_at``: when that scan began, on the server's clock; 0 where nobody scanned.
    ``letters``: the run ids of all dead letters, as often as they are stored. ``asks_whole``: every ask has its first
    line, so that what no ask explains is a fault. ``counted_exactly``: nothing went wrong that may cost a count.
    ``fenced``: whose outcome was refused as another attempt's, as the history was told, of all of them if ``told_exactly``;
    ``answers_known``: no answer to a write got lost. ``scraped``: of whom all counts are known; ``unread``: of the others, what.
    """

    bodies: list[BodyLine]
    asks: list[AskLine]
    revisions: list[Revision]
    records: dict[str, Revision]
    sessions: list[SessionSeen]
    deaths: list[Death]
    alive: set[int]
    counts: Counts
    missing: int = 0
    work_left: list[str] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    quiet: bool = True
    rest_seconds: float = 0.0
    looked_at: float = 0.0
    clocks: Clocks = Clocks()
    asks_whole: bool = False
    counted_exactly: bool = False
    told_exactly: bool = False
    answers_known: bool = False
    commands: list[CommandLine] = field(default_factory=list)
    rejected: set[str] = field(default_factory=set)
    limits: list[LimitSeen] = field(default_factory=list)
    rates: list[RateSeen] = field(default_factory=list)
    boards: list[BoardSeen] = field(default_factory=list)
    frozen: list[Fault] = field(default_factory=list)
    fenced: list[HolderSeen] = field(default_factory=list)
    scraped: set[int] = field(default_factory=set)
    unread: list[Unread] = field(default_factory=list)

    def take_entries(self, entries: Iterable[EntrySeen]) -> None:
        """What else was seen in the runs bucket, each by its kind, in order."""
        for seen in sorted(entries, key=lambda entry: entry.seq):
            if isinstance(seen, LimitSeen):
                self.limits.append(seen)
            elif isinstance(seen, RateSeen):
                self.rates.append(seen)
            else:
                self.boards.append(seen)

    def by_key(self) -> dict[str, list[Revision]]:
        """The revisions of each key, in order."""
        keys: dict[str, list[Revision]] = defaultdict(list)
        for revision in self.revisions:
            keys[revision.key].append(revision)
        return keys


def answered(asks: list[AskLine]) -> list[AskLine]:
    """Each ask once: with its answer, or told ``unanswered``, and never over, if it has none."""
    over = {ask.id for ask in asks if ask.told}
    return [
        ask if ask.told else replace(ask, told="unanswered", wall=math.inf)
        for ask in asks
        if ask.told or ask.id not in over
    ]


def held_up(evidence: Evidence, line: BodyLine) -> bool:
    """Whether the process of a body was frozen right before its start."""
    return any(fault.pid == line.pid and fault.at <= line.at <= fault.until + THAW_SECONDS for fault in evidence.frozen)


class Violation(Struct, frozen=True, order=True):
    """An invariant that did not hold: its name, the key, and what was seen."""

    invariant: str
    key: str
    what: str
