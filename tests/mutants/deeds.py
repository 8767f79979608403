"""Guards of what is done: writes, messages, debts, sessions, sweeps."""

from __future__ import annotations

from tests.mutants.guard import CORE, REAL, STORE, Guard, unit

DEEDS = (
    # -- writes ----------------------------------------------------------------------------------------------------
    Guard(
        "commit: a refused write is decided anew on what is stored",
        "src/tenure/nats/runs.py",
        "            headers_of(record, revision),\n",
        "            headers_of(record, (await self.read(key)).revision),\n",
        (STORE + "test_runs.py",),
    ),
    Guard(
        "commit: [21] an outcome refused over another body's confirm is decided anew",
        "src/tenure/nats/runs.py",
        "            self.conflicts(type(command).__name__.lower())\n",
        "            return Declined(Refused(Why.NOTHING), found, unsure)\n",
        (STORE + "test_runs.py::test_an_outcome_that_another_bodys_confirm_came_before_is_stored_on_the_second_look",),
    ),
    Guard(
        "wake-ups: [25] they have no message id, by which the server would drop a repair's copy",
        "src/tenure/nats/work.py",
        "        headers = None\n        if record.due",
        '        headers = {"Nats-Msg-Id": record.run_id}\n        if record.due',
        (STORE + "test_work_messages.py::test_two_copies_of_a_wake_up_are_both_delivered",),
    ),
    Guard(
        "commit: [19] a write of unknown fate is repeated until its revision moves",
        "src/tenure/nats/swaps.py",
        "            why, unsure = error, True\n",
        "            return 0, True\n",
        (
            STORE
            + "test_runs_faults.py::test_a_write_that_may_still_come_is_repeated_unchanged_until_the_revision_moves",
        ),
    ),
    Guard(
        "commit: what a cluster did not propose (10164) has not happened",
        "src/tenure/nats/swaps.py",
        "            why = ack.error.description\n",
        "            why, unsure = ack.error.description, True\n",
        (STORE + "test_runs_faults.py::test_a_write_that_the_server_did_not_propose_has_not_happened",),
    ),
    Guard(
        "commit: what a cluster did not propose (10164) may have been, in an earlier copy",
        "src/tenure/nats/swaps.py",
        "            why = ack.error.description\n",
        "            why, unsure = ack.error.description, False\n",
        (STORE + "test_runs_faults.py::test_a_write_that_the_server_says_is_in_flight_may_be_an_earlier_copy_of_it",),
    ),
    Guard(
        "dead letters: what the server calls in flight (10164) is no refusal",
        "src/tenure/nats/dead.py",
        "refusals += ack.error.err_code != IN_FLIGHT",
        "refusals += 1",
        (STORE + "test_dead_faults.py",),
    ),
    Guard(
        "expiry: the server leaves no marks, which take what was just stored with them",
        "src/tenure/nats/runs.py",
        '"subject_delete_marker_ttl": 0,',
        '"subject_delete_marker_ttl": 3_600_000_000_000,',
        (REAL + "test_expiry.py::test_submits_that_reach_a_leader_while_their_records_are_removed_are_all_run",),
    ),
    Guard(
        "expiry: [8] a record stays as its own mark",
        "src/tenure/core/expiry.py",
        "MARK_SECONDS = 3_600",
        "MARK_SECONDS = 0",
        (
            STORE
            + "test_runs_faults.py::test_a_late_create_is_refused_by_the_marker_and_a_new_life_begins_at_generation_1",
        ),
    ),
    Guard(
        "expiry: a read is judged by when it was asked for, not by when its answer was looked at",
        "src/tenure/nats/runs.py",
        "return _found(self.codec, key, got.message, asked, blind=blind)",
        "return _found(self.codec, key, got.message, self.clock.now(), blind=blind)",
        (STORE + "test_runs.py",),
    ),
    Guard(
        "commit: only who was unsure recognises a write as its own",
        "src/tenure/nats/runs.py",
        "            if repeated and mine is not None and",
        "            if mine is not None and",
        (STORE + "test_runs_faults.py",),
    ),
    Guard(
        "commit: [14] a wish of unknown fate is not decided anew on a record that moved on",
        "src/tenure/nats/runs.py",
        "            if unsure and once is not None and not untouched and not once(found.record):\n",
        "            if False:\n",
        (
            REAL
            + "test_scenarios_unknown_client_writes.py::test_a_write_that_a_moved_on_record_does_not_show_is_outcome_unknown",
        ),
    ),
    Guard(
        "claim: a body's fence is the revision of its claim",
        "src/tenure/worker/handler.py",
        "            fence=revision,\n",
        "            fence=record.attempt,\n",
        (REAL + "test_fence.py",),
    ),
    Guard(
        "lease: a body that blocks its loop does not stop the in-progress acks",
        "src/tenure/lease.py",
        '                    await conn.publish(reply, b"+WPI")\n',
        "                    main = self._on_lost.__self__._loop\n"
        "                    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), main))  # body: a turn\n"
        '                    await conn.publish(reply, b"+WPI")\n',
        (
            REAL + "test_recovery_scenarios.py::"
            "test_scenario_11_a_blocked_loop_under_supervision_keeps_its_session_and_its_message",
        ),
    ),
    Guard(
        "messages: [12] revisions of another bucket mean nothing",
        "src/tenure/nats/work.py",
        "ours = head.i == self.incarnation",
        "ours = True",
        (STORE + "test_work.py::test_a_wake_up_of_another_bucket_carries_no_revision",),
    ),
    Guard(
        "messages: [11] each attempt of a run has a timer of its own",
        "src/tenure/nats/work.py",
        "{self._names.timer(record.key, record.run_id, record.attempt)}",
        "{self._names.timer(record.key, record.run_id, 0)}",
        (STORE + "test_work_messages.py::test_each_attempt_has_a_timer_of_its_own",),
    ),
    Guard(
        "messages: [26] a lane is not stopped by what is not answered",
        "src/tenure/nats/work.py",
        '        "max_ack_pending": -1,\n',
        '        "max_ack_pending": 500,\n',
        (STORE + "test_work_messages.py::test_a_thousand_unanswered_wake_ups_do_not_stop_the_queue",),
    ),
    Guard(
        "outbox: [7] the target is read before the origin is asked",
        "src/tenure/stores.py",
        "        result = await self.runs.commit(entry.key, command, check=still_owed, patience=patience)\n",
        "        result = await self.runs.commit(entry.key, command, patience=patience)\n",
        (REAL + "test_races_effects.py::test_a_debt_that_another_has_paid_is_not_paid_again_once_its_key_is_gone",),
    ),
    Guard(
        "outbox: an entry is cleared once it is applied, not before",
        "src/tenure/stores.py",
        "        paid = [entry for entry in await all_of(*map(pay, entries)) if entry is not None]\n        if paid:\n            cleared = c.ClearOutbox(ids=frozenset(entry.id for entry in paid))\n            await self.runs.commit(origin, cleared, patience=patience, since=revision)\n",
        "        await self.runs.commit(origin, c.ClearOutbox(ids=frozenset(entry.id for entry in entries)), patience=patience)\n        paid = [entry for entry in await all_of(*map(pay, entries)) if entry is not None]\n",
        (REAL + "test_recovery_rows.py", REAL + "test_worker_chains.py", REAL + "test_scenarios_hooks.py"),
    ),
    # -- sessions and supervisors ----------------------------------------------------------------------------------
    Guard(
        "sessions: [17] trust runs from the send of a renewal",
        "src/tenure/lease.py",
        "                    self._trusted_until = trusted_until(sent, self._session.ttl)\n                    self._heard()\n",
        "                    self._trusted_until = trusted_until(self._clock.steady(), self._session.ttl)\n                    self._heard()\n",
        (REAL + "test_lease.py::test_trust_is_counted_from_the_send_of_a_renewal_not_from_its_answer",),
    ),
    Guard(
        "sessions: a server's outage closes nobody",
        CORE + "silence.py",
        "        for clock in self._clocks.values():\n            clock.since = now\n",
        "",
        unit("test_silence.py"),
    ),
    Guard(
        "sessions: who is not confirmed itself closes nobody",
        CORE + "silence.py",
        "        if unconfirmed > UNCONFIRMED * self._ttl:\n",
        "        if False:\n",
        (
            REAL
            + "test_supervisor_sessions.py::test_nobody_is_closed_while_the_supervisors_own_renewals_are_not_confirmed",
        ),
    ),
    Guard(
        "sessions: who stood still closes nobody at once",
        CORE + "silence.py",
        "    def _stand_still(self, seconds: float, now: float) -> None:\n",
        "    def _stand_still(self, _seconds: float, now: float) -> None:\n        seconds = 0.0\n",
        (REAL + "test_supervisor_sessions.py::test_clocks_start_anew_after_a_freeze",),
    ),
    Guard(
        "sessions: who ends closes its own",
        "src/tenure/lease.py",
        "            await self._close(sessions)\n",
        "",
        (REAL + "test_services.py::test_a_service_that_ends_closes_its_session_and_the_next_one_has_another",),
    ),
    Guard(
        "isolation: a lost lease kills at once, whatever the grace",
        "src/tenure/worker/isolate.py",
        '0.0 if reason == "lease_lost" else grace',
        "grace",
        (REAL + "test_isolation.py::test_a_lost_lease_kills_the_children_at_once",),
    ),
    Guard(
        "sweep: [31] a dead holder's run is woken whatever is stored",
        "src/tenure/supervisor/keepers.py",
        "        if early and await self._stores.work.is_stored(record, patience):\n",
        "        if await self._stores.work.is_stored(record, patience):\n",
        (REAL + "test_recovery_rows.py::test_row_2_a_worker_that_dies_between_claim_and_outcome",),
    ),
    Guard(
        "sweep: [31] a run that was put back for a process that stands still is woken again",
        "src/tenure/supervisor/keepers.py",
        "        if record.phase is Phase.WAITING and record.due < soon:\n",
        "        if record.phase is Phase.WAITING and record.due < soon and not soon:\n",
        (REAL + "test_supervisor_repairs.py::test_a_body_past_its_deadline_and_grace_is_ended_for_its_worker",),
    ),
    Guard(
        "sweep: a backlog is not published twice",
        CORE + "sweeps.py",
        "        owing = age > SETTLE_SECONDS and not has_wakeup and late\n",
        "        owing = age > SETTLE_SECONDS and late\n",
        unit("test_sweeps.py"),
    ),
    Guard(
        "sweep: [32] everybody passes over everything now and again",
        "src/tenure/supervisor/service.py",
        "            everything = number % _EVERYTHING_EVERY == 0\n",
        "            everything = False\n",
        (REAL + "test_supervisor_sessions.py::test_a_supervisor_that_beats_and_sweeps_nothing_leaves_no_hole",),
    ),
    Guard(
        "sweep: nobody rests while a key of another's owes something",
        "src/tenure/supervisor/sweep.py",
        "            if suspicious:\n",
        "            if suspicious and is_mine(header.key):\n",
        (
            REAL + "test_supervisor_stillness.py"
            "::test_a_pass_by_one_of_several_is_enough_to_rest_and_none_is_while_anybodys_key_owes_something",
        ),
    ),
    Guard(
        "sweep: a wake-up that will not be delivered is none",
        "src/tenure/supervisor/sweep.py",
        "        await self._remove_strays()\n",
        "",
        (REAL + "test_recovery_lost_messages.py::test_a_wake_up_below_its_consumers_ack_floor_is_replaced",),
    ),
    Guard(
        "drain: a claim on its way is waited for as long as for any answer",
        "src/tenure/worker/drain.py",
        "            max(0.0, self._config.request_timeout_seconds - grace),\n",
        "            0.0,\n",
        (
            REAL
            + "test_scenarios_drain.py::test_scenario_23_a_claim_that_takes_longer_than_the_drain_is_waited_for_and_handed_back",
        ),
    ),
    Guard(
        "drain: what has no body is not given up as one",
        "src/tenure/worker/drain.py",
        "sum(live.has_body for live in {*rest, *self._table.running_on()})",
        "len({*rest, *self._table.running_on()})",
        (REAL + "test_scenarios_drain.py::test_scenario_23_what_has_no_body_is_not_given_up_as_one",),
    ),
    Guard(
        "counting: what was taken out is known by its tag",
        "src/tenure/nats/runs.py",
        "            return record.taken == command.tag\n",
        "            return True\n",
        (REAL + "test_counting.py", REAL + "test_supervisor_repairs.py"),
    ),
    # -- inbox -----------------------------------------------------------------------------------------------------
    Guard(
        "inbox: who has read a record looks whether the command is still stored",
        "src/tenure/supervisor/commands.py",
        "            stored = await stores.inbox.holds(message.place, patience)\n",
        "            stored = True\n",
        (
            REAL
            + "test_inbox_crashes.py::test_a_frozen_supervisor_that_comes_back_after_all_is_forgotten_applies_nothing",
        ),
    ),
    Guard(
        "inbox: a mark is forgotten once its message is gone",
        "src/tenure/supervisor/marks.py",
        "                if mark.place.sequence < first\n"
        "                or not await self._stores.inbox.holds(mark.place, patience, had=mark.place.sequence <= last)\n",
        "",
        (
            REAL
            + "test_inbox_crashes.py::test_a_mark_stays_while_its_message_does_though_its_supervisor_has_acknowledged",
        ),
    ),
    Guard(
        "inbox: a sweep forgets a mark once its message is gone",
        "src/tenure/supervisor/keepers.py",
        "return not await self._stores.inbox.holds(place, patience)",
        "return True",
        (REAL + "test_inbox_crashes.py::test_a_sweep_forgets_no_mark_whose_message_may_come_again",),
    ),
    Guard(
        "inbox: [15] a command has one id, whichever way it comes",
        "src/tenure/nats/inbox.py",
        "return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1)",
        "return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1) + int(time[-4:-1] > '499')",
        (STORE + "test_inbox.py::test_a_command_has_one_id_whether_it_is_delivered_or_found_as_a_stray",),
    ),
    Guard(
        "inbox: headers that nats-py cannot read do not break the connection",
        "src/tenure/nats/wire.py",
        "        except (ValueError, IndexError) as error:\n            return {BROKEN_HEADERS",
        "        except ZeroDivisionError as error:\n            return {BROKEN_HEADERS",
        (REAL + "test_inbox_service.py::test_headers_that_break_nats_py_do_not_break_the_service",),
    ),
    Guard(
        "drain: a wake-up that waits for its forerunner's end starts nothing after the drain signal",
        "src/tenure/worker/service.py",
        "        if self.puller.pulling and self._free() > 0:\n",
        "        if self._free() > 0:\n",
        (REAL + "test_short_waits.py",),
    ),
    Guard(
        "wake-ups: the next one of a run waits for the end of the attempt that asked for it",
        "src/tenure/worker/service.py",
        "            if self.table.follow(live.run_id, delivery):\n",
        "            if False:\n",
        (REAL + "test_short_waits.py",),
    ),
    Guard(
        "inbox: what was rejected is rejected, though its supervisor died before the ack",
        "src/tenure/supervisor/commands.py",
        "return stored and not (looks and await self._is_rejected(message, patience))",
        "return stored",
        (REAL + "test_inbox_crashes.py",),
    ),
    Guard(
        "inbox: who stood still rejects nothing that another has applied",
        "src/tenure/supervisor/commands.py",
        "        if not await stores.inbox.holds(message.place, patience):  # who",
        "        if False:  # who",
        (REAL + "test_inbox_crashes.py::test_who_stood_still_says_no_to_nobody_whom_another_has_said_yes",),
    ),
    Guard(
        "sweep: a rest ends when the first run is due",
        "src/tenure/supervisor/service.py",
        "min(started + LONGEST_SECONDS, due)",
        "started + LONGEST_SECONDS",
        (REAL + "test_supervisor_stillness.py::test_what_is_due_is_looked_for_then_whatever_its_timer_says",),
    ),
    Guard(
        "sweep: a timer that should have fired is none",
        "src/tenure/stores.py",
        "patience, timer=timer)",
        "patience)",
        (REAL + "test_supervisor_stillness.py::test_what_is_due_is_looked_for_then_whatever_its_timer_says",),
    ),
    # -- the namespace ---------------------------------------------------------------------------------------------
    Guard(
        "setup: an older one does not take a namespace back",
        "src/tenure/nats/topology.py",
        "    if migrate and found > SCHEMA:\n",
        "    if migrate and found > 1_000:\n",
        (REAL + "test_schemas.py::test_setup_refuses_to_go_back_and_changes_nothing",),
    ),
    Guard(
        "setup: what a newer one has changed stops no older process",
        "src/tenure/nats/topology.py",
        "or (newer and differing.keys() <= _MUTABLE):",
        "or (newer and not differing):",
        (REAL + "test_schemas.py::test_a_process_starts_on_what_a_newer_setup_has_changed",),
    ),
    Guard(
        "setup: a stream that another process makes just now is asked for again",
        "src/tenure/nats/topology.py",
        '        if not await patience.pause():\n            raise Unavailable(f"stream',
        '        if True:\n            raise Unavailable(f"stream',
        (REAL + "test_races_clients.py::test_a_stream_that_another_process_makes_just_now_is_waited_for",),
    ),
)
