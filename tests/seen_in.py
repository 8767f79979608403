"""For each event of the log table, a test in which it is seen: that test fails if it passes and has not seen it (``logged``)."""

UNSEEN = {
    "child.not_gone": "of a process that the kernel does not let go: none can be made here",
    "child.not_started": "of a system that starts no process any more",
    "connection.abandoned": "of a half-open client of nats-py that fails while it is dropped",
    "limit.handed_over": "only after a crash between two writes of a limit; `test_limits_crashes` makes it in processes of its own",
    "publish.dropped": "of an ack between the loss of a connection and the word of it",
}
"""No test shows these, and why. May only shrink."""

_UNANSWERED = (
    "tests/integration/test_supervisor_unanswered.py::test_what_gets_no_answer_is_told_and_done_at_the_next_look"
)
SEEN_IN = {
    "actor.crowded": "tests/integration/test_handover.py::test_a_full_worker_takes_no_more_than_it_has_slots",
    "actor.unknown": "tests/integration/test_handover.py::test_nobody_knows_the_actor",
    "args.encrypted": (
        "tests/integration/test_encryption.py::test_who_lacks_the_key_of_large_arguments_alone_does_not_fail_the_run"
    ),
    "attempt.failed": "tests/integration/test_counting.py::test_an_end_is_counted_and_told_though_nobody_takes_its_dead_letter",
    "blob.removed": "tests/integration/test_blob_expiry.py::test_a_supervisor_does_it_by_itself",
    "blobs.not_looked_at": f"{_UNANSWERED}[blobs.not_looked_at]",
    "child.died": "tests/integration/test_isolation.py::test_scenario_26_a_body_that_takes_its_process_along_counts_as_a_failure",
    "child.killed": "tests/integration/test_isolation.py::test_a_timeout_kills_the_child_and_retries",
    "child.not_ready": "tests/integration/test_child_starts.py::test_a_start_that_fails_costs_no_attempt_and_is_made_again",
    "clock.differs": (
        "tests/integration/test_clocks.py::test_a_client_whose_clock_is_wrong_does_not_start_before_it_knows_the_time"
    ),
    "command.crashed": (
        "tests/integration/test_supervisor_loops.py::test_scenario_30_a_loop_that_raises_ends_the_supervisor[command]"
    ),
    "command.not_applied": f"{_UNANSWERED}[command.not_applied]",
    "command.not_kept": f"{_UNANSWERED}[command.not_kept]",
    "command.rejected": "tests/integration/test_inbox.py::test_arguments_over_the_limit_are_refused",
    "command.stray": (
        "tests/integration/test_inbox_copies.py::test_a_command_that_its_consumer_takes_for_acknowledged_is_applied_all_the_same"
    ),
    "connection.failed": "tests/integration/test_bad_setup.py::test_nobody_at_the_address_is_unavailable_with_the_address",
    "connection.lost": "tests/integration/test_pause_crashes.py::test_a_body_does_not_start_while_its_worker_is_cut_off",
    "connection.restored": "tests/integration/test_pause_crashes.py::test_a_body_does_not_start_while_its_worker_is_cut_off",
    "consumer.changed": "tests/contract/test_work_messages.py::test_a_shorter_ack_wait_holds_for_what_is_in_hand_already",
    "delivery.handed_over": "tests/integration/test_roles_at_work.py::test_a_worker_hands_over_what_only_another_knows",
    "desk.crashed": "tests/integration/test_worker_unanswered.py::test_an_offer_that_meets_a_defect_is_made_again",
    "drain.cut_off": "tests/integration/test_worker_stops.py::test_a_drain_without_the_server_says_so",
    "drain.ended": (
        "tests/integration/test_worker_stops.py::test_a_drain_gives_up_a_body_that_never_ends_and_another_worker_takes_over_uncounted"
    ),
    "drain.started": (
        "tests/integration/test_worker_stops.py::test_a_drain_gives_up_a_body_that_never_ends_and_another_worker_takes_over_uncounted"
    ),
    "entry.unreadable": "tests/integration/test_unreadable_input.py::test_foreign_progress_does_not_hide_a_status",
    "exit.ignored": "tests/e2e/test_cli_exits.py::test_a_body_that_exits_is_a_failed_attempt_and_the_worker_goes_on",
    "history.not_kept": "tests/integration/test_history.py::test_a_history_of_a_bucket_that_was_made_anew_is_made_anew_by_setup",
    "inbox.crashed": f"{_UNANSWERED}[inbox.crashed]",
    "inbox.not_opened": f"{_UNANSWERED}[inbox.not_opened]",
    "inbox.not_searched": f"{_UNANSWERED}[inbox.not_searched]",
    "keeper.crashed": (
        "tests/integration/test_supervisor_loops.py::test_scenario_30_a_loop_that_raises_ends_the_supervisor[keeper]"
    ),
    "key.not_repaired": f"{_UNANSWERED}[key.not_repaired]",
    "key.repaired": "tests/integration/test_supervisor_repairs.py::test_repairs_are_counted_and_told",
    "keys.put_off": "tests/integration/test_recovery_many.py::test_what_a_sweep_has_no_room_for_is_told_and_found_by_the_next_one",
    "lane.broken": "tests/integration/test_restarts.py::test_a_worker_recovers_from_a_work_stream_that_was_deleted",
    "lane.crashed": "tests/integration/test_internal_loops.py::test_a_lane_that_crashes_is_counted_and_starts_afresh",
    "lane.refused": "tests/integration/test_recovery_lost_messages.py::test_a_deleted_consumer_loses_nothing",
    "lane.silent": "tests/contract/test_lane.py::test_a_deaf_lane_is_not_alive_and_hears_again",
    "lease.left_open": "tests/integration/test_worker_stops.py::test_a_drain_without_the_server_says_so",
    "lease.lost": "tests/integration/test_internal_loops.py::test_in_progress_acks_that_fail_end_the_session",
    "lease.not_renewed": "tests/integration/test_lease.py::test_an_outage_is_logged_once_and_so_is_its_end",
    "lease.renewed": "tests/integration/test_lease.py::test_an_outage_is_logged_once_and_so_is_its_end",
    "letter.unreadable": (
        "tests/integration/test_unreadable_history.py::test_a_dead_letter_that_nobody_can_read_is_left_out_of_the_list"
    ),
    "limit.changed": "tests/integration/test_deployed.py::test_of_two_numbers_of_one_deployment_the_smaller_counts",
    "limit.full": (
        "tests/integration/test_limits_full.py::test_a_run_whose_name_does_not_fit_the_entry_any_more_waits_and_keeps_nobody_out"
    ),
    "limit.not_repaired": f"{_UNANSWERED}[limit.not_repaired]",
    "limit.repaired": "tests/integration/test_limits_sweep.py::test_what_crashes_leave_is_put_right_without_new_traffic",
    "limits.not_looked_at": "tests/integration/test_worker_unanswered.py::test_a_worker_starts_though_it_cannot_look_at_limits",
    "marks.not_forgotten": f"{_UNANSWERED}[marks.not_forgotten]",
    "message.foreign": "tests/integration/test_bad_input.py::test_foreign_messages_are_terminated_counted_and_stop_nobody",
    "message.removed": (
        "tests/integration/test_recovery_lost_messages.py::test_messages_outside_of_every_lane_are_removed_and_nothing_else"
    ),
    "outbox.unpaid": (
        "tests/integration/test_races_effects.py::test_an_old_debt_that_cannot_be_paid_does_not_keep_a_run_from_running"
    ),
    "permission.missing": "tests/integration/test_roles_at_work.py::test_who_lacks_a_permission_is_told_which",
    "place.not_given_back": (
        "tests/integration/test_worker_unanswered.py::test_a_place_that_cannot_be_given_back_keeps_nobody_out"
    ),
    "record.encrypted": "tests/integration/test_encryption.py::test_who_lacks_the_key_hands_the_task_over_to_who_has_it",
    "record.newer": "tests/integration/test_bad_input.py::test_a_newer_record_is_left_alone_and_stops_nobody_else",
    "record.passed_over": f"{_UNANSWERED}[record.passed_over]",
    "record.unreadable": (
        "tests/integration/test_unreadable_records.py::test_an_unreadable_record_is_left_alone_and_stops_nobody_else"
    ),
    "refusal.unreadable": (
        "tests/integration/test_unreadable_history.py::test_a_refusal_and_a_revision_that_nobody_can_read_are_left_out_of_a_history"
    ),
    "remnant.not_settled": (
        "tests/integration/test_worker_unanswered.py::test_what_an_attempt_has_left_is_looked_at_until_the_server_answers"
    ),
    "request.crashed": f"{_UNANSWERED}[request.crashed]",
    "revision.unreadable": (
        "tests/integration/test_unreadable_history.py::test_a_refusal_and_a_revision_that_nobody_can_read_are_left_out_of_a_history"
    ),
    "run.abandoned": (
        "tests/integration/test_worker_stops.py::test_a_drain_gives_up_a_body_that_never_ends_and_another_worker_takes_over_uncounted"
    ),
    "run.crashed": "tests/integration/test_worker_unanswered.py::test_a_defect_while_a_run_is_handled_costs_it_one_delivery",
    "run.effects_owed": (
        "tests/integration/test_stuck_bodies.py::test_the_wake_up_of_a_stuck_body_is_not_taken_for_the_one_of_the_next_attempt"
    ),
    "run.ended": "tests/e2e/test_secrets.py::test_no_argument_result_or_password_is_in_what_a_worker_says",
    "run.fenced": "tests/integration/test_supervisor_repairs.py::test_a_body_past_its_deadline_and_grace_is_ended_for_its_worker",
    "run.given_up": (
        "tests/integration/test_races_bodies.py::"
        "test_a_claim_of_unknown_fate_is_looked_at_again_by_the_process_that_sent_it[0]"
    ),
    "run.not_evicted": (
        "tests/integration/test_worker_unanswered.py::test_an_attempt_that_overstays_is_ended_once_the_server_answers"
    ),
    "run.stuck": "tests/integration/test_stuck_bodies.py::test_a_cancel_and_then_a_replace_leave_a_deaf_body_no_slot",
    "run.superseded": "tests/integration/test_inbox.py::test_a_replace_and_a_cancel_reach_a_body_that_runs",
    "run.taken_over": "tests/integration/test_supervisor_repairs.py::test_repairs_are_counted_and_told",
    "schedule.changed": "tests/integration/test_schedules.py::test_a_chain_that_was_cancelled_or_purged_is_started_again",
    "schedule.key_taken": (
        "tests/integration/test_supervisor_unanswered.py::test_a_schedule_whose_key_has_another_run_is_told_of_once"
    ),
    "schedule.not_kept": f"{_UNANSWERED}[schedule.not_kept]",
    "schedule.outdated": (
        "tests/integration/test_deployed.py::test_an_old_supervisor_that_comes_back_last_does_not_put_its_schedule_back"
    ),
    "schedule.passed_over": f"{_UNANSWERED}[schedule.passed_over]",
    "schedule.unknown": (
        "tests/integration/test_schedules.py::test_a_schedule_whose_whole_module_is_gone_is_told_and_ended_for_good_by_a_cancel"
    ),
    "scrape.dropped": "tests/integration/test_health.py::test_who_goes_away_before_the_answer_leaves_no_traceback",
    "scrape.failed": "tests/integration/test_health.py::test_an_answer_that_fails_is_logged",
    "seen.not_forgotten": (
        "tests/integration/test_unreadable_records.py::test_an_origin_that_cannot_be_read_stops_no_repair_of_its_target"
    ),
    "session.closed": "tests/integration/test_worker_unanswered.py::test_a_dead_session_is_closed_once_the_server_answers",
    "session.not_closed": "tests/integration/test_worker_unanswered.py::test_a_dead_session_is_closed_once_the_server_answers",
    "session.not_opened": (
        "tests/integration/test_supervisor_sessions.py::test_a_session_of_its_own_that_is_lost_is_counted_once_however_often_the_next_one_fails_to_open"
    ),
    "session.opened": "tests/e2e/test_cli_services.py::test_a_worker_answers_health_ready_and_metrics",
    "stream.missing": "tests/integration/test_restarts.py::test_a_worker_recovers_from_a_work_stream_that_was_deleted",
    "stream.restored": "tests/integration/test_restarts.py::test_a_worker_recovers_from_a_work_stream_that_was_deleted",
    "sweep.failed": (
        "tests/integration/test_supervisor_loops.py::test_a_supervisor_whose_sweeps_all_fail_is_not_ready_until_one_is_over"
    ),
    "switch.not_released": f"{_UNANSWERED}[switch.not_released]",
    "switch.over": "tests/integration/test_pause.py::test_a_pause_of_an_actor_until_a_time_ends_with_no_traffic",
    "switch.released": (
        "tests/integration/test_pause_crashes.py::test_what_a_worker_parks_that_does_not_know_yet_is_woken_a_little_later"
    ),
    "switches.changed": "tests/integration/test_pause.py::test_a_pause_of_an_actor_until_a_time_ends_with_no_traffic",
    "switches.unreadable": "tests/integration/test_switches.py::test_who_cannot_read_what_is_paused_starts_nothing",
    "wakeup.stray": "tests/integration/test_recovery_lost_messages.py::test_a_stray_wake_up_of_a_run_that_is_over_is_removed",
    "watch.not_started": "tests/integration/test_lease.py::test_an_outage_is_logged_once_and_so_is_its_end",
    "watch.refused": "tests/integration/test_restarts.py::test_a_worker_whose_runs_bucket_was_made_anew_ends_and_says_why",
    "watch.silent": "tests/integration/test_restarts.py::test_a_worker_recovers_from_a_sessions_bucket_that_was_deleted",
    "thread.not_started": (
        "tests/integration/test_threads.py::"
        "test_a_thread_that_cannot_be_started_costs_no_attempt_and_its_body_does_not_start_later"
    ),
}
