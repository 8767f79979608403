"""Guards that keep out one of the interleavings on the page, half of which another guard covers where a test is not made for it."""

from __future__ import annotations

from tests.mutants.guard import CORE, CORE_TESTS, REAL, Guard

TRACES = (
    Guard(
        "outbox: [7] what is applied is cleared before it is forgotten",
        "src/tenure/stores.py",
        """        if paid:
            cleared = c.ClearOutbox(ids=frozenset(entry.id for entry in paid))
            await self.runs.commit(origin, cleared, patience=patience, since=revision)
        await all_of(
            *(
                self.runs.commit(e.key, c.ForgetSeen(ids=frozenset({e.id})), patience=patience)
                for e in paid
                if not e.dead
            )
        )
""",
        """        await all_of(
            *(
                self.runs.commit(e.key, c.ForgetSeen(ids=frozenset({e.id})), patience=patience)
                for e in paid
                if not e.dead
            )
        )
        if paid:
            cleared = c.ClearOutbox(ids=frozenset(entry.id for entry in paid))
            await self.runs.commit(origin, cleared, patience=patience, since=revision)
""",
        (REAL + "test_recovery_rows.py::test_row_3_what_is_paid_is_known_to_be_paid_until_its_debt_is_cleared",),
    ),
    Guard(
        "submit: [29] a run that a drain gave up is not dead",
        "src/tenure/stores.py",
        'seen.session.closed not in {None, "drain"}',
        "seen.session.closed is not None",
        (
            REAL
            + "test_scenarios_drain.py::test_scenario_23_a_submit_of_what_a_drain_gave_up_joins_the_run_that_will_go_on",
        ),
    ),
    Guard(
        "head check: the sessions of older bodies are looked at too",
        "src/tenure/worker/head.py",
        "        named = {entry.session for entry in record.previous} | ({record.holder.session} if record.holder else set())\n",
        "        named = {record.holder.session} if record.holder else set()\n",
        (
            REAL
            + "test_scenarios_drain.py::test_an_older_body_that_a_drain_gave_up_keeps_nobody_back_though_no_supervisor_is_there",
        ),
    ),
    Guard(
        "cancel: [10] a client's cancel of unknown fate keeps its pin",
        "src/tenure/client.py",
        "            if run_id is None and moved_on and not result.unsure:\n",
        "            if run_id is None and moved_on:\n",
        (REAL + "test_scenarios_unknown_client_writes.py::test_a_cancel_of_unknown_fate_never_hits_the_next_run",),
    ),
    Guard(
        "head check: [20] a delivery that finds no such body confirms its end",
        "src/tenure/worker/head.py",
        "            if entry.session == session and not self._has_body(entry.run_id, entry.attempt, run_id)\n",
        "            if False\n",
        (
            REAL
            + "test_scenarios_replace.py::test_a_delivery_confirms_for_an_older_body_that_its_own_process_does_not_have",
        ),
    ),
    Guard(
        "replace: [4] a run that waits leaves its older bodies to the next",
        CORE + "generations.py",
        '        return owed(record, Count(what="superseded", where="head", actor=actor)) if waited else record\n',
        "        return replace(record, previous=()) if waited else record\n",
        (CORE_TESTS + "test_interleavings.py::test_a_replace_of_a_replacement_remembers_every_older_body",),
    ),
    Guard(
        "messages: [11] a timer's subject ends in its run's id",
        CORE + "subjects.py",
        '{encode_key(key)}.{run_id}.{attempt}"',
        '{encode_key(key)}.{attempt}"',
        (CORE_TESTS + "test_subjects.py::test_wake_ups_of_two_runs_never_share_a_subject",),
    ),
    Guard(
        "inbox: [15] a command without a key names its own",
        "src/tenure/wishes.py",
        '{"key": key or command, ',
        '{"key": key or __import__("uuid").uuid4().hex, ',
        (REAL + "test_inbox_crashes.py::test_a_command_without_a_key_gets_the_same_one_from_the_next_supervisor",),
    ),
    Guard(
        "sessions: [17] trust lasts no longer than a ttl",
        CORE + "policy.py",
        "    return sent_at + ttl\n",
        "    return sent_at + 2 * ttl\n",
        (CORE_TESTS + "test_policy.py::test_trust_runs_from_the_send",),
    ),
    Guard(
        "evict: [30] a body past its deadline and grace may be ended by others",
        CORE + "endings.py",
        "    due = record.deadline + record.task.policy.grace\n    if now < due:\n",
        "    due = record.deadline + record.task.policy.grace\n    if True:\n",
        (CORE_TESTS + "test_interleavings_endings.py::test_a_body_past_its_deadline_and_grace_is_ended_by_the_sweep",),
    ),
    Guard(
        "replace: [4] a new generation keeps the older bodies",
        CORE + "generations.py",
        "        return replace(record, previous=(*record.previous, entry(record, holder, None, counted=False)))",
        "        return replace(record, previous=(entry(record, holder, None, counted=False),))",
        (CORE_TESTS + "test_interleavings.py::test_a_replace_of_a_running_replacement_appends_its_body",),
    ),
    Guard(
        "replace: [6] a new generation carries the outbox",
        CORE + "generations.py",
        "        outbox=record.outbox,\n",
        "",
        (CORE_TESTS + "test_interleavings_endings.py::test_a_new_generation_carries_the_outbox_and_its_effects",),
    ),
    Guard(
        "replace: [7, 13] a new generation remembers the commands applied to its key",
        CORE + "generations.py",
        "        seen=record.seen + seen,\n",
        "        seen=seen,\n",
        (
            CORE_TESTS + "test_interleavings_endings.py::test_an_outbox_entry_is_applied_once",
            CORE_TESTS + "test_interleavings_endings.py::test_a_command_that_was_applied_does_not_hit_a_later_run",
        ),
    ),
    Guard(
        "submit: [28] a submit over a stopping run is a generation of its own",
        CORE + "generations.py",
        "    if record.phase in TERMINAL or record.phase is Phase.STOPPING:\n",
        "    if record.phase in TERMINAL:\n",
        (CORE_TESTS + "test_interleavings_endings.py::test_a_submit_during_stopping_starts_a_new_generation",),
    ),
    Guard(
        "submit: [29] a submit over a dead run without budget is not lost with it",
        CORE + "generations.py",
        "    if record.phase is Phase.RUNNING and spent and command.lost is not None and command.lost == record.holder:\n",
        "    if False:\n",
        (
            CORE_TESTS
            + "test_interleavings_endings.py::test_a_submit_over_a_dead_run_without_budget_starts_a_new_generation",
        ),
    ),
    Guard(
        "sessions: [16] a session is closed at the revision that was seen unchanged",
        "src/tenure/supervisor/census.py",
        "                revision = await self._sessions.write(session, seen.revision)\n",
        "                now = await self._sessions.read(session.id)\n                revision = await self._sessions.write(session, now.revision if now else seen.revision)\n",
        (
            REAL
            + "test_supervisor_sessions.py::test_a_renewal_that_a_supervisor_has_not_heard_of_keeps_the_session_open",
        ),
    ),
    Guard(
        "sessions: [18] a refused renewal is read",
        "src/tenure/lease.py",
        "        if seen is None or seen.session.closed is not None:\n            self._lose(f",
        "        if seen is not None or seen is None:\n            self._lose(f",
        (
            REAL
            + "test_scenarios_unknown_writes.py::test_scenario_40_a_session_survives_lost_answers_to_its_own_writes",
        ),
    ),
    Guard(
        "drain: [27] a body that did not end is not handed back",
        "src/tenure/worker/handler.py",
        "        if live.abandoned:\n            return\n",
        "",
        (REAL + "test_scenarios_drain.py::test_scenario_23_a_plain_body_that_is_given_up_is_still_its_session_s",),
    ),
)
