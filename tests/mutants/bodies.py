"""Guards of fires and bodies: what a deploy leaves of a fire that waits, when a body may start and has ended, and what it owes."""

from __future__ import annotations

from tests.mutants.guard import CORE, REAL, STORE, Guard, unit

_CHAINS = "test_chains.py::"
_DEAD = REAL + "test_scenarios_dead.py::"
_NOT_STARTED = REAL + "test_not_started.py::"
_THREADS = REAL + "test_threads.py::"
_VIRTUAL = "tests/unit/test_virtual_time.py::"
_OWING = REAL + "test_owing.py"
_AGAIN = (
    "            await self.stores.work.nak(live.reply, second_look(delivery.deliveries, self.app.config.ack_wait_seconds))\n"
    "        except TenureError"
)

BODIES = (
    Guard(
        "schedule: a fire that waits is not lost by a deploy",
        CORE + "chains.py",
        "    if record.attempt or record.due <= now:\n        return _goes_on(record, command, now)\n",
        "",
        unit(_CHAINS + "test_a_fire_that_waits_while_code_is_deployed_is_not_lost"),
    ),
    Guard(
        "schedule: a fire that has failed once is not lost by a deploy",
        CORE + "chains.py",
        "    if record.attempt or record.due <= now:",
        "    if record.due <= now:",
        unit(_CHAINS + "test_a_fire_that_waits_while_code_is_deployed_is_not_lost"),
    ),
    Guard(
        "schedule: what was triggered before a deploy goes before the next fire of the newer schedule",
        CORE + "chains.py",
        "    tick = record.tick if is_same else min(record.tick, now)\n",
        "    tick = record.tick\n",
        unit(_CHAINS + "test_a_fire_that_waits_while_code_is_deployed_is_not_lost"),
    ),
    Guard(
        "schedule: what was triggered before a deploy does not repeat the last fire",
        CORE + "chains.py",
        "    tick = record.tick if is_same else min(record.tick, now)\n",
        "    tick = min(record.tick, now)\n",
        unit(_CHAINS + "test_a_trigger_before_a_deploy_does_not_repeat_the_last_fire"),
    ),
    Guard(
        "thread: a call that found none is not made later",
        "src/tenure/worker/threaded.py",
        "        if not self.drop():\n            return\n",
        "        self.drop()\n",
        (_THREADS + "test_a_thread_that_cannot_be_started_costs_no_attempt_and_its_body_does_not_start_later",),
    ),
    Guard(
        "thread: a child's call that found none is not made later",
        "src/tenure/worker/threaded.py",
        "        if not self.drop():\n            return\n",
        "        self.drop()\n",
        (_THREADS + "test_a_thread_that_cannot_be_started_in_a_child_process_costs_no_attempt_either",),
    ),
    Guard(
        "thread: that none can be started is no failure of the body",
        "src/tenure/worker/body.py",
        "            raise Snooze(_NO_THREAD_SECONDS) from None\n",
        "            raise\n",
        (_THREADS + "test_a_thread_that_cannot_be_started_costs_no_attempt_and_its_body_does_not_start_later",),
    ),
    Guard(
        "thread: a call that another thread has found meanwhile is waited for",
        "src/tenure/worker/threaded.py",
        "            if self.drop():  # else",
        "            if True:  # else",
        (_THREADS + "test_a_call_that_a_thread_finds_which_comes_free_in_that_moment_is_waited_for",),
    ),
    Guard(
        "thread: an attempt is not over before it is, whoever cancels",
        "src/tenure/worker/threaded.py",
        "or live.task is None or self.drop():\n",
        "or live.task is None or True:\n",
        (_THREADS + "test_a_stranger_that_cancels_tasks_does_not_end_an_attempt_before_its_thread",),
    ),
    Guard(
        "body: a cancel that is found with one's own claim is obeyed before it starts",
        "src/tenure/worker/handler.py",
        "        if record.phase is Phase.STOPPING:  #",
        "        if False:  #",
        (_NOT_STARTED + "test_a_cancel_that_is_found_with_ones_own_claim_starts_no_body",),
    ),
    Guard(
        "body: none starts after its deadline",
        "src/tenure/worker/handler.py",
        "            if not left:  #",
        "            if False:  #",
        (_NOT_STARTED + "test_no_body_starts_after_its_deadline",),
    ),
    Guard(
        "owed: who owes what cannot be taken is not looked at as often as one whose fate is unknown",
        "src/tenure/worker/service.py",
        "        except StillOwed as error:",
        "        except ZeroDivisionError as error:",
        (_DEAD + "test_runs_that_owe_a_letter_keep_no_others_from_their_slots",),
    ),
    Guard(
        "owed: a stream that refuses is asked once for each letter",
        "src/tenure/nats/dead.py",
        "(1 if self._refuses else _REFUSALS)",
        "_REFUSALS",
        (STORE + "test_dead_faults.py",),
    ),
    Guard(
        "owed: a stream that takes letters again is asked more than once",
        "src/tenure/nats/dead.py",
        "                    self._refuses = False\n",
        "",
        (STORE + "test_dead_faults.py",),
    ),
    Guard(
        "owed: the message of who owes is not acknowledged",
        "src/tenure/worker/service.py",
        _AGAIN,
        "            await self.stores.work.ack(live.reply)\n        except TenureError",
        (_DEAD + "test_runs_that_owe_a_letter_keep_no_others_from_their_slots",),
    ),
    Guard(
        "thread: a run is not taken over by its own process while one of it runs",
        "src/tenure/worker/head.py",
        " and not self._table.goes_on(holder)\n        own_lost",
        "\n        own_lost",
        (_THREADS + "test_a_run_is_not_taken_over_by_its_own_process_while_a_thread_of_it_runs",),
    ),
    Guard(
        "thread: none where the time is virtual",
        "src/tenure/worker/threaded.py",
        "self._loop.run_in_executor(pool, contextvars",
        "pool.submit(contextvars",
        (REAL + "test_memory.py::test_plain_bodies_run_in_the_loop",),
    ),
    Guard(
        "virtual time: what happens while housekeeping is due has happened",
        "src/tenure/testing/virtual.py",
        "        self.virtual.happens()\n",
        "",
        (REAL + "test_memory_time.py::test_a_place_under_a_limit_is_never_idle",),
    ),
    Guard(
        "virtual time: no wait is shorter than what its clocks tell apart",
        "src/tenure/testing/virtual.py",
        "max(delay, _TICK_SECONDS) if delay > 0 else delay",
        "delay",
        (_VIRTUAL + "test_who_waits_for_a_moment_by_the_steady_clock_comes_to_it",),
    ),
    Guard(
        "virtual time: who turns round until a moment is there sees it come",
        "src/tenure/testing/virtual.py",
        "            self._passing.turn()\n",
        "            pass\n",
        (_VIRTUAL + "test_who_turns_round_until_a_moment_is_there_sees_it_come",),
    ),
    Guard(
        "thread: nobody takes the result of a body that has returned",
        "src/tenure/worker/body.py",
        "        while live.task.cancelling():  # a stranger's, of whatever task it found: the body has ended by itself\n"
        "            live.task.uncancel()\n",
        "        raise\n",
        (_THREADS + "test_a_stranger_that_cancels_tasks_does_not_take_the_result_of_a_body_that_has_returned",),
    ),
    Guard(
        "owing: a run that goes on has a wake-up of its own",
        "src/tenure/worker/handler.py",
        "            if done.is_last:\n                raise\n",
        "            raise\n",
        (_OWING,),
    ),
    Guard(
        "owing: an older generation keeps no message",
        "src/tenure/worker/head.py",
        "            if record is None or record.run_id == run_id:\n                raise\n",
        "            raise\n",
        (_OWING,),
    ),
)
