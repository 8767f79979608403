"""Rules about what waits for its time, a rate or a replay that can be taken away, as in ``removals``."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core import chains, claims, generations, pace, transitions, upkeep
from tenure.core import commands as c
from tenure.core.outcomes import Did
from tenure.core.parts import Result
from tenure.core.records import Phase, Record


def a_trigger_keeps_its_tick(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chains, "before", lambda _policy, tick, _now: tick)


def what_has_begun_is_dropped(patch: pytest.MonkeyPatch) -> None:
    strict = claims.start

    def weaker(record: Record, command: c.Claim, now: float, did: Did, failures: int) -> Result:
        if command.excess and record.phase is Phase.WAITING:
            return pace.dropped(record, command.excess, now)
        return strict(record, command, now, did, failures)

    patch.setattr(claims, "start", weaker)


def nothing_was_taken_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(generations, "took_in", lambda _record, _run_id: False)


def purged_over_a_mark(patch: pytest.MonkeyPatch) -> None:
    def weaker(record: Record | None, command: c.Purge, now: float) -> Result:
        return upkeep.purge(record and replace(record, seen=()), command, now)

    patch.setitem(transitions._HANDLERS, c.Purge, weaker)


def spawns_join_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(generations, "_joined", lambda _record, _seen: None)
