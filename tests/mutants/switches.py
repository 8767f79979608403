"""Guards of pauses, blocks and bulk cancels."""

from __future__ import annotations

from tests.mutants.guard import CORE, REAL, Guard, unit

_PAUSE = REAL + "test_pause.py::"
_CRASH = REAL + "test_pause_crashes.py::"
_WAKE = "        await self._put(self._wakeup(parked), parked.payload, None, patience)\n"
_DROP = "        await self.drop(parked.seq, patience)\n"

SWITCHES = (
    Guard(
        "switch: a claim that is held starts no body",
        CORE + "claims.py",
        "    if command.held:\n        return Refused(Why.HELD)\n",
        "",
        unit("test_transitions.py"),
    ),
    Guard(
        "switch: a run is asked for once more right before its body starts",
        "src/tenure/worker/handler.py",
        "        if not board.idle and (not board.known or board.now(record, args)):",
        "        if False:",
        (REAL + "test_pause_under_way.py::test_a_body_that_is_about_to_start_does_not",),
    ),
    Guard(
        "switch: what is held after its claim uses up no start of its rate",
        "src/tenure/worker/handler.py",
        "        if not board.idle and (not await",
        "        if False and (not await",
        (REAL + "test_pause_under_way.py::test_a_body_whose_claim_was_under_way_does_not_start",),
    ),
    Guard(
        "switch: what is over is not parked",
        "src/tenure/worker/head.py",
        "        if stale:  # what is over must not wait\n",
        "        if False:\n",
        (_PAUSE + "test_a_wake_up_of_a_run_that_is_over_is_not_parked",),
    ),
    Guard(
        "switch: who has parked looks whether the switch is still there",
        "src/tenure/worker/holds.py",
        "        if self.board.rules.holds(switch.id, self._stores.clock.now()):\n",
        "        if True:\n",
        (_CRASH + "test_what_is_parked_for_a_switch_that_is_gone_is_asked_for_again_by_its_worker",),
    ),
    Guard(
        "switch: a process that has lost its connection does not go by what it knew",
        "src/tenure/switchboard.py",
        "        off = self._stores.conn.on_disconnect(self._live.clear)",
        "        off = self._stores.conn.on_disconnect(lambda: None)",
        (_CRASH + "test_a_body_does_not_start_while_its_worker_is_cut_off",),
    ),
    Guard(
        "switch: who waits to know what is paused is not kept waiting by a drain",
        "src/tenure/switchboard.py",
        "            self._live.set()  # also for who waits: nothing more will be told\n",
        "",
        (REAL + "test_pause_under_way.py::test_who_waits_to_know_what_is_paused_goes_on_when_its_worker_drains",),
    ),
    Guard(
        "switch: who cannot read the board starts nothing",
        "src/tenure/switchboard.py",
        "            self._fault = str(board)\n",
        "            self._fault = ''\n",
        (REAL + "test_switches.py::test_who_cannot_read_what_is_paused_starts_nothing",),
    ),
    Guard(
        "switch: a paused queue is not pulled",
        "src/tenure/worker/puller.py",
        "for lane, line in self._lanes.items() if not self.is_paused(lane.queue)}",
        "for lane, line in self._lanes.items()}",
        (_PAUSE + "test_a_paused_queue_is_left_alone",),
    ),
    Guard(
        "switch: a queue goes on when its time is over",
        "src/tenure/core/switches.py",
        "        return switch if switch is not None and switch.is_off(now) else None\n",
        "        return switch\n",
        (*unit("test_switches.py"),),
    ),
    Guard(
        "switch: what is switched off again when its time was over has a new id",
        "src/tenure/core/switches.py",
        "    if known.is_off(wanted.at):\n",
        "    if True:\n",
        (*unit("test_switches.py"),),
    ),
    Guard(
        "switch: supervisors look again for what is parked late",
        "src/tenure/supervisor/releases.py",
        "_LOOKS_AFTER = (0.0, 1.0, 3.0, 7.0)\n",
        "_LOOKS_AFTER = (0.0,)\n",
        (_CRASH + "test_what_a_worker_parks_that_does_not_know_yet_is_woken_a_little_later",),
    ),
    Guard(
        "switch: a sweep finds what is parked for none",
        "src/tenure/supervisor/sweep.py",
        "        self._releases.saw(stored.parked, is_mine)\n",
        "",
        (_CRASH + "test_a_sweep_wakes_what_lies_under_a_switch_that_nobody_knows",),
    ),
    Guard(
        "switch: what waits for a switch is not taken for a limit's",
        "src/tenure/supervisor/sweep.py",
        " if not switch_at(name)}",
        "}",
        (_PAUSE + "test_a_sweep_takes_what_waits_for_a_switch_for_a_wake_up",),
    ),
    Guard(
        "switch: a wake-up is stored before the parked message is removed",
        "src/tenure/nats/parking.py",
        f"{_WAKE}{_DROP}",
        f"{_DROP}{_WAKE}",
        (_CRASH + "test_a_wake_up_is_stored_before_the_message_is_removed",),
    ),
    Guard(
        "switch: an answer to a change that was lost is found again",
        "src/tenure/nats/switches.py",
        "        return Changed(first if unsure and same else board, after)\n",
        "        return Changed(board, after)\n",
        (REAL + "test_switches.py::test_an_answer_that_is_lost_is_no_change_that_is_lost",),
    ),
    Guard(
        "many cancels: each names the run that was seen",
        "src/tenure/bulk.py",
        "run_id=found[key][0] or None, reason=reason)",
        "reason=reason)",
        (REAL + "test_bulk_cancel.py::test_what_ends_or_comes_anew_after_the_look_is_left_alone",),
    ),
)
