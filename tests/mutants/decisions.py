"""Guards of what is decided: head check, tail check, generations.

``[n]`` is the interleaving that the guard keeps out (see ``ARCHITECTURE.md``).
"""

from __future__ import annotations

from tests.mutants.guard import CORE, CORE_TESTS, REAL, Guard, unit

DECISIONS = (
    # -- head check ------------------------------------------------------------------------------------------------
    Guard(
        "head check: a wake-up of an older generation claims nothing",
        CORE + "claims.py",
        "    if record.run_id != command.run_id:\n        return Refused(Why.SUPERSEDED)\n",
        "",
        unit("test_transitions.py"),
    ),
    Guard(
        "head check: a run starts when it is due",
        CORE + "claims.py",
        "    if record.due > now:\n",
        "    if False:\n",
        (REAL + "test_scenarios_retries.py::test_scenario_18_a_stale_read_never_starts_a_body_early",),
    ),
    Guard(
        "head check: a held run is taken over only under a closed session",
        CORE + "claims.py",
        "    if holder.session not in command.closed:\n        return Refused(Why.BUSY)\n",
        "",
        (
            REAL + "test_scenarios_leases.py::test_scenario_16_longer_than_ack_wait_gives_one_run",
            *unit("test_transitions.py"),
        ),
    ),
    Guard(
        "head check: [3] the same process starts an attempt once",
        CORE + "claims.py",
        "        if command.own_lost != holder:\n            return Refused(Why.BUSY)\n",
        "",
        (
            CORE_TESTS
            + "test_interleavings.py::test_a_second_delivery_to_the_same_process_does_not_start_the_attempt_again",
        ),
    ),
    Guard(
        "head check: [1] a takeover of a cancelled run ends it",
        CORE + "claims.py",
        "    return conclude_stop(record, now) if gone else Refused(Why.BUSY)  # [1]",
        "    return start(record, command, now, Did.TAKEOVER, record.failures + 1) if gone else Refused(Why.BUSY)",
        (CORE_TESTS + "test_interleavings.py::test_a_takeover_ends_a_cancelled_run_and_does_not_start_it_again",),
    ),
    Guard(
        "head check: [22] an exhausted takeover starts no body",
        CORE + "claims.py",
        "    if record.failures + 1 >= record.task.policy.max_attempts:  # [22]",
        "    if False:",
        (CORE_TESTS + "test_interleavings.py::test_an_exhausted_takeover_writes_failed_and_starts_no_body",),
    ),
    Guard(
        "head check: overlap stop and wait keep the successor back",
        CORE + "claims.py",
        "    return Refused(Why.BUSY, None if None in blocking",
        "    return _start_over(record, (), command, now) if blocking else Refused(Why.BUSY, None if None in blocking",
        (REAL + "test_scenarios_replace.py::test_scenario_05_replacing_five_times_stops_each_body_before_the_next",),
    ),
    Guard(
        "head check: a wake-up whose record has older bodies is read first",
        "src/tenure/worker/head.py",
        "            if found is None or found.record is None or found.record.previous:\n",
        "            if found is None or found.record is None:\n                found = await self._stores.runs.read(key, patience)\n            if False:\n",
        (REAL + "test_scenarios_replace.py", REAL + "test_stuck_bodies.py", REAL + "test_races_effects.py"),
    ),
    Guard(
        "head check: a session without an entry is busy, not dead, to a worker",
        "src/tenure/worker/head.py",
        '            if seen is not None and seen.session.closed is not None:\n                closed.add(name)\n                if seen.session.closed == "drain":',
        '            if seen is None or seen.session.closed is not None:\n                closed.add(name)\n                if seen is not None and seen.session.closed == "drain":',
        (REAL + "test_supervisor_sessions.py", REAL + "test_restarts.py"),
    ),
    Guard(
        "head check: an attempt that was given up is nobody's own claim",
        "src/tenure/worker/head.py",
        "                and not self._table.gave_up(holder)\n",
        "",
        (
            REAL
            + "test_races.py::test_an_attempt_whose_handling_ended_in_the_middle_is_not_run_again_as_a_claim_of_its_own",
        ),
    ),
    Guard(
        "a process looks after the attempts that it gave up",
        "src/tenure/worker/remnants.py",
        "        if any(entry.holder() == holder for entry in record.previous):\n",
        "        if False:\n",
        (REAL + "test_races_bodies.py",),
    ),
    Guard(
        "head check: one delivery of a run at a time in a process",
        "src/tenure/worker/table.py",
        "        return self._live.setdefault(live.run_id, live) is live\n",
        "        self._live[live.run_id] = live\n        return True\n",
        ("tests/unit/test_table.py::test_one_entry_per_run",),
    ),
    # -- tail check ------------------------------------------------------------------------------------------------
    Guard(
        "tail check: only the holder stores an outcome",
        CORE + "endings.py",
        "    if record.holder == holder:\n        return None\n",
        "    if record.holder == holder or record.holder is not None:\n        return None\n",
        unit("test_interleavings_endings.py", "test_properties.py"),
    ),
    Guard(
        "tail check: the attempt is part of the fence",
        CORE + "endings.py",
        "    if record.holder == holder:\n        return None\n",
        "    if record.holder and (record.holder.session, record.holder.run_id) == (holder.session, holder.run_id):\n        return None\n",
        unit("test_interleavings_endings.py", "test_properties.py", "test_transitions.py"),
    ),
    Guard(
        "tail check: [9] the run id is part of the fence",
        CORE + "endings.py",
        "    if record.holder == holder:\n        return None\n",
        "    if record.holder and (record.holder.session, record.holder.attempt) == (holder.session, holder.attempt):\n        return None\n",
        (
            CORE_TESTS
            + "test_interleavings_endings.py::test_an_old_body_is_not_taken_for_the_same_attempt_of_a_new_life",
        ),
    ),
    Guard(
        "tail check: [2] a stopping run ends cancelled, whatever its body returned",
        CORE + "endings.py",
        "    if record.phase is Phase.STOPPING:\n        return conclude_stop(record, now, by=command.holder.session)\n    last =",
        "    last =",
        (CORE_TESTS + "test_interleavings.py::test_a_stopping_run_ends_cancelled_whatever_its_body_did",),
    ),
    Guard(
        "tail check: [2] a stopping run is not retried",
        CORE + "endings.py",
        "    if record.phase is Phase.STOPPING:\n        return conclude_stop(record, now, by=command.holder.session)\n    return _failed_attempt",
        "    return _failed_attempt",
        (CORE_TESTS + "test_interleavings.py::test_a_stopping_run_ends_cancelled_whatever_its_body_did",),
    ),
    Guard(
        "tail check: [2] a stopping run is not handed back",
        CORE + "endings.py",
        "    if record.phase is Phase.STOPPING:\n        return conclude_stop(record, now, by=holder.session)\n",
        "",
        (CORE_TESTS + "test_interleavings.py::test_a_stopping_run_ends_cancelled_whatever_its_body_did",),
    ),
    Guard(
        "tail check: [23] an own outcome is recognised under what came after",
        CORE + "endings.py",
        "        return Why.ALREADY  # [23]\n",
        "        return Why.SUPERSEDED\n",
        (
            CORE_TESTS
            + "test_interleavings_endings.py::test_a_holder_recognises_its_own_stored_outcome_under_what_came_after",
        ),
    ),
    Guard(
        "tail check: an end written by others is not taken for one's own",
        CORE + "endings.py",
        '    by = command.holder.session if isinstance(command, c.FailAttempt) else ""\n',
        "    by = command.holder.session\n",
        unit("test_interleavings_endings.py"),
    ),
    Guard(
        "tail check: [24] who is fenced by a later attempt of its run does not acknowledge",
        "src/tenure/worker/handler.py",
        "        if not fenced:\n",
        "        if True:\n",
        (REAL + "test_cut_off.py::test_a_fenced_attempt_leaves_the_message_to_the_attempt_after_it",),
    ),
    Guard(
        "tail check: [20] a superseded body confirms its end",
        "src/tenure/worker/handler.py",
        "        await self._tail.confirm(live.key, holder_of(context), patience, where=void.where, since=void.revision)\n",
        "        pass\n",
        (
            REAL
            + "test_scenarios_replace.py::test_a_superseded_body_confirms_its_end_to_who_waits_for_it_in_another_process",
        ),
    ),
    Guard(
        "order: effects before the ack",
        "src/tenure/worker/handler.py",
        "            await self._tail.settle(done, live.run_id, patience)\n",
        "            await self._stores.work.ack(live.reply)\n            await self._tail.settle(done, live.run_id, patience)\n",
        (REAL + "test_races_effects.py", REAL + "test_recovery_rows.py", REAL + "test_worker_chains.py"),
    ),
    Guard(
        "order: the ack comes last, after the outcome",
        "src/tenure/worker/handler.py",
        "        record = committed.record\n        context = self._context(live, record, committed.revision, lease)\n",
        "        record = committed.record\n        await self._stores.work.ack(live.reply)\n        context = self._context(live, record, committed.revision, lease)\n",
        (REAL + "test_requests.py::test_the_ack_comes_last",),
    ),
    Guard(
        "trust: no body starts under a session that is not trusted",
        "src/tenure/worker/handler.py",
        '        if not lease.trusted:  # since the claim was sent: it may be another\'s already\n            live.tell("lease_lost")\n',
        "",
        (REAL + "test_races.py",),
    ),
    # -- generations -----------------------------------------------------------------------------------------------
    Guard(
        "replace: generations count on",
        CORE + "generations.py",
        "        generation=record.generation + 1,\n        phase=Phase.WAITING,\n        task=command.task,",
        "        generation=1,\n        phase=Phase.WAITING,\n        task=command.task,",
        unit("test_properties.py"),
    ),
    Guard(
        "submit: a repeated submit finds its own trace",
        CORE + "generations.py",
        "    return leaves_trace(record, command.run_id)\n\n\ndef generation_of",
        "    return False\n\n\ndef generation_of",
        unit("test_interleavings_endings.py"),
    ),
    Guard(
        "inbox: [13] a cancel that was applied is not applied again",
        CORE + "generations.py",
        "    if is_marked(record, command.seen):\n        return Refused(Why.ALREADY)  # [13]\n",
        "",
        (CORE_TESTS + "test_interleavings_inbox.py::test_a_cancel_of_the_inbox_does_not_hit_a_later_run",),
    ),
    Guard(
        "inbox: [13] a submit or replace that was applied is not applied again",
        CORE + "generations.py",
        "    if command.seen is not None and is_marked(record, command.seen):\n        return True\n",
        "",
        (
            CORE_TESTS
            + "test_interleavings_inbox.py::test_a_run_of_the_inbox_is_not_started_again_after_two_later_ones",
        ),
    ),
    Guard(
        "inbox: [13] a cancel leaves its mark",
        CORE + "generations.py",
        "    return replace(result, record=replace(result.record, seen=(*record.seen, command.seen)))\n",
        "    return result\n",
        (CORE_TESTS + "test_interleavings_inbox.py::test_a_cancel_of_the_inbox_does_not_hit_a_later_run",),
    ),
    Guard(
        "inbox: [13] a command with a message id is known on for copies alone",
        CORE + "marks.py",
        "    copies = [entry for entry in over if entry.until > now]\n",
        "    copies: list[Seen] = []\n",
        (
            CORE_TESTS
            + "test_interleavings_inbox.py::test_a_copy_of_a_command_is_known_for_as_long_as_the_server_tells_copies",
        ),
    ),
    Guard(
        "inbox: a record expires no sooner than there may be copies",
        CORE + "records.py",
        "else 0.0, copies)))",
        "else 0.0)))",
        unit("test_interleavings_inbox.py"),
    ),
    Guard(
        "inbox: [15] a copy of a command is told by its id",
        CORE + "marks.py",
        'any(is_mark(entry) and entry.id.endswith(f".{command}") for entry in record.seen)',
        "False",
        (
            CORE_TESTS
            + "test_interleavings_inbox.py::test_a_copy_with_the_same_message_id_is_the_same_command_wherever_it_lies",
        ),
    ),
    Guard(
        "inbox: what is refused for want of room is not acknowledged",
        CORE + "inbox.py",
        '        return "crowded"\n',
        '        return "kept"\n',
        unit("test_inbox.py"),
    ),
    Guard(
        "inbox: a cancel is no answer to what nobody has read",
        CORE + "inbox.py",
        "    return isinstance(command, c.Submit)\n",
        "    return True\n",
        unit("test_inbox.py"),
    ),
    Guard(
        "schedules: what is of another app's module is not gone from the code",
        CORE + "sweeps.py",
        "    ours = state.autostart in modules and key == state.actor\n",
        "    ours = key == state.actor\n",
        unit("test_chains.py"),
    ),
    Guard(
        "trigger: [10] a trigger starts the run that it saw and no other",
        CORE + "chains.py",
        "    if command.run_id not in {None, record.run_id}:\n",
        "    if False:\n",
        (CORE_TESTS + "test_chains.py::test_a_trigger_is_of_the_run_that_it_names_and_of_no_other",),
    ),
    Guard(
        "trigger: [10] a client names the run that it saw",
        "src/tenure/client.py",
        "c.Trigger(run_id=pin.run_id)",
        "c.Trigger()",
        (REAL + "test_scenarios_unknown_client_writes.py::test_a_trigger_of_unknown_fate_never_starts_the_next_run",),
    ),
    Guard(
        "trigger: a cron fire is not named by the clock of who starts it early",
        CORE + "schedule.py",
        "tick - (policy.every or _BETWEEN_FIRES)",
        "(now if policy.every is None else tick - policy.every)",
        unit("test_chains.py"),
    ),
    Guard(
        "trigger: what its caller went away from is finished",
        "src/tenure/client.py",
        "                self._afterwards.finish(stores, key, partial(is_due, pin.run_id, stores.clock.now))\n",
        "",
        (REAL + "test_races_clients.py::test_a_caller_that_goes_away_in_the_middle_leaves_no_run_without_its_wake_up",),
    ),
    Guard(
        "trigger: who finishes it looks again until its write is there",
        "src/tenure/afterwards.py",
        "record.phase is not Phase.WAITING or record.due <= now()",
        "True",
        (
            REAL
            + "test_races_clients.py::test_a_caller_that_goes_away_before_its_trigger_arrives_leaves_no_run_without_its_wake_up",
        ),
    ),
    Guard(
        "trigger: a retry of a run that was triggered takes no second fire back",
        CORE + "chains.py",
        "    early = is_perpetual(record.task.policy) and not record.attempt\n",
        "    early = is_perpetual(record.task.policy)\n",
        unit("test_chains.py"),
    ),
    Guard(
        "cancel: [10] a cancel hits the run that it saw and no other",
        CORE + "generations.py",
        "    if command.run_id is not None and command.run_id != record.run_id:\n        return _cancel_older(record, command.run_id, now)\n",
        "",
        (CORE_TESTS + "test_interleavings.py::test_a_cancel_never_hits_another_run_than_the_one_it_saw",),
    ),
    Guard(
        "cancel: a pin of unknown fate stays",
        "src/tenure/client.py",
        "                if run_id is None and moved_on and not result.unsure:\n",
        "                if run_id is None and moved_on:\n",
        (REAL + "test_scenarios_unknown_client_writes.py",),
    ),
    Guard(
        "deadlines: what was told to stop gets no more time",
        CORE + "parts.py",
        "    return tuple(replace(entry, deadline=deadline) if entry.deadline is None else entry for entry in previous)",
        "    return tuple(replace(entry, deadline=deadline) for entry in previous)",
        unit("test_interleavings.py"),
    ),
    Guard(
        "purge: [5] a key with older bodies or debts is not forgotten",
        CORE + "upkeep.py",
        "    if record.previous or record.outbox or record.to_forget:\n        return Refused(Why.OWED)  # [5]\n",
        "",
        (CORE_TESTS + "test_interleavings.py::test_a_waiting_run_with_an_older_body_is_not_purged",),
    ),
    Guard(
        "expiry: [6] a record that owes something does not expire",
        CORE + "records.py",
        "    if record.phase not in TERMINAL or record.previous or record.outbox or record.to_forget:\n",
        "    if record.phase not in TERMINAL:\n",
        (CORE_TESTS + "test_interleavings_endings.py::test_a_record_with_an_outbox_neither_expires_nor_is_purged",),
    ),
    Guard(
        "sweep: a body past its deadline has its grace",
        CORE + "endings.py",
        "    due = record.deadline + record.task.policy.grace\n",
        "    due = record.deadline\n",
        unit("test_interleavings_endings.py"),
    ),
    Guard(
        "confirm: an attempt takes its own entry out and no other",
        CORE + "upkeep.py",
        "    left = tuple(entry for entry in record.previous if entry.holder() != command.holder)\n",
        "    left = tuple(entry for entry in record.previous if entry.run_id != command.holder.run_id)\n",
        unit("test_interleavings.py"),
    ),
)
