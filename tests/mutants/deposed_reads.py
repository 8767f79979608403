"""Guards of what is decided on a first read, or told with no write: who answers may be a leader that was deposed."""

from __future__ import annotations

from tests.mutants.guard import REAL, STORE, Guard

_READS = REAL + "test_deposed_reads.py::"
_ANSWERS = REAL + "test_deposed_answers.py::"
_OTHERS = REAL + "test_deposed_others.py::"
_BOUNDS = STORE + "test_bounds_deposed.py::"

DEPOSED_READS = (
    Guard(
        "deposed: a cancel of the inbox that finds nothing to do is not acknowledged on one read",
        "src/tenure/supervisor/commands.py",
        "        while unsure and stored and isinstance(result, Declined)",
        "        while False and isinstance(result, Declined)",
        (_ANSWERS + "test_a_cancel_is_not_acknowledged_because_its_run_is_not_shown",),
    ),
    Guard(
        "deposed: what a cancel has found is stored once more where there are copies, and for a new command",
        "src/tenure/supervisor/commands.py",
        "        return self._stores.topology.session_copies > 1 and age < DEPOSED_SECONDS\n",
        "        return age >= 0\n",
        (_ANSWERS + "test_what_is_shown_is_believed_on_one_server_and_of_an_old_command",),
    ),
    Guard(
        "deposed: a submit that comes again joins no run on one read",
        "src/tenure/supervisor/commands.py",
        "and (unsure or not again) else None",
        "and not again else None",
        (_ANSWERS + "test_a_submit_that_comes_again_does_not_join_a_run_that_is_over",),
    ),
    Guard(
        "deposed: what is told without a write is told by who has counted as far as was seen",
        "src/tenure/nats/belief.py",
        "        while (counted := await self.last(patience)) < known:\n",
        "        while (counted := await self.last(patience)) < 0:\n",
        (_ANSWERS + "test_who_has_stored_a_run_is_not_told_that_it_is_not_there",),
    ),
    Guard(
        "deposed: a cancel without a handle is told nothing on one read",
        "src/tenure/client.py",
        "runs.read_for(key, c.Cancel(run_id=run_id), patience, blind=blind, since=since)",
        "runs.read(key, patience, blind=blind, since=since)",
        (_ANSWERS + "test_who_has_stored_a_run_is_not_told_that_it_is_not_there",),
    ),
    Guard(
        "deposed: nor is who starts a run before its time",
        "src/tenure/client.py",
        "stores.runs.read_for(key, c.Trigger(), patience)",
        "stores.runs.read(key, patience)",
        (_ANSWERS + "test_who_has_stored_a_run_is_not_told_that_it_is_not_there",),
    ),
    Guard(
        "deposed: nor is who purges",
        "src/tenure/unread.py",
        "stores.runs.read_for(key, command, patience, blind=blind)",
        "stores.runs.read(key, patience, blind=blind)",
        (_ANSWERS + "test_who_has_stored_a_run_can_purge_it_though_it_is_not_shown",),
    ),
    Guard(
        "deposed: a bucket that counts from the start again is waited for once",
        "src/tenure/nats/belief.py",
        "                self._newest = counted  # it counts from the start again: not waited for a second time\n",
        "",
        (_ANSWERS + "test_a_bucket_that_counts_from_the_start_again_is_believed_and_waited_for_once",),
    ),
    Guard(
        "deposed: [49] a run whose wake-up is here is not over because it is not shown",
        "src/tenure/worker/head.py",
        "read_on(key, delivery.since(self._stores.clock.now()), patience)",
        "read(key, patience)",
        (
            _READS + "test_a_run_of_an_actor_unknown_here_is_not_over_because_it_is_not_shown",
            _READS + "test_an_attempt_of_unknown_fate_is_found_though_its_run_is_not_shown",
        ),
    ),
    Guard(
        "deposed: [49] nor is a large one, which is read before",
        "src/tenure/worker/handler.py",
        "await self._stores.runs.read_on(key, since, patience)",
        "await self._stores.runs.read(key, patience)",
        (_READS + "test_a_large_run_is_not_over_because_an_older_one_is_shown",),
    ),
    Guard(
        "deposed: [49] what is left of an attempt is confirmed though its replace is not shown",
        "src/tenure/worker/head.py",
        "                since=found.revision,\n",
        "",
        (_READS + "test_what_is_left_of_an_attempt_is_confirmed_though_its_replace_is_not_shown",),
    ),
    Guard(
        "deposed: [49] that nothing is there is not believed of who has not counted so far",
        "src/tenure/nats/asking.py",
        'return int(state["last_seq"]) >= since and not',
        "return not",
        (_READS + "test_a_run_of_an_actor_unknown_here_is_not_over_because_it_is_not_shown",),
    ),
    Guard(
        "deposed: [49] nor of one for whom another has counted",
        "src/tenure/nats/asking.py",
        ' and not state.get("subjects")',
        "",
        (_READS + "test_that_nothing_is_there_is_believed_of_nobody_but_who_has_counted_so_far",),
    ),
    Guard(
        "deposed: [49] a body that overstays is not fenced because its claim is not shown",
        "src/tenure/worker/tail.py",
        "patience, since=context.fence)",
        "patience)",
        (_READS + "test_a_body_that_overstays_holds_its_key_though_its_claim_is_not_shown",),
    ),
    Guard(
        "deposed: an old wake-up's revision is not waited for",
        "src/tenure/nats/work.py",
        "self.revision if now - self.stored_at < DEPOSED_SECONDS else 0",
        "self.revision",
        (STORE + "test_work.py::test_a_large_record_travels_by_name_only",),
    ),
    Guard(
        "deposed: a wake-up that carries no record says at which revision its key was",
        "src/tenure/nats/work.py",
        "head.r if ours else 0, bool",
        "head.r if found else 0, bool",
        (STORE + "test_work.py::test_a_large_record_travels_by_name_only",),
    ),
    Guard(
        "deposed: so does one that is offered",
        "src/tenure/nats/handover.py",
        "delivery.reply, delivery.revision)",
        "delivery.reply)",
        (STORE + "test_handover.py::test_an_offer_goes_to_one_of_those_who_know_the_actor",),
    ),
    Guard(
        "deposed: [49] no start is dropped because of one entry that is shown",
        "src/tenure/pacing.py",
        "decided.write or (not pace.seen and _drops(decided))",
        "decided.write",
        (_BOUNDS + "test_no_start_is_dropped_because_of_an_entry_that_a_deposed_leader_shows",),
    ),
    Guard(
        "deposed: [49] nor is one whose older body was confirmed",
        "src/tenure/worker/head.py",
        "await self._stores.runs.read_on(key, result.found.revision, patience)",
        "await self._stores.runs.read(key, patience)",
        (_READS + "test_a_run_whose_older_body_was_confirmed_is_not_over_because_it_is_not_shown",),
    ),
    Guard(
        "deposed: [49] a place is not given back because the run that has it is not shown once",
        "src/tenure/supervisor/places.py",
        "stores.runs.last(patience) >= revision and not await self._is_wanted(name, permit, patience)",
        "stores.runs.last(patience) >= revision",
        (_READS + "test_a_place_is_not_given_back_because_the_run_that_has_it_is_not_shown",),
    ),
    Guard(
        "deposed: [49] nor by who has not counted so far",
        "src/tenure/supervisor/places.py",
        "return await stores.runs.last(patience) >= revision and not",
        "return await stores.runs.last(patience) >= 0 and not",
        (_READS + "test_a_place_is_not_given_back_because_the_run_that_has_it_is_not_shown",),
    ),
    Guard(
        "deposed: that nothing is to be switched is not believed of a first read",
        "src/tenure/nats/switches.py",
        "            if same and proven and found.revision >= since:\n",
        "            if same:\n",
        (_OTHERS + "test_what_is_paused_is_resumed_though_a_deposed_leader_does_not_show_it",),
    ),
    Guard(
        "deposed: what is paused is not changed on what is older than a refusal",
        "src/tenure/nats/switches.py",
        "                found = await self._read_on(since, patience, newer=newer)\n",
        "                found = await self._read(patience)\n",
        (_OTHERS + "test_a_refused_change_is_not_made_again_on_what_is_older_than_its_refusal",),
    ),
    Guard(
        "deposed: what is paused is not changed on what is older than was read before an older refusal",
        "src/tenure/nats/switches.py",
        "            since = max(since, found.revision, swapped.met)\n",
        "            since = swapped.met\n",
        (_OTHERS + "test_what_a_deposed_leader_refuses_is_not_decided_on_what_it_shows",),
    ),
    Guard(
        "deposed: what names nothing newer as it refuses proves nothing of what is paused",
        "src/tenure/nats/switches.py",
        "            newer = swapped.met > found.revision\n",
        "            newer = True\n",
        (_OTHERS + "test_a_change_that_a_deposed_leader_refuses_is_made_again_after_a_pause",),
    ),
    Guard(
        "deposed: a change of what is paused that nobody can find again has no known fate",
        "src/tenure/nats/switches.py",
        "                if not unsure:\n                    raise\n",
        "                raise\n",
        (_OTHERS + "test_a_change_whose_answer_is_lost_and_that_cannot_be_found_again_has_no_known_fate",),
    ),
    Guard(
        "deposed: a session is not gone because nothing as new as its refusal has met is shown",
        "src/tenure/lease.py",
        "if found.revision < met or (not",
        "if (not",
        (_OTHERS + "test_a_session_whose_renewal_was_not_answered_is_not_given_up_on_what_is_older",),
    ),
    Guard(
        "deposed: a session is not gone because a leader that never had it refuses its renewal",
        "src/tenure/lease.py",
        " or (not found.revision and not await sessions.is_gone(self.id, self._revision, once))",
        "",
        (_OTHERS + "test_a_session_is_not_given_up_because_a_leader_without_it_has_refused_its_renewal",),
    ),
    Guard(
        "deposed: a session is not renewed without a pause on what was refused already",
        "src/tenure/lease.py",
        "        pause = 0.0 if seen.revision > self._revision else _RETRY_SECONDS",
        "        pause = 0.0",
        (_OTHERS + "test_a_session_that_is_gone_is_noticed_though_a_deposed_leader_still_shows_it",),
    ),
)
