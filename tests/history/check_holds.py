"""Nobody is let go of who may still run: neither the holder of a run, nor a body of ``previous`` that is told to stop.

An attempt leaves the record when its body has ended (it stores its outcome, gives the run back, or confirms), when its session
is closed, or when its grace is over. Taken out without one of these, it runs beside whatever starts next. Here it is found also
where nothing has started by chance; and so is a body that starts when its attempt is no more in the record.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from tests.history.evidence import (
    CHIME,
    GRACE_SECONDS,
    ROUNDED_SECONDS,
    TIMED,
    AskLine,
    Revision,
    Violation,
    answered,
    held_up,
)
from tests.history.known import Body, Held, Known

_LATE_SECONDS, _CHILD_SECONDS = 5.0, 10.0
"""So long after its attempt was void a body may start: the answer to its claim was on its way, or others blocked its loop; and so
much later in a child process, which has to be started, and may be frozen by itself.
"""


def check_holds(known: Known) -> Iterator[Violation]:
    """Everything that can be seen of it."""
    bodies = {(body.start.session, body.start.run_id, body.start.attempt): body for body in known.bodies}
    asks: dict[str, list[AskLine]] = defaultdict(list)
    for ask in answered(known.evidence.asks):
        asks[ask.key].append(ask)
    for key, past in known.pasts.items():
        for _, before, after in past.steps():
            if before is None or after.gone:
                continue
            for who, what in (*_let_go(known, bodies, before, after), *_hurried(known, asks[key], before, after)):
                yield Violation(
                    "let go", key, f"attempt {who[2]} of {who[1]} under {who[0]} {what}, at revision {after.seq}"
                )
    yield from _void_does_not_start(known)


def _let_go(known: Known, bodies: dict[Held, Body], before: Revision, after: Revision) -> Iterator[tuple[Held, str]]:
    left = {*after.entries(), after.held()}
    for entry in before.previous:
        who = (entry.session, entry.run_id, entry.attempt)
        over = entry.deadline is not None and entry.deadline <= after.stored + known.evidence.clocks.processes
        if who not in left and not over and not _may_leave(known, bodies.get(who), who, after):
            yield who, "was forgotten"
    holder = before.held()
    if holder is None or holder in left:
        return
    if _is_others(before, after):
        if not _is_closed(known, holder, after):
            yield holder, "was taken for lost while its session was open"
    elif not _may_leave(known, bodies.get(holder), holder, after):
        yield holder, "was let go of in its body"


def _hurried(known: Known, asks: list[AskLine], before: Revision, after: Revision) -> Iterator[tuple[Held, str]]:
    """Whose grace is over sooner than it was promised, counted from the write before or from the first ask that may have told it.

    A successor tells it without being asked, and a schedule may.
    """
    if before.actor in TIMED or not before.stored:
        return
    told = {(entry.session, entry.run_id, entry.attempt) for entry in before.previous if entry.deadline is not None}
    for entry in after.previous:
        who = (entry.session, entry.run_id, entry.attempt)
        if entry.deadline is None or who in told:
            continue
        since, told_at = before.stored, after.stored
        stopping = who == before.held() and before.phase == "stopping"
        if stopping:
            since, told_at = _stopped(known, before)
        if known.evidence.asks_whole and (stopping or (after.last == before.last and after.key != CHIME)):
            begun = (ask.asked for ask in asks if ask.wall >= since and ask.asked <= told_at)
            since = max(since, min(begun, default=since))
        if entry.deadline < since + GRACE_SECONDS - known.unsure:
            yield who, f"had until {entry.deadline:.3f}, though it was not told before {since:.3f}"


def _stopped(known: Known, stopping: Revision) -> tuple[float, float]:
    """When a run was not told to stop yet, and when it was."""
    told = known.by_seq[known.stopped_at[stopping.run_id]]
    past = known.pasts[told.key]
    number = past.numbers.get(told.seq)
    before = past.states[number - 1] if number else None
    return (before.stored if before is not None else 0.0), told.stored


def _is_others(before: Revision, after: Revision) -> bool:
    """Whether a run was taken over, or ended as lost: that needs a closed session, whatever became of the body."""
    if before.phase != "running":
        return False
    if after.run_id == before.run_id and after.holder is not None and before.holder is not None:
        return after.holder.session != before.holder.session
    last = after.last
    return last is not None and last != before.last and (last.phase, last.session) == ("failed", "")


def _may_leave(known: Known, body: Body | None, who: Held, after: Revision) -> bool:
    """Its body has never started, or is over; or its session is closed."""
    if body is None or not after.stored:
        return True
    over = body.until + body.start.wall - body.start.at
    return over <= after.stored + known.evidence.clocks.observers or _is_closed(known, who, after)


def _is_closed(known: Known, who: Held, after: Revision) -> bool:
    """Whether its session was closed by then, or may have been: of one that is not there any more nobody knows."""
    if who[0] not in known.pids or not after.stored:
        return True
    return known.closed_at.get(who[0], math.inf) <= after.stored + known.evidence.clocks.observers + ROUNDED_SECONDS


def _void_does_not_start(known: Known) -> Iterator[Violation]:
    for body in known.bodies:
        start = body.start
        late = start.wall - _void_from(known, body)
        may = _LATE_SECONDS + (_CHILD_SECONDS if start.child else 0.0) + known.evidence.clocks.observers
        if late > may and not held_up(known.evidence, start):
            yield Violation(
                "let go", start.key, f"attempt {start.attempt} of {start.run_id} started {late:.3f} s after it was void"
            )


def _void_from(known: Known, body: Body) -> float:
    """When the attempt of a body was no more the one that holds its run, or its session was closed."""
    start = body.start
    void = known.closed_at.get(start.session, math.inf)
    past = known.pasts.get(start.key)
    number = None if past is None else past.numbers.get(start.fence)
    if past is None or number is None:
        return void
    for state in past.states[number + 1 :]:
        if state is None or not state.stored:
            return void  # nobody knows when
        if state.phase != "running" or state.held() != (start.session, start.run_id, start.attempt):
            return min(void, state.stored)
    return void
