"""Guards of limits: who may run, who is next, and what crashes leave."""

from __future__ import annotations

from tests.mutants.guard import CORE, REAL, STORE, Guard, unit

_PERMITS = CORE + "permits.py"
_GATES = "src/tenure/gates.py"
_SWEEP = "src/tenure/supervisor/places.py"
_TESTS = "test_permits.py::"
_STORE = STORE + "test_limits.py::"
_LINES = STORE + "test_limits_line.py::"

LIMITS = (
    # -- who may run -----------------------------------------------------------------------------------------------
    Guard(
        "who is named and has to wait does so, instead of asking again at once",
        "src/tenure/gates.py",
        "                    request.came_at = self._clock.steady()  # else it would give way again at once, and ask for ever\n",
        "",
        (STORE + "test_limits_line.py",),
    ),
    Guard(
        "limits: the claim asks for the place of this very attempt",
        CORE + "claims.py",
        "command.permit != attempt or command.settled",
        "command.settled",
        (REAL + "test_limits.py::test_scenario_31_a_limit_of_n_is_n_never_more_and_not_less",),
    ),
    Guard(
        "limits: [33] a second delivery shares no place and adds none",
        _PERMITS,
        "    return Answer.GRANTED if _is_for(held, take) else Answer.BUSY\n",
        "    return Answer.GRANTED\n",
        unit(_TESTS + "test_33_a_second_delivery_of_a_run_shares_no_place_and_adds_none"),
    ),
    Guard(
        "limits: [34] who has parked and then finds room removes its message",
        _GATES,
        "                *(self._parking.drop(one.stored, patience) for one in inside),\n",
        "",
        (_STORE + "test_34_who_has_parked_and_then_finds_room_leaves_no_message",),
    ),
    Guard(
        "limits: [35] who is named is not reserved for again",
        _GATES,
        "            inside = {permit.run_id for permit in found.entry.names}  # [35]\n",
        "            inside: set[str] = set()\n",
        (_STORE + "test_35_a_message_that_is_not_removed_yet_is_passed_over",),
    ),
    Guard(
        "limits: [36] an entry is written at the revision that was read before the search",
        _GATES,
        "self._limits.write(name, decided.entry, found.revision, patience)",
        "self._limits.write(name, decided.entry, (await self._limits.read(name, patience)).revision, patience)",
        (_STORE + "test_36_the_search_comes_after_the_read",),
    ),
    Guard(
        "limits: [37] who parks writes also where the flag is set",
        _PERMITS,
        "parks or after != entry",
        "after != entry",
        unit(_TESTS + "test_37_who_parks_writes_also_where_the_flag_is_set"),
    ),
    Guard(
        "limits: [38] a parked message counts as a message of its run",
        "src/tenure/nats/work.py",
        '            or await self._has(self._names.park("*", record.key, record.run_id), patience)\n',
        "",
        (_STORE + "test_38_a_parked_message_counts_as_a_message_of_its_run",),
    ),
    Guard(
        "limits: the flag is cleared by whoever finds nobody",
        _PERMITS,
        "flag = start.parked and len(parked) >= room_to_hand_over(entry, asked, may_wait=may_wait)",
        "flag = start.parked",
        unit(_TESTS + "test_the_flag_is_cleared_by_whoever_finds_nobody_and_what_is_left_goes_to_who_asks"),
    ),
    Guard(
        "limits: an attempt that is over leaves its place to the next one",
        _PERMITS,
        "    if held.attempt < take.attempt:  # of an attempt that is over\n",
        "    if False:\n",
        unit(_TESTS + "test_an_attempt_that_is_over_leaves_its_place_to_the_next_one"),
    ),
    Guard(
        "limits: n is what the process says that was started last",
        _PERMITS,
        "deployed > known_deployed or ",
        "deployed >= 0 or ",
        unit(_TESTS + "test_n_is_what_the_process_says_that_was_started_last"),
    ),
    Guard(
        "limits: of two numbers of one time the smaller counts",
        _PERMITS,
        "(n < known or not known)",
        "(n != known)",
        unit(_TESTS + "test_n_is_what_the_process_says_that_was_started_last"),
    ),
    Guard(
        "limits: who is handed a place by a write whose answer is lost is woken",
        _GATES,
        "                    for run_id, one in handed.items()\n                    if run_id in reserved\n",
        "                    for run_id, one in handed.items()\n                    if run_id in decided.reserved\n",
        (_STORE + "test_a_write_whose_answer_is_lost_is_found_out_about",),
    ),
    Guard(
        "limits: a head check that claims nothing keeps no place",
        "src/tenure/worker/head.py",
        "            await ticket.give_back(patience)\n        return looked",
        "            pass\n        return looked",
        (REAL + "test_limits.py::test_a_cancelled_or_replaced_run_that_is_parked_keeps_nobody_waiting",),
    ),
    Guard(
        "limits: a claimed run that has no limit any more gives back the place that it got before",
        "src/tenure/worker/handler.py",
        "ticket if ticket.is_used or is_bounded(committed.record.task) else None",
        "ticket if is_bounded(committed.record.task) else None",
        (REAL + "test_leave.py::test_a_place_is_given_back_by_a_run_whose_newer_arguments_have_no_limit",),
    ),
    Guard(
        "limits: a place is not kept for who is held by a switch",
        _SWEEP,
        "        return not self._board.known or await self._board.of(record, patience) is None\n",
        "        return True\n",
        (REAL + "test_limits_sweep.py::test_a_place_is_not_kept_for_a_run_in_a_queue_that_is_paused",),
    ),
    Guard(
        "limits: who is parked need not wait for an end when newer code allows more",
        "src/tenure/worker/places.py",
        "            if n > entry.n:\n",
        "            if False:\n",
        (REAL + "test_limits_redeploy.py::test_whoever_is_parked_starts_when_newer_code_allows_more",),
    ),
    # -- who is next in line ---------------------------------------------------------------------------------------
    Guard(
        "limits: [45] a place that is given back by name is left to the next in line",
        _PERMITS,
        "            left = following.pop(held.session)\n        elif",
        "            left = None\n        elif",
        unit(_TESTS + "test_45_what_is_taken_from_a_session_is_left_to_its_next_in_line"),
    ),
    Guard(
        "limits: [45] a place that a later attempt takes over is left to the next in line",
        _PERMITS,
        "            left = following.pop(held.session) or held  # [45]; or it gives way below\n",
        "            left = held\n",
        unit(_TESTS + "test_45_what_is_taken_from_a_session_is_left_to_its_next_in_line"),
    ),
    Guard(
        "limits: nobody joins a line while others are parked",
        _PERMITS,
        " and not (flag or parks):\n",
        ":\n",
        unit(_TESTS + "test_runs_of_a_session_stand_in_line_for_its_places"),
    ),
    Guard(
        "limits: a process runs no more at once than it has places",
        "src/tenure/crew.py",
        "        elif len(self._inside) < self.places:\n",
        "        elif True:\n",
        (REAL + "test_limits.py::test_places_that_are_passed_on_within_a_process_are_never_more_than_n",),
    ),
    Guard(
        "limits: a body that is claimed ahead waits for its place",
        "src/tenure/worker/handler.py",
        "        placed = known and (live.ticket is None or await live.ticket.place())\n",
        "        placed = True\n",
        (REAL + "test_limits.py::test_places_that_are_passed_on_within_a_process_are_never_more_than_n",),
    ),
    Guard(
        "limits: a line that is full names nobody more",
        "src/tenure/crew.py",
        "(crew.low and self._room)",
        "crew.low",
        (_LINES + "test_a_line_that_is_full_names_nobody_more_and_holds_up_nobody",),
    ),
    Guard(
        "limits: a line that is full is not short of names",
        "src/tenure/crew.py",
        "bool(self.held) and self._room > 0 and",
        "bool(self.held) and",
        (_LINES + "test_a_line_that_is_full_names_nobody_more_and_holds_up_nobody",),
    ),
    Guard(
        "limits: who gives way in line is not started meanwhile",
        "src/tenure/crew.py",
        "        line, self.line = self.line, deque()\n",
        "        line = self.line\n",
        (_LINES + "test_who_gives_way_in_line_is_not_started_while_it_parks",),
    ),
    Guard(
        "limits: places are passed on for milliseconds without a look at what others wrote",
        _GATES,
        "        if now - gate.written_at > _UNSEEN_SECONDS and not gate.serving:\n",
        "        if False:\n",
        (_LINES + "test_a_line_does_not_keep_room_empty_that_others_leave",),
    ),
    # -- what crashes leave ----------------------------------------------------------------------------------------
    Guard(
        "limits: places of dead sessions are given back",
        _SWEEP,
        "        if permit.session and await self._is_gone(permit.session):\n            return True\n",
        "",
        (REAL + "test_limits_crashes.py::test_scenario_33_places_of_killed_holders_come_back_with_no_new_traffic",),
    ),
    Guard(
        "limits: who stands in a dead session's line is struck out",
        _SWEEP,
        "for permit in entry.names if",
        "for permit in entry.permits if",
        (_LINES + "test_a_dead_sessions_line_is_struck_out_with_its_places",),
    ),
    Guard(
        "limits: a run whose place is reserved is woken again",
        _SWEEP,
        "        await self._wake_reserved(name, found, record, patience)\n        return True",
        "        return True",
        (REAL + "test_limits_sweep.py::test_what_crashes_leave_is_put_right_without_new_traffic",),
    ),
    Guard(
        "limits: a parked message that no flag announces is woken",
        _SWEEP,
        "            if runs:\n                await self._wake(name, runs, patience)\n",
        "",
        (REAL + "test_limits_sweep.py::test_what_crashes_leave_is_put_right_without_new_traffic",),
    ),
    Guard(
        "limits: a sweep takes a parked message for a wake-up",
        "src/tenure/supervisor/sweep.py",
        "                or parked.has(token, state.run_id),\n",
        ",\n",
        (REAL + "test_limits_sweep.py::test_a_sweep_takes_a_parked_message_for_a_wake_up",),
    ),
    Guard(
        "limits: what a run has parked is removed once it is over",
        "src/tenure/supervisor/sweep.py",
        "        await self._places.remove(parked)\n",
        "",
        (REAL + "test_limits_sweep.py::test_what_a_cancelled_run_has_parked_is_removed_though_its_turn_does_not_come",),
    ),
    Guard(
        "limits: a place is not kept for later while others are known to wait",
        _GATES,
        "if not (gate.pace.ahead and (crew or not gate.is_parked)):",
        "if not gate.pace.ahead:",
        (STORE + "test_limits_line.py::test_a_place_is_not_kept_for_later_while_others_wait_for_it",),
    ),
    Guard(
        "limits: a worker that ends gives back what it keeps",
        "src/tenure/worker/service.py",
        "            await self.stores.gates.rest(self.app.config.request_timeout_seconds)\n",
        "            pass\n",
        (REAL + "test_limits_kept.py",),
    ),
    Guard(
        "limits: a worker that ends waits for no server that does not answer",
        _GATES,
        "asyncio.wait(self._tasks, timeout=seconds)",
        "asyncio.wait(self._tasks)",
        (STORE + "test_limits_line.py::test_who_ends_does_not_wait_for_what_gets_no_answer",),
    ),
    Guard(
        "limits: a run gives its places back though its parked message cannot be removed",
        "src/tenure/worker/places.py",
        "        gives = [\n",
        "        if failed:\n            raise failed[0]\n        gives = [\n",
        (f"{REAL}test_limits_ghosts.py::test_a_run_whose_parked_message_cannot_be_removed_gives_its_place_back",),
    ),
    Guard(
        "limits: a run that is given up leaves its places in its process",
        "src/tenure/worker/handler.py",
        "                live.ticket.leave()\n",
        "                pass\n",
        (f"{REAL}test_limits_ghosts.py::test_a_run_that_is_given_up_before_its_body_and_then_over_leaves_its_place",),
    ),
    Guard(
        "limits: a run that cannot give one place back leaves the others too",
        "src/tenure/worker/places.py",
        "            except TenureError as error:\n                failed.append(error)\n",
        "            except TenureError:\n                raise\n",
        (f"{REAL}test_limits_ghosts.py::test_a_run_that_cannot_give_one_place_back_leaves_the_others_too",),
    ),
)
