"""What limits, schedules and the inbox promise: never too many bodies, each tick once, each command once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from tests.history.evidence import (
    CHIME,
    CHIME_LATE_SECONDS,
    CHIME_SECONDS,
    ROUNDED_SECONDS,
    TAKEOVER_SECONDS,
    CommandLine,
    Violation,
)
from tests.history.known import Body, Known
from tests.history.past import is_trigger


def check_added(known: Known) -> Iterator[Violation]:
    """Everything that can be seen of them."""
    yield from _limits_hold(known)
    yield from _places_come_back(known)
    yield from _ticks_come_once(known)
    yield from _ticks_go_on(known)
    yield from _commands_are_applied_once(known)


# -- limits ----------------------------------------------------------------------------------------------------------


def _limits_hold(known: Known) -> Iterator[Violation]:
    for seen in known.evidence.limits:
        if seen.places > seen.n:
            yield Violation("limits hold", seen.name, f"{seen.places} places of {seen.n} at revision {seen.seq}")
    by_limit: dict[str, list[Body]] = defaultdict(list)
    for body in known.bodies:
        if body.start.limit:
            by_limit[body.start.limit].append(body)
    for limit, bodies in by_limit.items():
        running: list[tuple[float, Body]] = []
        for body in sorted(bodies, key=lambda one: one.start.at):
            running = [one for one in running if one[0] > body.start.at]
            running.append((min(body.until, _void_from(known, body)), body))
            if running[-1][0] > body.start.at and len(running) > body.start.allowed:
                others = ", ".join(f"{one.start.run_id}.{one.start.attempt}" for _, one in running)
                yield Violation(
                    "limits hold",
                    body.start.key,
                    f"{len(running)} bodies under {limit}, which allows {body.start.allowed}: {others}",
                )


def _places_come_back(known: Known) -> Iterator[Violation]:
    """Once all is at rest nobody has a place under a limit, nor keeps one for somebody. A place at a rate is over by itself."""
    evidence = known.evidence
    if not evidence.quiet or evidence.missing:
        return
    for name, places in {seen.name: seen.places for seen in evidence.limits}.items():
        if places:
            yield Violation("limits hold", name, f"{places} places are taken, and all is at rest")


def _void_from(known: Known, body: Body) -> float:
    """When others took the attempt out of the record, or closed its session: from then on it runs beside the limit.

    On the machine's clock. Where revisions were seen by nobody it may have been at any time.
    """
    start = body.start
    void = known.closed_at.get(start.session, math.inf)
    past = known.pasts.get(start.key)
    number = None if past is None else past.numbers.get(start.fence)
    if past is None or number is None or not known.whole(start.key):
        return start.at
    held = (start.session, start.run_id, start.attempt)
    for state in past.states[number + 1 :]:
        holders = () if state is None else (state.holder, *state.previous)
        if state is None or not any(
            holder is not None and (holder.session, holder.run_id, holder.attempt) == held for holder in holders
        ):
            void = min(void, state.stored if state is not None else 0.0)
            break
    return void - known.evidence.clocks.observers - (start.wall - start.at) - ROUNDED_SECONDS


# -- schedules -------------------------------------------------------------------------------------------------------


def _ticks_come_once(known: Known) -> Iterator[Violation]:
    """A run that is started before its time is one more, named by a moment between two ticks: its own tick follows it."""
    past = known.pasts.get(CHIME)
    for number, before, after in past.steps() if past is not None else ():
        if before is None or after.gone or past is None or not before.tick:
            continue
        if is_trigger(before, after):
            if before.due == before.tick != _tick_after(after.tick):  # it is no retry
                what = f"generation {after.generation} was triggered, and {before.tick:.3f} does not follow {after.tick:.3f}"
                yield Violation("each tick once", CHIME, what)
        elif past.births[after.run_id] == number and after.tick != _tick_after(before.tick):
            yield Violation(
                "each tick once",
                CHIME,
                f"generation {before.generation} was for {before.tick:.3f}, {after.generation} is for {after.tick:.3f}",
            )


def _tick_after(moment: float) -> float:
    return (moment // CHIME_SECONDS + 1) * CHIME_SECONDS


def _ticks_go_on(known: Known) -> Iterator[Violation]:
    """A chain that was never begun, or that has stopped, has no two neighbours that are wrong."""
    evidence = known.evidence
    if not evidence.quiet or not evidence.looked_at:
        return
    newest = evidence.records.get(CHIME)
    if newest is None:
        yield Violation("each tick once", CHIME, "it has no record")
        return
    late = evidence.looked_at - (newest.tick or newest.due)
    if late > CHIME_LATE_SECONDS + TAKEOVER_SECONDS:
        yield Violation("each tick once", CHIME, f"generation {newest.generation} is its last, for {late:.1f} s ago")


# -- the inbox -------------------------------------------------------------------------------------------------------


def _commands_are_applied_once(known: Known) -> Iterator[Violation]:
    by_key: dict[str, list[CommandLine]] = defaultdict(list)
    for command in known.evidence.commands:
        by_key[command.key].append(command)
    for key, commands in by_key.items():
        runs = known.run_ids.get(key, [])
        wanted = {command.run_id for command in commands if command.run_id}
        for run_id in runs:
            if run_id not in wanted:
                yield Violation("commands once", key, f"{run_id} is of no command")
        whole = known.whole(key)
        for command in commands:
            # of two submits one may find the run of the other, in whatever order they are applied: but one of them starts a run
            alone = command.run_id == commands[0].run_id and len(wanted) == 1
            first = command.verb == "submit" and (alone or not runs)
            if command.refusal:
                if command.acked and command.refusal not in known.evidence.rejected:
                    yield Violation(
                        "commands once", key, f"{command.verb} {command.id} was acknowledged and not rejected"
                    )
            elif command.acked and whole and (command.verb == "replace" or first) and command.run_id not in runs:
                yield Violation("commands once", key, f"{command.verb} {command.id} was acknowledged and not applied")
        stopped = sum(run_id in known.stopped_at for run_id in runs)
        cancels = len({command.id for command in commands if command.verb == "cancel"})
        if stopped > cancels:
            yield Violation("commands once", key, f"{stopped} runs were cancelled by {cancels} cancels")
