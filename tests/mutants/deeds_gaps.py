"""Guards that close a gap which a crash leaves (DESIGN's table, row by row): fresh processes must miss each."""

from __future__ import annotations

from tests.mutants.guard import CORE, CORE_TESTS, REAL, Guard

_KEEPERS, _SWEEPS = "src/tenure/supervisor/keepers.py", CORE + "sweeps.py"


def _row(name: str) -> tuple[str, ...]:
    return (f"{REAL}test_recovery_rows.py::test_{name}",)


def _repairer(name: str) -> tuple[str, ...]:
    return (f"{REAL}test_recovery_repairers.py::test_a_{name}",)


_ROW_1 = _row("scenario_43_row_1_a_producer_that_dies_between_record_and_wake_up")
_ROW_5 = _row("row_5_a_caller_that_dies_between_the_record_and_the_signal_of_a_stop")
_EFFECTS = "row_3_a_worker_that_dies_between_an_outcome_and_its_effects_is_followed_by_a_"

GAPS = (
    Guard(
        "gap 1: a due run without a message is woken",
        _SWEEPS,
        "        owing = age > SETTLE_SECONDS and not has_wakeup and late\n",
        "        owing = False\n",
        _ROW_1,
    ),
    Guard(
        "gap 1: a scheduled run without a timer gets one before it is late",
        _SWEEPS,
        "        late = not has_timer or state.due < now - SETTLE_SECONDS\n",
        "        late = state.due < now - SETTLE_SECONDS\n",
        _ROW_1,
    ),
    Guard(
        "gap 2: what a dead session holds is woken",
        _KEEPERS,
        "        await self._wake(found, record, times, patience)\n        if not times:\n",
        "        if not times:\n",
        _row("row_2_a_worker_that_dies_between_claim_and_outcome"),
    ),
    Guard(
        "gap 2: what was delivered and not claimed comes again",
        "src/tenure/nats/work.py",
        '        "ack_wait": int(ack_wait_seconds * 1_000_000_000),\n',
        '        "ack_wait": 60_000_000_000,\n',
        _row("row_2_a_worker_that_dies_with_a_wake_up_it_has_not_claimed"),
    ),
    Guard(
        "gap 3: a sweep finds what an outcome owes",
        _SWEEPS,
        "    return owing or (bool(state.flags) and age > SETTLE_SECONDS)\n",
        "    return owing\n",
        _row(_EFFECTS + "sweep"),
    ),
    Guard(
        "gap 3: a refused head check does what the record owes",
        "src/tenure/worker/head.py",
        "            else:\n                await self._stores.complete(declined.found, patience)\n",
        "",
        _row(_EFFECTS + "redelivery"),
    ),
    Guard(
        "gap 4: the message of a finished run is acknowledged",
        "src/tenure/worker/handler.py",
        '                await work.ack(live.reply)\n            case Later("unknown_actor", actor):\n',
        '            case Later("unknown_actor", actor):\n',
        _row("row_4_a_worker_that_dies_between_an_outcome_and_its_ack"),
    ),
    Guard(
        "gap 5: a stop whose holder lives is looked at before its grace is over",
        _SWEEPS,
        "        owing = holder_closed or state.deadline < now or age > SETTLE_SECONDS\n",
        "        owing = holder_closed or state.deadline < now\n",
        _ROW_5,
    ),
    Guard(
        "gap 5: who was to be told to stop is told before its entry expires",
        "src/tenure/nats/runs.py",
        "        if self.tell is None or found.record is None or not found.record.previous:\n",
        "        if True:\n",
        _ROW_5,
    ),
    Guard(
        "[46] a claim forgets no body before it is told to stop",
        CORE + "upkeep.py",
        "    if before is None or not before.previous or isinstance(command, c.Confirm):\n",
        "    if before is None or not before.previous or isinstance(command, c.Confirm | c.Claim):\n",
        (
            CORE_TESTS + "test_interleavings.py::test_whoever_takes_a_body_out_that_may_still_run_has_to_tell_it_first",
            REAL
            + "test_stop_signals.py::test_a_claim_tells_a_body_to_stop_whose_time_is_over_before_it_takes_it_out_of_the_record",
        ),
    ),
    Guard(
        "gap 5: [30] a stop is ended for a worker that lives and does not hear",
        _KEEPERS,
        "        if not command.closed and (due is None or now < due + _SLACK_SECONDS):\n",
        "        if not command.closed:\n",
        (REAL + "test_recovery_rows.py::test_row_5_a_caller_that_dies_between_the_record_and_the_signal_of_a_stop",),
    ),
    Guard(
        "a wait without an end is told that the bucket is gone",
        "src/tenure/nats/runs.py",
        "                if not self.is_open() or await is_gone(self._conn, self._names.runs_stream):\n",
        "                if not self.is_open():\n",
        (REAL + "test_gone.py::test_who_waits_without_a_timeout_is_told_that_the_bucket_is_gone",),
    ),
    Guard(
        "a wait without an end outlasts an outage",
        "src/tenure/nats/runs.py",
        "                if not self.is_open() or await is_gone(self._conn, self._names.runs_stream):\n",
        "                if True:\n",
        (
            REAL
            + "test_gone.py::test_who_waits_without_a_timeout_outlasts_a_server_that_is_away_for_longer_than_a_call_may_take",
        ),
    ),
    Guard(
        "gap 6: who is silent for its ttl is closed",
        "src/tenure/supervisor/census.py",
        "            if proves and self.caught_up.is_set():\n",
        "            if False:\n",
        _row("row_6_a_worker_that_dies_between_a_superseded_bodys_end_and_its_confirm"),
    ),
    Guard(
        "gap 6: a body past its grace keeps nobody back",
        CORE + "claims.py",
        "    blocking = [entry.deadline for entry in open_ones if entry.deadline is None or entry.deadline > now]\n",
        "    blocking = [entry.deadline for entry in open_ones]\n",
        _row("row_6_a_worker_that_dies_between_a_superseded_bodys_end_and_its_confirm"),
    ),
    Guard(
        "gap 7: a sweep forgets the mark of a command",
        _KEEPERS,
        "        found = await self._forget_seen(found, patience)  # last: it asks others' records\n",
        "",
        _row("row_7_a_supervisor_that_dies_between_a_command_and_its_effects"),
    ),
    # -- who repairs dies in the middle of it ------------------------------------------------------------------------
    Guard(
        "gap, repairers: a sweep finds what a session held that was closed before",
        _SWEEPS,
        "        owing = holder_closed or 0.0 < state.deadline < now\n",
        "        owing = 0.0 < state.deadline < now\n",
        _repairer("supervisor_that_dies_when_it_has_closed_a_session_and_woken_nobody"),
    ),
    Guard(
        "gap, repairers: a head check asks whether the holder's session is closed",
        "src/tenure/worker/head.py",
        "                closed.add(name)\n",
        "                pass\n",
        _repairer("supervisor_that_dies_when_it_has_closed_a_session_and_woken_nobody"),
    ),
    Guard(
        "gap, repairers: what the end of an older body lets in is woken",
        _KEEPERS,
        '        self._repaired("previous", result.record)\n        await self._carry_out(result, patience)\n',
        '        self._repaired("previous", result.record)\n',
        _repairer("supervisor_that_dies_when_it_has_ended_a_body_that_does_not_hear_and_woken_nobody"),
    ),
    Guard(
        "gap, repairers: a replay that was cut off is finished",
        "src/tenure/nats/dead.py",
        "            await self.remove(kept, patience)\n",
        "            pass\n",
        _repairer("caller_that_dies_when_it_has_replayed_a_letter_and_not_removed_it"),
    ),
    Guard(
        "gap, repairers: a sweep finds what waits for a switch that is gone",
        "src/tenure/supervisor/sweep.py",
        "        self._releases.saw(stored.parked, is_mine)\n",
        "",
        _repairer("supervisor_that_dies_between_the_wake_up_of_what_was_paused_and_its_removal"),
    ),
    Guard(
        "gap, repairers: places of dead sessions are given back",
        "src/tenure/supervisor/places.py",
        "        if permit.session and await self._is_gone(permit.session):\n            return True\n",
        "",
        (f"{REAL}test_recovery_repairers.py::test_workers_that_die_between_a_place_under_a_limit_and_the_claim",),
    ),
    Guard(
        "drain: what waits in hand for its due is handed back",
        "src/tenure/worker/puller.py",
        "        await self._brink.close()\n",
        "",
        (REAL + "test_brink.py",),
    ),
    Guard(
        "due: what waits in hand becomes due between two looks at the clock",
        "src/tenure/worker/brink.py",
        "if left <= 0.0 and self._free() <= 0:",
        "if left <= 0.0:",
        (REAL + "test_brink.py::test_what_becomes_due_between_two_looks_at_the_clock_starts_at_once",),
    ),
    Guard(
        "drain: what waits in hand for its due starts nothing after the drain signal",
        "src/tenure/worker/puller.py",
        "free() if self.pulling else 0",
        "free()",
        (REAL + "test_brink.py",),
    ),
    Guard(
        "claim: [47] one of unknown fate is looked at again by who sent it",
        "src/tenure/worker/service.py",
        "                self._remnants.gave_up(live.run_id, delivery)\n",
        "                pass\n",
        (REAL + "test_races_bodies.py::test_a_claim_of_unknown_fate_is_looked_at_again_by_the_process_that_sent_it",),
    ),
    Guard(
        "claim: [47] one of unknown fate is before what is pulled",
        "src/tenure/worker/service.py",
        "        if self._remnants is not None and self._remnants.overdue:\n",
        "        if False:\n",
        (REAL + "test_races_bodies.py::test_a_claim_of_unknown_fate_is_looked_at_again_by_the_process_that_sent_it",),
    ),
    Guard(
        "claim: [47] what a defect ended after it is looked at again by its process",
        "src/tenure/worker/service.py",
        "                self._remnants.gave_up(live.run_id, delivery, crashed=True)\n",
        "                pass\n",
        (
            REAL
            + "test_races_bodies.py::test_a_handling_that_a_defect_ends_after_its_claim_is_looked_at_again_by_its_process",
        ),
    ),
    Guard(
        "a defect that comes at once is not met again at once",
        "src/tenure/worker/remnants.py",
        "        self._unheard[run_id] = self._stores.clock.steady() + pause, again\n",
        "        self._due[run_id] = again\n",
        (REAL + "test_races_bodies.py",),
    ),
    Guard(
        "connection: who waits when it breaks hears no answer of the next one",
        "src/tenure/nats/connection.py",
        '        self._waiting.fail_all("the connection broke")\n',
        "",
        (
            "tests/contract/test_reconnect.py::test_who_waits_when_the_connection_breaks_hears_no_answer_of_the_next_one",
        ),
    ),
)
