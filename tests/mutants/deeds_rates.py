"""Guards of rates, of what is debounced, and of what cools down."""

from __future__ import annotations

from tests.mutants.guard import CORE, REAL, STORE, Guard, unit

_RATES = unit("test_rates.py")
_PACE = unit("test_pace.py")

RATES = (
    Guard(
        "rates: a mark counts for a whole window",
        CORE + "rates.py",
        "if mark + window > now}",
        "if mark + window // 2 > now}",
        _RATES,
    ),
    Guard(
        "rates: a mark is never before the start that it allows",
        CORE + "rates.py",
        "-(-max(self._now + take.within, take.old) // self._grid)",
        "((self._now + take.within) // self._grid)",
        _RATES,
    ),
    Guard(
        "rates: a place counts as a start does",
        CORE + "rates.py",
        "sum(self.marks.values()) - len(self.places)",
        "sum(self.marks.values())",
        _RATES,
    ),
    Guard(
        "rates: who is parked comes first",
        CORE + "rates.py",
        "        if ground.room > 0 and not flag:",
        "        if ground.room > 0:",
        _RATES,
    ),
    Guard(
        "rates: the flag stays unless fewer were found than searched for",
        CORE + "rates.py",
        "len(parked) >= searched",
        "len(parked) >= max(0, ground.room)",
        _RATES,
    ),
    Guard(
        "rates: whose turn has come does not wait for the backlog",
        "src/tenure/pacing.py",
        "self._parking.wake(one, patience, ahead=True)",
        "self._parking.wake(one, patience)",
        (REAL + "test_rates.py::test_whose_turn_has_come_does_not_wait_for_the_backlog_of_its_queue",),
    ),
    Guard(
        "rates: who was woken ahead of its queue is awake",
        "src/tenure/nats/work.py",
        "if needs_leave(task.policy) and",
        "if task.policy.limits and",
        (STORE + "test_rates.py::test_who_is_parked_is_woken_in_order_when_the_window_has_room",),
    ),
    Guard(
        "rates: a late body does not start under the mark that it has missed",
        "src/tenure/worker/handler.py",
        "        if live.ticket is not None and live.told is None and not await live.ticket.slots.begin(patience):\n",
        "        if False:\n",
        (REAL + "test_rates.py::test_a_slow_claim_starts_no_body_too_late",),
    ),
    Guard(
        "rates: after one mark is moved all are looked at again",
        "src/tenure/worker/slots.py",
        "        while (name := self._late()) is not None:\n",
        "        for name in filter(None, [self._late()]):\n",
        (REAL + "test_rates_in_full.py::test_after_one_rate_has_let_a_late_body_start_the_others_are_asked_again",),
    ),
    Guard(
        "rates: a run that does not start takes its mark out",
        "src/tenure/worker/slots.py",
        "                await self._stores.paces.leave(name, self._run_id, patience, marks[name][0])\n",
        "                pass\n",
        (REAL + "test_rates.py::test_parked_runs_that_are_cancelled_replaced_or_purged_use_up_nothing",),
    ),
    Guard(
        "rates: a mark is not taken out twice",
        "src/tenure/pacing.py",
        "                    _take_out_marks(batch)\n",
        "",
        (STORE + "test_rates.py",),
    ),
    Guard(
        "rates: a write whose answer is lost is known by its tag",
        "src/tenure/pacing.py",
        "seen.entry.tag == tag:",
        "False:",
        (STORE + "test_rates.py",),
    ),
    Guard(
        "rates: who is parked is woken when there is room",
        "src/tenure/pacing.py",
        "        if entry is not None and entry.parked:\n            now",
        "        if False:\n            now",
        (STORE + "test_rates.py",),
    ),
    Guard(
        "rates: a supervisor wakes who is parked and left alone",
        "src/tenure/supervisor/places.py",
        "        if entry.parked:  # nobody may be left",
        "        if False:  # nobody may be left",
        (REAL + "test_rates.py::test_parked_runs_start_in_time_when_nobody_is_left_who_would_wake_them",),
    ),
    Guard(
        "rates: a supervisor wakes who was cut off from its wake-up",
        "src/tenure/supervisor/places.py",
        "        if late:\n",
        "        if False:\n",
        (REAL + "test_rates_crashes.py::test_a_run_whose_hand_over_is_cut_off_by_a_kill_starts_within_seconds",),
    ),
    Guard(
        "rates: what has started once is not dropped",
        CORE + "claims.py",
        "return Refused(Why.LIMITED) if record.attempt else dropped(",
        "return dropped(",
        _PACE,
    ),
    Guard(
        "debounce: a submit that was taken in leaves a trace",
        CORE + "generations.py",
        "    if took_in(record, run_id):\n        return True\n",
        "",
        _PACE,
    ),
    Guard(
        "debounce: it waits no longer than max_wait",
        CORE + "pace.py",
        "min(now + debounce.settle, since + debounce.max_wait)",
        "now + debounce.settle",
        _PACE,
    ),
    Guard(
        "debounce: a run that is due and was not woken gets a wake-up",
        CORE + "pace.py",
        "late = record.due <= now",
        "late = False",
        _PACE,
    ),
    Guard(
        "debounce: a run that starts sooner gets a wake-up",
        CORE + "pace.py",
        "    wanted = due < record.due or moved",
        "    wanted = moved",
        _PACE,
    ),
    Guard(
        "debounce: a run that was put off gets a timer",
        "src/tenure/worker/head.py",
        " and await self._put_off(record, patience):",
        " and False:",
        (REAL + "test_debounce.py::test_a_long_wait_is_one_timer_and_nobody_looks_meanwhile",),
    ),
    Guard(
        "debounce: a successor begins anew",
        CORE + "endings.py",
        "            settling=None,\n",
        "",
        _PACE,
    ),
    Guard(
        "cooldown: a record is kept for as long as it cools down",
        CORE + "records.py",
        "policy.pace.cooldown if policy.pace is not None else 0.0",
        "0.0",
        _PACE,
    ),
    Guard(
        "cooldown: a spawn over a run that cools down leaves its trace",
        CORE + "generations.py",
        "        return _joined(record, command.seen) or Refused(Why.COOLING)\n",
        "        return Refused(Why.COOLING)\n",
        _PACE,
    ),
)
