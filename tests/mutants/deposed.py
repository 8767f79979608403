"""Guards against a leader that was deposed and does not know it yet: what it does not show is not gone, what it shows may be old."""

from __future__ import annotations

from tests.mutants.guard import REAL, STORE, Guard

_INBOX = STORE + "test_inbox.py::test_that_a_command_is_gone_is_believed_of_nobody_who_has_never_had_it"
_DEAD = (
    STORE + "test_dead_faults.py::test_that_there_is_no_letter_is_not_believed_at_once_of_who_shows_no_marker_either"
)
_RUNS = STORE + "test_runs.py::test_nothing_older_is_read_than_what_the_key_is_known_to_have_had_until_it_stays_so"
_HANDLE = REAL + "test_deposed.py::test_whoever_has_a_run_is_not_told_what_was_before_it"
_OUTBOX = REAL + "test_outbox.py::test_what_a_deposed_leader_does_not_show_as_owed_is_not_cleared_unpaid"
_FORGET = (
    REAL + "test_outbox.py::test_what_a_deposed_leader_does_not_show_as_owed_is_not_forgotten_where_it_was_applied"
)

_REFUSED = REAL + "test_deposed_refusals.py::"
_BOUNDS = STORE + "test_bounds_deposed.py::"

DEPOSED = (
    Guard(
        "deposed: [48] nothing is decided on what is older than what a refused write has met",
        "src/tenure/nats/runs.py",
        "await self.read_on(key, max(min(found.revision, self._newest), met), patience, blind=blind)",
        "await self.read(key, patience, blind=blind)",
        (
            _REFUSED + "test_an_outcome_is_not_void_because_nothing_or_an_older_run_is_shown",
            _REFUSED + "test_a_claim_whose_answer_was_lost_is_known_though_no_such_key_is_shown",
            _REFUSED + "test_a_submit_does_not_join_a_run_whose_result_is_known",
            _REFUSED + "test_a_refused_write_is_not_made_again_on_what_is_older_than_its_refusal",
        ),
    ),
    Guard(
        "deposed: what a refusal has met is believed though its reader has never seen it",
        "src/tenure/nats/swaps.py",
        "int(met) if met.isdecimal() else 0",
        "0",
        (_REFUSED + "test_a_submit_does_not_join_a_run_whose_result_is_known",),
    ),
    Guard(
        "deposed: a debt that its key does not show is not taken for cleared",
        "src/tenure/stores.py",
        "await self.runs.commit(origin, cleared, patience=patience, since=revision)",
        "await self.runs.commit(origin, cleared, patience=patience)",
        (_REFUSED + "test_a_debt_is_not_taken_for_cleared_because_its_key_does_not_show_it",),
    ),
    Guard(
        "deposed: that an outcome cannot be stored is stored though the run is not shown",
        "src/tenure/worker/tail.py",
        "command, patience=patience, since=at.revision)",
        "command, patience=patience)",
        (_REFUSED + "test_that_an_outcome_cannot_be_stored_is_stored_though_the_run_is_not_shown",),
    ),
    Guard(
        "deposed: a body is confirmed though the replace that it ends for is not shown",
        "src/tenure/worker/handler.py",
        "where=void.where, since=void.revision",
        "where=void.where",
        (_REFUSED + "test_a_body_is_confirmed_though_the_replace_that_it_ends_for_is_not_shown",),
    ),
    Guard(
        "deposed: an attempt that was given up is not over because its key is not shown",
        "src/tenure/worker/remnants.py",
        "await self._stores.runs.read_on(key, claim, patience)",
        "await self._stores.runs.read(key, patience)",
        (_REFUSED + "test_an_attempt_that_was_given_up_is_not_over_because_its_key_is_not_shown",),
    ),
    Guard(
        "deposed: one that was given up is confirmed though its replace is not shown",
        "src/tenure/worker/remnants.py",
        "holder, patience, since=found.revision)",
        "holder, patience)",
        (_REFUSED + "test_an_attempt_that_was_given_up_is_confirmed_though_its_replace_is_not_shown",),
    ),
    Guard(
        "deposed: places are not counted by an entry older than the last one seen",
        "src/tenure/gates.py",
        "patience, max(gate.seen, found.revision, met))",
        "patience)",
        (_BOUNDS + "test_places_are_not_counted_by_an_entry_older_than_ones_own_write",),
    ),
    Guard(
        "deposed: nor by one that is read again after an error",
        "src/tenure/gates.py",
        "await self._limits.read(name, patience, gate.seen), 0",
        "await self._limits.read(name, patience), 0",
        (_BOUNDS + "test_places_are_not_counted_by_an_entry_older_than_ones_own_write",),
    ),
    Guard(
        "deposed: nor is a start kept by one that is read again after an error",
        "src/tenure/pacing.py",
        "await self._rates.read(name, patience, pace.seen), 0",
        "await self._rates.read(name, patience), 0",
        (_BOUNDS + "test_a_place_is_given_back_though_what_is_read_after_an_error_does_not_show_it",),
    ),
    Guard(
        "deposed: a start is not written again on an entry older than its refusal",
        "src/tenure/pacing.py",
        "patience, max(pace.seen, found.revision, met))",
        "patience)",
        (_BOUNDS + "test_a_refused_start_is_not_written_again_on_what_is_older_than_its_refusal",),
    ),
    Guard(
        "deposed: who has counted so far is believed: what was there has expired or was removed",
        "src/tenure/nats/asking.py",
        "if leader.last >= since and leader.there == bool(shown.revision):",
        "if False:",
        (REAL + "test_gone.py",),
    ),
    Guard(
        "limits: one that is busy keeps no others remembered",
        "src/tenure/gates.py",
        "next((one for one, known in self._gates.items() if known.idle), None)",
        "next((one for one, known in list(self._gates.items())[:1] if known.idle), None)",
        (_BOUNDS + "test_one_that_is_busy_keeps_no_others_remembered",),
    ),
    Guard(
        "rates: one that is waited for keeps no others remembered",
        "src/tenure/pacing.py",
        "next((one for one, known in self._paces.items() if known.idle), None)",
        "next((one for one, known in list(self._paces.items())[:1] if known.idle), None)",
        (_BOUNDS + "test_a_rate_that_is_waited_for_keeps_no_others_remembered",),
    ),
    Guard(
        "limits: what is left of a place that could not be given back is forgotten",
        "src/tenure/gates.py",
        "            if not crew:\n                del gate.crews[give.session]\n",
        "",
        (_BOUNDS + "test_what_is_left_of_a_place_that_could_not_be_given_back_is_forgotten",),
    ),
    Guard(
        "deposed: that a command is gone is believed of who has had it",
        "src/tenure/nats/inbox.py",
        "            if place.sequence == 0 or code == NO_STREAM or (code == NO_MESSAGE and had):\n",
        "            if place.sequence == 0 or code in {NO_MESSAGE, NO_STREAM}:\n",
        (_INBOX,),
    ),
    Guard(
        "deposed: who has counted so far is asked once more whether it shows the command",
        "src/tenure/nats/inbox.py",
        "                if had:  # this one is asked: between the two answers another may have become the leader\n"
        "                    continue\n",
        "                if had:\n                    return False\n",
        (_INBOX,),
    ),
    Guard(
        "deposed: a command that the inbox does not show is not acknowledged",
        "src/tenure/supervisor/commands.py",
        "        return result if stored else None\n",
        "        return result\n",
        (REAL + "test_inbox_crashes.py::test_what_the_inbox_does_not_show_is_not_acknowledged",),
    ),
    Guard(
        "deposed: a replay that has started nothing removes no letter",
        "src/tenure/dead.py",
        "        if not there:  # nothing was started, so nothing is removed\n",
        "        if False:\n",
        (REAL + "test_scenarios_dead_replay.py::test_a_replay_that_does_not_find_its_letter_again_removes_none",),
    ),
    Guard(
        "deposed: a replay asks again for a letter of which there is no marker",
        "src/tenure/nats/dead.py",
        "            if found is not None or not await patience.pause():\n",
        "            if True:\n",
        (_DEAD, REAL + "test_scenarios_dead_replay.py::test_a_replay_that_does_not_find_its_letter_again_removes_none"),
    ),
    Guard(
        "deposed: a supervisor asks again for a replayed letter of which there is no marker",
        "src/tenure/nats/dead.py",
        "        while await self._next(wanted, 1, patience) is None and await patience.pause():\n",
        "        while False:\n",
        (_DEAD,),
    ),
    Guard(
        "deposed: a read is not older than what the key is known to have had",
        "src/tenure/nats/runs.py",
        "            if since and (absent or (got.message is not None and got.message.seq < since)) and await patience.pause():\n",
        "            if False:\n",
        (_RUNS, _HANDLE),
    ),
    Guard(
        "deposed: who follows a key is shown nothing older than it is known to have had",
        "src/tenure/nats/changes.py",
        "        if found.revision >= max(self._newest, self._since):\n",
        "        if found.revision >= self._newest:\n",
        (_RUNS,),
    ),
    Guard(
        "deposed: what is older is believed once it stays so",
        "src/tenure/nats/changes.py",
        "        if now - self._gone_since < _SURE_SECONDS:\n",
        "        if now - self._gone_since < _SURE_SECONDS or found.revision:\n",
        (_RUNS,),
    ),
    Guard(
        "deposed: a handle knows at which revision it was made",
        "src/tenure/run.py",
        "            run_id=run_id,\n            since=since,\n",
        "            run_id=run_id,\n",
        (_HANDLE,),
    ),
    Guard(
        "deposed: a handle that is bound knows at which revision it was",
        "src/tenure/run.py",
        "        self._made_at, self._known = self._client.stores.clock.steady(), revision\n",
        "",
        (_HANDLE,),
    ),
    Guard(
        "deposed: an old handle believes at once that its record is gone",
        "src/tenure/run.py",
        "        return self._known if age < DEPOSED_SECONDS else 0\n",
        "        return self._known if age < 1e9 else 0\n",
        (REAL + "test_deposed.py::test_an_old_handle_believes_at_once_that_its_record_is_gone",),
    ),
    Guard(
        "deposed: a handle that follows is bound to no older run than superseded it",
        "src/tenure/run.py",
        "                since = superseded.revision or 0\n",
        "                since = 0\n",
        (REAL + "test_deposed.py::test_a_handle_that_follows_is_bound_to_no_older_run_than_superseded_it",),
    ),
    Guard(
        "deposed: who was shown what is older asks again soon",
        "src/tenure/nats/changes.py",
        "                seconds = min(seconds, _DOUBT_SECONDS)\n",
        "                pass\n",
        (_RUNS,),
    ),
    Guard(
        "deposed: what an older record of the origin does not owe is asked for again",
        "src/tenure/stores.py",
        "            found = await self.runs.read(origin, self.runs.patience(), since=revision)\n",
        "            pass\n",
        (_OUTBOX,),
    ),
    Guard(
        "deposed: what an older record of the origin does not owe is not cleared",
        "src/tenure/stores.py",
        "        if found.revision < revision:\n            raise Unavailable(",
        "        if False:\n            raise Unavailable(",
        (_OUTBOX,),
    ),
    Guard(
        "deposed: that a debt is paid is believed of who has had what it paid for",
        "src/tenure/supervisor/keepers.py",
        "        if await self._stores.runs.last(patience) < found.revision:  # the next sweep asks again\n            return False\n"
        "        return not await self._owes(seen, patience)",
        "        return True",
        (_FORGET,),
    ),
)
