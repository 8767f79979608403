"""Rules of the core that can be taken away, one at a time: each a function that puts something weaker in a rule's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core import (
    chains,
    claims,
    endings,
    generations,
    parts,
    policy,
    records,
    schedule,
    sweeps,
    transitions,
    upkeep,
)
from tenure.core import commands as c
from tenure.core.errors import IllegalTransition
from tenure.core.outcomes import Decision, Did, Refused, Why
from tenure.core.parts import Result, decide
from tenure.core.records import Holder, Phase, Previous, Record, State
from tenure.core.silence import Silence
from tenure.status import Cancelled, cancelled_of
from tests.model import shells
from tests.model.leases import Leases

Patch = Callable[[pytest.MonkeyPatch], None]


def _handler(command: type, weaker: Callable[[Record | None, Any, float], Result]) -> Patch:
    return lambda patch: patch.setitem(transitions._HANDLERS, command, weaker)


def stopping_is_taken_over(patch: pytest.MonkeyPatch) -> None:
    def weaker(record: Record, command: c.Claim, now: float) -> Result:
        holder = record.holder
        if holder is not None and holder.session in command.closed:
            return claims.start(record, command, now, Did.TAKEOVER, record.failures)
        return Refused(Why.BUSY)

    patch.setattr(claims, "_claim_stopping", weaker)


def _as_if_running(record: Record | None) -> Record | None:
    stopping = record is not None and record.phase is Phase.STOPPING
    return replace(record, phase=Phase.RUNNING, stop=None) if stopping and record is not None else record


def stopping_succeeds(patch: pytest.MonkeyPatch) -> None:
    strict = endings.succeed
    _handler(c.Succeed, lambda record, command, now: strict(_as_if_running(record), command, now))(patch)


def stopping_is_retried(patch: pytest.MonkeyPatch) -> None:
    strict = endings.fail
    _handler(c.FailAttempt, lambda record, command, now: strict(_as_if_running(record), command, now))(patch)


def stopping_is_handed_back(patch: pytest.MonkeyPatch) -> None:
    strict = endings.hand_back
    _handler(c.HandBack, lambda record, command, now: strict(_as_if_running(record), command, now))(patch)


def no_tail_check(patch: pytest.MonkeyPatch) -> None:
    def weaker(record: Record | None, _holder: Holder) -> Why | None:
        return Why.ABSENT if record is None else None if record.holder is not None else Why.FENCED

    patch.setattr(endings, "not_mine", weaker)


def _compares_less(*fields: str) -> Patch:
    def apply(patch: pytest.MonkeyPatch) -> None:
        strict = endings.not_mine

        def weaker(record: Record | None, holder: Holder) -> Why | None:
            now = record.holder if record is not None else None
            if now is not None and all(getattr(now, field) == getattr(holder, field) for field in fields):
                return None
            return strict(record, holder)

        patch.setattr(endings, "not_mine", weaker)

    return apply


no_run_id_in_the_holder = _compares_less("session", "attempt")
no_attempt_in_the_holder = _compares_less("session", "run_id")
no_session_in_the_holder = _compares_less("run_id", "attempt")


def _forgets(**fields: Any) -> Patch:
    def apply(patch: pytest.MonkeyPatch) -> None:
        strict = endings.not_mine

        def weaker(record: Record | None, holder: Holder) -> Why | None:
            return strict(replace(record, **fields) if record is not None else None, holder)

        patch.setattr(endings, "not_mine", weaker)

    return apply


last_does_not_tell = _forgets(last=None)
an_eviction_does_not_tell = _forgets(evicted=False)


def a_submit_joins_a_stopping_run(patch: pytest.MonkeyPatch) -> None:
    strict = generations.submit

    def weaker(record: Record | None, command: c.Submit, now: float) -> Result:
        return strict(_as_if_running(record), command, now)

    _handler(c.Submit, weaker)(patch)


def previous_is_one(patch: pytest.MonkeyPatch) -> None:
    strict = generations._displaced

    def weaker(record: Record, now: float) -> Record:
        return replace(strict(record, now), previous=strict(replace(record, previous=()), now).previous)

    patch.setattr(generations, "_displaced", weaker)


def cancel_forgets_previous(patch: pytest.MonkeyPatch) -> None:
    strict = generations.cancel

    def weaker(record: Record | None, command: c.Cancel, now: float) -> Result:
        result = strict(record, command, now)
        if isinstance(result, Decision) and result.record is not None and result.did is Did.CANCELLED:
            return decide(result.did, replace(result.record, previous=()))
        return result

    _handler(c.Cancel, weaker)(patch)


def purged_while_it_owes(patch: pytest.MonkeyPatch) -> None:
    def weaker(record: Record | None, _command: c.Purge, _now: float) -> Result:
        return Refused(Why.ABSENT) if record is None else Decision(Did.PURGED, None)

    _handler(c.Purge, weaker)(patch)


def expires_while_it_owes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records, "ttl_of", lambda record: 1 if record.phase in records.TERMINAL else None)


def outbox_is_not_carried_on(patch: pytest.MonkeyPatch) -> None:
    strict = generations._displaced
    patch.setattr(generations, "_displaced", lambda record, now: replace(strict(record, now), outbox=()))


def a_claim_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    def weaker(record: Record, command: c.Claim, now: float) -> Result:
        return claims.start(record, command, now, Did.WON, record.failures)

    patch.setattr(claims, "_claim_waiting", weaker)


def a_live_holder_is_taken_over(patch: pytest.MonkeyPatch) -> None:
    strict = claims._claim_running

    def weaker(record: Record, command: c.Claim, now: float) -> Result:
        holder = record.holder
        if holder is None:
            raise IllegalTransition(record.phase, "Claim", "a running record without a holder")
        return strict(record, replace(command, closed=command.closed | {holder.session}), now)

    patch.setattr(claims, "_claim_running", weaker)


def takeovers_without_a_budget(patch: pytest.MonkeyPatch) -> None:
    strict = claims._claim_running

    def weaker(record: Record, command: c.Claim, now: float) -> Result:
        result = strict(record, command, now)
        spent = isinstance(result, Decision) and result.did is Did.EXHAUSTED
        return claims.start(record, command, now, Did.TAKEOVER, record.failures + 1) if spent else result

    patch.setattr(claims, "_claim_running", weaker)


def deadlines_are_extended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        generations, "tell", lambda previous, deadline: tuple(replace(e, deadline=deadline) for e in previous)
    )


def the_successor_is_dropped(patch: pytest.MonkeyPatch) -> None:
    strict = endings.finish
    patch.setattr(
        endings, "finish", lambda record, last, now, new, did, _successor=None: strict(record, last, now, new, did)
    )


def a_cancel_says_stopping_of_what_is_over(patch: pytest.MonkeyPatch) -> None:
    """As it once did."""

    def weaker(record: Record, run_id: str) -> Cancelled:
        return cancelled_of(record, run_id, "cancelled" if record.phase is Phase.CANCELLED else "stopping")

    patch.setattr(shells, "cancelled_of", weaker)


def no_hooks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(generations, "owing", lambda record, _last: record)


def started(result: Decision | Refused) -> Decision:
    """No run here has limits, so nothing refuses its start."""
    assert isinstance(result, Decision)
    return result


def counts_stay(patch: pytest.MonkeyPatch) -> None:
    strict = claims.start

    def weaker(record: Record, command: c.Claim, now: float, did: Did, failures: int) -> Decision:
        result = started(strict(record, command, now, did, failures))
        kept = replace(result.record, uncounted=record.uncounted) if result.record is not None else None
        return Decision(result.did, kept, result.effects, result.counts)

    patch.setattr(claims, "start", weaker)


def a_replaced_stop_counts_twice(patch: pytest.MonkeyPatch) -> None:
    def weaker(record: Record, holder: Holder, deadline: float | None, **_: bool) -> Previous:
        return parts.entry(record, holder, deadline, counted=False)

    patch.setattr(generations, "entry", weaker)


def the_attempt_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    strict = claims.start

    def weaker(record: Record, command: c.Claim, now: float, did: Did, failures: int) -> Decision:
        again = replace(record, attempt=record.attempt - 1) if record.phase is Phase.RUNNING else record
        return started(strict(again, command, now, did, failures))

    patch.setattr(claims, "start", weaker)


def expiry_takes_the_untold(patch: pytest.MonkeyPatch) -> None:
    strict = upkeep.expire_previous
    everybody = [f"s{number}" for number in range(9)]
    _handler(
        c.ExpirePrevious,
        lambda record, command, now: strict(record, replace(command, closed=frozenset(everybody)), now),
    )(patch)


def _header_without(flag: str) -> Patch:
    def apply(patch: pytest.MonkeyPatch) -> None:
        strict = sweeps.deserves_a_look

        def weaker(state: State, **about: Any) -> bool:
            return strict(replace(state, flags=state.flags.replace(flag, "")), **about)

        patch.setattr(sweeps, "deserves_a_look", weaker)

    return apply


def no_look_at_closed_holders(patch: pytest.MonkeyPatch) -> None:
    strict = sweeps.deserves_a_look
    patch.setattr(sweeps, "deserves_a_look", lambda state, **about: strict(state, **{**about, "holder_closed": False}))


no_look_at_the_outbox = _header_without("o")
no_look_at_seen = _header_without("s")
no_look_at_previous = _header_without("p")


# -- inbox -----------------------------------------------------------------------------------------------------------


def a_cancel_leaves_no_mark(patch: pytest.MonkeyPatch) -> None:
    strict = generations.cancel

    def weaker(record: Record | None, command: c.Cancel, now: float) -> Result:
        result = strict(record, command, now)
        if isinstance(result, Refused) or result.record is None or record is None:
            return result
        return replace(result, record=replace(result.record, seen=record.seen))

    _handler(c.Cancel, weaker)(patch)


def marks_tell_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(generations, "is_marked", lambda _record, _seen: False)


def marks_tell_no_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(generations, "is_marked", lambda record, seen: any(entry.id == seen.id for entry in record.seen))


def copies_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "known_on", lambda seen, ids, _now: tuple(entry for entry in seen if entry.id not in ids))


# -- schedules -------------------------------------------------------------------------------------------------------


def _asked_as_if(command: type, weaker: Callable[[Record], Record]) -> Patch:
    """The record that is asked for a schedule is taken for another one."""
    strict = transitions._HANDLERS[command]
    return _handler(
        command, lambda record, asked, now: strict(weaker(record) if record is not None else None, asked, now)
    )


def _waiting(record: Record) -> Record:
    return replace(record, phase=Phase.WAITING) if record.phase is Phase.RUNNING else record


older_code_asks_too = _asked_as_if(c.KeepAlive, lambda record: replace(record, deployed=0.0))
older_code_retires_too = _asked_as_if(c.Retire, lambda record: replace(record, deployed=0.0))
running_bodies_are_replaced = _asked_as_if(c.KeepAlive, _waiting)
keys_are_taken = _asked_as_if(c.KeepAlive, lambda record: replace(record, task=replace(record.task, actor="a")))


def newer_code_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chains, "_is_same", lambda _record, _command: True)


def deploys_begin_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chains, "_goes_on", lambda record, asked, now: chains._scheduled(record, asked, 0.0, now))


def nobody_retires(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweeps, "is_orphan", lambda *_: False)


def chains_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(endings, "is_perpetual", lambda _policy: False)


def fires_are_counted_from_now(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(endings, "next_due", lambda policy, _tick, now: schedule.first_due(policy, 0.0, now))


def chains_begin_at_once(patch: pytest.MonkeyPatch) -> None:
    for module in (chains, generations):
        patch.setattr(module, "first_due", lambda _policy, asked, now: asked or now)


# -- sessions --------------------------------------------------------------------------------------------------------


def trust_runs_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(policy, "trusted_until", lambda sent, ttl: sent + 1.0 + ttl)


def closed_before_a_ttl_of_silence(patch: pytest.MonkeyPatch) -> None:
    def hasty(told: Silence, now: float) -> list[str]:
        return [name for name, clock in told._clocks.items() if now - clock.since >= 0.6 * clock.ttl]

    patch.setattr(Silence, "silent", hasty)


def closed_while_cut_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Silence, "tick", lambda _told, _now, **_: True)
    patch.setattr(Leases, "unfair_close", True)


def nobody_is_closed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Silence, "tick", lambda _told, _now, **_: False)
