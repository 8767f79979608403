"""Guards against bad input: each kind of it is told where it is given, is parked, or ends one run and harms nothing else."""

from __future__ import annotations

from tests.mutants.guard import CORE, REAL, Guard, unit

BAD = REAL + "test_bad_input.py::"
CALLS = "tests/unit/test_actors.py"
COPIES = REAL + "test_inbox_copies.py::"
NESTED = "test_scenarios_encoding.py::test_scenario_3"

INPUTS = (
    Guard(
        "input: an argument that nobody knows is refused",
        "src/tenure/actors.py",
        "            if name not in self._names:\n",
        "            if False:\n",
        (CALLS + "::test_a_wrong_call_names_its_argument",),
    ),
    Guard(
        "input: an argument that is missing is named",
        "src/tenure/actors.py",
        "            raise InvalidCall(msg, field=missing) from error\n",
        "            raise InvalidCall(msg) from error\n",
        (CALLS + "::test_a_wrong_call_names_its_argument",),
    ),
    Guard(
        "input: an argument of the wrong type is refused where the call is made",
        "src/tenure/actors.py",
        "        try:\n            self._decoder.decode(data)\n        except (msgspec.DecodeError, RecursionError) as error:\n",
        "        try:\n            pass\n        except (msgspec.DecodeError, RecursionError) as error:\n",
        (CALLS + "::test_a_wrong_call_names_its_argument",),
    ),
    Guard(
        "input: what JSON has not is refused, not made null",
        "src/tenure/actors.py",
        '        if b"null" in data or fault(None, data):\n',
        "        if fault(None, data):\n",
        (CALLS + "::test_nan_is_refused_not_made_null",),
    ),
    Guard(
        "input: a time without a zone is refused",
        "src/tenure/times.py",
        '    if at.tzinfo is None or at.utcoffset() is None:\n        msg = f"at=',
        '    if False:\n        msg = f"at=',
        (BAD + "test_a_wrong_option_is_refused_by_name",),
    ),
    Guard(
        "input: a negative delay is refused",
        "src/tenure/times.py",
        '    if seconds < 0:\n        msg = f"delay must not',
        '    if False:\n        msg = f"delay must not',
        (BAD + "test_a_wrong_option_is_refused_by_name",),
    ),
    Guard(
        "input: an empty key is refused",
        CORE + "subjects.py",
        "    if not key:\n",
        "    if False:\n",
        unit("test_subjects.py"),
    ),
    Guard(
        "input: a key that is too long is refused",
        CORE + "subjects.py",
        "    if len(raw) > MAX_KEY_BYTES:\n",
        "    if False:\n",
        unit("test_subjects.py"),
    ),
    Guard(
        "input: a result that JSON has not fails its run",
        "src/tenure/worker/body.py",
        "    why = fault(value, data)\n    if why:\n",
        "    why = fault(value, data)\n    if False:\n",
        (REAL + NESTED + "7_a_result_that_cannot_be_encoded_fails_that_run_at_once",),
    ),
    Guard(
        "input: an exception is stored as text that UTF-8 can carry",
        "src/tenure/worker/body.py",
        '    return text.encode("utf-8", "backslashreplace").decode()\n',
        "    return text\n",
        (REAL + NESTED + "7_any_exception_becomes_a_stored_failure",),
    ),
    Guard(
        "input: a payload over the limit is refused",
        "src/tenure/nats/blobs.py",
        "        if len(data) > limit:\n",
        "        if False:\n",
        (REAL + NESTED + "8_what_is_over_the_blob_limit_is_refused_by_name",),
    ),
    Guard(
        "input: a message over the server's limit never leaves: the server would cut the connection",
        "src/tenure/nats/connection.py",
        "        if len(payload) > self.max_payload:\n",
        "        if False:\n",
        (REAL + NESTED + "8_an_outcome_over_the_servers_limit_is_a_clear_error_and_no_lost_connection",),
    ),
    Guard(
        "input: a foreign message is terminated",
        "src/tenure/worker/service.py",
        '            await work.term(delivery.reply, "not a wake-up of Tenure")\n',
        "",
        (BAD + "test_foreign_messages_are_terminated_counted_and_stop_nobody",),
    ),
    Guard(
        "input: a wake-up of another bucket is not believed",
        "src/tenure/nats/work.py",
        "head.i == self.incarnation",
        "True",
        (BAD + "test_a_wake_up_with_a_wrong_payload_still_starts_its_run",),
    ),
    Guard(
        "input: a record of a newer schema is left alone",
        CORE + "records.py",
        "    if schema > SCHEMA:\n",
        "    if False:\n",
        (BAD + "test_a_newer_record_is_left_alone_and_stops_nobody_else",),
    ),
    Guard(
        "setup: a stream whose files could not be made is made at the next try",
        "src/tenure/nats/topology.py",
        "        if (passes or answer.err_code == _NO_STORE) and await patience.pause():\n",
        "        if passes and await patience.pause():\n",
        (REAL + "test_bad_setup.py::test_a_stream_whose_files_could_not_be_made_at_first_is_made",),
    ),
    Guard(
        "upgrade: what this release cannot read is offered to who can",
        "src/tenure/worker/handler.py",
        '                await self._offers.place(delivery, readers, "newer_schema")\n',
        "                await self._stores.work.nak(live.reply, 1.0)\n",
        (REAL + "test_schemas_rolling.py::test_a_wake_up_whose_record_is_newer_goes_to_who_can_read_it",),
    ),
    Guard(
        "upgrade: what an older release cannot read is taken",
        "src/tenure/worker/handover.py",
        "for wanted in (*actors, *_READERS)]",
        "for wanted in actors]",
        (REAL + "test_schemas_rolling.py::test_this_release_takes_what_an_older_one_could_not_read",),
    ),
    Guard(
        "upgrade: who knows the schema and who knows the actor do not offer to each other for ever",
        "src/tenure/worker/handover.py",
        "Reply.BUSY if delivery.offered else await",
        "await",
        (REAL + "test_schemas_rolling.py::test_two_of_which_each_knows_half_do_not_pass_a_wake_up_to_and_fro",),
    ),
    Guard(
        "input: what is no wake-up ends no worker, whoever published it",
        "src/tenure/nats/work.py",
        "            head = _head.decode(line)\n        except UNREADABLE:\n",
        "            head = _head.decode(line)\n        except ZeroDivisionError:\n",
        ("tests/fuzz/test_whole.py",),
    ),
    Guard(
        "input: a record that another actor is written into under its claim crashes nobody",
        "src/tenure/worker/handler.py",
        "        known = actor in self._app.actors",
        "        known = True",
        (
            REAL
            + "test_unreadable_records.py::test_a_record_that_another_actor_was_written_into_goes_to_those_who_know_it",
        ),
    ),
    Guard(
        "input: a task whose actor nobody here knows is not poison",
        "src/tenure/worker/head.py",
        "            if switch is None and found.record is not None and found.record.task.actor not in self._app.actors:\n",
        "            if False:\n",
        (BAD + "test_a_worker_that_does_not_know_an_actor_hands_it_on_and_never_loses_it",),
    ),
    Guard(
        "input: what one key owes and no message can hold any more keeps nothing from the others",
        "src/tenure/stores.py",
        "            except (\n                InvalidCall,\n                KeyIsLive,\n",
        "            except (\n                KeyIsLive,\n",
        (REAL + "test_outbox.py",),
    ),
    Guard(
        "input: a schedule that cannot be stored ends no supervisor",
        "src/tenure/supervisor/schedules.py",
        "        except TenureError as error:  # this key's trouble",
        "        except ZeroDivisionError as error:  # this key's trouble",
        (REAL + "test_supervisor_unanswered.py::test_what_gets_no_answer_is_told_and_done_at_the_next_look",),
    ),
    Guard(
        "input: a blob of what can be no key ends no supervisor",
        "src/tenure/supervisor/blobs.py",
        "            except InvalidCall:  # it says that it is of what can be no key\n                return None\n",
        "",
        (REAL + "test_blob_expiry.py::test_a_blob_of_what_can_be_no_key_is_left_alone_and_hides_no_other",),
    ),
    Guard(
        "input: a stray that is put off hides none that comes after it",
        "src/tenure/supervisor/commands.py",
        "                sequence = strays[-1].place.sequence + 1\n                continue\n",
        "                pass\n",
        (COPIES + "test_one_of_them_that_cannot_be_carried_out_hides_no_other_and_is_rejected_in_the_end",),
    ),
    Guard(
        "input: a look at a stray counts as a delivery",
        "src/tenure/supervisor/commands.py",
        "            await self._received(replace(stray, deliveries=known.deliveries))\n",
        "            await self._received(stray)\n",
        (COPIES + "test_one_of_them_that_cannot_be_carried_out_hides_no_other_and_is_rejected_in_the_end",),
    ),
    Guard(
        "input: a stray that was put off is left alone for a while",
        "src/tenure/supervisor/commands.py",
        "            stray.again_at = self._stores.clock.steady() + wait\n",
        "            stray.again_at = 0.0\n",
        (COPIES + "test_what_the_server_forgot_and_cannot_be_carried_out_is_not_looked_at_all_the_time",),
    ),
)
