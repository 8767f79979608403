"""Guards that tests on a real server hold: what is asked of it, and the scenarios from the field."""

from __future__ import annotations

from tests.mutants.guard import CORE, REAL, STORE, Guard

FIELD = (
    # -- clocks ------------------------------------------------------------------------------------------------------
    Guard(
        "clocks: a freeze between question and answer moves none that was right",
        "src/tenure/clock.py",
        "server + half, half + SAME_SECONDS",
        "server + half, max(SAME_SECONDS, half)",
        ("tests/unit/test_clock.py",),
    ),
    Guard(
        "clock: what a slow answer leaves alone may be wrong by all of its way",
        "src/tenure/clock.py",
        "half + kept * abs(differs)",
        "half",
        ("tests/unit/test_clock.py",),
    ),
    Guard(
        "clocks: who stood still on its first answer about the time asks once more",
        "src/tenure/stores.py",
        " and again != 1:",
        ":",
        (REAL + "test_clocks.py",),
    ),
    # -- what is asked of the server ---------------------------------------------------------------------------------
    Guard(
        "claim: a wake-up that carries its record needs no read",
        "src/tenure/worker/head.py",
        "            if found is None or found.record is None or found.record.previous:\n",
        "            if True:\n",
        (REAL + "test_requests.py::test_a_claim_needs_no_read",),
    ),
    Guard(
        "result: who waits is told, and does not ask",
        "src/tenure/nats/changes.py",
        "        self._reread_seconds = conn.config.reread_seconds\n",
        "        self._reread_seconds = 0.1\n",
        (REAL + "test_requests.py::test_waiting_for_a_result_costs_no_request",),
    ),
    Guard(
        "connection: who reads what arrives never waits until something is written",
        "src/tenure/nats/wire.py",
        " or asyncio.current_task() is self._reading_task:",
        ":",
        ("tests/contract/test_wire.py::test_who_listens_keeps_nobody_from_hearing_while_the_connection_is_crowded",),
    ),
    Guard(
        "connection: nor does whoever writes wait for room in the flusher's queue",
        "src/tenure/nats/wire.py",
        "        if queue is None or queue.empty():  # else",
        "        if True:  # else",
        ("tests/contract/test_wire.py::test_nobody_waits_to_subscribe_where_it_is_crowded",),
    ),
    Guard(
        "connection: who is cancelled where it is crowded leaves no subscription",
        "src/tenure/nats/wire.py",
        "        del force_flush\n        queue",
        "        if force_flush:\n            return await self.relieve()\n        queue",
        ("tests/contract/test_wire.py::test_what_was_cancelled_on_a_crowded_connection_leaves_no_subscription",),
    ),
    Guard(
        "connection: a request's own timeout holds where it is crowded",
        "src/tenure/nats/connection.py",
        "relieve(future)",
        "relieve()",
        ("tests/contract/test_wire.py::test_a_request_on_a_crowded_connection_waits_no_longer_than_its_timeout",),
    ),
    Guard(
        "connection: a server that stands still is left with what it has not taken",
        "src/tenure/nats/wire.py",
        "        self._abort()\n        await super()._attempt_reconnect()",
        "        await super()._attempt_reconnect()",
        ("tests/contract/test_reconnect.py::test_a_server_that_stands_still_is_left_whatever_was_written_to_it",),
    ),
    Guard(
        "connection: a close does not wait for a server that stands still",
        "src/tenure/nats/wire.py",
        "call_later(_CLOSE_SECONDS, self._abort)",
        "call_later(3_600.0, self._abort)",
        ("tests/contract/test_reconnect.py::test_a_close_does_not_wait_for_a_server_that_stands_still",),
    ),
    Guard(
        "connection: what was given up while away is not subscribed afterwards",
        "src/tenure/nats/connection.py",
        "                if self._nc.is_reconnecting:",
        "                if False:",
        ("tests/contract/test_reconnect.py::test_what_was_subscribed_and_given_up_while_away_is_not_there_afterwards",),
    ),
    Guard(
        "body: it sees what whoever called run has set",
        "src/tenure/worker/service.py",
        "self._handle(live, delivery, lease), self._context.copy())",
        "self._handle(live, delivery, lease))",
        (REAL + "test_services.py::test_bodies_see_what_whoever_called_run_has_set",),
    ),
    Guard(
        "outcome: the ack comes after it is stored",
        "src/tenure/worker/handler.py",
        "            done = await self._tail.store(",
        "            await self._stores.work.ack(live.reply)\n            done = await self._tail.store(",
        (REAL + "test_requests.py::test_the_ack_comes_last",),
    ),
    Guard(
        "pull: a slot that comes free is asked for at once",
        "src/tenure/worker/service.py",
        "            self._spawn(self._remnants.start())\n        self.puller.refill_soon()\n",
        "            self._spawn(self._remnants.start())\n",
        (REAL + "test_requests.py::test_a_freed_slot_is_refilled_at_once",),
    ),
    # -- scenarios from the field, by number -------------------------------------------------------------------------
    Guard(
        "scenario 01: only the holder stores an outcome, and what comes after it",
        CORE + "endings.py",
        "    if record.holder == holder:\n        return None\n",
        "    return None\n",
        (
            REAL
            + "test_scenarios_perpetual.py::test_scenario_01_the_slower_old_run_never_overwrites_the_newer_schedule",
        ),
    ),
    Guard(
        "scenario 02: a record that waits does not expire with the outcome in it",
        CORE + "records.py",
        "    if record.phase not in TERMINAL or record.previous",
        "    if record.last is None or record.previous",
        (
            STORE + "test_runs.py::test_a_live_record_does_not_expire_with_or_without_an_outcome_in_it",
            REAL
            + "test_scenarios_perpetual.py::test_scenario_02_the_old_generations_outcome_never_hides_the_successor",
        ),
    ),
    Guard(
        "scenario 03: an outcome of another generation ends nobody's wait",
        "src/tenure/run.py",
        "        if last is not None and last.run_id == self.run_id:\n"
        "            return last\n"
        "        if record.run_id",
        "        if last is not None:\n            return last\n        if record.run_id",
        (
            REAL
            + "test_scenarios_replace.py::test_scenario_03_waiting_for_generation_2_is_not_woken_by_the_end_of_generation_1",
        ),
    ),
    Guard(
        "scenario 04: a wake-up of an old life claims nothing",
        CORE + "claims.py",
        "    if record.run_id != command.run_id:\n        return Refused(Why.SUPERSEDED)\n",
        "",
        (REAL + "test_scenarios_replace.py::test_scenario_04_a_purge_does_not_restart_generations",),
    ),
    Guard(
        "scenario 06: a cancelled run that fails is not retried",
        CORE + "endings.py",
        "        return conclude_stop(record, now, by=command.holder.session)\n    return _failed_attempt",
        "        pass\n    return _failed_attempt",
        (REAL + "test_scenarios_cancel.py::test_scenario_06_a_cancel_is_not_a_timeout",),
    ),
    Guard(
        "scenario 08: a cancel of a key that is not there writes nothing",
        "src/tenure/client.py",
        "            if found.record is None:\n"
        '                return Cancelled(outcome="not_found", key=key)\n'
        "            pin",
        "            if found.record is None:\n"
        '                await stores.conn.put(stores.names.record(key), b"")\n'
        '                return Cancelled(outcome="not_found", key=key)\n'
        "            pin",
        (REAL + "test_scenarios_cancel.py::test_scenario_08_cancelling_an_absent_key_stores_nothing",),
    ),
    Guard(
        "scenario 09: stop signals are heard whatever the worker does",
        "src/tenure/lease.py",
        "                    group.create_task(sessions.watch_stops(self.id, self._on_stop).run()),\n",
        "",
        (REAL + "test_scenarios_cancel.py::test_scenario_09_a_full_worker_still_obeys_a_cancel",),
    ),
    Guard(
        "scenario 10: a submit over a stopping run is not swallowed by it",
        CORE + "generations.py",
        "    if record.phase in TERMINAL or record.phase is Phase.STOPPING:\n",
        "    if record.phase in TERMINAL:\n",
        (
            REAL
            + "test_scenarios_cancel.py::test_scenario_10_a_key_whose_body_is_still_stopping_can_be_submitted_again_at_once",
        ),
    ),
    Guard(
        "scenario 15: a session is renewed",
        "src/tenure/lease.py",
        "                    group.create_task(self._renew(sessions)),\n",
        "",
        (REAL + "test_scenarios_leases.py::test_scenario_15_a_run_of_ten_times_the_ttl_is_never_taken_over",),
    ),
    Guard(
        "scenario 17: the attempt is part of the fence",
        CORE + "endings.py",
        "    if record.holder == holder:\n        return None\n",
        "    if record.holder is not None and record.holder.run_id == holder.run_id:\n        return None\n",
        (REAL + "test_scenarios_retries.py::test_scenario_17_nor_can_one_that_somebody_else_has_ended",),
    ),
    Guard(
        "scenario 17: what a body returns after its timeout is not its outcome",
        "src/tenure/worker/body.py",
        '        return Returned(_encode(value)) if context.stop_reason != "timeout" else Halted()\n',
        "        return Returned(_encode(value))\n",
        (
            REAL
            + "test_scenarios_retries.py::test_scenario_17_a_timed_out_attempt_that_ignores_its_cancellation_cannot_write",
        ),
    ),
    Guard(
        "scenario 23: an async body does not start after the drain signal",
        "src/tenure/worker/body.py",
        "            raise Stopped(context.stop_reason)\n        return await (actor",
        "            pass\n        return await (actor",
        (REAL + "test_scenarios_drain.py::test_scenario_23_a_claim_in_flight_when_the_signal_comes_starts_no_body",),
    ),
    Guard(
        "scenario 25: what is handed back counts no failure",
        CORE + "endings.py",
        "    return decide(did, requeued(record, due, now, record.failure))",
        "    return decide(did, requeued(replace(record, failures=record.failures + 1), due, now, record.failure))",
        (
            REAL + "test_scenarios_drain.py::test_scenario_25_snooze_costs_no_retry_and_a_failure_still_does",
            REAL + "test_scenarios_drain.py::test_scenario_25_sigterms_cost_no_retry",
        ),
    ),
    Guard(
        "scenario 37: what cannot be encoded is not tried again",
        "src/tenure/worker/body.py",
        "Fail | _Unencodable | InvalidCall",
        "Fail | InvalidCall",
        (REAL + "test_scenarios_encoding.py::test_scenario_37_a_result_that_cannot_be_encoded_fails_that_run_at_once",),
    ),
    Guard(
        "scenario 37: arguments that do not decode are not tried again",
        "src/tenure/worker/body.py",
        "Fail | _Unencodable | InvalidCall",
        "Fail | _Unencodable",
        (REAL + "test_scenarios_encoding.py::test_scenario_37_arguments_that_no_longer_decode_fail_that_run_at_once",),
    ),
    Guard(
        "scenario 38: an outcome that no message can hold fails its run",
        "src/tenure/worker/tail.py",
        "        except InvalidCall as error:  # over the server's limit",
        "        except ZeroDivisionError as error:  # over the server's limit",
        (
            REAL
            + "test_scenarios_encoding.py::test_scenario_38_an_outcome_over_the_servers_limit_is_a_clear_error_and_no_lost_connection",
        ),
    ),
    Guard(
        "scenario 38: what a record cannot hold is not spawned",
        "src/tenure/worker/tail.py",
        "        if size > _RECORD_ROOM_BYTES:\n",
        "        if False:\n",
        (
            REAL
            + "test_scenarios_encoding.py::test_scenario_38_more_spawned_runs_than_one_record_holds_fail_the_run_by_name",
        ),
    ),
    Guard(
        "scenario 38: arguments over the inline limit go to the blob store",
        "src/tenure/stores.py",
        "        if len(data) <= self.config.inline_limit_bytes:\n            return task\n",
        "        if len(data) <= self.config.blob_limit_bytes:\n            return task\n",
        (REAL + "test_scenarios_encoding.py::test_scenario_38_large_arguments_and_results_arrive_whole",),
    ),
    Guard(
        "scenario 39: a key is escaped before it is part of a subject",
        CORE + "subjects.py",
        "    if _PLAIN_KEY.match(key):\n        return key\n    return _ESCAPED",
        "    if _PLAIN_KEY.match(key) or not key.isspace():\n        return key\n    return _ESCAPED",
        (REAL + "test_scenarios_encoding.py::test_scenario_39_nasty_keys_all_run_and_none_collides",),
    ),
    Guard(
        "scenario 40: a claim of unknown fate is recognised",
        "src/tenure/worker/head.py",
        "commit(key, command, at=found, mine=mine, patience=patience)",
        "commit(key, command, at=found, patience=patience)",
        (REAL + "test_scenarios_unknown_writes.py::test_scenario_40_a_worker_recognises_its_own_claim_and_runs_once",),
    ),
    Guard(
        "scenario 40: a hand-back of unknown fate is recognised",
        CORE + "endings.py",
        "        return Why.ALREADY  # its own retry",
        "        return Why.FENCED  # its own retry",
        (REAL + "test_scenarios_unknown_writes.py::test_scenario_40_a_drained_worker_recognises_its_own_hand_back",),
    ),
    Guard(
        "scenario 40: a cancel of unknown fate that was stored is no late one",
        "src/tenure/client.py",
        "        mine = result.unsure and record.phase is Phase.CANCELLED and record.run_id == pin\n",
        "        mine = False\n",
        (
            REAL
            + "test_scenarios_unknown_client_writes.py::test_scenario_40_a_cancel_whose_answer_is_lost_says_cancelled",
        ),
    ),
    Guard(
        "scenario 40: a create that met an older record did not happen",
        "src/tenure/nats/runs.py",
        "            untouched = 0 < found.revision <= before\n",
        "            untouched = False\n",
        (
            REAL
            + "test_scenarios_unknown_client_writes.py::test_scenario_40_a_submit_of_a_live_key_whose_answer_is_lost_joins_it",
        ),
    ),
    Guard(
        "scenario 43: a submit of a live key joins it",
        CORE + "generations.py",
        "    return Refused(Why.LIVE)\n\n\ndef _joined",
        "    return anew(record, command, now, Did.REPLACED)\n\n\ndef _joined",
        (
            REAL
            + "test_scenarios_submit.py::test_scenario_43_a_hundred_concurrent_submits_are_one_run_that_all_callers_get",
        ),
    ),
    Guard(
        "scenario 43: who joins a run that nobody wakes gives it its wake-up",
        "src/tenure/client.py",
        "        await self.stores.help(result.found, self.stores.runs.patience())\n",
        "",
        (
            REAL
            + "test_scenarios_submit.py::test_scenario_43_a_producer_killed_between_record_and_wake_up_is_found_by_the_next_submit",
        ),
    ),
    Guard(
        "scenario 45: an answered request is forgotten",
        "src/tenure/nats/connection.py",
        "            self._waiting.forget(token)\n",
        "            pass\n",
        (REAL + "test_scenarios_memory.py",),
    ),
)
